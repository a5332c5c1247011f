"""A study of `verify` in progress: what is compared, its runs so far, and the statistics of those that count."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sysperf.model.change import Setting
from sysperf.model.comparison import Arm, Metric, Run, Variant
from sysperf.model.record import Record
from sysperf.verify import stats
from sysperf.verify.study import Study


class Plan(Record, kw_only=True):
    """What is compared, and for how long."""

    a: Variant
    b: Variant
    metric: Metric = Metric("wall time", "s")
    margin: float = 0.01
    max_pairs: int = stats.LOOKS[-1]
    budget_s: float | None = None
    """Stop after this time, with what is there; None: until it is clear or `max_pairs` are done."""
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

    def study(self) -> Study:
        """Return the statistics of the pairs that are complete."""
        study = Study(math.log1p(self.plan.margin), stats.looks(self.plan.max_pairs))
        for a, b in self.complete_pairs():
            if a.disturbed or b.disturbed:
                study = study.with_dropped()
            elif study.progress().verdict is None:
                study = study.with_pair(log_ratio(a, b, self.plan.metric))
        return study

    def complete_pairs(self) -> Iterator[tuple[Run, Run]]:
        """Return the pairs of which both runs are done, without the first one, which only warms caches."""
        for number in range(1, 1 + max((done.pair for done in self.runs), default=0)):
            pair = {done.arm: done for done in self.runs if done.pair == number}
            if len(pair) == 2:
                yield pair["a"], pair["b"]

    def counting(self, arm: Arm) -> list[Run]:
        """Return the runs of an arm whose pairs count."""
        return [pair[arm == "b"] for pair in self.complete_pairs() if not (pair[0].disturbed or pair[1].disturbed)]


Observe = Callable[[State], None]


def log_ratio(a: Run, b: Run, metric: Metric) -> float:
    """Return the log of B's speed over A's."""
    ratio = math.log(b.value / a.value)
    return ratio if metric.higher_is_better else -ratio
