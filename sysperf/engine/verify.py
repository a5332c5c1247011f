"""The verb `verify`: two variants of a program run in turn, until it is clear whether they differ."""

from __future__ import annotations

import contextlib
import math
import os
import random
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median

import msgspec

from sysperf.engine import change
from sysperf.host import Host
from sysperf.model.change import Setting
from sysperf.model.comparison import Arm, Comparison, Metric, Run, Variant
from sysperf.model.errors import SysperfError
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.verify import noise, probe, stats
from sysperf.verify.run import Finished, run
from sysperf.verify.study import Progress, Study

LIMIT_FACTOR, MIN_LIMIT_S = 10.0, 60.0
"""A run is ended after ten times the longest run so far, and never within a minute."""
LEASE_RESERVE_S = 60.0
"""A lease outlives the limit of its run by this time, so that it never ends during the run."""
LONGER_RUNS = "make a run longer, or allow more pairs with --max-pairs"


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


class State(Record, kw_only=True):
    """A study in progress: all that is needed to show it, to stop it and to resume it."""

    plan: Plan
    runs: tuple[Run, ...] = ()
    warm_up_steps: int = 0

    def study(self) -> Study:
        """Return the statistics of the pairs that are complete."""
        looks = (*(look for look in stats.LOOKS if look < self.plan.max_pairs), self.plan.max_pairs)
        found = Study(math.log1p(self.plan.margin), looks)
        for a, b in self.complete_pairs():
            if a.disturbed or b.disturbed:
                found = found.with_dropped()
            elif found.progress().verdict is None:
                found = found.with_pair(log_ratio(a, b, self.plan.metric))
        return found

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


def verify(plan: Plan, observe: Observe = lambda _: None, state: State | None = None, changer: change.Changer | None = None) -> Comparison:
    """Run the study; Ctrl-C, or the end of the budget, ends it with what is there. Raises SysperfError when a run fails."""
    state = state or State(plan=plan)
    changer = changer or (change.Changer() if plan.settings else None)
    end = math.inf if plan.budget_s is None else time.monotonic() + plan.budget_s
    interrupted = ""
    try:
        while state.study().progress().verdict is None and not interrupted:
            state = _next_run(state, changer)
            observe(state)
            interrupted = "the time that was allowed is over" if time.monotonic() >= end else ""
    except KeyboardInterrupt:
        interrupted = "interrupted"
    return conclude(state, interrupted)


def conclude(state: State, interrupted: str = "") -> Comparison:
    """Return what the runs so far say; of a study that was interrupted, by intervals that may be looked at any time."""
    study = state.study()
    progress = _at_any_time(study, interrupted) if interrupted and study.progress().verdict is None else study.progress()
    low, ratio, high = progress.gain.ratios() if progress.gain else (None, None, None)
    values = {arm: [done.value for done in state.counting(arm)] for arm in ("a", "b")}
    return Comparison(
        a=state.plan.a,
        b=state.plan.b,
        metric=state.plan.metric,
        verdict=progress.verdict or "unclear",
        reason=progress.reason,
        ratio=ratio,
        low=low,
        high=high,
        confidence=1 - (progress.gain.level if progress.gain else stats.TOTAL_LEVEL),
        pairs=len(study.pairs),
        fresh_pairs=len(study.fresh),
        dropped_pairs=study.dropped,
        margin=state.plan.margin,
        median_a=median(values["a"]) if values["a"] else None,
        median_b=median(values["b"]) if values["b"] else None,
        warm_up_steps=state.warm_up_steps,
        seed=state.plan.seed,
        runs=tuple(msgspec.structs.replace(done, step_times_s=()) for done in state.runs),
    )


def log_ratio(a: Run, b: Run, metric: Metric) -> float:
    """Return the log of B's speed over A's."""
    ratio = math.log(b.value / a.value)
    return ratio if metric.higher_is_better else -ratio


def _at_any_time(study: Study, why: str) -> Progress:
    if not study.pairs:
        return Progress("unclear", None, None, f"{why} before a pair was complete")
    found = stats.anytime_interval(study.pairs)
    verdict = stats.verdict(found, study.margin)
    return Progress(verdict, found, found, f"{why} after {len(study.pairs)} pairs; {LONGER_RUNS}" if verdict == "unclear" else why)


def _next_run(state: State, changer: change.Changer | None) -> State:
    """Do the next run of the pair that is open, or the first one of a new pair, in an order drawn by the pair's number."""
    done = [earlier.arm for earlier in state.runs if earlier.pair == state.runs[-1].pair] if state.runs else []
    is_open = len(done) == 1
    pair = state.runs[-1].pair + (not is_open) if state.runs else 0
    first: Arm = "a" if random.Random(f"{state.plan.seed}/{pair}").random() < 0.5 else "b"  # noqa: S311 - an order, no secret
    arm: Arm = ("b" if done[0] == "a" else "a") if is_open else first
    return _with_warm_up(msgspec.structs.replace(state, runs=(*state.runs, _run(state, arm, pair, changer))))


def _run(state: State, arm: Arm, pair: int, changer: change.Changer | None) -> Run:
    plan = state.plan
    variant = plan.a if arm == "a" else plan.b
    longest_s = max((earlier.wall_s for earlier in state.runs), default=0.0)
    limit_s = max(MIN_LIMIT_S, LIMIT_FACTOR * longest_s) if longest_s else plan.limit_s
    with (
        tempfile.TemporaryDirectory(prefix="sysperf-verify-") as folder,
        _applied(plan.settings if arm == "b" else (), changer, limit_s),
    ):
        environment = variant.environment(dict(os.environ))
        if plan.metric.counts:
            environment.update(probe.environment(folder, environment, plan.metric.max_steps, plan.metric.counts))
        before = noise.read(Host())
        try:
            finished = run(variant.argv, environment, limit_s=limit_s, pattern=plan.metric.pattern)
        except OSError as error:
            raise SysperfError(f"{variant.name}: {error}", "run it again") from None
        load = noise.between(before, noise.read(Host()), finished.cpu_s)
        _check(variant, finished, limit_s)
        steps = probe.read(folder) if plan.metric.counts else probe.Steps(())
    return Run(
        pair,
        arm,
        _value(variant, plan.metric, finished, steps, state.warm_up_steps),
        finished.wall_s,
        finished.cpu_s,
        None if load is None else load.total,
        len(steps.times),
        tuple(steps.times) if pair == 0 else (),
        noise.disturbance(load, _history(state)) if pair and not plan.keep_disturbed else "",
    )


@contextlib.contextmanager
def _applied(settings: tuple[Setting, ...], changer: change.Changer | None, limit_s: float) -> Iterator[None]:
    """Have these settings during a run. The lease takes them back also when sysperf is killed. Raises SysperfError."""
    if not settings or changer is None:
        yield
        return
    planned = changer.plan(settings)
    if not planned.changes:
        reasons = "; ".join(f"{skipped.setting.knob}: {skipped.reason}" for skipped in planned.skipped)
        raise SysperfError(f"there is nothing to try: {neutral(reasons, 600)}", "`sysperf plan` shows what would be changed")
    done = changer.apply(planned, change.request("verify", lease_s=limit_s + LEASE_RESERVE_S))
    try:
        if done.state != "applied":
            raise SysperfError("the settings were refused, and are as they were", "`sysperf changes` tells why")
        yield
    finally:
        changer.undo(done.number)


def _history(state: State) -> list[noise.Load]:
    return [noise.Load(done.other_cpus, 0.0, done.wall_s) for done in state.runs if done.other_cpus is not None]


def _check(variant: Variant, finished: Finished, limit_s: float) -> None:
    """Raise SysperfError for a run whose time says nothing."""
    command = neutral(shlex.join(variant.argv), 300)
    if finished.error:
        raise SysperfError(f"{variant.name}: {neutral(finished.error, 300)}", f"the command is: {command}")
    if finished.timed_out:
        raise SysperfError(f"{variant.name} was ended after {limit_s:g} s: {command}", "--limit allows more time for a run")
    if finished.left_behind:
        raise SysperfError(
            f"{variant.name} left something running, which was ended ({finished.left_behind}): {command}",
            "a program that goes on in the background cannot be timed; have it stay in the foreground",
        )
    if finished.exit_code:
        how = f"was ended by signal {-finished.exit_code}" if finished.exit_code < 0 else f"ended with exit code {finished.exit_code}"
        last = [line for line in finished.tail.splitlines() if line.strip()][-3:]
        raise SysperfError(
            f"{variant.name} {how}: {command}", "its last words: " + neutral(" | ".join(last), 600) if last else "it printed nothing"
        )


def _value(variant: Variant, metric: Metric, finished: Finished, steps: probe.Steps, warm_up: int) -> float:
    if metric.counts:
        return _rate(variant, metric, steps, warm_up)
    value = (finished.values[-1] if finished.values else None) if metric.pattern else finished.wall_s
    if value is None:
        raise SysperfError(
            f"nothing that {variant.name} printed matches {neutral(metric.pattern, 200)}", "the pattern's last group is the number"
        )
    if not (math.isfinite(value) and value > 0):
        raise SysperfError(f"{variant.name} printed {value:g}, of which no ratio can be made", "the value must be greater than 0")
    return value


def _rate(variant: Variant, metric: Metric, steps: probe.Steps, warm_up: int) -> float:
    rate = probe.steps_per_s(steps, warm_up)
    if rate is not None:
        return rate
    what = "calls of a model" if metric.counts == "forward" else "optimizer steps"
    if not steps.times:
        raise SysperfError(
            f"{variant.name} made no {what} that could be counted",
            "it must run in a Python that reads PYTHONPATH, with torch 2.0 or newer; for inference, --steps forward",
        )
    raise SysperfError(f"{variant.name} made only {len(steps.times)} {what}", f"a run needs {probe.MIN_STEPS} or more after its warm-up")


def _with_warm_up(state: State) -> State:
    """After the first pair: how many steps both variants leave out, and whether they do the same work."""
    if not state.plan.metric.counts or len(state.runs) != 2:
        return state
    a, b = sorted(state.runs, key=lambda done: done.arm)
    if a.steps != b.steps:
        raise SysperfError(
            f"{state.plan.a.name} made {a.steps} steps and {state.plan.b.name} {b.steps}: they do not do the same work",
            "--max-steps ends both after the same number",
        )
    return msgspec.structs.replace(state, warm_up_steps=probe.warm_up_steps(probe.Steps(a.step_times_s), probe.Steps(b.step_times_s)))
