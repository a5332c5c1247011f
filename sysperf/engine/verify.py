"""The verb `verify`: two variants of a program run in turn, until it is clear whether they differ."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

import msgspec

from sysperf.engine import change, measuring
from sysperf.model.change import Setting
from sysperf.model.comparison import Arm, Comparison, Metric, Run, TriedFix, Variant
from sysperf.model.errors import SysperfError
from sysperf.model.record import Record
from sysperf.model.text import neutral
from sysperf.verify import noise, probe, stats
from sysperf.verify.run import Meanwhile
from sysperf.verify.study import Progress, Study

LEASE_S, RENEW_S = 60.0, 20.0
"""A setting of the machine outlives sysperf by so long at most; its lease is renewed so often while the run lasts."""
MIN_LOSSES, LOSS_BOUND, LOSS_ERRORS = 3, 0.02, 4.0
"""Losses at the end of so many runs of each variant must agree within 2 %, or within four standard errors."""
MAX_PADDING_BYTES = 4_096
INTERRUPTED, OUT_OF_TIME = "interrupted", "the time that was allowed is over"
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

    def study(self) -> Study:
        """Return the statistics of the pairs that are complete."""
        found = Study(math.log1p(self.plan.margin), stats.looks(self.plan.max_pairs))
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
    return conclude(*_run_until_clear(plan, observe, state, changer))


def _run_until_clear(plan: Plan, observe: Observe, state: State | None = None, changer: change.Changer | None = None) -> tuple[State, str]:
    """Return the state in the end, and why it ended before it was clear; "" where it is clear."""
    state = state or State(plan=plan)
    changer = changer or (change.Changer() if plan.settings else None)
    end = math.inf if plan.budget_s is None else time.monotonic() + plan.budget_s
    try:
        while state.study().progress().verdict is None:
            state = _next_run(state, changer)
            observe(state)
            if time.monotonic() >= end:
                return state, OUT_OF_TIME
    except KeyboardInterrupt:
        return state, INTERRUPTED
    return state, ""


def verify_each(
    plans: Sequence[TriedPlan], observe: Observe = lambda _: None, saved: Callable[[Plan], State | None] = lambda _: None
) -> list[TriedFix]:
    """Compare plain with each of several fixes, one study after the other; all verdicts together hold at 5 %, by Holm's procedure.

    Ctrl-C ends all of them. `saved` returns a study as it was left.
    """
    found: list[TriedFix] = []
    ended = ""
    for tried in plans:
        if ended == INTERRUPTED:
            found.append(TriedFix(rules=tried.rules, promised=tried.promised, problem="interrupted before"))
            continue
        try:
            state, ended = _run_until_clear(tried.plan, observe, saved(tried.plan))
        except SysperfError as error:
            found.append(TriedFix(rules=tried.rules, promised=tried.promised, problem=neutral(str(error), 300)))
            continue
        comparison, p_value = conclude(state, ended), state.study().p_value()
        found.append(TriedFix(rules=tried.rules, promised=tried.promised, comparison=comparison, p_value=p_value))
    certain = stats.holm([1.0 if fix.p_value is None else fix.p_value for fix in found])
    return [msgspec.structs.replace(fix, certain=sure and _has_verdict(fix)) for fix, sure in zip(found, certain, strict=True)]


def _has_verdict(fix: TriedFix) -> bool:
    return fix.comparison is not None and fix.comparison.verdict in ("faster", "slower")


def conclude(state: State, interrupted: str = "") -> Comparison:
    """Return what the runs so far say; of a study that was interrupted, by intervals that may be looked at any time."""
    study = state.study()
    progress = _at_any_time(study, interrupted) if interrupted and study.progress().verdict is None else study.progress()
    values = {arm: [done.value for done in state.counting(arm)] for arm in ("a", "b")}
    losses = {arm: [done.loss for done in state.counting(arm) if done.loss is not None] for arm in ("a", "b")}
    if progress.verdict in ("faster", "slower") and (differ := _different_losses(losses["a"], losses["b"])):
        progress = Progress("unclear", progress.interval, None, differ)  # other work has no ratio, that CI or a finding could take for one
    low, ratio, high = progress.gain.ratios() if progress.gain else (None, None, None)
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
        loss_a=median(losses["a"]) if losses["a"] else None,
        loss_b=median(losses["b"]) if losses["b"] else None,
        ranks=state.plan.ranks,
        seed=state.plan.seed,
        page_faults_a=_median_faults(state, "a"),
        page_faults_b=_median_faults(state, "b"),
        unwatched=state.unwatched,
        runs=tuple(msgspec.structs.replace(done, step_times_s=()) for done in state.runs),
    )


def _median_faults(state: State, arm: Arm) -> float | None:
    known = [done.page_faults for done in state.counting(arm) if done.page_faults is not None]
    return median(known) if known else None


def _different_losses(a: Sequence[float], b: Sequence[float]) -> str:
    """Say that the losses differ by more than the bound and by more than chance; "" where they agree or are not known."""
    if min(len(a), len(b)) < MIN_LOSSES:
        return ""
    apart = abs(fmean(a) - fmean(b))
    error = math.sqrt(stdev(a) ** 2 / len(a) + stdev(b) ** 2 / len(b))
    if apart <= max(LOSS_BOUND * max(abs(fmean(a)), abs(fmean(b))), LOSS_ERRORS * error):
        return ""
    return f"the losses differ, {fmean(a):.4g} and {fmean(b):.4g}: they do not do the same work"


def log_ratio(a: Run, b: Run, metric: Metric) -> float:
    """Return the log of B's speed over A's."""
    ratio = math.log(b.value / a.value)
    return ratio if metric.higher_is_better else -ratio


def _at_any_time(study: Study, why: str) -> Progress:
    if not study.pairs:
        return Progress("unclear", None, None, f"{why} before a pair was complete")
    found = stats.anytime_interval(study.pairs)
    verdict = stats.verdict(found, study.margin)
    needed = study.pairs_needed()
    advice = f"about {needed} pairs, or longer runs, would decide" if needed else LONGER_RUNS
    return Progress(verdict, found, found, f"{why} after {len(study.pairs)} pairs; {advice}" if verdict == "unclear" else why)


def _next_run(state: State, changer: change.Changer | None) -> State:
    """Do the next run of the pair that is open, or the first one of a new pair, in an order drawn by the pair's number."""
    done = [earlier.arm for earlier in state.runs if earlier.pair == state.runs[-1].pair] if state.runs else []
    is_open = len(done) == 1
    pair = state.runs[-1].pair + (not is_open) if state.runs else 0
    first: Arm = "a" if random.Random(f"{state.plan.seed}/{pair}").random() < 0.5 else "b"  # noqa: S311 - an order, no secret
    arm: Arm = ("b" if done[0] == "a" else "a") if is_open else first
    after = _with_run(state, arm, pair, changer)
    if is_open:
        _check_work(after)
    return _with_warm_up(after)


def _check_work(state: State) -> None:
    """Raise SysperfError where the runs of the last pair made different numbers of steps; ranks may."""
    a, b = sorted(state.runs[-2:], key=lambda done: done.arm)
    if state.plan.metric.counts and not state.plan.ranks and a.steps != b.steps:
        raise SysperfError(
            f"{state.plan.a.name} made {a.steps} steps and {state.plan.b.name} {b.steps}: they do not do the same work",
            "--max-steps ends both after the same number",
        )


def _with_run(state: State, arm: Arm, pair: int, changer: change.Changer | None) -> State:
    plan = state.plan
    limit_s = measuring.limit_s(plan.limit_s, [earlier.wall_s for earlier in state.runs])
    with _applied(plan.settings if arm == "b" else (), changer) as renewing:
        variant = _in_pair(plan.a if arm == "a" else plan.b, plan.seed, pair)
        done = measuring.measure(variant, plan.metric, limit_s, state.warm_up_steps, meanwhile=renewing)
    run = Run(
        pair,
        arm,
        done.value,
        done.wall_s,
        done.cpu_s,
        None if done.load is None else done.load.total,
        len(done.step_times_s),
        done.step_times_s if pair == 0 else (),
        loss=done.loss,
        conditions=done.conditions,
        page_faults=done.page_faults,
    )
    if pair and not plan.keep_disturbed:
        run = msgspec.structs.replace(run, disturbed=_disturbance(state, run, done.load))
    unwatched = tuple(dict.fromkeys((*state.unwatched, *done.unwatched)))
    return msgspec.structs.replace(state, runs=(*state.runs, run), unwatched=unwatched)


def _in_pair(variant: Variant, seed: int, pair: int) -> Variant:
    """The variant with what varies from pair to pair and is the same in both of its runs: where memory lies, and the order of sets.

    One layout of memory may be faster by chance (Mytkowicz et al., ASPLOS 2009): the size of the environment moves the stack.
    """
    drawn = random.Random(f"{seed}/{pair}/environment")  # noqa: S311 - a layout, no secret
    varied = {"SYSPERF_PADDING": "x" * drawn.randrange(MAX_PADDING_BYTES)}
    if "PYTHONHASHSEED" not in os.environ:
        varied["PYTHONHASHSEED"] = str(drawn.randrange(1, 1 << 32))
    return msgspec.structs.replace(variant, env={**varied, **variant.env})


def _disturbance(state: State, run: Run, load: noise.Load | None) -> str:
    """Say why the run, or the pair that it completes, does not count; "" where it does. Blind to the arm."""
    history = [noise.Load(done.other_cpus, 0.0, done.wall_s) for done in state.runs if done.other_cpus is not None]
    met = [done.conditions for done in state.runs if done.conditions is not None]
    if reason := noise.disturbance(load, history) or noise.others_on_gpus(run.conditions, met):
        return reason
    first = state.runs[-1]
    if first.pair != run.pair:
        return ""
    earlier = [(a.conditions, b.conditions) for a, b in state.complete_pairs()]
    return noise.uneven((first.conditions, run.conditions), earlier, min(first.wall_s, run.wall_s))


@contextlib.contextmanager
def _applied(settings: tuple[Setting, ...], changer: change.Changer | None) -> Iterator[Meanwhile | None]:
    """Have these settings during a run, and give what renews their lease meanwhile. Raises SysperfError.

    The lease takes them back when sysperf is killed. Ctrl-C ends the run, and waits where settings are being applied, renewed or
    taken back, or it would leave them to the lease.
    """
    if not settings or changer is None:
        yield None
        return
    planned = changer.plan(settings)
    if not planned.changes:
        reasons = "; ".join(f"{skipped.setting.knob}: {skipped.reason}" for skipped in planned.skipped)
        raise SysperfError(f"there is nothing to try: {neutral(reasons, 600)}", "`sysperf plan` shows what would be changed")
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        done = changer.apply(planned, change.request("verify", lease_s=LEASE_S))
        if done.state != "applied":
            raise SysperfError("the settings were refused, and are as they were", "`sysperf changes` shows the reason")
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)
            yield Meanwhile(RENEW_S, functools.partial(_renew, changer, done.number))
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            changer.undo(done.number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _renew(changer: change.Changer, number: int) -> None:
    """Raises SysperfError where the lease has ended: the run would go on without the setting."""
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        changer.renew(number, LEASE_S)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _with_warm_up(state: State) -> State:
    """After the first pair: how many steps both variants leave out."""
    if not state.plan.metric.counts or len(state.runs) != 2:
        return state
    a, b = state.runs
    return msgspec.structs.replace(state, warm_up_steps=probe.warm_up_steps(probe.Steps(a.step_times_s), probe.Steps(b.step_times_s)))
