"""torch: the PyTorch installations of this machine, read from their files. Nothing is imported; `--deep` asks the interpreter.

Reads   */site-packages/torch/{version.py,lib}  */site-packages/*.dist-info/{METADATA,INSTALLER}  */conda-meta
Format  https://packaging.python.org/en/latest/specifications/recording-installed-packages/
PyTorch https://github.com/pytorch/pytorch/blob/main/RELEASE.md
"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Protocol
from weakref import WeakKeyDictionary

from sysperf.collect.python import CXX_COMPILERS, Environment, Shell, active_prefix, discover, environment_at, shell_of
from sysperf.collect.readers.mounts import mount_of
from sysperf.collect.torch.probe import ask
from sysperf.collect.torch.records import LOCKS, VERSION, Companion, Copy, Deep, Install, Package, Pin
from sysperf.collect.torch.site_packages import Site, conda_blas, openmp_runtimes
from sysperf.collect.torch.wheels import capabilities, gpu_code
from sysperf.host import Host
from sysperf.model.record import Record, fact
from sysperf.model.requirement import fits
from sysperf.model.text import neutral
from sysperf.procfs import torch_version
from sysperf.startup import lazy

MAX_PROBED = 3
MAX_SOURCE = 1 << 16
MAX_RUNNING = 16
COMPANIONS = (
    "torchvision", "torchaudio", "torchtext", "torchcodec", "torchdata", "torchao", "xformers", "vllm", "sglang", "flash-attn",
    "torch-scatter", "torch-sparse", "torch-cluster", "pyg-lib", "torchrec", "fbgemm-gpu", "torch-tensorrt",
)  # fmt: skip
EXTENSIONS = (
    "flash-attn", "xformers", "apex", "transformer-engine", "deepspeed", "bitsandbytes", "vllm", "torchao", "causal-conv1d",
    "mamba-ssm", "flashinfer-python", "torch-scatter", "torch-sparse",
)  # fmt: skip
IMAGE_DECODERS = (
    "pillow-simd",
    "torchcodec",
    "nvidia-dali-cuda110",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
    "pyturbojpeg",
    "kornia-rs",
)
PINNED = ("nvidia-", "cuda-", "triton", "pytorch-triton")
VENV_NAMES = ("/.venv", "/venv", "/env", "/.env")
PROJECT_FILES = ("pyproject.toml", "requirements.txt", "pixi.toml")

_OFFICIAL = lazy(r"cpu|cu[0-9]{2,3}|rocm[0-9.]{1,12}|xpu")
_FROM_CHANNEL = lazy(r"^\+(\S{1,300})/[a-z0-9-]{1,30}::(\S{1,300})$", re.MULTILINE)
_PYTORCH_CHANNEL_BUILD = lazy(r"py3\.[0-9]{1,2}_(?:cpu|cuda[0-9.]{1,12}_cudnn[0-9.]{1,12})_[0-9]{1,4}")
_CUDA_MAJOR = lazy(r"-cu([0-9]{2})$")
_BUILT_FOR = lazy(r"torch([0-9]\.[0-9]{1,2})|(?:^|\.)pt([0-9])([0-9]{1,2})cu")
_EDITABLE = lazy(r"__editable__\.torch-[^/]{1,200}\.pth|__editable___torch_[^/]{1,200}_finder\.py|torch\.egg-link")
_EDITABLE_SOURCE = lazy(r"['\"]torch['\"]: ?['\"](/[^'\"]{1,1000})['\"]")
_PINNED_TORCH = lazy(r"^torch[ \t]*(?:\[[^\]\n]{0,40}\])?[ \t]*===?[ \t]*[0-9]", re.MULTILINE)
_DEBIAN_BLAS = (("openblas", "openblas"), ("blis", "blis"), ("atlas", "atlas"), ("mkl", "mkl"), ("/blas/", "reference"))


_READ: "WeakKeyDictionary[Host, dict[str, Install]]" = WeakKeyDictionary()


class Torch(Record):
    """PyTorch installations, the shell's own first."""

    installs: Annotated[tuple[Install, ...], fact("installations found", VERSION)]
    environments_without: Annotated[int, fact("Python environments without torch", VERSION)] = 0


def collect(host: Host) -> Torch:
    """Find the installations. Raises Missing in a capture that holds no Python environment."""
    shell, found, _ = discover(host)
    installs: dict[str, Install] = {}
    without = 0
    for environment in found:
        copies = _copies(host, environment)
        without += not copies
        for site in copies:
            if site not in installs:
                deep = bool(getattr(host, "deep", False)) and len(installs) < MAX_PROBED
                installs[site] = _install(host, shell, _Place(environment, site, copies, shell), deep=deep)
    _READ[host] = dict(installs)
    return Torch(tuple(installs.values()), without)


class Program(Protocol):
    """What is to be known of a running program: `sysperf.collect.process.Process` says it."""

    @property
    def pid(self) -> int: ...
    @property
    def user(self) -> int | None: ...
    @property
    def torch_prefix(self) -> str: ...
    @property
    def torch_version(self) -> str | None: ...


def with_running(host: Host, torch: Torch, programs: Iterable[Program]) -> Torch:
    """The same with the installations that programs run from and that lie where nobody looks.

    A program in a container names a folder that may be another one here: its version tells. Each folder is read with the
    rights of the user whose program names it.
    """
    known = {"", *(install.prefix for install in torch.installs)}
    missing = {
        (program.torch_prefix, program.torch_version, program.user): program.pid
        for program in programs
        if program.torch_prefix not in known
    }
    found: list[tuple[Install | None, str | None]] = []
    for (prefix, version, _), pid in list(missing.items())[:MAX_RUNNING]:
        with host.as_owner_of(pid):
            found.append((install_at(host, prefix), version))
    more = {install.site_packages: install for install, version in found if install is not None and install.version == version}
    there = {install.site_packages for install in torch.installs}
    return Torch((*torch.installs, *(more[site] for site in more if site not in there)), torch.environments_without)


def install_at(host: Host, where: str) -> Install | None:
    """The installation at a prefix, or around a path in its site-packages; None when there is none.

    For the libraries that running processes map: what `collect` has read already is not read again.
    """
    known = _READ.setdefault(host, {})
    found = next((install for site, install in known.items() if where.startswith(f"{site}/")), None)
    if found is None and (found := _read_at(host, where)) is not None:
        known[found.site_packages] = found
    return found


def _read_at(host: Host, where: str) -> Install | None:
    shell = shell_of(host)
    environment = environment_at(host, where, shell, active_prefix(host, shell))
    if environment is None:
        return None
    copies = _copies(host, environment)
    site = next((folder for folder in environment.site_packages if f"{where}/".startswith(f"{folder}/")), copies[0] if copies else "")
    return _install(host, shell, _Place(environment, site, copies, shell)) if site in copies else None


class _Place:
    """Where one torch lies: the interpreter that imports it, and the other copies that it could import."""

    def __init__(self, environment: Environment, site: str, copies: list[str], shell: Shell) -> None:
        self.environment, self.site, self.copies = environment, site, copies
        self.users = f"{shell.home}/.local" if shell.home else ""
        self.is_users = bool(self.users) and site.startswith(f"{self.users}/")
        self.prefix = self.users if self.is_users else environment.prefix
        self.wins = site == copies[0]


def _copies(host: Host, environment: Environment) -> list[str]:
    """The folders from which this interpreter can import torch; the first wins."""
    sites = environment.site_packages
    return [
        site
        for site in sites
        if host.exists(f"{site}/torch/version.py") or (environment.active and _editable(host, site, host.names(site)))
    ]


def _editable(host: Host, site: str, names: tuple[str, ...] | None) -> str:
    """The source folder of a torch that is installed from one; empty when there is none."""
    for name in names or ():
        if _EDITABLE.fullmatch(name):
            text = host.text(f"{site}/{name}", MAX_SOURCE) or ""
            found = _EDITABLE_SOURCE.search(text)
            source = neutral(found[1].rpartition("/")[0] if found else text.partition("\n")[0].strip(), 4096)
            if source.startswith("/") and host.exists(f"{source}/torch/version.py"):
                return source
    return ""


def _install(host: Host, shell: Shell, place: _Place, *, deep: bool = False) -> Install:
    environment = place.environment
    interpreter = f"{environment.prefix}/bin/python3" if host.exists(f"{environment.prefix}/bin/python3") else None
    answers = ask(host, interpreter) if deep and interpreter and place.wins and not place.is_users else None
    site = Site(
        host, place.site, place.prefix, environment.python_version or "", conda=environment.manager == "conda" and not place.is_users
    )
    source = "" if "torch" in (site.names or ()) else _editable(host, place.site, site.names)
    root = f"{source or place.site}/torch"
    said = _version_file(host, root)
    version = said.get("__version__") or site.dist("torch") or None
    fields: dict[str, Any] = {
        **_interpreter(host, environment, site),
        **_build(site, said, version, editable=bool(source), alone=len(environment.site_packages) == 1),
        **_libraries(site, host.names(f"{root}/lib"), said, answers),
        **_packages(site, version),
        **_surroundings(host, shell, place),
    }
    code, code_source = _gpu_code(site, fields, answers)
    return Install(
        **{
            **fields,
            "manager": "user" if place.is_users else environment.manager,
            "active": environment.active and place.wins,
            "interpreter": interpreter,
            "compiler": _compiler(shell, site),
            "arch_list": code,
            "arch_source": code_source,
            "sass": capabilities(code, "sm_"),
            "ptx": capabilities(code, "compute_"),
            "deep": answers,
        }
    )


# ---------------------------------------------------------------------- the interpreter


def _interpreter(host: Host, environment: Environment, site: Site) -> dict[str, Any]:
    base, library = environment.base, environment.library
    return {
        "python_version": site.conda.get("python", (environment.python_version,))[0],
        "free_threaded": environment.free_threaded,
        "py_debug": _py_debug(host, environment, site.machine),
        "headers": host.exists(f"{base}/include/{library}/Python.h") if base and library else None,
    }


def _py_debug(host: Host, environment: Environment, machine: str) -> bool | None:
    """Debian installs the debug build's files beside the release's; only where those are alone is Python a debug build."""
    base, library = environment.base, environment.library
    if not base or not library or not machine:
        return None
    flags = "t" if environment.free_threaded else ""
    release, debug = (f"{base}/lib/{library}/_sysconfigdata_{flags}{kind}_linux_{machine}-linux-gnu.py" for kind in ("", "d"))
    return False if host.exists(release) else host.exists(debug)


def _compiler(shell: Shell, site: Site) -> bool | None:
    if any(name.startswith(("gxx_linux", "gxx_impl", "clangxx")) for name in site.conda):
        return True
    return None if shell.programs is None else any(name in shell.programs for name in CXX_COMPILERS)


# ---------------------------------------------------------------------- the build


def _version_file(host: Host, root: str) -> dict[str, str]:
    """The assignments of torch/version.py as text; None is empty."""
    text = host.text(f"{root}/version.py", torch_version.MAX_BYTES) or ""
    return {name: neutral(value, 200) for name, value in torch_version.assignments(text).items()}


def _build(site: Site, said: dict[str, str], version: str | None, *, editable: bool, alone: bool) -> dict[str, Any]:
    local = None if version is None else version.partition("+")[2]
    channel = _channel(site)
    metadata = _metadata_folder(site, version)
    return {
        "version": version,
        "release": None if version is None else version.partition("+")[0],
        "local": local,
        "cuda": said.get("cuda"),
        "hip": said.get("hip", "" if said else None),
        "xpu": said.get("xpu", "" if said else None),
        "debug": {"True": True, "False": False}.get(said.get("debug", "")),
        "git": said.get("git_version"),
        "official": _official(local, channel, editable),
        "editable": editable if site.readable else None,
        "installer": site.installer("torch", "pytorch", metadata),
        "conda_channel": channel,
        "pin_mismatches": _pin_mismatches(site, metadata, alone=alone),
        "stale_dists": _stale(site, metadata),
    }


def _metadata_folder(site: Site, version: str | None) -> str:
    """The metadata folder of the torch that is there; its name may lack the local part of the version."""
    folders = site.folders.get("torch", {})
    names = (version or "", (version or "").partition("+")[0])
    return next((folders[name] for name in names if name in folders), next(iter(folders.values()), ""))


def _official(local: str | None, channel: str | None, editable: bool) -> bool | None:
    """Whether the PyTorch project built it; a build without a local part may be anybody's."""
    if editable or (local and not _OFFICIAL.fullmatch(local)):
        return False
    if channel:
        return channel == "pytorch"
    return True if local else None


def _channel(site: Site) -> str | None:
    """The channel of conda's torch, from conda's history or, where that is lost, from the shape of its build name."""
    version, build = site.conda.get("pytorch") or site.conda.get("libtorch") or ("", "")
    if not build:
        return ""
    history = site.host.text(f"{site.prefix}/conda-meta/history") or ""
    for channel, package in reversed(_FROM_CHANNEL.findall(history)):
        if package == f"pytorch-{version}-{build}":
            return neutral(channel.rpartition("/")[2], 80)
    return "pytorch" if _PYTORCH_CHANNEL_BUILD.fullmatch(build) else None


def _pin_mismatches(site: Site, metadata: str, *, alone: bool) -> tuple[Pin, ...] | None:
    """Libraries beside torch that differ from what its metadata asks for.

    One that is absent counts only where the interpreter has no other folder that could hold it.
    """
    if "pytorch" in site.conda or (site.readable and not metadata.endswith(".dist-info")):
        return ()
    required = site.requirements("torch", metadata)
    if required is None:
        return None
    pins = [one for one in required if one.name.startswith(PINNED)]
    for one in required:
        pins += site.requirements(one.name, extras=one.extras) or [] if one.extras and one.name.startswith(PINNED) else []
    found = (Pin(pin.name, pin.spec, site.dist(pin.name)) for pin in pins if not fits(site.dist(pin.name), pin.spec))
    return tuple(pin for pin in found if pin.installed or alone)


def _stale(site: Site, kept: str) -> tuple[str, ...] | None:
    """Metadata of other torch versions, and halves that an interrupted pip left behind."""
    if not site.readable:
        return None
    others = [folder for folder in site.folders.get("torch", {}).values() if folder != kept]
    return tuple(neutral(name, 200) for name in (*others, *(name for name in site.names or () if name.startswith("~orch"))))[:16]


def _gpu_code(site: Site, fields: dict[str, Any], answers: Deep | None) -> tuple[tuple[str, ...] | None, str | None]:
    """The GPU code in the build: as torch says, else as official builds of this release have it."""
    if answers is not None and answers.arch_list is not None:
        return answers.arch_list, "probe"
    if fields["cuda"] == "":
        return (), "table"
    code = gpu_code(fields["version"] or "", fields["cuda"] or "", site.machine) if fields["official"] else ()
    return (code, "table") if code else (None, None)


# ---------------------------------------------------------------------- libraries


def _libraries(site: Site, names: tuple[str, ...] | None, said: dict[str, str], answers: Deep | None) -> dict[str, Any]:
    shipped = None if names is None else openmp_runtimes(names)
    return {
        "cudnn": _cuda_library(site, said, "cudnn", answers.cudnn if answers else None),
        "nccl": _cuda_library(site, said, "nccl", answers.nccl if answers else None),
        "triton": site.version_of("triton", "pytorch-triton", "triton-rocm"),
        "cuda_majors": _cuda_majors(site),
        "openmp_shipped": shipped,
        "openmp_runtime": _openmp_runtime(site, shipped),
        "other_openmp": _other_openmp(site),
        "blas": (answers.blas if answers else None) or _blas(site, names, said),
        "numpy_blas": _numpy_blas(site) or (answers.numpy_blas if answers else None),
    }


def _cuda_library(site: Site, said: dict[str, str], name: str, asked: str | None) -> str | None:
    """The version of cuDNN or NCCL, from its wheel or conda package. One that is linked into torch has no name to tell."""
    if asked is not None:
        return asked
    if said.get("cuda") == "":
        return ""
    wheel = next((site.dist(dist) for dist in site.folders if dist.startswith(f"nvidia-{name}-cu")), "")
    return wheel or site.conda.get(name, ("", ""))[0] or None


def _cuda_majors(site: Site) -> tuple[str, ...] | None:
    found = {match[1] for name in site.folders if name.startswith("nvidia-") and (match := _CUDA_MAJOR.search(name))}
    return tuple(sorted(found)) if site.readable else None


def _openmp_runtime(site: Site, shipped: tuple[str, ...] | None) -> str | None:
    """The runtime that torch loads: its own, else the one that conda chose for all of the environment."""
    if shipped:
        return shipped[0]
    build = site.conda.get("_openmp_mutex", ("", ""))[1]
    return "libomp" if "llvm" in build else "libgomp" if "gnu" in build else "libiomp5" if "intel-openmp" in site.conda else None


def _other_openmp(site: Site) -> tuple[str, ...] | None:
    """Runtimes that come beside torch's own: in the library folders of wheels, and as packages of conda or Intel."""
    if not site.readable:
        return None
    found = [runtime for folder in site.library_folders() for runtime in openmp_runtimes(site.host.names(folder) or ())]
    for package, runtime in (("intel-openmp", "libiomp5"), ("llvm-openmp", "libomp")):
        found += [runtime] if package in site.conda or package in site.folders else []
    return tuple(dict.fromkeys(found))


def _blas(site: Site, names: tuple[str, ...] | None, said: dict[str, str]) -> str | None:
    """The matrix library: official x86 builds hold MKL inside libtorch_cpu.so, others show theirs by file or package."""
    for start, blas in (("libmkl", "mkl"), ("libnvpl_blas", "nvpl"), ("libopenblas", "openblas")):
        if any(name.startswith(start) for name in names or ()):
            return blas
    if "pytorch" in site.conda:
        return conda_blas(site.conda)
    local = said.get("__version__", "").partition("+")[2]
    return "mkl" if _OFFICIAL.fullmatch(local) and site.machine == "x86_64" else None


def _numpy_blas(site: Site) -> str | None:
    if "numpy" in site.conda:
        return conda_blas(site.conda)
    if "numpy.libs" in (site.names or ()):
        names = site.host.names(f"{site.folder}/numpy.libs") or ()
        return "openblas" if any("openblas" in name for name in names) else None
    return _debian_blas(site) if site.folder == "/usr/lib/python3/dist-packages" and site.dist("numpy") else None


def _debian_blas(site: Site) -> str | None:
    """What Debian's alternatives choose as libblas.so.3."""
    target = site.host.link(f"/etc/alternatives/libblas.so.3-{site.machine}-linux-gnu") or ""
    return next((blas for word, blas in _DEBIAN_BLAS if word in target), None)


# ---------------------------------------------------------------------- packages


def _packages(site: Site, version: str | None) -> dict[str, Any]:
    there = site.readable
    return {
        "companions": tuple(_companion(site, name, version) for name in COMPANIONS if name in site.folders) if there else None,
        "extensions": tuple(Package(name, site.dist(name)) for name in EXTENSIONS if name in site.folders) if there else None,
        "numpy": site.version_of("numpy"),
        "numpy_installer": site.installer("numpy", "numpy"),
        "ipex": site.version_of("intel-extension-for-pytorch"),
        "torchvision": site.version_of("torchvision"),
        "pillow": site.version_of("pillow", "pillow-simd"),
        "image_decoders": tuple(name for name in IMAGE_DECODERS if name in site.folders) if there else None,
    }


def _companion(site: Site, name: str, torch_version: str | None) -> Companion:
    """A package built for one torch. Builds from source repositories say which in their own version, others require it."""
    version = site.dist(name)
    built_for = _BUILT_FOR.search(version.partition("+")[2])
    if built_for:
        wants = f"=={built_for[1] or f'{built_for[2]}.{built_for[3]}'}.*"
    else:
        wants = next((requirement.spec for requirement in site.requirements(name) or () if requirement.name == "torch"), "")
    return Companion(name, version, wants, None if torch_version is None else fits(torch_version, wants))


# ---------------------------------------------------------------------- around it


def _surroundings(host: Host, shell: Shell, place: _Place) -> dict[str, Any]:
    mount = mount_of(host, place.site)
    project = _project(host, place.prefix)
    return {
        "prefix": place.prefix,
        "site_packages": place.site,
        "duplicates": _duplicates(host, place),
        "prefix_fstype": None if mount is None else neutral(mount.fstype, 40),
        "jit_extensions": host.exists(f"{shell.home}/.cache/torch_extensions") if shell.home else None,
        "project": project,
        "lock_file": _lock_file(host, project),
        "requirements_pinned": _requirements_pinned(host, project),
    }


def _duplicates(host: Host, place: _Place) -> tuple[Copy, ...]:
    """The other copies, said once an interpreter: by the copy that is its own."""
    own = next((site for site in place.copies if not place.users or not site.startswith(f"{place.users}/")), None)
    others = [site for site in place.copies if site != place.site] if place.site == own else []
    return tuple(Copy(site, _version_file(host, f"{site}/torch").get("__version__", "")) for site in others)


def _project(host: Host, prefix: str) -> str:
    """The folder that a venv or a pixi environment lies in, when it holds a project."""
    folder, pixi, _ = prefix.partition("/.pixi/envs/")
    if not pixi:
        folder = prefix.rpartition("/")[0] if prefix.endswith(VENV_NAMES) else ""
    return folder if folder and any(host.exists(f"{folder}/{name}") for name in PROJECT_FILES) else ""


def _lock_file(host: Host, project: str) -> str | None:
    if not project:
        return None
    found: Iterator[tuple[str, bool | None]] = ((f"{project}/{name}", host.exists(f"{project}/{name}")) for name in LOCKS)
    sure = True
    for path, there in found:
        if there:
            return path
        sure = sure and there is False
    return "" if sure else None


def _requirements_pinned(host: Host, project: str) -> bool | None:
    path = f"{project}/requirements.txt"
    if not project:
        return None
    if not (there := host.exists(path)):
        return there
    text = host.text(path)
    return None if text is None else _PINNED_TORCH.search(text) is not None
