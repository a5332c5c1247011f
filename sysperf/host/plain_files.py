"""Plain files of this machine, opened only where no other user's link leads root to what that user may not read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from sysperf.host.links import OwnedLinks, absolute, open_folder
from sysperf.host.tree import NOT_PLAIN, TOO_LARGE
from sysperf.model.path import StrPath
from sysperf.ownership import trusted

ASTRAY = "a link that another user made leads there, who may not read it"
_AS_THEY_ARE = ("/dev/null", "/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""What a user names for nothing, and what his shell has opened for this process."""


def open_plain(path: str, inside: str = "") -> int:
    """A plain file of this machine, open for reading; `inside` as for `find_file`. Raises OSError."""
    path = absolute(path)
    if not os.path.exists("/proc/self/fd"):
        return _open_without_proc(path)
    with find_file(path, inside=inside) as peek:
        return open_found(peek, path)


def _open_without_proc(path: str) -> int:
    """The same where /proc is not mounted: links are followed here, and none by the kernel."""
    links = OwnedLinks()
    real = f"/{links.resolve(path)}"
    folder = open_folder(os.path.dirname(real))
    try:
        name = os.path.basename(real) or "."
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if _is_planted(real, status) or not _is_led(links, real, status):
            raise OSError(errno.EACCES, ASTRAY, path)
        _refuse_special(status.st_mode, path)
        return open_to_read(name, os.O_NOFOLLOW, folder)
    finally:
        os.close(folder)


def read_named(path: StrPath, limit: int) -> bytes:
    """The content of a file that the user named, or of a pipe that his shell made (`<(…)`). Raises OSError."""
    return read_bounded(open_named(path), os.fspath(path), limit)


def open_named(path: StrPath) -> int:
    """The same, open for reading. Raises OSError."""
    text = os.fspath(path)
    return os.open(text, os.O_RDONLY | os.O_CLOEXEC) if text.startswith(_AS_THEY_ARE) else open_plain(text)


def read_orders(path: StrPath, limit: int) -> bytes:
    """Read, as `read_named`, what says how sysperf judges or starts programs: root takes that from files of root's alone."""
    handle = open_named(path)
    if problem := foreign(os.fstat(handle)):
        os.close(handle)
        raise Foreign(errno.EPERM, problem, os.fspath(path))
    return read_bounded(handle, os.fspath(path), limit)


class Foreign(PermissionError):
    """Root would take orders from another user."""

    def cure(self) -> str:
        """Return the commands after which root takes them."""
        import shlex  # noqa: PLC0415 - for what is refused only

        path = shlex.quote(os.path.abspath(self.filename))
        return f"look into it, then `sudo chown root {path}; sudo chmod go-w {path}`"


def foreign(status: os.stat_result) -> str:
    """Why root takes no orders from a file; "" for other users, who may take them from anybody, and for a file that only root can write."""
    if os.geteuid() != 0:
        return ""
    if status.st_uid != 0:
        return f"owned by uid {status.st_uid}, and root takes orders from root's files only"
    return "others may write it, and root takes orders from files that only root can write" if _others_write(status.st_mode) else ""


def _others_write(mode: int) -> bool:
    """Whether others can write what is read later: what is written to /dev/null is not."""
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IWGRP | stat.S_IWOTH))


def open_found(peek: int, path: str) -> int:
    """The file that `peek` stands for, open for reading, if it is plain. Raises OSError."""
    # Looked at before it is opened: to open a device can act (a watchdog starts, a tape winds), a FIFO can block.
    _refuse_special(os.fstat(peek).st_mode, path)
    return open_to_read(f"/proc/self/fd/{peek}")


def _refuse_special(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, NOT_PLAIN, path)


def open_to_read(path: str, flags: int = 0, folder: int | None = None) -> int:
    """A file that is known to be plain or the kernel's, open for reading. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | flags, dir_fd=folder)


def read_bounded(handle: int, path: str, limit: int) -> bytes:
    """The content of an open file, which is closed. Raises OSError when it is longer than `limit`."""
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


@contextlib.contextmanager
def find_file(path: str, flags: int = 0, inside: str = "") -> Iterator[int]:
    """What lies there, not opened yet. `inside` is its path within the root of a container, from where links would lead out.

    Raises OSError, also where a link of another user leads to what that user may not read.
    """
    peek = os.open(path, os.O_PATH | os.O_CLOEXEC | flags)
    try:
        _refuse_astray(path, peek, inside)
        yield peek
    finally:
        os.close(peek)


def _refuse_astray(path: str, peek: int, inside: str) -> None:
    real, status = os.readlink(f"/proc/self/fd/{peek}"), os.fstat(peek)
    ours = real == inside if inside else not _is_planted(real, status) and _leads(path, real, status)
    if not ours:
        raise OSError(errno.EACCES, ASTRAY, path)


def _leads(path: str, real: str, status: os.stat_result) -> bool:
    """Whether the path still leads to the file that was found, and along links that may."""
    links = OwnedLinks()
    return real == path or (f"/{links.resolve(path)}" == real and _is_led(links, real, status))


def _is_led(links: OwnedLinks, real: str, status: os.stat_result) -> bool:
    """Whether only links of ours, or of the file's owner, lead there; or anybody's, to what everybody may read."""
    return links.owners <= {*trusted(), status.st_uid} or _is_public(real, status)


def _is_planted(path: str, status: os.stat_result) -> bool:
    """Whether it may be another name of a file of ours that its folder's owner cannot read: where fs.protected_hardlinks is 0."""
    if not stat.S_ISREG(status.st_mode) or status.st_nlink == 1 or status.st_mode & stat.S_IROTH:
        return False
    folder, ours = os.stat(os.path.dirname(path)), trusted()
    return status.st_uid in ours and (folder.st_uid not in ours or bool(folder.st_mode & stat.S_IWOTH))


def _is_public(real: str, status: os.stat_result) -> bool:
    parents = real.split("/")[:-1]
    folders = ("/".join(parents[:count]) or "/" for count in range(1, len(parents) + 1))
    return bool(status.st_mode & stat.S_IROTH) and all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)


def list_folder(path: str, limit: int) -> list[str]:
    """The names in a folder that the user named, as `list_names`. Raises OSError, also where another user's link leads astray."""
    if not os.path.exists("/proc/self/fd"):
        return list_names(path, limit)
    with find_file(absolute(path), os.O_DIRECTORY) as peek:
        return list_names(f"/proc/self/fd/{peek}", limit)


def list_names(path: str | int, limit: int) -> list[str]:
    """The names in a folder, by its path or its descriptor. Raises OSError when there are more than `limit`."""
    names: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(names) >= limit:
                raise OSError(errno.EOVERFLOW, f"more than {limit} entries", path)
            names.append(entry.name)
    return names
