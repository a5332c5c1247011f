"""Symbolic links, followed one by one here and not by the kernel, so that they cannot lead out of a root."""

from __future__ import annotations

import errno
import os
import stat

from sysperf.host.tree import ESCAPES, MAX_PATH

MAX_LINKS = 40
MAX_KNOWN_FOLDERS = 100_000


class LinkResolver:
    """Resolves links inside a root as the kernel would under chroot, except that leaving the root is an error."""

    live = False
    complete = False

    def __init__(self) -> None:
        self._folders = {"": ""}

    def _target(self, path: str) -> str | None:
        """The text of the link at this resolved path, or None when it is no link."""
        raise NotImplementedError

    def resolve(self, path: str) -> str:
        """The path inside the root ("" is the root itself) without any link in it."""
        folder, name = self._split(path)
        return self._walk(folder, name)

    def _beside(self, path: str) -> str:
        """The path inside the root of the last name itself, be it a link or not."""
        folder, name = self._split(path)
        return self._walk(folder, name) if name in ("", ".", "..") else f"{folder}/{name}".lstrip("/")

    def _split(self, path: str) -> tuple[str, str]:
        parent, _, name = path.strip("/").rpartition("/")
        folder = self._folders.get(parent)
        if folder is None:
            if len(self._folders) >= MAX_KNOWN_FOLDERS:
                self._folders = {"": ""}
            folder = self._folders[parent] = self._walk("", parent)
        return folder, name

    def _walk(self, start: str, path: str) -> str:
        here = start
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = _parent(here, path)
                continue
            inside = f"{here}/{part}" if here else part
            if len(inside) > MAX_PATH:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
            target = self._target(inside)
            if target is None:
                here = inside
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                here = ""
            todo.extend(target[: MAX_PATH + 1].split("/")[::-1])
        return here


def _parent(inside: str, path: str) -> str:
    if not inside:
        raise OSError(errno.EXDEV, ESCAPES, path)
    return inside.rpartition("/")[0]


class OwnedLinks(LinkResolver):
    """The links of this machine, followed one by one, and whose they are. What is not there is no link."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: set[int] = set()

    def _target(self, path: str) -> str | None:
        try:
            status = os.lstat(f"/{path}")
            if not stat.S_ISLNK(status.st_mode):
                return None
            self.owners.add(status.st_uid)
            return os.readlink(f"/{path}")
        except FileNotFoundError:
            return None


def absolute(path: str) -> str:
    """A path from the root of this machine, each step kept: `..` behind a link leads elsewhere than its text says. Raises OSError."""
    if path.startswith("/"):
        return path
    full = f"{os.getcwd()}/{path}"
    return full if ".." in path.split("/") else os.path.normpath(full)


_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(path: str, beneath: int | None = None) -> int:
    """A place to start from: a folder by a path without links, which whoever may rename a part of it cannot lead elsewhere.

    `beneath` is a folder from which the path starts. Raises OSError, also where a link lies on the path by now.
    """
    folder = os.open("/", _FOLDER) if beneath is None else os.dup(beneath)
    for name in path.split("/"):
        if name in ("", "."):
            continue
        try:
            deeper = os.open(name, _FOLDER, dir_fd=folder)
        except NotADirectoryError:
            raise NotADirectoryError(errno.ENOTDIR, "a link, or no folder, lies there", path) from None
        finally:
            os.close(folder)
        folder = deeper
    return folder
