"""Whole studies on run times that were recorded or made up: how often the protocol errs (benchmarks/verify.py coverage, tests)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from sysperf.verify.stats import LOOKS, Verdict
from sysperf.verify.study import Study

MAX_PAIRS = 1_000
LogTimes = Iterator[float]
"""Logarithms of the run times of a program, one launch after the other."""


class Rates(NamedTuple):
    """What came of many studies, as shares of them."""

    verdicts: dict[Verdict, float]
    coverage: float
    """Intervals that hold the true gain."""
    mean_gain: float
    """Of the gains that were kept, as a log ratio."""
    mean_pairs: float
    half_width: float
    """Median half width of the intervals, a log ratio."""

    @property
    def different(self) -> float:
        """Share of the verdicts faster and slower."""
        return self.verdicts["faster"] + self.verdicts["slower"]


class Budget(NamedTuple):
    """The length of each study, in run times of the median program, and how often it is looked at."""

    run_times: float
    one_look: bool = False


def study(times: LogTimes, gain: float, rng: random.Random, budget: Budget | None = None) -> Study:
    """Return a study of a program and of the same one made faster by `gain`, a log ratio; random order within pairs."""
    max_pairs = MAX_PAIRS if budget and budget.one_look else LOOKS[-1]
    simulated = Study(looks=(max_pairs,) if budget and budget.one_look else LOOKS, one_look=bool(budget and budget.one_look))
    spent, took = 0.0, list[float]()
    while simulated.progress().verdict is None:
        if budget and took:
            left, pair = budget.run_times - spent, median(took)
            if left <= pair and len(took) > 1:
                return simulated.at_the_end()
            simulated = simulated.with_room_for(len(simulated.pairs) + left / pair, max_pairs)
        first, second = next(times), next(times)
        a, b = (first, second) if rng.random() < 0.5 else (second, first)
        simulated = simulated.with_pair(a - (b - gain))
        took.append(math.exp(a) + math.exp(b - gain))
        spent += took[-1]
    return simulated


def rates(times: Callable[[], LogTimes], gain: float, studies: int, rng: random.Random, budget: Budget | None = None) -> Rates:
    """Return what comes of so many studies; `times` gives the run times of each, around e^0."""
    verdicts: dict[Verdict, float] = dict.fromkeys(("faster", "slower", "same", "unclear"), 0.0)
    covered, gains, pairs, widths = 0, 0.0, 0, list[float]()
    for _ in range(studies):
        done = study(times(), gain, rng, budget)
        progress = done.progress()
        verdicts[progress.verdict or "unclear"] += 1 / studies
        if progress.gain:
            covered += progress.gain.low <= gain <= progress.gain.high
            gains += progress.gain.mean
            widths.append((progress.gain.high - progress.gain.low) / 2)
        pairs += len(done.pairs) + len(done.fresh)
    return Rates(verdicts, covered / studies, gains / studies, pairs / studies, median(widths) if widths else math.inf)


def made_up(rng: random.Random, spread: float) -> LogTimes:
    """Return log run times of a machine that is made up: drift (AR(1), 3 %), 4 % outliers, and bursts of 3 to 10 % that last some runs."""
    drift, burst_left, burst = 0.0, 0, 0.0
    while True:
        drift = 0.9 * drift + rng.gauss(0, 0.03 * math.sqrt(1 - 0.81))
        if burst_left == 0 and rng.random() < 0.02:
            burst_left, burst = rng.randint(2, 8), rng.uniform(0.03, 0.10)
        burst_left, burst = max(0, burst_left - 1), burst if burst_left else 0.0
        outlier = rng.expovariate(1 / (4 * spread)) if rng.random() < 0.04 else 0.0
        yield drift + burst + outlier + rng.gauss(0, spread)


def replayed(series: Sequence[float], rng: random.Random) -> LogTimes:
    """Return a recorded series from a random place on, and around: what belongs together stays together."""
    return itertools.islice(itertools.cycle(series), rng.randrange(len(series)), None)
