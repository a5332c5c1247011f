"""The socket to which a PyTorch process sends its requests; it exists while a trace is taken."""

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
from sysperf_torch.wire import Request

_CREDENTIALS = struct.Struct("=iII")


class DaemonSocket:
    """Answers the processes that are to be traced, and sends an empty configuration to all others of their user."""

    def __init__(self, bound: socket.socket, target: Target) -> None:
        self._socket, self._uid = bound, target.uid
        self.targets = {target.pid: target}
        bound.setblocking(False)

    def wait(self, seconds: float) -> tuple[int, Request, str | bytes] | None:
        """Return (process, request, address for the reply), or None when none came within this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self._socket], [], [], left)[0]:
                request = self._receive()
                if request is not None:
                    return request
        return None

    def answer(self, request: Request, address: str | bytes, config: str = "") -> bool:
        """Send a configuration; return whether the process could receive it."""
        try:
            self._socket.sendto(wire.reply(request, config), address)
        except OSError:  # it has ended, or its queue is full: then it asks again
            return False
        return True

    def _receive(self) -> tuple[int, Request, str | bytes] | None:
        """Receive one datagram. The kernel names its sender; with room for credentials alone, no passed descriptor arrives."""
        try:
            data, ancillary, flags, address = self._socket.recvmsg(wire.MAX_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            return None
        request = None if flags & socket.MSG_TRUNC else wire.parse(data)
        sender = _sender(ancillary)
        if request is None or sender is None or not address:
            return None
        pid, uid, _ = sender
        if uid == self._uid and pid in self.targets:
            return pid, request, address
        if uid == self._uid:
            self.answer(request, address)
        return None


def _sender(ancillary: list[tuple[int, int, bytes]]) -> tuple[int, int, int] | None:
    """Return (pid, uid, gid) of the sender from the kernel's credentials."""
    for level, kind, data in ancillary:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, _CREDENTIALS.size):
            pid, uid, gid = _CREDENTIALS.unpack(data)
            return pid, uid, gid
    return None


@contextlib.contextmanager
def listen(target: Target) -> Iterator[DaemonSocket]:
    """Bind the socket that this process asks. Raises SysperfError when another daemon has it."""
    with contextlib.ExitStack() as cleanup, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            if target.folder:
                cleanup.enter_context(_locked(target.folder))
                _remove_dead(str(target.address))
            bound.bind(target.address)
        except OSError as error:
            raise _refused(target, error) from None
        if target.folder:
            cleanup.callback(_remove, str(target.address), _identity(str(target.address)))
        yield DaemonSocket(bound, target)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock the folder, so that two commands do not take each other's socket for a dead one."""
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
    """Remove a socket without a listener: its owner was killed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _remove(path: str, identity: tuple[int, int]) -> None:
    """Remove our own socket; a daemon that was started meanwhile may have bound its own there."""
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
