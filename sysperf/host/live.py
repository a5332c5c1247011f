"""The files of the machine that this runs on."""

from __future__ import annotations

import os

from sysperf.host.files import sync_folder
from sysperf.host.plain_files import find_file, list_names, open_plain, open_to_read, read_bounded
from sysperf.startup import lazy

# Below these the kernel itself answers. The links of a process (root, cwd, fd) can lead to any file of its user.
_OF_KERNEL = lazy(r"/(?:sys|proc)/(?!.*/(?:root|cwd|fd|map_files)/)")


class Live:
    """The machine this runs on; its files below `root`, where a container or a test has them."""

    live = True
    complete = True

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")

    def read(self, path: str, limit: int) -> bytes:
        full = self._root + path
        return read_bounded(open_to_read(full) if _OF_KERNEL.match(path) else open_plain(full), path, limit)

    def names(self, path: str, limit: int) -> list[str]:
        if _OF_KERNEL.match(path):
            return list_names(self._root + path, limit)
        peek = find_file(self._root + path, os.O_DIRECTORY)  # with which autofs mounts what is to be there
        try:
            return list_names(f"/proc/self/fd/{peek}", limit)
        finally:
            os.close(peek)

    def link(self, path: str) -> str:
        return os.readlink(self._root + path)

    def exists(self, path: str) -> bool:
        try:
            os.stat(self._root + path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

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
        os.unlink(self._root + path)
        sync_folder(os.path.dirname(self._root + path))

    def hold(self, path: str, flags: int) -> int:
        """A descriptor of a file that means something while it is open."""
        return os.open(self._root + path, flags | os.O_CLOEXEC)

    def write(self, path: str, content: bytes) -> None:
        """One write(2) to a file that is there: the kernel takes a setting as a whole."""
        descriptor = os.open(self._root + path, os.O_WRONLY | os.O_CLOEXEC | os.O_TRUNC)
        try:
            os.write(descriptor, content)
        finally:
            os.close(descriptor)
