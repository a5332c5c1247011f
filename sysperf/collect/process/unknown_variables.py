"""Variables that nothing in the loaded PyTorch and NCCL reads, so that a typo is seen. Only `--deep` asks.

Every variable that a build knows is a text in its libraries or Python modules; a name in none of them has no effect.

Reads   libtorch*.so, libc10*.so, libnccl.so* and *.py of the PyTorch that a process has loaded
"""

import os
import time
from collections.abc import Iterator

from sysperf.host import Host
from sysperf.host.plain_files import open_plain
from sysperf.procfs.maps import Mapped
from sysperf.startup import lazy

PREFIXES = ("NCCL_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_")
MAX_BYTES = 6 << 30
MAX_S = 30.0
MAX_FOLDERS = 20_000
CHUNK_BYTES = 8 << 20
TOO_MUCH = f"more than {MAX_BYTES >> 30} GiB, {MAX_FOLDERS} folders or {MAX_S:.0f} s of files to look through"
_MAX_NAME = 128
_OTHERS = lazy(
    # set by images and plugins for themselves
    r"(?:PYTORCH|TORCH|NCCL)_(?:VERSION|HOME|BUILD_VERSION|BUILD_NUMBER|NVFUSER.*)|NCCL_(?:OFI|FASTSOCKET|FASTRAK|GPUDIRECTTCPX|TUNER|NET_OFI|GIN|PROFILER)_.*"
)
_LIBRARY = lazy(r"lib(?:torch|c10)[a-z0-9_]*\.so")


def unread(host: Host, env: dict[str, str], mapped: Mapped, root: str) -> tuple[str, ...] | None:
    """The variables of `env` that the process's PyTorch and NCCL do not contain; None when that is unknown."""
    names = sorted(name for name in env if name.startswith(PREFIXES) and not _OTHERS.fullmatch(name) and len(name) < _MAX_NAME)
    folder = mapped.torch.rpartition("/lib/")[0]
    if not names or not folder:
        return () if not names else None
    libraries = [root + library.path for library in mapped.named("libnccl")]
    key = f"knobs:{root}{folder}:{','.join(names)}"
    answer = host.call(key, lambda: sorted(set(names) - _mentioned(names, _files(root + folder, libraries))))
    return None if answer is None else tuple(str(name) for name in answer)


def _mentioned(names: list[str], files: Iterator[str]) -> set[str]:
    """The names that occur in the files. Raises OSError when they are too large to tell in time."""
    left = {name.encode(): name for name in names}
    read, end = 0, time.monotonic() + MAX_S
    for path in files:
        for chunk in _chunks(path):
            read += len(chunk)
            if read > MAX_BYTES or time.monotonic() > end:
                raise OSError(TOO_MUCH)
            for name in [name for name in left if name in chunk]:
                del left[name]
            if not left:
                return set(names)
    return set(names) - set(left.values())


def _chunks(path: str) -> Iterator[bytes]:
    """The content in overlapping pieces, so that a name across two of them is in one."""
    tail = b""
    with open(open_plain(path), "rb", buffering=0) as file:
        while part := file.read(CHUNK_BYTES):
            yield tail + part
            tail = part[-_MAX_NAME:]
        yield b""  # many empty files take their time, too


def _files(folder: str, libraries: list[str]) -> Iterator[str]:
    """Small files first: most names are found in Python modules."""
    for count, (parent, folders, names) in enumerate(os.walk(folder)):
        if count >= MAX_FOLDERS:
            raise OSError(TOO_MUCH)
        folders[:] = [name for name in folders if name not in ("include", "share", "test", "testing", "__pycache__")]
        yield from (f"{parent}/{name}" for name in names if name.endswith(".py"))
    with os.scandir(f"{folder}/lib") as entries:
        by_size = sorted((entry.stat().st_size, entry.path) for entry in entries if _LIBRARY.fullmatch(entry.name))
    yield from (path for _, path in by_size)
    yield from libraries
