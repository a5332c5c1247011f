"""Traces of a running PyTorch program that was started with KINETO_USE_DAEMON=1, and is not changed for it.

Such a program asks a daemon every 5 s whether it shall trace. We are that daemon for as long as one trace takes. The
program itself writes the file, as its own user.
"""

from __future__ import annotations

import os
import time

from sysperf.host import Host
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Trace, TraceWish
from sysperf.plugin import Tell
from sysperf_torch import written
from sysperf_torch.door import Door, opened
from sysperf_torch.target import Target, find
from sysperf_torch.wire import Asked

ASKS_WITHIN_S = 40.0
"""It asks every 5 s; a program that imports PyTorch on a busy machine takes its time before the first."""
IGNORED_AFTER = 4
"""Times that it asks for more work, with no file begun, until we say that it ignored the first."""
LONGEST_MS, MOST_ITERATIONS = 60_000, 1_000


def owner(host: Host, pid: int) -> tuple[int, int]:
    """(uid, gid) of a program that can be traced from here. Raises SysperfError with the reason where it can not."""
    target = find(host, pid, os.geteuid())
    return target.uid, target.gid


def trace(host: Host, wish: TraceWish, tell: Tell) -> Trace:
    """Have the program write a trace, and wait for it. Nothing is left behind when this ends otherwise. Raises SysperfError."""
    _check(wish)
    target = find(host, wish.pid, os.geteuid())
    if target.uid != os.geteuid():
        raise SysperfError(
            f"process {wish.pid} belongs to user {target.uid}", f"take its trace as that user: sudo sysperf trace {wish.pid}"
        )
    path = written.chosen(wish.output, wish.pid)
    with written.scratch(path) as folder, opened(target) as door:
        begun = time.monotonic()
        made = _Taking(host, target, door, wish, folder, tell).run()
        try:
            found = written.counts(made)
        except OSError as error:
            raise SysperfError(f"{made}: {error.strerror}", "the disk may be full or broken") from None
        written.placed(made, path)
        return Trace(wish.pid, path, *found, round(time.monotonic() - begun, 1))


def config(wish: TraceWish, file: str) -> str:
    """What the program is told, in Kineto's words."""
    if wish.iterations:
        when = ["PROFILE_START_ITERATION=0", "PROFILE_START_ITERATION_ROUNDUP=1", f"ACTIVITIES_ITERATIONS={wish.iterations}"]
    else:
        when = ["PROFILE_START_TIME=0", f"ACTIVITIES_DURATION_MSECS={wish.duration_ms}"]
    more = [f"PROFILE_REPORT_INPUT_SHAPES={str(wish.shapes).lower()}", f"PROFILE_WITH_STACK={str(wish.stacks).lower()}"]
    return "\n".join([f"ACTIVITIES_LOG_FILE={file}", *when, *more, ""])


def _check(wish: TraceWish) -> None:
    if bool(wish.iterations) == bool(wish.duration_ms):
        raise UsageError("a trace is of some iterations or of some seconds", "give either")
    if not 0 <= wish.iterations <= MOST_ITERATIONS:
        raise UsageError(f"{wish.iterations} iterations: not between 1 and {MOST_ITERATIONS}", "5 tell the most")
    if not 0 <= wish.duration_ms <= LONGEST_MS:
        raise UsageError(f"{wish.duration_ms / 1000:g} s: not between 0.001 and {LONGEST_MS // 1000}", "1 s can be 20 MB")


class _Taking:
    """One trace, from the first question of the program to the whole file."""

    def __init__(self, host: Host, target: Target, door: Door, wish: TraceWish, folder: str, tell: Tell) -> None:
        self._host, self._target, self._door, self._wish, self._folder, self._tell = host, target, door, wish, folder, tell
        self._began = time.monotonic()
        self._heard = self._given = False
        self._ignored = 0
        """Times that it asked for work although it had been given this."""

    def run(self) -> str:
        """The whole file."""
        while (made := written.whole(self._folder)) is None:
            self._give_up_in_time()
            self._tell(f"{self._doing()} ({self._waited():.0f} s)")
            if (found := self._door.wait(0.5)) is not None:
                self._answer(*found)
        return made

    def _answer(self, asked: Asked, address: str | bytes) -> None:
        give = asked.kind == "req" and asked.free and not self._given
        if self._door.answer(asked, address, config(self._wish, f"{self._folder}/trace.json") if give else ""):
            self._ignored += self._given and asked.free
            self._given = self._given or give
            self._heard = True

    def _doing(self) -> str:
        if not self._heard:
            return f"waiting until process {self._target.pid} asks, which it does every 5 s"
        if not self._given:
            return "its profiler is at work already: waiting until that is done"
        return "the program traces itself" if written.started(self._folder) else "the program has the request"

    def _waited(self) -> float:
        return time.monotonic() - self._began

    def _give_up_in_time(self) -> None:
        """Raise SysperfError when there will be no trace."""
        pid, limit_s = self._target.pid, self._wish.limit_s
        if not self._target.alive(self._host):
            raise SysperfError(f"process {pid} ended before its trace was written")
        if not self._heard and self._waited() > min(ASKS_WITHIN_S, limit_s):
            raise SysperfError(
                f"process {pid} has not asked for {self._waited():.0f} s",
                "it has not imported torch, or its torch was built without Kineto",
            )
        if self._ignored >= IGNORED_AFTER and not written.started(self._folder):
            raise SysperfError(f"process {pid} took the request and started no trace", "what it prints may tell why")
        if self._waited() > limit_s:
            raise SysperfError(
                f"no trace within {limit_s:g} s",
                "it counts optimizer steps: --seconds 1 traces by time" if self._wish.iterations else "give it more time with --limit",
            )
