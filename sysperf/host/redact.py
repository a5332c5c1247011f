"""What other processes say is kept only as far as it explains performance. Secrets never pass this door.

Three signs give a secret away: what it is named (``--token X``, ``API_KEY=X``), where it stands (a login in a URL,
what follows ``Bearer``), and its shape (``hf_…``, ``AKIA…``, a JWT, a long random word). In doubt we hide.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sysperf.host.extracts import extract_for
from sysperf.startup import lazy

HIDDEN = "<hidden>"

_KEPT_PREFIXES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "BLIS_", "VECLIB_", "ATEN_", "ONEDNN_", "DNNL_",
    "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "TORCH", "PYTORCH_", "TRITON_", "KINETO_",
    "MALLOC_", "TCMALLOC_", "MIMALLOC_", "THP_MEM_ALLOC_", "NVTX_INJECTION",
    "OMPI_COMM_WORLD_", "MPI_LOCAL", "MV2_COMM_WORLD_", "PALS_", "FLUX_TASK_", "FLUX_JOB_SIZE", "FLUX_JOB_NNODES",
    "SLURM_STEP_", "HSA_", "HIP_", "ROCR_", "MIOPEN_",
)  # fmt: skip
_KEPT_NAMES = frozenset((
    "SYSPERF_WRAPPED", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_BIND_NOW", "GLIBC_TUNABLES", "JE_MALLOC_CONF", "GOTO_NUM_THREADS",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
    "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONTRACEMALLOC", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER",
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "TMPDIR",
    "TOKENIZERS_PARALLELISM", "ACCELERATE_USE_CPU", "NV_INJECTION64_PATH",
    "SLURM_STEPID", "SLURM_JOB_ID",
    "SLURM_CPUS_PER_TASK", "SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_CPU_BIND_LIST", "SLURM_CPUS_ON_NODE",
    "SLURM_JOB_CPUS_PER_NODE", "SLURM_GPUS_ON_NODE", "SLURM_GPU_BIND", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE", "SLURM_PROCID", "SLURM_STEP_GPUS", "SLURM_TASKS_PER_NODE", "SLURM_MEM_BIND",
    "SLURM_THREADS_PER_CORE", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SRUN_CPUS_PER_TASK",
))  # fmt: skip

# What a secret is called
_SECRET_ANYWHERE = lazy(r"(?i)secret|passw|passphrase|credential|cookie|bearer|(?:api|access|private)[-_.]?key|(?:auth|access)[-_.]?token")
_SECRET_LAST = frozenset(("token", "key", "pass", "pwd", "pw", "auth", "authorization", "sig", "signature", "sas", "jwt", "pat"))
_NOT_SECRET = frozenset((
    "max", "min", "num", "per", "eos", "bos", "pad", "unk", "sep", "cls", "mask", "stop", "special", "image",
    "sort", "primary", "foreign", "public",
))  # fmt: skip
_WORDS = lazy(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NAME = lazy(r"-{0,2}[\w.-]+")
_SHELL_STRING = lazy(r"-[a-zA-Z]*c")

# Where a secret stands: behind the name that group 1 of the first pattern holds
_VALUE = r"""(?:(["'])(?:(?!\1)[^\\\0]|\\.)*\1|[^\s\0]+)"""
_NAMED = tuple(
    (lazy(name), lazy(value, re.DOTALL))
    for name, value in (
        (r"(?<![\w.-])([\w.-]+)[\"')\]]{0,3}(?: = |=)", _VALUE),  # API_KEY=X, --token=X, ?sig=X, os.environ["TOKEN"] = "X"
        (
            r"(?<![^\s\0\"'{,\[(])([\w.-]+)[\"']?: {0,3}",
            r"""(?:(["'])(?:(?!\1)[^\\\0]|\\.)*\1|[^"'\n\0]+)""",
        ),  # Authorization: X, {"api_key": "X"}
        (r"(?<![^\s\0\"'(])(--?[A-Za-z][\w.-]*)[ \t]+(?!-)", _VALUE),  # --token X
    )
)
_MOUNT_OPTION = lazy(r"(?<![\w.-])([\w.-]+)=(?:[^\s,]|,,)+")
_LOGIN = lazy(r"([A-Za-z][\w+.-]{1,20}://|\biscsi:)(?:[^/\s\0\"]{0,400}|[^/\s\0:@]{0,100}:(?!\d{1,5}/)[^\s\0@]{0,400})@")
_SCHEME = lazy(r"(?i)\b((?:bearer|basic|digest)[ \0]+)[^\s\0\"']+")
_BETWEEN = r"(?:[\s\0]+[^\s\0;|&]+){0,40}?[\s\0]+"
_TOOL = lazy(
    rf"(?<![\w.-])((?:sshpass|mysql\w{{0,12}}|mariadb\w{{0,12}}|(?:docker|podman)[\s\0]+login){_BETWEEN}-p[\s\0]?"
    rf"|redis-cli{_BETWEEN}-a[\s\0]?|(?:curl|wget){_BETWEEN}(?:-u|--user|--proxy-user)[\s\0]?|ldap\w{{0,12}}{_BETWEEN}-w[\s\0]?)[^\s\0]+"
)

# What a secret looks like
_SHAPE = lazy(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:hf|gh[pousr]|npm|r8|gsk|lip)_(?:[A-Za-z0-9]{16,}|(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,})|github_pat_\w{10,}|dop_v1_\w{10,}|[sprw]k_(?:live|test)_\w{10,}"
    r"|sk-(?=[\w-]{0,99}\d)[\w-]{12,}|(?:glpat|nvapi|xox[abeoprs]|tskey|pypi-Ag)-?[\w-]{10,}"
    r"|(?:AKIA|ASIA|AGPA|AROA|AIDA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{10,}|hv[bs]\.[\w-]{20,}|SG\.[\w-]{10,}\.[\w-]{10,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}[\w.-]*)"
    r"|-----BEGIN [A-Z ]{3,40}-----(?:(?!-----END).){1,20000}(?:-----END [A-Z ]{3,40}-----)?",
    re.DOTALL,
)
_SHORT = lazy(r"[A-Za-z0-9.,/-]{0,14}")  # no room for a key, no sign of a name
_URL = lazy(r"[A-Za-z][\w+.-]{1,20}://[^\s\0\"']+")
_LONG = lazy(r"(?<![\w+/.~-])(?<!sha256:)[A-Za-z0-9+_-][\w+/-]{19,}={0,2}")
_COMPONENT = lazy(r"[\w+-]{20,}={0,2}")
_UUID = lazy(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_COMMIT = lazy(r"(?:git|[-+]g|sha256)[0-9a-f]{7,64}")
_PIECE = lazy(r"[A-Za-z0-9]+")
_READABLE_PART = lazy(r"(?:^|/)[A-Z]?[a-z]{3,}(?:[/_-]|$)")
_SPELLED = lazy(r"[A-Z]?[a-z]{3,}|[A-Z][a-z]{2}")
_TURN = lazy(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[0-9]|(?<=[0-9])[A-Za-z]")

_OF_KERNEL = ("/sys/", "/proc/sys/")
_GUESSABLE, _UNBROKEN = 20, 36
_LONGEST = 32_768
"""A longer command line or variable is cut: the rest explains nothing, and hostile ones would cost us time."""
_MOST = 65_536
"""So much of all variables of a process together."""


def clean(path: str, raw: bytes) -> bytes:
    """What may be kept of a file."""
    name = path[path.rfind("/") + 1 :]
    if cleaner := _CLEANERS.get(name):
        return cleaner(raw)
    extract = extract_for(name) if not path.startswith(_OF_KERNEL) else None
    return extract(raw.decode("utf-8", "replace")).encode() if extract else raw


def environment(raw: bytes) -> bytes:
    """The performance variables of a NUL-separated environment block; all else, secrets included, is dropped."""
    kept = []
    left = _MOST
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and len(value) <= _LONGEST and keeps(name.decode("utf-8", "replace")) and (left := left - len(entry)) >= 0:
            kept.append(name + b"=" + text(value.decode("utf-8", "replace")).encode())
    return b"\0".join(kept)


def keeps(name: str) -> bool:
    """Whether a variable of this name explains performance and is no secret."""
    return (name in _KEPT_NAMES or name.startswith(_KEPT_PREFIXES)) and not _names_secret(name)


def arguments(raw: bytes) -> bytes:
    """A NUL-separated command line (or a line of text, as the kernel's is) without secrets."""
    if len(raw) > _LONGEST:
        raw = raw[: raw.rfind(b"\0" if b"\0" in raw[:_LONGEST] else b" ", 0, _LONGEST) + 1]
    line = _TOOL.sub(rf"\1{HIDDEN}", raw.decode("utf-8", "replace"))
    if "\0" not in line:
        return text(line).encode()
    words = line.split("\0")
    return "\0".join(map(_argument, words, ("", *words))).encode()


def _argument(argument: str, previous: str) -> str:
    if argument and not argument.startswith("--") and previous.startswith("-") and _NAME.fullmatch(previous) and _names_secret(previous):
        return HIDDEN
    name, equals, _ = argument.partition("=")
    if equals and not _SHELL_STRING.fullmatch(previous) and _NAME.fullmatch(name) and _names_secret(name):
        return f"{name}={HIDDEN}"
    return text(argument)


def _names_secret(name: str) -> bool:
    if _SECRET_ANYWHERE.search(name):
        return True
    words = [word.lower() for word in _WORDS.findall(name)]
    return bool(words) and words[-1] in _SECRET_LAST and _NOT_SECRET.isdisjoint(words)


def mounts(raw: bytes) -> bytes:
    """A mount table without logins and without options that are secrets; its long paths stay."""
    shown = _without_logins(raw.decode("utf-8", "replace"))
    return _MOUNT_OPTION.sub(lambda option: f"{option[1]}={HIDDEN}" if _names_secret(option[1]) else option[0], shown).encode()


def text(value: str) -> str:
    """Any text without logins in URLs, values that are named as secrets, and words shaped like keys."""
    if _SHORT.fullmatch(value):
        return value
    value = _SHAPE.sub(HIDDEN, _SCHEME.sub(rf"\1{HIDDEN}", _without_logins(value)))
    for names, values in _NAMED:
        value = _without_values(value, names, values)
    if "://" in value:
        value = _URL.sub(lambda url: _COMPONENT.sub(_unless_random, url[0]), value)
    return _LONG.sub(_unless_random, value)


def _without_logins(line: str) -> str:
    return _LOGIN.sub(rf"\1{HIDDEN}@", line) if "@" in line else line


def _without_values(line: str, names: re.Pattern[str], values: re.Pattern[str]) -> str:
    shown: list[str] = []
    at = 0
    for name in names.finditer(line):
        if name.start() >= at and _names_secret(name[1]) and (value := values.match(line, name.end())):
            quote = value[1] if value.re.groups and value[1] else ""
            shown += line[at : name.end()], quote, HIDDEN, quote
            at = value.end()
    return "".join((*shown, line[at:]))


def _unless_random(word: re.Match[str]) -> str:
    return HIDDEN if _random(word[0]) else word[0]


def _random(word: str) -> bool:
    """Whether a long word is made by a machine to be unguessable: mixed, hardly readable, or without any break.

    Of 34,639 long words in PyTorch's sources, 0.3 % pass for random; of random base62 words of 32 letters, 99 % do.
    """
    if "/" in word and _READABLE_PART.search(word):
        return False  # a path, not base64
    word = _COMMIT.sub("", _UUID.sub("", word)).replace("/", "").replace("+", "")
    pieces = _PIECE.findall(word)
    count = sum(map(len, pieces))
    longest = max((len(piece) for piece in pieces if not piece.isalpha() and not piece.isdigit()), default=0)
    if count < _GUESSABLE or longest < _GUESSABLE / 2:
        return False
    readable = sum(map(len, _SPELLED.findall(word)))
    return longest >= _UNBROKEN or readable < 0.6 * count or len(_TURN.findall(word)) >= 0.3 * count


_CLEANERS: dict[str, Callable[[bytes], bytes]] = {
    "environ": environment,
    "cmdline": arguments,
    "mounts": mounts,
    "mountinfo": mounts,
    "mountstats": mounts,
    "fstab": mounts,
    "mtab": mounts,
}
