"""The facts of the programs that run PyTorch, read some at a time and put together.

A neighbour that starts 150 programs at once must not make the agent read 150 programs at once, nor hold what it read of all.
The facts are read again and again, so the shares and rates of a program are of the time since the last reading, not of its whole life.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from sysperf.collect.machine_facts import MachineFacts
from sysperf.host import failures
from sysperf.model.snapshot import Area, Source

if TYPE_CHECKING:
    from sysperf.collect.process.records import Process, Processes

MIN_WINDOW_S = 10.0
"""Shares are of at least so many seconds: a changed setting makes the agent read again at once."""
PROGRAMS_AT_ONCE = 16
"""New programs that one pass describes, and processes that are described through one host; each program with all below it."""


def first_of(families: Iterable[list[int]], workers: Collection[int]) -> list[list[int]]:
    """Take as many as one pass describes, one at least; little is read of workers, which do not count."""
    out: list[list[int]] = []
    room = PROGRAMS_AT_ONCE
    for family in families:
        room -= sum(pid not in workers for pid in family)
        if room < 0 and out:
            break
        out.append(family)
    return out


def batches(families: Iterable[list[int]]) -> list[list[int]]:
    """Put as many families together as are read through one host."""
    out: list[list[int]] = []
    for family in families:
        if out and len(out[-1]) + len(family) <= PROGRAMS_AT_ONCE:
            out[-1] += family
        else:
            out.append([*family])
    return out


def none_runs(area: Area) -> Area:
    """An empty list means that none runs PyTorch: the narrow list of processes has no other reason to be empty."""
    from sysperf.collect.process.records import Processes  # noqa: PLC0415 - with the collector

    return Area(Processes(processes=()), None, area.failures, area.took_ms)


class ProcessFacts:
    """What is known of each program, by its number."""

    def __init__(self) -> None:
        self._programs: dict[int, Process] = {}
        self._earlier: dict[int, tuple[Process, ...]] = {}
        """The facts of each program at its latest two readings that lie far enough apart."""
        self._seen: set[int] = set()
        self._sources: dict[str, Source] = {}
        self._latest: Processes | None = None
        self._problem: str | None = None
        self._took_ms = 0.0

    @property
    def sources(self) -> Mapping[str, Source]:
        """What was read of the programs that are known."""
        return self._sources

    def unread(self, pids: Iterable[int]) -> set[int]:
        """Return those of which nothing was read yet."""
        return set(pids) - self._seen

    def keep(self, pids: Collection[int]) -> None:
        """Forget all others: they have ended."""
        gone = self._seen - set(pids)
        self._forget(gone)
        self._earlier = {pid: facts for pid, facts in self._earlier.items() if pid not in gone}

    def _forget(self, pids: Collection[int]) -> None:
        """What was read of these is no longer known."""
        if pids:
            self._seen.difference_update(pids)
            self._programs = {pid: program for pid, program in self._programs.items() if pid not in pids}
            folders = tuple(f"/proc/{pid}/" for pid in pids)
            self._sources = {path: source for path, source in self._sources.items() if not path.startswith(folders)}

    def take(self, pids: Collection[int], area: Area, sources: Iterable[Source]) -> None:
        """Put what was read of these programs in the place of what was known of them."""
        self._forget(self._seen.intersection(pids))
        self._seen.update(pids)
        self._sources.update((source.path, source) for source in sources)
        self._problem, self._took_ms = area.problem, area.took_ms
        if (read := MachineFacts({"process": area}).process) is not None:
            self._latest = read
            self._programs |= {program.pid: self._over_window(program) for program in read.processes}

    def _over_window(self, program: Process) -> Process:
        """The program with the shares of the time since the latest reading that is old enough."""
        from sysperf.collect.process.window import between  # noqa: PLC0415 - with the collector

        facts = [earlier for earlier in self._earlier.get(program.pid, ()) if earlier.start_time == program.start_time]
        old_enough = [earlier for earlier in facts if (program.age_s or 0.0) - (earlier.age_s or 0.0) >= MIN_WINDOW_S]
        if len(old_enough) == len(facts):
            self._earlier[program.pid] = (*facts[-1:], program)
        return between(old_enough[-1], program) if old_enough else program

    def area(self) -> Area:
        """All programs, oldest first. Unknown where nothing could be read."""
        if self._latest is None:
            return Area(None, self._problem, failures(self._sources.values()), self._took_ms)
        from sysperf.collect.process import with_leaders  # noqa: PLC0415 - with the collector

        oldest_first = sorted(self._programs.values(), key=lambda program: (program.start_time or 0, program.pid))
        facts = msgspec.structs.replace(self._latest, processes=with_leaders(oldest_first))
        return Area(facts, None, failures(self._sources.values()), self._took_ms)
