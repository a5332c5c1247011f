"""maps: what a running program has loaded, told by the file names it maps. No area of its own; `process` asks.

Reads   /proc/[pid]/maps
Kernel  https://docs.kernel.org/filesystems/proc.html (3.1, /proc/PID/maps)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Annotated

from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.startup import lazy

MAPS = "/proc/[0-9]*/maps"
MAX_FILES = 20_000
MAX_LIBRARIES = 64
ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
OPENMP = ("libgomp", "libiomp5", "libomp")

_PATH = lazy(rb" (/[^\n]*)\n")
_TORCH = lazy(r"libtorch(?:_[a-z_]+)?\.so|libc10(?:_[a-z]+)?\.so")
_LIBRARY = lazy(
    r"(libcudnn|libcublas|libcublasLt|libnccl|libcudart|libcuda|libgomp|libiomp5|libomp"
    r"|libjemalloc|libtcmalloc(?:_[a-z_]+)?|libmimalloc(?:-[a-z]+)?)"
    r"(?:-[0-9a-f]{6,16})?\.so(?:\.([0-9][0-9.]*))?"
)
_SANITIZER = lazy(r"lib(?:clang_rt\.)?(asan|tsan|msan|ubsan|lsan)[-.\w]*|vgpreload_(memcheck|core|helgrind|drd)[-.\w]*")
_PROFILER = lazy(r"lib(?:ToolsInjection|cuda-injection|ittnotify_collector)[-.\w]*")
_CUDA_DEVICE = lazy(r"/dev/kfd|/dev/nvidia(?:[0-9]+|ctl|-uvm)|/dev/nvmap|/dev/dxg")
_NO_DATA = lazy(r"/(?:dev|proc|sys|memfd:|SYSV|usr|lib|lib64|opt|nix|gnu)(?:/|$)|.*\.(?:so|py|pyc|mo|ttf|cubin|fatbin)(?:$|\.[0-9])")
_PACKAGE = lazy(r"/(?:site|dist)-packages/([A-Za-z0-9_]{1,64})[/.]")
_COMPILED = lazy(r"c[a-z2-7]{51}(?:\.main)?\.so|__triton_launcher[-.\w]*\.so")
"""Kernels that torch.compile made: Inductor names them by a hash in base 32, Triton's launchers have one name."""
_DELETED = " (deleted)"
XPU = frozenset(("libtorch_xpu", "libze_intel_gpu"))
"""What a program has loaded that has looked for a GPU of Intel's: PyTorch's part for it, and the driver of Level Zero."""


class Library(Record):
    """A shared library that a process has mapped."""

    name: Annotated[str, fact("its name without version or build mark: libgomp, libcudnn, libnccl", MAPS)]
    path: Annotated[str, fact("its file, as the process sees it", MAPS)]
    version: Annotated[str, fact("the version in its file name; empty when the name has none", MAPS)] = ""


class Mapped:
    """The files that one process maps, sorted by what they are."""

    __slots__ = (
        "compiled",
        "count",
        "cuda",
        "cudnn",
        "data",
        "libraries",
        "names",
        "packages",
        "profilers",
        "sanitizers",
        "torch",
        "xpu",
    )

    def __init__(self, raw: bytes) -> None:
        self.count = raw.count(b"\n")
        self.torch = ""
        self.cuda = False
        self.libraries: list[Library] = []
        self.data: list[str] = []
        self.cudnn: dict[str, None] = {}
        self.names: set[str] = set()
        self.packages: set[str] = set()
        self.sanitizers: list[str] = []
        self.profilers: list[str] = []
        for path in _paths(raw):
            self._sort(path)
        self.compiled = sum(1 for name in self.names if _COMPILED.fullmatch(name))
        self.xpu = XPU.issubset(name.partition(".so")[0] for name in self.names)

    def _sort(self, path: str) -> None:
        path = path.removesuffix(_DELETED)
        name = path.rpartition("/")[2]
        self.names.add(name)
        if name.startswith("libcudnn"):  # it comes in parts: libcudnn_ops, libcudnn_graph
            self.cudnn[path.rpartition("/")[0]] = None
        if (package := _PACKAGE.search(path)) and ".so" in name:
            self.packages.add(package[1])
        if _TORCH.match(name):
            # libtorch_cpu holds the code; the others are stubs that a plain C++ program may have elsewhere.
            self.torch = path if not self.torch or name.startswith("libtorch_cpu") else self.torch
        elif match := _LIBRARY.fullmatch(name):
            if len(self.libraries) < MAX_LIBRARIES:
                self.libraries.append(Library(match[1], neutral(path), match[2] or ""))
        elif _CUDA_DEVICE.fullmatch(path):
            self.cuda = True
        elif match := _SANITIZER.fullmatch(name):
            self.sanitizers.append(match[1] or f"valgrind {match[2]}")
        elif _PROFILER.fullmatch(name):
            self.profilers.append(neutral(name, 80))
        elif len(self.data) < MAX_LIBRARIES and holds_data(path):
            self.data.append(path)

    def named(self, *names: str) -> tuple[Library, ...]:
        """The mapped libraries of these names."""
        return tuple(library for library in self.libraries if library.name in names)

    @property
    def allocators(self) -> tuple[str, ...]:
        """The replacement allocators among jemalloc, tcmalloc and mimalloc."""
        names = [library.name.removeprefix("lib") for library in self.libraries]
        return tuple(kind for kind in ALLOCATORS if any(name.startswith(kind) for name in names))


def holds_data(path: str) -> bool:
    """Whether this may be a file of data: no device, socket, program, library or Python module."""
    return path.startswith("/") and not _NO_DATA.match(path)


def torch_mapped(raw: bytes) -> Mapped | None:
    """What a process maps whose maps name a library of PyTorch; None for any other process."""
    mapped = Mapped(raw) if b"/libtorch" in raw or b"/libc10" in raw else None
    return mapped if mapped is not None and mapped.torch else None


def _paths(raw: bytes) -> Iterable[str]:
    """The distinct files in the order of their addresses."""
    files = {found[1]: None for found in _PATH.finditer(raw)}  # of most files there are many lines, which are not kept
    for path in itertools.islice(files, MAX_FILES):
        yield path.decode("utf-8", "replace")
