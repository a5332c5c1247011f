"""Experiments that compare more than two: a setting at several levels."""

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


class NotHere(Record):
    """An experiment that this machine cannot show."""

    experiment: str
    cannot: Annotated[str, fact("why it cannot be measured here")]
