"""A study of `verify` in progress: what is compared, its runs so far, and the statistics of those that count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import msgspec

from sysperf.model.change import Setting
from sysperf.model.comparison import MAX_TIME_S, Arm, Metric, Run, Variant
from sysperf.model.record import Record
from sysperf.verify import stats
from sysperf.verify.study import Study

MAX_KEPT_PAIRS = 10_000_000


class Plan(Record, kw_only=True):
    """What is compared, and for how long."""

    a: Variant
    b: Variant
    metric: Metric = Metric("wall time", "s")
    margin: float = 0.01
    max_pairs: int = stats.LOOKS[-1]
    budget_s: float | None = None
    """Stop after this time, with what is there; None: until it is clear or `max_pairs` are done."""
    one_look: bool = False
    """Look once, at the end of the budget or after `max_pairs`: the narrowest interval for the time."""
    one_look_level: float = stats.TOTAL_LEVEL
    """How often that look may miss the true value."""
    limit_s: float = 3_600.0
    """The first runs are ended after this time."""
    seed: int = 0
    keep_disturbed: bool = False
    """Count the pairs that others disturbed too."""
    settings: tuple[Setting, ...] = ()
    """Settings of the machine that B has and A has not: applied before each run of B under a lease, and taken back after it."""
    rule: str = ""
    """The rule whose advice is tried."""
    ranks: tuple[int, int] | None = None
    """Ranks of A and B: they may make different numbers of steps."""
    prepare: str = ""
    """What sh runs before each run, so that both begin alike; its time does not count."""
    show_output: bool = False
    """Whether what the runs print goes to stderr, too."""

    def is_sound(self) -> bool:
        """Whether it can be a plan."""
        times_s = (self.margin, self.limit_s, self.budget_s or 0.0)
        return 1 < self.max_pairs < MAX_KEPT_PAIRS and 0 < self.one_look_level < 1 and all(0 <= time_s < MAX_TIME_S for time_s in times_s)


class TriedPlan(NamedTuple):
    """One study of several."""

    rules: tuple[str, ...]
    promised: str
    plan: Plan


class State(Record, kw_only=True):
    """A study in progress: all that is needed to show it, to stop it and to resume it."""

    plan: Plan
    runs: tuple[Run, ...] = ()
    warm_up_steps: int = 0
    unwatched: tuple[str, ...] = ()
    """What could not be seen of the machine during the runs, and why."""
    machine: dict[str, str] = {}
    """How it was when the study began, as far as that decides whether runs can be compared."""

    preparing_s: float = 0.0
    """How long it took last to prepare a run."""

    looks: tuple[int, ...] = ()
    """After how many pairs it is looked at, as the time allows; empty: as many as `max_pairs` have."""

    def is_sound(self) -> bool:
        """Whether its figures can be figures of a study: it may have been read from a file."""
        rising = all(earlier < later for earlier, later in itertools.pairwise((1, *self.looks, MAX_KEPT_PAIRS)))
        times = 0 <= self.warm_up_steps < 1 << 31 and 0 <= self.preparing_s < MAX_TIME_S
        return rising and times and self.plan.is_sound() and all(run.is_sound() for run in self.runs)

    def study(self) -> Study:
        """Return the statistics of the pairs that are complete."""
        plan, dropped, ratios = self.plan, 0, list[float]()
        for a, b in self.complete_pairs():
            if a.disturbed or b.disturbed:
                dropped += 1
            else:
                ratios.append(log_ratio(a, b, plan.metric))
        usual = (plan.max_pairs,) if plan.one_look else stats.looks(plan.max_pairs)
        return Study(math.log1p(plan.margin), self.looks or usual, plan.one_look, plan.one_look_level).with_pairs(ratios, dropped)

    def with_time_left(self, seconds: float) -> State:
        """Return the study with the looks to come that there is time for."""
        study = self.study()
        possible = len(study.pairs) + seconds / self.pair_s() if self.pair_s() else math.inf
        return msgspec.structs.replace(self, looks=tuple(study.with_room_for(possible, self.plan.max_pairs).looks))

    def at_the_end(self) -> State:
        """Return the study when its time is over: it is looked at for the last time, where it has two pairs."""
        study = self.study()
        if study.progress().verdict or len(study.pairs) < 2:
            return self
        return msgspec.structs.replace(self, looks=tuple(study.at_the_end().looks))

    def pair_s(self) -> float:
        """Return the median time of its pairs; of the one that warms caches while there is no other; 0 before."""
        took = [a.wall_s + b.wall_s for a, b in self.complete_pairs()] or [sum(run.wall_s for run in self.runs)] * (len(self.runs) == 2)
        return median(took) + 2 * self.preparing_s if took else 0.0

    def complete_pairs(self) -> Iterator[tuple[Run, Run]]:
        """Return the pairs of which both runs are done, without the first one, which only warms caches."""
        for first, second in itertools.pairwise(self.runs):
            if first.pair == second.pair > 0:
                yield (first, second) if first.arm == "a" else (second, first)

    def counting(self, arm: Arm) -> list[Run]:
        """Return the runs of an arm whose pairs count."""
        return [pair[arm == "b"] for pair in self.complete_pairs() if not (pair[0].disturbed or pair[1].disturbed)]


Observe = Callable[[State], None]
Tick = Callable[[State, Arm | None, float], None]
"""Gets each second which variant runs, None while a run is prepared, and for how long."""


def log_ratio(a: Run, b: Run, metric: Metric) -> float:
    """Return the log of B's speed over A's."""
    ratio = math.log(b.value) - math.log(a.value)  # the quotient of two floats may be none
    return ratio if metric.higher_is_better else -ratio
