"""Descriptors that tell the event loop something: processes that end, and memory or CPUs that become scarce.

Kernel  https://man7.org/linux/man-pages/man2/pidfd_open.2.html  https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Iterable

TRIGGERS = (b"some 150000 1000000\0", b"some 300000 2000000\0")
"""Tell us when tasks waited for 150 ms of a second. Without privileges the window must be a multiple of 2 s (6.5 and later)."""
RESOURCES = ("cpu", "memory", "io")


class ProcessExitWatcher:
    """Calls back when a process ends. Where pidfds cannot be had, nobody is told, and the next sample finds out."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[int], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._pidfds: dict[int, int] = {}

    def watch(self, pids: Iterable[int]) -> None:
        """Watch these and no others."""
        wanted = set(pids)
        for pid in self._pidfds.keys() - wanted:
            self.forget(pid)
        for pid in wanted - self._pidfds.keys():
            with contextlib.suppress(OSError, AttributeError):  # it ended, or there are no descriptors left
                pidfd = os.pidfd_open(pid)
                self._pidfds[pid] = pidfd
                self._loop.add_reader(pidfd, self._readable, pid)

    def forget(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is not None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        self.watch(())

    def _readable(self, pid: int) -> None:
        self.forget(pid)
        self._ended(pid)


class PressureWatcher:
    """Calls back when the kernel says that tasks wait. Where it does not let us ask, `problem` says why."""

    def __init__(self, loop: asyncio.AbstractEventLoop, called: Callable[[], None], folder: str = "/proc/pressure") -> None:
        self._loop = loop
        self.problem = ""
        self._poll = select.epoll()
        self._files: list[int] = []
        for resource in RESOURCES:
            self._arm(f"{folder}/{resource}")
        if self._files:
            # asyncio waits for what can be read; these files are ready with EPOLLPRI, which makes this epoll readable.
            loop.add_reader(self._poll.fileno(), self._ready, called)

    @property
    def armed(self) -> int:
        """How many of the resources the kernel watches for us."""
        return len(self._files)

    def close(self) -> None:
        with contextlib.suppress(ValueError):
            self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
        for file in self._files:
            os.close(file)
        self._files = []

    def _arm(self, path: str) -> None:
        problem = ""
        for trigger in TRIGGERS:
            file = -1
            try:
                file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                os.write(file, trigger)
                self._poll.register(file, select.EPOLLPRI)
            except OSError as error:
                problem = f"{path}: {error.strerror}"
                if file >= 0:
                    os.close(file)
                continue
            self._files.append(file)
            return
        self.problem = self.problem or problem

    def _ready(self, called: Callable[[], None]) -> None:
        if any(event & select.EPOLLPRI for _, event in self._poll.poll(0)):
            called()
        else:  # EPOLLERR: the file was taken away
            self._loop.remove_reader(self._poll.fileno())
