"""The end of a program's warm-up: change points of the mean of log step times, by optimal partitioning with pruning.

PELT: Killick, Fearnhead and Eckley, JASA 107 (2012), arXiv 1101.1438; the cost is that of a normal mean with a common
variance, estimated from differences of neighbours, and the penalty is BIC's for a change of mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import median

MIN_SEGMENT = 20
"""Steps of the shortest stretch that counts as one."""
MAX_POINTS = 1_000
"""Longer runs are averaged to so many points."""
MIN_STEADY_SHARE = 0.5


def steady_start(durations: Sequence[float]) -> int | None:
    """Return the first step of the steady state: the last stretch, if it is at least half of the run; None if there is none."""
    if len(durations) < 2 * MIN_SEGMENT:
        return 1 if len(durations) > 1 else None
    size = -(-len(durations) // MAX_POINTS)
    points = [math.log(max(sum(durations[at : at + size]) / size, 1e-9)) for at in range(0, len(durations) - size + 1, size)]
    last = change_points(points)[-1]
    return last * size if len(points) - last >= MIN_STEADY_SHARE * len(points) else None


def change_points(values: Sequence[float], min_segment: int = MIN_SEGMENT) -> list[int]:
    """Return where segments of different mean begin; the first one is 0. Needs at least `min_segment` values."""
    sums, squares = _cumulated(values)
    variance = _variance(values)
    penalty = 3 * math.log(len(values)) * variance

    def cost(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return squares[end] - squares[start] - total * total / (end - start)

    best = {0: -penalty}
    previous: dict[int, int] = {}
    candidates = [0]
    for end in range(min_segment, len(values) + 1):
        totals = {start: best[start] + cost(start, end) + penalty for start in candidates if end - start >= min_segment}
        if not totals:
            continue
        previous[end] = min(totals, key=totals.__getitem__)
        best[end] = totals[previous[end]]
        candidates = [start for start in candidates if start not in totals or totals[start] - penalty <= best[end]]
        candidates.append(end)
    starts, end = [], len(values)
    while end > 0:
        end = previous[end]
        starts.append(end)
    return starts[::-1]


def _cumulated(values: Sequence[float]) -> tuple[list[float], list[float]]:
    sums, squares = [0.0], [0.0]
    for value in values:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)
    return sums, squares


def _variance(values: Sequence[float]) -> float:
    """The variance of the noise, from neighbours' differences, which a change of mean hardly moves."""
    spread = median(abs(after - before) for before, after in itertools.pairwise(values)) / (0.6745 * math.sqrt(2))
    return max(spread * spread, 1e-12)
