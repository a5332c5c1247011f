"""What other processes say is kept only as far as it explains performance. Secrets are removed here."""

from __future__ import annotations

from collections.abc import Callable

from sysperf.host.extracts import extract_for
from sysperf.host.secret_words import names_secret, without_keys, without_literals, without_logins
from sysperf.model.text import HIDDEN
from sysperf.startup import lazy

__all__ = ("HIDDEN", "arguments", "clean", "environment", "keeps", "mounts", "source_line", "text")

_KEPT_PREFIXES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "BLIS_", "VECLIB_", "ATEN_", "ONEDNN_", "DNNL_",
    "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "GLOO_", "UCX_", "TORCH", "PYTORCH_", "TRITON_", "KINETO_", "NSYS_PROFILING_",
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

_MOUNT_OPTION = lazy(r"(?<![\w.-])([\w.-]+)=(?:[^\s,]|,,)+")
_OF_KERNEL = ("/sys/", "/proc/sys/")
MAX_VARIABLE_BYTES = 32_768
"""A longer variable is dropped: it explains nothing, and hostile ones would cost time."""
MAX_SOURCE_CHARS = 2_000
"""So much of a line of source is looked at, and shown."""
MAX_ENVIRONMENT_BYTES = 65_536
"""So much of all variables of a process together."""


def clean(path: str, raw: bytes) -> bytes:
    """What may be kept of a file."""
    if path == "/proc/cmdline":
        return without_keys(raw[:MAX_VARIABLE_BYTES].decode("utf-8", "replace")).encode()  # root wrote it
    name = path[path.rfind("/") + 1 :]
    if cleaner := _CLEANERS.get(name):
        return cleaner(raw)
    extract = extract_for(name) if not path.startswith(_OF_KERNEL) else None
    return extract(raw.decode("utf-8", "replace")).encode() if extract else raw


def environment(raw: bytes) -> bytes:
    """The performance variables of a NUL-separated environment block; all else, secrets included, is dropped."""
    kept = []
    left = MAX_ENVIRONMENT_BYTES
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and len(value) <= MAX_VARIABLE_BYTES and keeps(name.decode("utf-8", "replace")) and (left := left - len(entry)) >= 0:
            kept.append(name + b"=" + text(value.decode("utf-8", "replace")).encode())
    return b"\0".join(kept)


def keeps(name: str) -> bool:
    """Whether a variable of this name explains performance and is no secret."""
    return (name in _KEPT_NAMES or name.startswith(_KEPT_PREFIXES)) and not names_secret(name)


def arguments(raw: bytes) -> bytes:
    """A NUL-separated command line, of which only what is known to be harmless is left."""
    from sysperf.host import command_lines  # noqa: PLC0415 - 1,000 words that most starts of a program need not know

    return command_lines.arguments(raw)


def mounts(raw: bytes) -> bytes:
    """A mount table without logins and without options that are secrets; its long paths stay."""
    text = without_logins(raw.decode("utf-8", "replace"))
    return _MOUNT_OPTION.sub(lambda option: f"{option[1]}={HIDDEN}" if names_secret(option[1]) else option[0], text).encode()


def text(value: str) -> str:
    """Any text without logins in URLs, values that are named as secrets, and words shaped like keys."""
    return without_keys(value)


def source_line(line: str) -> str:
    """A line of somebody's program as reports show it: its literals may be passwords."""
    return without_literals(line[:MAX_SOURCE_CHARS].strip())


_CLEANERS: dict[str, Callable[[bytes], bytes]] = {
    "environ": environment,
    "cmdline": arguments,
    "mounts": mounts,
    "mountinfo": mounts,
    "mountstats": mounts,
    "fstab": mounts,
    "mtab": mounts,
}
