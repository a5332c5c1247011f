"""The PyTorch that a process has loaded, and libraries that do not belong to it.

Reads   version.py or build-version beside the mapped libtorch  /proc/[pid]/ns/mnt
        /proc/[pid]/root/... for a process with mounts of its own
"""

from sysperf.host import Host
from sysperf.model.text import neutral
from sysperf.procfs import torch_version
from sysperf.procfs.maps import Mapped
from sysperf.startup import lazy

_PREFIX = lazy(r"(/.{0,2000}?)/(?:local/)?lib(?:64)?/python3(?:\.[0-9]{1,3}t?)?/(?:site|dist)-packages/")
_SITE = lazy(r"(/.{0,2000})/torch(?:\.libs|/lib)/[^/]+")
_OWN = {
    # library -> folders of the wheels that bring it, below site-packages
    "libcudnn": ("nvidia/cudnn/lib",),
    "libcublas": ("nvidia/cublas/lib", "nvidia/cu13/lib"),
    "libcublasLt": ("nvidia/cublas/lib", "nvidia/cu13/lib"),
    "libnccl": ("nvidia/nccl/lib",),
    "libcudart": ("nvidia/cuda_runtime/lib", "nvidia/cu13/lib"),
}


class Software:
    """Versions and folders, each looked up once for all processes that share them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._versions: dict[str, str | None] = {}
        self._there: dict[str, bool | None] = {}

    def version(self, torch: str, root: str) -> str | None:
        """The version of the PyTorch whose library is mapped from the path `torch`."""
        folder = root + torch.rpartition("/lib/")[0]
        if folder not in self._versions:
            self._versions[folder] = self._read_version(folder)
        return self._versions[folder]

    def _read_version(self, folder: str) -> str | None:
        text = self._host.text(f"{folder}/version.py", torch_version.MAX_BYTES)
        if text is None:  # the C++ distribution has no Python, but says its version too
            word = self._host.word(f"{folder}/build-version")
            return torch_version.checked(word) if word else None
        version = torch_version.version(text)
        if version is None:
            self._host.refuse(f"{folder}/version.py", "no version in it")
        return version

    def foreign(self, mapped: Mapped, root: str) -> tuple[str, ...]:
        """CUDA libraries that come from elsewhere although wheels beside PyTorch bring them."""
        site = _SITE.fullmatch(mapped.torch)
        if site is None:
            return ()
        own = (f"{site[1]}/", f"{prefix_of(mapped.torch) or site[1]}/")
        outside = [library for library in mapped.libraries if library.name in _OWN and not library.path.startswith(own)]
        return tuple(library.path for library in outside if any(self._exists(f"{root}{site[1]}/{folder}") for folder in _OWN[library.name]))

    def _exists(self, path: str) -> bool:
        if path not in self._there:
            self._there[path] = self._host.exists(path)
        return bool(self._there[path])


def prefix_of(torch: str) -> str:
    """The prefix of the environment that holds a file of PyTorch; empty when it lies in none."""
    match = _PREFIX.match(torch)
    return neutral(match[1], 1000) if match else ""


def root_of(host: Host, pid: int) -> str:
    """Return where the files of a process are seen from here: /proc/[pid]/root for a container, empty when its mounts are ours."""
    theirs, ours = host.link(f"/proc/{pid}/ns/mnt"), host.link("/proc/self/ns/mnt")
    return f"/proc/{pid}/root" if theirs and ours and theirs != ours else ""


def not_loaded(host: Host, preload: tuple[str, ...], mapped: Mapped, root: str) -> tuple[str, ...]:
    """The entries of LD_PRELOAD that are neither mapped nor a file: the loader has skipped them with one line on stderr."""
    return tuple(entry for entry in preload[:32] if not _loaded(entry, mapped) and not _is_file(host, entry, root))


def _loaded(entry: str, mapped: Mapped) -> bool:
    name = entry.rpartition("/")[2]
    return name in mapped.names or any(mapped_name.startswith(f"{name}.") for mapped_name in mapped.names)


def _is_file(host: Host, entry: str, root: str) -> bool:
    if "$" in entry:  # $ORIGIN and $LIB are the loader's to resolve
        return True
    return entry.startswith("/") and host.exists(f"{root}{entry}") is not False
