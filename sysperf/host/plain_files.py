"""Plain files of this machine, opened only where no other user's link leads root to what that user may not read."""

from __future__ import annotations

import errno
import os
import stat

from sysperf.host.links import LinkResolver
from sysperf.host.tree import NOT_PLAIN, TOO_LARGE
from sysperf.startup import lazy

ASTRAY = "a link that another user made leads there, who may not read it"
_OF_CONTAINER = lazy(r"/proc/[0-9]+/root(/.*)")


def open_plain(path: str) -> int:
    """A plain file of this machine, open for reading. Raises OSError."""
    return open_found(find_file(path), path)


def open_found(peek: int, path: str) -> int:
    # Looked at before it is opened: to open a device can act (a watchdog starts, a tape winds), a FIFO can block.
    try:
        mode = os.fstat(peek).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, NOT_PLAIN, path)
        return open_to_read(f"/proc/self/fd/{peek}")
    finally:
        os.close(peek)


def open_to_read(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def read_bounded(handle: int, path: str, limit: int) -> bytes:
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


def find_file(path: str, flags: int = 0) -> int:
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
        links, status = _OwnedLinks(), os.fstat(peek)
        unchanged = f"/{links.resolve(path)}" == real
        honest = unchanged and (links.owners <= {0, os.geteuid(), status.st_uid} or _is_public(real, status))
    if not honest:
        raise OSError(errno.EACCES, ASTRAY, path)


def _is_public(real: str, status: os.stat_result) -> bool:
    parents = real.split("/")[:-1]
    folders = ("/".join(parents[:count]) or "/" for count in range(1, len(parents) + 1))
    return bool(status.st_mode & stat.S_IROTH) and all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)


def list_names(path: str, limit: int) -> list[str]:
    names: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if len(names) >= limit:
                raise OSError(errno.EOVERFLOW, f"more than {limit} entries", path)
            names.append(entry.name)
    return names


class _OwnedLinks(LinkResolver):
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
