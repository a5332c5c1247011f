"""Files that are read again and again, through descriptors that stay open.

Opening a file of /proc costs more than reading it. A kept descriptor of a process also keeps its number from meaning
another process: once it ended, every read fails.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

FIRST_BYTES = 4 << 10
MAX_BYTES = 4 << 20
RETRY_S = 30.0
"""How long a file that cannot be opened is left alone: it may come back, and asking each second costs."""
COSTLY_S = 0.0005
"""A read that costs more CPU time is done less often: /proc/stat of a machine with 256 CPUs takes several milliseconds."""
MAX_SKIPPED = 30


class OpenFile:
    """One file. `read` answers None when it cannot, and `problem` says why."""

    __slots__ = ("_again_s", "_clock", "_fd", "_size", "_skip", "gone", "path", "problem")

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        self.path = path
        self.problem = ""
        self.gone = False
        """The file is not there, or what it told about ended."""
        self._clock = clock
        self._fd = -1
        self._size = FIRST_BYTES
        self._again_s = 0.0
        self._skip = 0

    def read(self) -> bytes | None:
        """The whole file as it is now."""
        if self._fd < 0 and not self._open():
            return None
        try:
            data = os.pread(self._fd, self._size, 0)
            while len(data) >= self._size and self._size < MAX_BYTES:
                self._size *= 4
                data = os.pread(self._fd, self._size, 0)
        except OSError as error:
            self._failed(error)
            return None
        self.problem, self.gone = "", False
        return data

    def read_if_cheap(self, cpu_clock: Callable[[], float] = time.thread_time) -> bytes | None:
        """The same, but None in turns in which a costly file is left alone. Waiting for a CPU is no cost of the file."""
        if self._skip:
            self._skip -= 1
            return None
        start = cpu_clock()
        data = self.read()
        took_s = cpu_clock() - start
        if took_s > COSTLY_S:
            self._skip = min(MAX_SKIPPED, int(took_s / COSTLY_S))
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _open(self) -> bool:
        now = self._clock()
        if now < self._again_s:
            return False
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: OSError) -> None:
        self.problem = error.strerror or str(error)
        self.gone = error.errno in (errno.ENOENT, errno.ESRCH)
        self._again_s = self._clock() + RETRY_S
        self.close()
