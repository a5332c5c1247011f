"""Whether a signal was sent to our whole process group, or service, and so to the program that we wait for as well.

The kernel does not say whom else somebody sent a signal to. A process of ours beside the program, in the same group, gets what both got.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import NoReturn

from sysperf.host.forked import close_all_but, ending_with_parent

MAX_WAIT_S = 0.05
"""How much later than us it may get a signal that was sent to all: the kernel and service managers send one after the other."""
MAX_ANSWER_S = 5.0
"""How long it may take to tell what it got, where it is stopped, or others have the CPUs."""
MAX_AGE_S = 1.0
"""A signal that it got so long before us was another one."""
_QUESTION = signal.SIGRTMAX
"""Of signals that wait, the kernel gives the lowest number first (signal(7)): when this one is told of, all others were."""


class Witness:
    """The process that takes the signals of the group. Where it cannot be started, no signal counts as one of the group."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, float]] = []
        self._pid = self._source = -1
        with contextlib.suppress(OSError):
            self._source, target = os.pipe()
            self._start(target)
            os.close(target)

    def _start(self, target: int) -> None:
        """Raises OSError."""
        parent, end_with_us = os.getpid(), ending_with_parent(signal.SIGKILL)
        usual = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if self._pid == 0:
                end_with_us()
                _watch(parent, target)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)

    def got(self, number: int) -> bool:
        """Whether it got this signal too; waits a moment for it, and then until it has told of all that came before a question."""
        end, is_asked = time.monotonic() + MAX_WAIT_S, False
        while not self._take(number):
            if self._pid < 0:
                return False
            if not select.select([self._source], [], [], max(0.0, end - time.monotonic()))[0]:
                if is_asked:
                    return False
                os.kill(self._pid, _QUESTION)
                end, is_asked = time.monotonic() + MAX_ANSWER_S, True
                continue
            numbers = os.read(self._source, 100)
            if not numbers:  # somebody killed it
                return False
            self._seen += [(seen, time.monotonic()) for seen in numbers if seen != _QUESTION]
            if _QUESTION in numbers:
                return self._take(number)
        return True

    def _take(self, number: int) -> bool:
        """Whether it told of this signal; one that came long ago, or was asked for, is forgotten."""
        now = time.monotonic()
        self._seen = [(seen, at) for seen, at in self._seen if now - at < MAX_AGE_S]
        match = next((entry for entry in self._seen if entry[0] == number), None)
        if match:
            self._seen.remove(match)
        return match is not None

    def end(self) -> None:
        """Kill it."""
        if self._pid > 0:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            os.close(self._source)


def _watch(parent: int, target: int) -> NoReturn:
    """Write the number of each signal, in the witness, until the parent kills us or ends."""
    try:
        close_all_but({target})
        while os.getppid() == parent:
            os.write(target, bytes([signal.sigwaitinfo(signal.valid_signals()).si_signo]))
    finally:
        os._exit(0)
