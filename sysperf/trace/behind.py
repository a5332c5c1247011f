"""How late ranks hold the others up, beside the waiting itself.

Where no host waits for its device, what made a rank late once makes it late in all that follows, and costs nothing anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean, stdev

from sysperf.trace.intervals import length, median, union
from sysperf.trace.rank_summary import Entry, RankSummary

MIN_STEPS = 4
CARRIED = 0.5
"""The part of what others wait in a step by which the host of a late rank begins its steps later, at least: so much is not made up for."""
MIN_HELD = 0.5
"""Of what others wait in collectives, their hosts wait for their devices: they do not run ahead."""
MIN_FALLING = 2.5
"""Times its standard error, the time by which a rank falls behind from step to step, from which it is slower, and no chance."""
MIN_FALLING_PCT = 1.0
"""Of a step."""


def stays_behind(each: Sequence[RankSummary], matched: Sequence[Sequence[Entry]], late: Sequence[int], lost_pct: float) -> bool:
    """Whether late ranks begin their steps as late as they come to collectives, and fall behind no further from step to step.

    Where hosts wait for their devices, a rank is late by what it does anew: all begin a step together, or go on together within it.
    """
    others = [index for index in range(len(each)) if index not in late]
    if any(100 * each[index].host_waits_ns >= MIN_HELD * lost_pct * each[index].window_ns for index in others):
        return False
    count = min(len(summary.steps) for summary in each)
    if count < MIN_STEPS or len({len(summary.steps) for summary in each}) > 1 or not others:
        return False
    return all(_only_stays(each, matched, index, others, lost_pct) for index in late)


def _only_stays(each: Sequence[RankSummary], matched: Sequence[Sequence[Entry]], late: int, others: Sequence[int], lost_pct: float) -> bool:
    began = [start for start, _ in each[late].steps]
    step = (began[-1] - began[0]) / (len(began) - 1)
    clocks = {index: median([entries[index].end - entries[late].end for entries in matched]) for index in others}
    behind = [median([start - (each[index].steps[number][0] - clocks[index]) for index in others]) for number, start in enumerate(began)]
    falls = [after - before for before, after in itertools.pairwise(behind)]
    error = stdev(falls) / len(falls) ** 0.5
    is_slower = fmean(falls) >= max(MIN_FALLING * error, MIN_FALLING_PCT / 100 * step)
    return not is_slower and median(behind) >= CARRIED * lost_pct / 100 * step


def slack_pct(each: Sequence[RankSummary], late: Sequence[int]) -> float:
    """Percent of the time by which the hosts of all other ranks could launch sooner, were a late one quicker.

    They wait for their devices so long, or are done with their steps so much sooner. A host that does neither is as slow itself: its
    collectives wait, one after the other, for a rank that is a little later throughout.
    """
    pace = max(_step(each[index]) for index in late)
    sooner = [1 - _step(summary) / pace if pace else 1.0 for summary in each]
    waiting = [summary.host_waits_ns / summary.window_ns if summary.window_ns else 1.0 for summary in each]
    return 100 * min(max(waiting[index], sooner[index]) for index in range(len(each)) if index not in late)


def _step(summary: RankSummary) -> float:
    """How long a step of the host lasts; 0: nobody knows."""
    return median([end - start for start, end in summary.steps] or [0])


def keeps_their_pace(each: Sequence[RankSummary], late: Sequence[int], loading: Sequence[float]) -> bool:
    """Whether the loaders of all ranks are as slow as those of late ones, by the time that each rank waits for its own.

    Workers go on while a rank waits for others: where their batches came sooner, the other ranks would wait for none. So late ranks only
    got their batches later once, and come as late to all that follows.
    """
    if not all(summary.loads_ahead for summary in each):
        return False
    others = median([share for index, share in enumerate(loading) if index not in late] or [0.0])
    return others >= CARRIED * median([loading[index] for index in late])


def exposed_more(matched: Sequence[Sequence[Entry]], late: Sequence[int]) -> int:
    """ns by which collectives run alone longer on each other rank than on the late ones, who never wait in them."""
    exposed = [length(union(span for entries in matched for span in entries[index].alone)) for index in range(len(matched[0]))]
    return max(0, min(ns for index, ns in enumerate(exposed) if index not in late) - max(exposed[index] for index in late))
