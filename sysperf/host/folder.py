"""An unpacked capture."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from sysperf.host.links import LinkResolver, open_folder
from sysperf.host.plain_files import list_names, open_found, read_bounded
from sysperf.host.tree import HINT, KERNEL_FOLDERS
from sysperf.model.errors import CaptureError
from sysperf.model.path import StrPath


class Folder(LinkResolver):
    """An unpacked capture. Its owner may exchange folders for links while it is read: each path is walked from the root that was opened."""

    def __init__(self, root: StrPath) -> None:
        super().__init__()
        try:
            self._root = os.open(_unwrapped(root), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise CaptureError(f"{root}: cannot be listed ({error.strerror})", "a capture must be readable by you") from None

    def __del__(self) -> None:
        """Let go of the root, if there was one."""
        if (root := getattr(self, "_root", None)) is not None:
            os.close(root)

    @contextlib.contextmanager
    def _at(self, inside: str) -> Iterator[tuple[int, str]]:
        """(the folder in which a resolved path lies, its last name)."""
        folder, _, name = inside.rpartition("/")
        place = open_folder(folder, beneath=self._root)
        try:
            yield place, name or "."
        finally:
            os.close(place)

    def _target(self, path: str) -> str | None:
        try:
            return self._link(path)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def _link(self, inside: str) -> str:
        with self._at(inside) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def read(self, path: str, limit: int) -> bytes:
        with self._at(self.resolve(path)) as (folder, name):
            peek = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            return read_bounded(open_found(peek, path), path, limit)
        finally:
            os.close(peek)

    def names(self, path: str, limit: int) -> list[str]:
        place = open_folder(self.resolve(path), beneath=self._root)
        try:
            folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        finally:
            os.close(place)
        try:
            return list_names(folder, limit)
        finally:
            os.close(folder)

    def link(self, path: str) -> str:
        return self._link(self._beside(path))

    def exists(self, path: str) -> bool:
        try:
            with self._at(self.resolve(path)) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True


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
