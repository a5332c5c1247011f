"""An unpacked capture."""

from __future__ import annotations

import errno
import os

from sysperf.host.links import LinkResolver
from sysperf.host.plain_files import list_names, open_found, read_bounded
from sysperf.host.tree import HINT, KERNEL_FOLDERS
from sysperf.model.errors import CaptureError
from sysperf.model.path import StrPath


class Folder(LinkResolver):
    """An unpacked capture."""

    def __init__(self, root: StrPath) -> None:
        super().__init__()
        try:
            self._root = _unwrapped(root)
        except OSError as error:
            raise CaptureError(f"{root}: cannot be listed ({error.strerror})", "a capture must be readable by you") from None

    def _full(self, inside: str) -> str:
        return f"{self._root}/{inside}" if inside else self._root

    def _target(self, path: str) -> str | None:
        try:
            return os.readlink(self._full(path))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def read(self, path: str, limit: int) -> bytes:
        peek = os.open(self._full(self.resolve(path)), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return read_bounded(open_found(peek, path), path, limit)
        finally:
            os.close(peek)

    def names(self, path: str, limit: int) -> list[str]:
        return list_names(self._full(self.resolve(path)), limit)

    def link(self, path: str) -> str:
        return os.readlink(self._full(self._beside(path)))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._full(self.resolve(path)))


def _unwrapped(root: StrPath) -> str:
    """The folder that holds proc or sys: `root`, or the only folder in it."""
    inside: list[os.DirEntry[str]] = []
    with os.scandir(root) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                inside.append(entry)
            if len(inside) > 1:
                return os.fspath(root)
    if not inside:
        raise CaptureError(f"{root}: holds no files", HINT)
    wrapper = inside[0]
    return wrapper.path if wrapper.is_dir(follow_symlinks=False) and wrapper.name not in KERNEL_FOLDERS else os.fspath(root)
