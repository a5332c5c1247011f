"""Files are examined by processes of their own: one that takes too long, too much memory, or crashes the parser costs itself only."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import struct
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from sysperf.model.record import from_json, to_json
from sysperf.script.hypothesis import Examined

FILE_S = 60.0
"""100,000 lines take 5 to 10 s."""
MEMORY_BYTES = 4 << 30
FEW = 4
"""Files for which a second process does not pay."""
ENDED = "the process that parsed it ended: out of memory, or a defect of the parser"
_LENGTH = struct.Struct("<I")
Target = TypeVar("Target")
Examine = Callable[[Target], Examined]
Failed = Callable[[Target, str], Examined]


def examine_all(targets: Sequence[Target], examine: Examine[Target], failed: Failed[Target], *, file_s: float = FILE_S) -> list[Examined]:
    """Examine each target, in their order; `failed` makes the answer for one whose process ended."""
    pool = _Pool(targets, examine, failed, file_s)
    try:
        return pool.run(1 if len(targets) <= FEW else min(8, len(os.sched_getaffinity(0))))
    finally:
        pool.close()


class _Worker:
    """A process that examines one target after another."""

    def __init__(self, answer: Callable[[int], bytes], others: Sequence[_Worker]) -> None:
        asked, self.ask = os.pipe2(os.O_CLOEXEC)
        self.hear, answers = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            for descriptor in (self.ask, self.hear, *(end for other in others for end in (other.ask, other.hear))):
                os.close(descriptor)
            _serve(asked, answers, answer)
        os.close(asked)
        os.close(answers)
        self.number = -1
        self.until = 0.0
        self.data = bytearray()

    def give(self, number: int, seconds: float) -> None:
        """Ask for a target, by its number."""
        self.number, self.until, self.data = number, time.monotonic() + seconds, bytearray()
        os.write(self.ask, _LENGTH.pack(number))

    def take(self) -> bytes | None:
        """The answer, once it is whole. Raises EOFError when the process ended."""
        part = os.read(self.hear, 1 << 20)
        if not part:
            raise EOFError
        self.data += part
        if len(self.data) < _LENGTH.size or len(self.data) < _LENGTH.size + _LENGTH.unpack_from(self.data)[0]:
            return None
        return bytes(self.data[_LENGTH.size :])

    def end(self) -> int:
        """End the process and return its wait status."""
        for descriptor in (self.ask, self.hear):
            os.close(descriptor)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]


def _serve(asked: int, answers: int, answer: Callable[[int], bytes]) -> None:
    """The child: answer until nobody asks. It never returns into the caller's program."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        while request := os.read(asked, _LENGTH.size):
            data = answer(_LENGTH.unpack(request)[0])
            data = _LENGTH.pack(len(data)) + data
            while data:
                data = data[os.write(answers, data) :]
    finally:
        os._exit(1)


class _Pool:
    """Workers, as many as are useful, and the answers so far."""

    def __init__(self, targets: Sequence[Target], examine: Examine[Target], failed: Failed[Target], file_s: float) -> None:
        self._answer: Callable[[int], bytes] = lambda number: to_json(_examined(targets[number], examine, failed))
        self._failed: Callable[[int, str], Examined] = lambda number, why: failed(targets[number], why)
        self._file_s = file_s
        self._waiting = list(reversed(range(len(targets))))
        self._found: dict[int, Examined] = {}
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []

    def run(self, count: int) -> list[Examined]:
        """All answers."""
        for _ in range(min(count, len(self._waiting))):
            self._start()
        while self._workers:
            soonest = min(worker.until for worker in self._workers)
            for key, _ in self._selector.select(max(0.0, soonest - time.monotonic())):
                self._hear(key.data)
            for worker in [worker for worker in self._workers if worker.until <= time.monotonic()]:
                self._lost(worker, f"it took longer than {self._file_s:g} s")
        return [self._found[number] for number in sorted(self._found)]

    def _start(self) -> None:
        worker = _Worker(self._answer, self._workers)
        self._workers.append(worker)
        self._selector.register(worker.hear, selectors.EVENT_READ, worker)
        self._next(worker)

    def _next(self, worker: _Worker) -> None:
        if not self._waiting:
            self._drop(worker)
            return
        try:
            worker.give(self._waiting.pop(), self._file_s)
        except BrokenPipeError:
            self._lost(worker, ENDED)

    def _hear(self, worker: _Worker) -> None:
        try:
            data = worker.take()
        except EOFError:
            self._lost(worker, ENDED)
            return
        if data is not None:
            self._found[worker.number] = from_json(data, Examined)
            self._next(worker)

    def _lost(self, worker: _Worker, why: str) -> None:
        """A target that a worker did not survive; another worker carries on."""
        self._found[worker.number] = self._failed(worker.number, why)
        self._drop(worker)
        if self._waiting:
            self._start()

    def _drop(self, worker: _Worker) -> None:
        self._selector.unregister(worker.hear)
        self._workers.remove(worker)
        worker.end()

    def close(self) -> None:
        """End all processes."""
        for worker in list(self._workers):
            self._drop(worker)
        self._selector.close()


def _examined(target: Target, examine: Examine[Target], failed: Failed[Target]) -> Examined:
    """A target's answer; one too large for the limits is one that was not read."""
    try:
        return examine(target)
    except MemoryError:
        return failed(target, f"it needs more than {MEMORY_BYTES >> 30} GiB")
    except Exception as error:  # noqa: BLE001 - a defect of ours costs this file, which the report names, and not the others
        return failed(target, f"internal error: {type(error).__name__}: {error}")
