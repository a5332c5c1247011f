"""Reading as the user of another process: what that user may not read is not read for him either.

A user decides what the paths of his processes mean: in namespaces of his own he binds any file over any other and needs
no right to read it. So files that a process offers are opened with the rights of its user. The kernel keeps rights by
thread; this thread gives up its capabilities, user and groups for the time of one reading, and no other thread does.

Kernel  https://man7.org/linux/man-pages/man7/credentials.7.html
        https://man7.org/linux/man-pages/man2/setfsuid.2.html  https://man7.org/linux/man-pages/man2/capset.2.html
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sysperf.model.record import Record

if TYPE_CHECKING:
    import ctypes

CAP_SETGID = 1 << 6
CAP_SETUID = 1 << 7
CHANGING = "its user is changing: it runs a program that switches users"
FOREIGN_ROOT = "root of another user namespace"
NO_RIGHTS = "sysperf may not take on the rights of that user, with whom it would have to be read"

_UNCHANGED = -1
_CAPABILITY_VERSION_3 = 0x20080522
_MAX_STATUS_BYTES = 64 << 10


class Credentials(Record):
    """The rights with which files are opened."""

    uid: int
    gid: int
    groups: tuple[int, ...]


def of_process(folder: int) -> Credentials | None:
    """The credentials of the process whose /proc/[pid] is open as `folder`; None when they are this process's own.

    Raises OSError where they are not one user's.
    """
    handle = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        status = os.read(handle, _MAX_STATUS_BYTES)
    finally:
        os.close(handle)
    uids, gids, groups = (_numbers(status, name) for name in (b"\nUid:", b"\nGid:", b"\nGroups:"))
    if len(set(uids)) != 1 or len(set(gids)) != 1:
        raise OSError(errno.EACCES, CHANGING)
    if uids[0] != os.geteuid():
        return Credentials(uids[0], gids[0], groups)
    if uids[0] == 0 and os.readlink("ns/user", dir_fd=folder) != os.readlink("/proc/self/ns/user"):
        raise OSError(errno.EACCES, FOREIGN_ROOT)
    return None


def _numbers(status: bytes, name: bytes) -> tuple[int, ...]:
    line = status.partition(name)[2].partition(b"\n")[0]
    return tuple(int(word) for word in line.split())


@contextlib.contextmanager
def reading_as(user: Credentials | None) -> Iterator[None]:
    """Open files with the rights of `user`; None, and a process without any privilege, keep their own. Raises OSError.

    A process that has capabilities but may not change users gives those up: what it opens then, every user may read
    that it is itself, and the files of `user` only where they are open to others.
    """
    if user is None or not (own := _Rights()).privileged:
        yield
        return
    own.take(user)
    try:
        yield
    finally:
        own.restore()


class _Rights:
    """The rights of this thread."""

    def __init__(self) -> None:
        self._effective, self._permitted, self._inheritable = _capabilities()
        self.privileged = os.geteuid() == 0 or self._effective != 0
        self._may_switch = self._effective & (CAP_SETUID | CAP_SETGID) == CAP_SETUID | CAP_SETGID

    def take(self, user: Credentials) -> None:
        """Take on the user's instead, or raise OSError with those of before in force."""
        if not self._may_switch and os.geteuid() == 0:
            raise OSError(errno.EPERM, NO_RIGHTS)
        try:
            if self._may_switch:
                _set_groups(user.groups)
                _set_file_owner(user.uid, user.gid)
            self._set_effective(0)
        except OSError:
            self.restore()
            raise

    def restore(self) -> None:
        """Take back the rights of before. A thread that could not would go on with another user's: then the process ends."""
        try:
            self._set_effective(self._effective)
            if self._may_switch:
                _set_file_owner(os.geteuid(), os.getegid())
                _set_groups(_own_groups())
                self._set_effective(self._effective)  # the kernel raises some where the user becomes 0 again
        except OSError:
            os.abort()

    def _set_effective(self, effective: int) -> None:
        import ctypes  # noqa: PLC0415 - as below

        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        sets = effective, self._permitted, self._inheritable
        halves = [half & 0xFFFFFFFF for low in (0, 32) for half in (number >> low for number in sets)]
        if _library().capset(header, (ctypes.c_uint32 * 6)(*halves)):
            raise OSError(ctypes.get_errno(), NO_RIGHTS)


@functools.cache
def _own_groups() -> tuple[int, ...]:
    """The groups of the process, asked for before any thread has others."""
    return tuple(os.getgroups())


@functools.cache
def _library() -> ctypes.CDLL:
    import ctypes  # noqa: PLC0415 - 4 ms; only where a privileged sysperf meets another user's program

    return ctypes.CDLL(None, use_errno=True)


def _capabilities() -> tuple[int, ...]:
    """The effective, permitted and inheritable capabilities of this thread."""
    with open("/proc/thread-self/status", "rb", buffering=0) as file:
        status = file.read(_MAX_STATUS_BYTES)
    lines = (status.partition(name)[2].partition(b"\n")[0] for name in (b"\nCapEff:", b"\nCapPrm:", b"\nCapInh:"))
    effective, permitted, inheritable = (int(line, 16) for line in lines)
    return effective, permitted, inheritable


def _set_file_owner(uid: int, gid: int) -> None:
    """Change with whose rights this thread opens files. The calls say nothing about failure: what is in force is read back."""
    library = _library()
    for call, number in ((library.setfsgid, gid), (library.setfsuid, uid)):
        call(number)
        if call(_UNCHANGED) & 0xFFFFFFFF != number:
            raise OSError(errno.EPERM, NO_RIGHTS)


def _set_groups(groups: tuple[int, ...]) -> None:
    """Change this thread's; the C library's own function changes those of all threads."""
    import ctypes  # noqa: PLC0415 - as above

    from sysperf.host.syscalls import syscall  # noqa: PLC0415 - as above

    _own_groups()
    syscall("setgroups", ctypes.c_size_t(len(groups)), (ctypes.c_uint32 * len(groups))(*groups))
