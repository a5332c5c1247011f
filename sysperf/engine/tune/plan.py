"""What a search for the best start is given: its factors and its budget, and what follows from its first runs for all others."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

from sysperf.engine.tune import space
from sysperf.engine.verify.measuring import Measured
from sysperf.engine.wrap.facts import gather
from sysperf.host import Host
from sysperf.launch import environment
from sysperf.launch.request import LaunchRequest
from sysperf.model.comparison import Metric
from sysperf.model.errors import UsageError
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.model.tuning import Choice, Factor, LeftOut, Level
from sysperf.verify import probe
from sysperf.verify.search import race, tpe
from sysperf.verify.search.effects import Effects
from sysperf.verify.search.plan import MIN_RUNS, race_runs
from sysperf.verify.stats import LOOKS

MAX_RUNS = 120
SEARCH_SHARE = 0.6
"""Of the budget; the rest confirms the winner."""
CONFIRMING_RUNS = 26
"""A pair that warms caches, and twelve that are looked at."""
MIN_CONFIRMING_PAIRS = 6
SHORTEST_CONFIRMATION = 2 * (1 + MIN_CONFIRMING_PAIRS)
"""Runs: a pair that warms caches, and those that are looked at."""
MAX_CONFIRMING_PAIRS = 400
MAX_BLOCKS = 6
"""Blocks of the race of one factor's levels: levels that six do not tell apart are as good."""
CERTAINTY = 3.24
"""Standard errors that a gain is to be away from none, so that an interval of 95 % shows it in nine searches of ten."""
PILOT_RUNS = 3
RUN_SHARE = 0.5
"""Of the time that there is for a run, for its steps; the rest is its start."""
MAX_ERROR = 0.01
"""Standard error of a run's rate that is good enough: a run ends after the steps that this takes."""
BATCHES = 20


class Plan(Record, kw_only=True):
    """What is searched, and for how long."""

    argv: tuple[str, ...]
    metric: Metric
    factors: tuple[Factor, ...]
    left_out: tuple[LeftOut, ...] = ()
    budget_s: float = 1_800.0
    limit_s: float = 3_600.0
    margin: float = 0.01
    max_runs: int = MAX_RUNS
    keep_disturbed: bool = False
    """Count the runs that others disturbed, too."""
    seed: int = 0


class Pilot(Record):
    """What the first runs tell of all others."""

    metric: Metric
    """The plan's; of steps with as many as a good rate takes."""
    run_s: float
    warm_up_steps: int = 0
    steps: int | None = None
    """Steps of every run; None where the program's own runs differ."""
    factors: int | None = None
    """How many of the plan's factors there is time for; None: all."""
    use_tpe: bool = False
    workers: tuple[Level, ...] = ()
    """Numbers of loader workers that are tried instead of the plan's."""
    basis: str = ""
    """Why these."""


def plan_of(argv: Sequence[str], metric: Metric, asked: space.Asked) -> Plan:
    """Return a plan with the factors that this machine and program have. Raises UsageError where there is none."""
    known = gather(Host(), LaunchRequest(argv=tuple(argv)), environment.inherited(), os.getcwd(), None)
    factor_space = space.space(known, asked)
    if not factor_space.factors:
        why = "; ".join(f"{left.name}: {left.reason}" for left in factor_space.left_out)
        raise UsageError(f"there is nothing to tune: {neutral(why, 800)}", "`sysperf wrap --explain` shows what is known of the program")
    return Plan(argv=tuple(argv), metric=metric, factors=factor_space.factors, left_out=factor_space.left_out)


def needed_runs(factors: Sequence[Factor]) -> int:
    """Return how many runs a search of these factors with its confirmation has at least, without the first ones."""
    return least_runs(factors) + (SHORTEST_CONFIRMATION if len(factors) == 1 else CONFIRMING_RUNS)


def first_metric(plan: Plan) -> Metric:
    """Return the metric of the first run: one that nothing else bounds is as long as the budget has room for runs, starts included."""
    metric = plan.metric
    if not metric.counts or metric.max_steps or metric.run_s:
        return metric
    return msgspec.structs.replace(metric, run_s=RUN_SHARE * plan.budget_s / (PILOT_RUNS + needed_runs(plan.factors)))


def pilot_of(plan: Plan, measured: Sequence[Measured], left_s: float) -> Pilot:
    """Decide how long a run is and how many there will be. Raises UsageError where the budget has room for too few."""
    metric, warm_up, last = plan.metric, 0, measured[-1]
    counts = {len(done.step_times_s) for done in measured}
    steps_of_all = counts.pop() if metric.counts and len(counts) == 1 else None
    run_s = max(done.wall_s for done in measured[1:])
    if metric.counts:
        steps = probe.Steps(last.step_times_s)
        warm_up = probe.warm_up_steps(steps, steps)
        enough = warm_up + steps_for(steps.durations()[warm_up:])
        if (metric.run_s or not metric.max_steps) and enough < min(len(done.step_times_s) for done in measured):
            metric = msgspec.structs.replace(metric, max_steps=enough)
            run_s -= steps.times[-1] - steps.times[enough - 1]
            steps_of_all = enough
    possible = left_s / max(run_s, 0.01)
    least = needed_runs(plan.factors)
    if possible < least:
        needed = math.ceil((least + PILOT_RUNS) * run_s / 60) + 1
        raise UsageError(
            f"a run takes {run_s:.0f} s: there is time for {max(0, int(possible))} runs, and a search with its confirmation needs {least}",
            f"--minutes {needed}, or shorter runs: --steps optimizer --run-seconds N",
        )
    total = min(plan.max_runs, searching(possible))
    use_tpe = tpe.available() and total >= tpe.MIN_RUNS
    factors = factors_for(plan.factors, total)
    return Pilot(metric, run_s, warm_up, steps_of_all, factors, use_tpe)


def least_runs(factors: Sequence[Factor]) -> int:
    """Return how many runs the shortest search has: of one factor three of each level."""
    return MIN_RUNS if len(factors) > 1 else race.MIN_BLOCKS * len(factors[0].levels)


def most_runs(factors: Sequence[Factor]) -> int:
    """Return how many runs of one factor are enough, however much time there is."""
    return MAX_RUNS if len(factors) > 1 else MAX_BLOCKS * len(factors[0].levels)


def factors_for(factors: Sequence[Factor], total: int) -> int:
    """Return how many factors so many runs can tell apart: those that usually matter most, one at least."""
    levels = itertools.accumulate(len(factor.levels) - 1 for factor in factors)
    return max(1, sum(1 for count in levels if count <= total - race_runs(total)))


def cut(plan: Plan, pilot: Pilot) -> Plan:
    """Return the plan with as many factors as there is time for, and as the first runs have them; the others are left out, and say why."""
    count = len(plan.factors) if pilot.factors is None else pilot.factors
    reason = "there was no time for its runs: a search with more --minutes, or shorter runs, has it"
    left_out = tuple(LeftOut(factor.name, reason) for factor in plan.factors[count:])
    factors = tuple(
        msgspec.structs.replace(factor, levels=(space.AS_IS, *pilot.workers)) if factor.name == space.LOADER and pilot.workers else factor
        for factor in plan.factors[:count]
    )
    return msgspec.structs.replace(plan, factors=factors, left_out=(*plan.left_out, *left_out))


def searching(possible: float) -> int:
    """Return how many of the runs that there is time for the search has; its confirmation has the others."""
    return round(SEARCH_SHARE * possible)


def confirming_pairs(model: Effects, winner: Choice) -> int:
    """Return how many pairs are to confirm a winner: as many as show the gain that the search saw, beside its noise, 40 at least."""
    gain = model.predicted(winner)
    needed = 2 * (CERTAINTY * model.noise / gain) ** 2 if gain > 0 else 0.0
    return round(min(MAX_CONFIRMING_PAIRS, max(LOOKS[-1], needed)))


def steps_for(durations: Sequence[float]) -> int:
    """Return how many steps give a rate with a standard error of 1 %, by the means of batches, since neighbours are alike."""
    size = max(1, len(durations) // BATCHES)
    means = [fmean(durations[at : at + size]) for at in range(0, len(durations) - size + 1, size)]
    if len(means) < 2:
        return len(durations)
    batches = (stdev(means) / fmean(means) / MAX_ERROR) ** 2
    return max(size * 2, probe.MIN_STEPS * 2, math.ceil(size * batches))
