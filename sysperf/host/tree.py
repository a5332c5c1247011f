"""The files of a machine: this one, or a captured one that lies in a folder or an archive. All answer alike.

A capture is foreign input: its symbolic links are followed here, not by the kernel, and never lead out of it; sizes
and counts are bounded; and only plain files are opened.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Protocol

from sysperf.model.errors import CaptureError
from sysperf.model.path import StrPath
from sysperf.startup import lazy

MAX_LINKS = 40
MAX_PATH = 4_096
ESCAPES = "leads out of the captured root"
TOO_LARGE = "larger than sysperf reads of such a file"
NOT_PLAIN = "not a plain file"
KERNEL_FOLDERS = frozenset(("proc", "sys", "etc", "usr", "sysperf"))
"""What a root holds; a single folder of another name is taken for a wrapper around the root, as hwloc packs it."""

ASTRAY = "a link that another user made leads there, who may not read it"

# Below these the kernel itself answers. The links of a process (root, cwd, fd) can lead to any file of its user.
_OF_KERNEL = lazy(r"/(?:sys|proc)/(?!.*/(?:root|cwd|fd|map_files)/)")
_OF_CONTAINER = lazy(r"/proc/[0-9]+/root(/.*)")
_FOLDERS_KEPT = 100_000


class Tree(Protocol):
    """Read-only files under a root. Every method raises OSError when it cannot answer."""

    live: bool
    complete: bool
    """Whether a file that is not in the tree is not on the machine either."""

    def read(self, path: str, limit: int) -> bytes: ...

    def names(self, path: str, limit: int) -> list[str]: ...

    def link(self, path: str) -> str: ...

    def exists(self, path: str) -> bool: ...


class Live:
    """The machine this runs on; its files below `root`, where a container or a test has them."""

    live = True
    complete = True

    def __init__(self, root: str = "") -> None:
        self._root = root.rstrip("/")

    def read(self, path: str, limit: int) -> bytes:
        full = self._root + path
        return _read(_open(full) if _OF_KERNEL.match(path) else opened(full), path, limit)

    def names(self, path: str, limit: int) -> list[str]:
        if _OF_KERNEL.match(path):
            return _names(self._root + path, limit)
        peek = _found(self._root + path, os.O_DIRECTORY)  # with which autofs mounts what is to be there
        try:
            return _names(f"/proc/self/fd/{peek}", limit)
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


def sync_folder(path: str) -> None:
    """Put the names in a folder on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Captured:
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
            if len(self._folders) >= _FOLDERS_KEPT:
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


class _Links(Captured):
    """This machine's links, followed one by one, and whose they are."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: set[int] = set()

    def _target(self, path: str) -> str | None:
        found = os.lstat(f"/{path}")
        if not stat.S_ISLNK(found.st_mode):
            return None
        self.owners.add(found.st_uid)
        return os.readlink(f"/{path}")


class Folder(Captured):
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
        return _read(_opened(peek, path), path, limit)

    def names(self, path: str, limit: int) -> list[str]:
        return _names(self._full(self.resolve(path)), limit)

    def link(self, path: str) -> str:
        return os.readlink(self._full(self._beside(path)))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._full(self.resolve(path)))


def open_tree(root: StrPath) -> Tree:
    """The tree at `root`: ``/``, a folder or an archive. Raises CaptureError when there is none."""
    if root == "/":
        return Live()
    try:
        mode = os.stat(root).st_mode
    except (OSError, ValueError) as error:
        raise CaptureError(f"{root}: no such capture ({getattr(error, 'strerror', error)})", HINT) from None
    if stat.S_ISDIR(mode):
        return Live() if os.path.samefile(root, "/") else Folder(root)
    if stat.S_ISREG(mode):
        from sysperf.host.archive import Archive  # noqa: PLC0415 - four decompressors, which live audits do not need

        return Archive(root)
    raise CaptureError(f"{root}: {NOT_PLAIN}", HINT)


HINT = "a capture is a folder or a tar made by `sysperf capture OUT.tar.zst`"


def _parent(inside: str, path: str) -> str:
    if not inside:
        raise OSError(errno.EXDEV, ESCAPES, path)
    return inside.rpartition("/")[0]


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


def opened(path: str) -> int:
    """A plain file of this machine, open for reading. Raises OSError."""
    return _opened(_found(path), path)


def _opened(peek: int, path: str) -> int:
    # Looked at before it is opened: to open a device can act (a watchdog starts, a tape winds), a FIFO can block.
    try:
        mode = os.fstat(peek).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, NOT_PLAIN, path)
        return _open(f"/proc/self/fd/{peek}")
    finally:
        os.close(peek)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _read(handle: int, path: str, limit: int) -> bytes:
    try:
        parts: list[bytes] = []
        while part := os.read(handle, 65_536):  # files of /proc come in pages: only an empty read is the end
            parts.append(part)
            limit -= len(part)
            if limit < 0:
                raise OSError(errno.EFBIG, TOO_LARGE, path)
        return b"".join(parts)
    finally:
        os.close(handle)


def _found(path: str, flags: int = 0) -> int:
    """What lies there, not opened yet. Raises OSError."""
    peek = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
    try:
        _refuse_astray(path, peek)
    except BaseException:
        os.close(peek)
        raise
    return peek


def _refuse_astray(path: str, peek: int) -> None:
    """Whoever made links on the way may read what these led to: nobody's link makes root read what he may not."""
    real = os.readlink(f"/proc/self/fd/{peek}")
    if real == path:
        return
    if inside := _OF_CONTAINER.fullmatch(path):
        honest = real == inside[1]  # its absolute links would be followed outside of it
    else:
        links, status = _Links(), os.fstat(peek)
        unchanged = f"/{links.resolve(path)}" == real
        honest = unchanged and (links.owners <= {0, os.geteuid(), status.st_uid} or _is_public(real, status))
    if not honest:
        raise OSError(errno.EACCES, ASTRAY, path)


def _is_public(real: str, status: os.stat_result) -> bool:
    parents = real.split("/")[:-1]
    folders = ("/".join(parents[:count]) or "/" for count in range(1, len(parents) + 1))
    return bool(status.st_mode & stat.S_IROTH) and all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)


def _names(path: str, limit: int) -> list[str]:
    names: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(names) >= limit:
                raise OSError(errno.EOVERFLOW, f"more than {limit} entries", path)
            names.append(entry.name)
    return names
