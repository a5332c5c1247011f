"""Stages of a pipeline beside each other: which one the others wait for, and what all wait while the pipeline fills and empties.

A stage computes, exchanges something with one other, or waits: for what it receives, or for all others at the end of a step. So the
slowest one waits least, by what each other one has less to do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import quantiles
from typing import NamedTuple

from sysperf.trace.intervals import length, union
from sysperf.trace.rank_summary import Entry, RankSummary

MIN_PART = 3
"""One third of what runs alone is exchanged by two: ranks with less of it are no stages, or hardly wait for each other."""
MIN_AHEAD_PCT = 10.0
"""Of the time, by which the slowest stages wait less than all others."""
ALIKE = 2
"""The slowest stages differ by at most one part in so many of that."""


class Alone(NamedTuple):
    """What exchanging costs one stage, in percent of its window."""

    share: float
    """When it does nothing else."""
    own: float
    """The part of it that the exchange takes; the rest is waiting."""


def alone(each: Sequence[RankSummary]) -> list[Alone]:
    """What exchanging costs each stage of a pipeline; empty where ranks are none."""
    if len(each) < 2 or not all(summary.window_ns and any(entry.is_between_two for entry in summary.collectives) for summary in each):
        return []
    whole = [_exposed(summary.collectives) for summary in each]
    between = [_exposed([entry for entry in summary.collectives if entry.is_between_two]) for summary in each]
    if MIN_PART * sum(between) < sum(whole):
        return []
    usual = _exchange_ns(each)
    return [
        Alone(100 * ns / summary.window_ns, 100 * _exposed(summary.collectives, usual) / summary.window_ns)
        for ns, summary in zip(whole, each, strict=True)
    ]


def slowest(shares: Sequence[float]) -> list[int]:
    """The stages, up to half of all, that wait for others clearly less than all the rest, and about as long as each other."""
    order = sorted(range(len(shares)), key=shares.__getitem__)
    ahead = [shares[after] - shares[before] for before, after in itertools.pairwise(order)][: len(order) // 2]
    most = max(ahead, default=0.0)
    chosen = order[: ahead.index(most) + 1] if ahead else []
    is_clear = most >= MIN_AHEAD_PCT and ALIKE * (shares[chosen[-1]] - shares[chosen[0]]) <= most
    return sorted(chosen) if is_clear else []


def _exchange_ns(each: Sequence[RankSummary]) -> float:
    """How long two take to exchange something. Both end together, so the later one, which is one of two, did not wait."""
    took = [entry.took for summary in each for entry in summary.collectives if entry.is_between_two]
    return quantiles(took, n=4)[0] if len(took) > 1 else took[0]


def _exposed(entries: Sequence[Entry], most: float | None = None) -> int:
    """ns in which these run alone, of each at most so many at its end."""
    return length(union(span for entry in entries for span in (entry.alone if most is None else entry.working(round(most)))))
