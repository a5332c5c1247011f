"""The socket at which a program asks for traces: held while a trace is taken, and gone afterwards."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Iterator

from sysperf.model.errors import SysperfError
from sysperf_torch import wire
from sysperf_torch.target import Target
from sysperf_torch.wire import Asked

_CREDENTIALS = struct.Struct("=iII")


class Door:
    """Answers the program that is to be traced, and tells everybody else that there is nothing to do."""

    def __init__(self, bound: socket.socket, target: Target) -> None:
        self._socket, self._target = bound, target
        bound.setblocking(False)

    def wait(self, seconds: float) -> tuple[Asked, str | bytes] | None:
        """(what it asks, where its answer goes), or None when it did not ask within this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left)[0]:
                asked = self._asked()
                if asked is not None:
                    return asked
        return None

    def answer(self, asked: Asked, address: str | bytes, config: str = "") -> bool:
        """Whether the answer was taken."""
        try:
            self._socket.sendto(wire.reply(asked, config), address)
        except OSError:  # it has ended, or its queue is full: then it asks again
            return False
        return True

    def _asked(self) -> tuple[Asked, str | bytes] | None:
        """One datagram. Only the kernel says who sent it; room for its word alone keeps out files that somebody passes."""
        try:
            data, words, flags, address = self._socket.recvmsg(wire.MAX_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            return None
        asked = None if flags & socket.MSG_TRUNC else wire.parse(data)
        sender = _sender(words)
        if asked is None or sender is None or not address:
            return None
        pid, uid, _ = sender
        if (pid, uid) == (self._target.pid, self._target.uid):
            return asked, address
        if uid == self._target.uid:
            self.answer(asked, address)
        return None


def _sender(words: list[tuple[int, int, bytes]]) -> tuple[int, int, int] | None:
    """(pid, uid, gid) as the kernel says."""
    for level, kind, word in words:
        if (level, kind, len(word)) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, _CREDENTIALS.size):
            pid, uid, gid = _CREDENTIALS.unpack(word)
            return pid, uid, gid
    return None


@contextlib.contextmanager
def opened(target: Target) -> Iterator[Door]:
    """The door of this program. Raises SysperfError when somebody else holds it."""
    with contextlib.ExitStack() as held, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            if target.folder:
                held.enter_context(_alone(target.folder))
                _remove_dead(str(target.address))
            bound.bind(target.address)
        except OSError as error:
            raise _refused(target, error) from None
        if target.folder:
            held.callback(_remove, str(target.address), _identity(str(target.address)))
        yield Door(bound, target)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Two that take traces at once must not take each other's socket for a dead one."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
        yield
    finally:
        os.close(descriptor)


def _remove_dead(path: str) -> None:
    """A socket to which nobody listens was left by somebody who was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as knocking:
        try:
            knocking.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _remove(path: str, identity: tuple[int, int]) -> None:
    """Our own socket: a daemon that was started meanwhile may have put its own there."""
    with contextlib.suppress(OSError):
        if _identity(path) == identity:
            os.unlink(path)


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _refused(target: Target, error: OSError) -> SysperfError:
    where = target.folder or "the abstract name space"
    if error.errno == errno.EADDRINUSE:
        return SysperfError(
            f"another tracing daemon listens for process {target.pid} in {where}",
            "dynolog, or another `sysperf trace`: use it, wait for it, or end it",
        )
    return SysperfError(
        f"no socket can be made in {where}: {error.strerror}",
        "the folder was there when the program started (a login's /run/user is removed with it): start the program again",
    )
