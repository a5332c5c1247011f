"""Whole studies on run times that were recorded or made up: how often the protocol errs (benchmarks/verify.py coverage, tests)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sysperf.verify.stats import LOOKS, Verdict
from sysperf.verify.study import Study

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

    @property
    def different(self) -> float:
        """Share of the verdicts faster and slower."""
        return self.verdicts["faster"] + self.verdicts["slower"]


def study(times: LogTimes, gain: float, rng: random.Random, looks: Sequence[int] = LOOKS) -> Study:
    """Return a study of a program and of the same one made faster by `gain`, a log ratio; random order within pairs."""
    simulated = Study(looks=looks)
    while simulated.progress().verdict is None:
        first, second = next(times), next(times)
        a, b = (first, second) if rng.random() < 0.5 else (second, first)
        simulated = simulated.with_pair(a - (b - gain))
    return simulated


def rates(times: Callable[[], LogTimes], gain: float, studies: int, rng: random.Random) -> Rates:
    """Return what comes of so many studies; `times` gives the run times of each."""
    verdicts: dict[Verdict, float] = dict.fromkeys(("faster", "slower", "same", "unclear"), 0.0)
    covered, gains, pairs = 0, 0.0, 0
    for _ in range(studies):
        done = study(times(), gain, rng)
        progress = done.progress()
        verdicts[progress.verdict or "unclear"] += 1 / studies
        if progress.gain:
            covered += progress.gain.low <= gain <= progress.gain.high
            gains += progress.gain.mean
        pairs += len(done.pairs) + len(done.fresh)
    return Rates(verdicts, covered / studies, gains / studies, pairs / studies)


def replayed(series: Sequence[float], rng: random.Random) -> LogTimes:
    """Return a recorded series from a random place on, and around: what belongs together stays together."""
    return itertools.islice(itertools.cycle(series), rng.randrange(len(series)), None)
