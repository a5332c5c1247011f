"""The files of the machine that this runs on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from sysperf.host.credentials import Credentials, of_process, reading_as
from sysperf.host.plain_files import find_file, list_names, open_plain, open_to_read, read_bounded
from sysperf.startup import lazy

T = TypeVar("T")

_OFFERED = r"(?:task/[0-9]+/)?(?:root|cwd|exe|(?:fd|map_files)/[^/]+)"
"""The links of a process in its folder: they lead to whatever its user chose. Else the kernel itself answers there."""
_OFFERED_NAMES = ("/root", "/cwd", "/exe", "/fd", "/map_files")
"""One of these is in each such path."""
_OF_KERNEL = lazy(rf"/proc/(?!(?:self|thread-self|[0-9]+)/{_OFFERED}(?:/|$))")
_OF_PROCESS = lazy(rf"(/proc/[0-9]+)/({_OFFERED})(/.*)?")


def _is_of_kernel(path: str) -> bool:
    """Whether the kernel itself answers there. Most paths show it without the pattern, which takes 0.3 ms to compile."""
    if not path.startswith("/proc/"):
        return path.startswith("/sys/")
    return not any(name in path for name in _OFFERED_NAMES) or _OF_KERNEL.match(path) is not None


class Live:
    """The machine this runs on; its files below `root`, where a container or a test has them.

    What another user's process offers is read with the rights of that user.
    """

    live = True
    complete = True

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")
        self._reader: Credentials | OSError | None = None

    @contextlib.contextmanager
    def as_owner_of(self, pid: int) -> Iterator[None]:
        """Read files that lie outside of /proc and /sys with the rights of this process's user; nothing when it is gone."""
        before = self._reader
        try:
            with _opened(f"{self._root}/proc/{pid}", os.O_DIRECTORY) as folder:
                self._reader = of_process(folder)
        except OSError as error:
            self._reader = error
        try:
            yield
        finally:
            self._reader = before

    def call(self, ask: Callable[[], T]) -> T:
        """Call `ask` with the rights with which files are read now."""
        if isinstance(self._reader, OSError):
            raise self._reader
        with reading_as(self._reader):
            return ask()

    def read(self, path: str, limit: int) -> bytes:
        if _is_of_kernel(path):
            return read_bounded(open_to_read(self._root + path), path, limit)
        with self._offered(path) as (full, inside):
            return read_bounded(open_plain(full, inside), path, limit)

    def names(self, path: str, limit: int) -> list[str]:
        if _is_of_kernel(path):
            return list_names(self._root + path, limit)
        with self._offered(path) as (full, inside), find_file(full, os.O_DIRECTORY, inside) as folder:  # with which autofs mounts
            return list_names(f"/proc/self/fd/{folder}", limit)

    def link(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        if _is_of_kernel(f"{folder}/"):  # the text of a link of a process, which is not followed
            return os.readlink(self._root + path)
        with self._offered(folder) as (full, _):
            return os.readlink(f"{full}/{name}")

    def exists(self, path: str) -> bool:
        if _is_of_kernel(path):
            return _exists(self._root + path)
        with self._offered(path) as (full, _):
            return _exists(full)

    @contextlib.contextmanager
    def _offered(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield (where `path` is opened, its path within the process that offers it or "") with the rights of who decides what it means.

        The process's folder stays open: its number may become that of another process.
        """
        process = _OF_PROCESS.fullmatch(path) if path.startswith("/proc/") else None
        if process is None:
            if isinstance(self._reader, OSError):
                raise self._reader
            with reading_as(self._reader):
                yield self._root + path, ""
            return
        with _opened(self._root + process[1], os.O_DIRECTORY) as folder:
            user = of_process(folder)
            with _opened(process[2], dir_fd=folder) as start, reading_as(user):
                yield f"/proc/self/fd/{start}{process[3] or ''}", process[3] or "" if process[2].endswith("root") else ""

    def refusal(self, path: str) -> str:
        """Why this process can not write to a file, as far as that shows without trying; "" when nothing speaks against it."""
        full = self._root + path
        if not os.path.exists(full):
            return "it is not there"
        if os.statvfs(full).f_flag & os.ST_RDONLY:
            return "read-only here: in a container, whose host must change it"
        return "" if os.access(full, os.W_OK) else "only root may write it"

    def create(self, path: str, content: bytes) -> None:
        """A new file that is whole or not there, on the disk when this returns; killed meanwhile, nothing is left of it."""
        folder, _, name = (self._root + path).rpartition("/")
        where = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with open(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644), "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.link(f"/proc/self/fd/{file.fileno()}", name, dst_dir_fd=where)
            os.fsync(where)
        finally:
            os.close(where)

    def remove(self, path: str) -> None:
        """Take a file away, on the disk too."""
        from sysperf.host.files import sync_folder  # noqa: PLC0415 - what only reads needs no writing

        os.unlink(self._root + path)
        sync_folder(os.path.dirname(self._root + path))

    def hold(self, path: str, flags: int) -> int:
        """Open a file that acts as long as it is open, such as /dev/cpu_dma_latency, and return its descriptor."""
        return os.open(self._root + path, flags | os.O_CLOEXEC)

    def write(self, path: str, content: bytes) -> None:
        """One write(2) to a file that is there: the kernel takes a setting as a whole."""
        descriptor = os.open(self._root + path, os.O_WRONLY | os.O_CLOEXEC | os.O_TRUNC)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextlib.contextmanager
def _opened(path: str, flags: int = 0, dir_fd: int | None = None) -> Iterator[int]:
    """What lies there, as a place to start from."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=dir_fd)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
