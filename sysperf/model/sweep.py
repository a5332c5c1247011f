"""Experiments that compare more than two: a setting at several levels, and bandwidths between places."""

from __future__ import annotations

from typing import Annotated

from sysperf.model.comparison import Comparison, Metric
from sysperf.model.record import Record, fact


class SweptLevel(Record):
    """One way to set it, and how the program did."""

    name: Annotated[str, fact("such as 4 workers; the first is `as it is`")]
    values: Annotated[tuple[float, ...], fact("the metric of each of its runs")] = ()
    median: Annotated[float | None, fact("of the values; null where no run ended well")] = None
    failed: Annotated[str, fact("why a run failed; empty where none did")] = ""


class Sweep(Record, kw_only=True):
    """A setting at several levels, and the best of them against the program as it is."""

    experiment: str
    factor: Annotated[str, fact("what is set, such as threads")]
    metric: Metric
    levels: tuple[SweptLevel, ...] = ()
    basis: Annotated[str, fact("why these levels were tried")] = ""
    best: Annotated[str, fact("the level that was compared with plain in fresh pairs; empty where plain was the fastest")] = ""
    profile: Annotated[str, fact("the launch profile of that level; empty where there is none")] = ""
    comparison: Annotated[Comparison | None, fact("that comparison; null where there was nothing to compare")] = None
    cannot: Annotated[str, fact("why this cannot be measured here; empty where it can")] = ""


class Transfer(Record):
    """How fast bytes go from one place to another."""

    source: Annotated[str, fact("such as memory of node 1")]
    target: Annotated[str, fact("such as CPUs of node 0, or GPU 3")]
    gb_per_s: Annotated[float | None, fact("median of the runs, in 10^9 bytes a second; null where none ended well")] = None
    low: Annotated[float | None, fact("slowest run")] = None
    high: Annotated[float | None, fact("fastest run")] = None
    runs: int = 0
    failed: Annotated[str, fact("why a run failed; empty where none did")] = ""


class Bandwidths(Record, kw_only=True):
    """Bandwidths between all places of a kind."""

    experiment: str
    transfers: tuple[Transfer, ...] = ()
    cannot: Annotated[str, fact("why this cannot be measured here; empty where it can")] = ""
    interrupted: bool = False
