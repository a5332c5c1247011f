"""The source of the dashboard's facts, findings and meters: one interface, three sources in `sysperf.tui.sources`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sysperf.collect.process.workers import Workers
from sysperf.model.change import Transaction
from sysperf.model.finding import Report

HERE = "sampled here"
"""How the source is called that is this process."""


class Facts(NamedTuple):
    """The machine was looked at."""

    report: Report
    since: Mapping[str, float] = {}
    """When a finding held first, by its key, in Unix time."""
    counted: bool = True
    """The report also says how many checks passed and what is unknown."""


class Meters(NamedTuple):
    """One sample of many series."""

    at: float
    meters: Mapping[str, float]
    unknown: dict[str, str] | None = None
    """Why others are unknown, by their names; None: as before."""


class Neighbour(NamedTuple):
    """A process and the CPUs that it uses."""

    pid: int
    parent: int
    name: str
    cpus: float
    user: int | None


class Load(NamedTuple):
    """The busy share of each CPU, and the processes that use most, where somebody has counted."""

    per_cpu: Mapping[int, float]
    neighbours: Sequence[Neighbour] | None = None


class Past(NamedTuple):
    """Earlier values of series, oldest first, for the small curves."""

    past: Mapping[str, Sequence[float]]


class Changed(NamedTuple):
    """What was changed on the machine, newest first."""

    changes: Sequence[Transaction]


class Problem(NamedTuple):
    """The source cannot say anything right now, and why; an empty text: it can again."""

    text: str
    again: bool = False
    """Whether it goes on asking: a caller that can wait need not give up."""


SourceUpdate = Facts | Meters | Load | Past | Changed | Problem
Publish = Callable[[SourceUpdate], None]


class Mark(NamedTuple):
    """Something that happened, on the axis of a curve."""

    at: float
    kind: str
    text: str
    key: str = ""
    """Of a finding that came or went: which one it is."""


Points = Sequence[tuple[float, float, float, float]]
"""(time, mean, low, high) of a series"""


class History(NamedTuple):
    """The past of series, and what happened meanwhile."""

    series: Mapping[str, Points]
    marks: Sequence[Mark] = ()
    since: float = 0.0
    until: float = 0.0

    def points(self, name: str) -> Points:
        """The points of a series; none where it was not sampled."""
        return self.series.get(name, ())


class Source(Protocol):
    """Tells news from threads of its own, from `start` to `close`."""

    name: str
    """For the first line of the screen: ``agent at …``, ``sampled here``, ``captured machine …``."""
    local: bool
    """It is about this very machine, so that settings may be changed from here."""
    live: bool
    """Its meters move."""
    remembers: bool
    """It keeps a history."""

    def start(self, publish: Publish) -> None:
        """Begin to tell. Returns at once."""

    def close(self) -> None:
        """Stop."""

    def look_again(self) -> None:
        """Something was changed: look at the machine soon."""

    def watch_cpus(self, *, on: bool) -> None:
        """Whether somebody looks at the load of each CPU."""

    def workers(self, pid: int) -> Workers | None:
        """The DataLoader workers of a program as they are now; None where nobody can tell. May block; raises SysperfError."""

    def series(self) -> list[tuple[str, str]]:
        """(name, what it says) of the series that have a history. May block; raises SysperfError."""

    def history(self, names: Sequence[str], span_s: float, points: int) -> History:
        """The past of series. May block; raises SysperfError."""
