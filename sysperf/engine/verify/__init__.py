"""The verb `verify`: two variants of a program run in turn, until it is clear whether they differ."""

from __future__ import annotations

import functools
import math
import os
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from sysperf.engine import change
from sysperf.engine.verify import measuring
from sysperf.engine.verify.lease import applied
from sysperf.engine.verify.result import conclude
from sysperf.engine.verify.study import Observe, Plan, State, Tick, TriedPlan, log_ratio
from sysperf.model.comparison import Arm, Comparison, Run, TriedFix, Variant
from sysperf.model.errors import SysperfError
from sysperf.model.text import neutral
from sysperf.verify import noise, probe, run, stats

__all__ = ["Observe", "Plan", "State", "Tick", "TriedPlan", "conclude", "log_ratio", "verify", "verify_each"]
INTERRUPTED, OUT_OF_TIME = "interrupted", "the time that was allowed is over"
MAX_PADDING_BYTES = 4_096
MAX_KEPT_STEPS = 100_000
"""The warm-up is looked for in so many steps of the first pair, which the state of a study holds."""


def verify(
    plan: Plan,
    observe: Observe = lambda _: None,
    state: State | None = None,
    changer: change.Changer | None = None,
    tick: Tick = lambda *_: None,
) -> Comparison:
    """Run the study; Ctrl-C, or the end of the budget, ends it with what is there. Raises SysperfError when a run fails."""
    return conclude(*_run_until_clear(plan, observe, state, changer, tick))


def _run_until_clear(
    plan: Plan, observe: Observe, state: State | None = None, changer: change.Changer | None = None, tick: Tick = lambda *_: None
) -> tuple[State, str]:
    """Return the state in the end, and why it ended before it was clear; "" where it is clear."""
    state = state or State(plan=plan)
    changer = changer or (change.Changer() if plan.settings else None)
    end = math.inf if plan.budget_s is None else time.monotonic() + plan.budget_s
    try:
        state = _planned(state, end - time.monotonic())
        while state.study().progress().verdict is None:
            if _is_over(state, end - time.monotonic()):
                observe(state := state.at_the_end())  # a look that was made is kept: --resume does not forget it
                return state, OUT_OF_TIME
            state = _planned(_next_run(state, changer, tick, end - time.monotonic()), end - time.monotonic())
            observe(state)
    except KeyboardInterrupt:
        return state, INTERRUPTED
    return state, ""


def _planned(state: State, left_s: float) -> State:
    """The study with the looks to come that the time left allows: planned anew after each pair, since runs get slower and faster."""
    return state if _is_open(state) else state.with_time_left(left_s)


def _is_over(state: State, left_s: float) -> bool:
    """Whether the time is over, or would be within the next pair."""
    return left_s <= 0 or (not _is_open(state) and left_s < state.pair_s())


def _is_open(state: State) -> bool:
    """Whether the last pair lacks its second run."""
    return bool(state.runs) and [run.pair for run in state.runs[-2:]].count(state.runs[-1].pair) == 1


def verify_each(
    plans: Sequence[TriedPlan],
    observe: Observe = lambda _: None,
    saved: Callable[[Plan], State | None] = lambda _: None,
    tick: Tick = lambda *_: None,
) -> list[TriedFix]:
    """Compare plain with each of several fixes, one study after the other; all verdicts together hold at 5 %, by Holm's procedure.

    Ctrl-C ends all of them. `saved` returns a study as it was left.
    """
    tried_fixes: list[TriedFix] = []
    ended = ""
    for tried in plans:
        if ended == INTERRUPTED:
            tried_fixes.append(TriedFix(rules=tried.rules, promised=tried.promised, problem="interrupted before"))
            continue
        try:
            state, ended = _run_until_clear(tried.plan, observe, saved(tried.plan), tick=tick)
        except SysperfError as error:
            tried_fixes.append(TriedFix(rules=tried.rules, promised=tried.promised, problem=neutral(str(error), 300)))
            continue
        comparison, p_value = conclude(state, ended), state.study().p_value()
        tried_fixes.append(TriedFix(rules=tried.rules, promised=tried.promised, comparison=comparison, p_value=p_value))
    certain = stats.holm([1.0 if fix.p_value is None else fix.p_value for fix in tried_fixes])
    return [msgspec.structs.replace(fix, certain=sure and _has_verdict(fix)) for fix, sure in zip(tried_fixes, certain, strict=True)]


def _has_verdict(fix: TriedFix) -> bool:
    return fix.comparison is not None and fix.comparison.verdict in ("faster", "slower")


def _next_run(state: State, changer: change.Changer | None, tick: Tick, left_s: float) -> State:
    """Do the next run of the pair that is open, or the first one of a new pair, in an order drawn by the pair's number."""
    is_open = _is_open(state)
    pair = state.runs[-1].pair + (not is_open) if state.runs else 0
    # the first pair does not count: where the program cannot run at all, plain says so, and not the wrapped one
    first: Arm = "a" if pair == 0 or random.Random(f"{state.plan.seed}/{pair}").random() < 0.5 else "b"  # noqa: S311 - an order, no secret
    arm: Arm = ("b" if state.runs[-1].arm == "a" else "a") if is_open else first
    after = _with_run(state, arm, pair, changer, tick, left_s)
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


def _with_run(state: State, arm: Arm, pair: int, changer: change.Changer | None, tick: Tick, left_s: float) -> State:
    plan = state.plan
    most_s = plan.limit_s if state.runs else min(plan.limit_s, left_s)  # a first run that takes all the time tells nothing
    limit_s = measuring.limit_s(most_s, [earlier.wall_s for earlier in state.runs if earlier.arm == arm])
    preparing_s = _prepared(state, most_s, tick) if plan.prepare else 0.0
    with applied(plan.settings if arm == "b" else (), changer) as renewing:
        variant = _in_pair(plan.a if arm == "a" else plan.b, plan.seed, pair)
        meanwhile = run.ticking(functools.partial(tick, state, arm), renewing)
        done = measuring.measure(variant, plan.metric, limit_s, state.warm_up_steps, meanwhile=meanwhile, show_output=plan.show_output)
        if renewing:  # what was taken back after the last renewal was not there all the time
            renewing.act()
    made = Run(
        pair,
        arm,
        done.value,
        done.wall_s,
        done.cpu_s,
        None if done.load is None else done.load.total,
        len(done.step_times_s),
        done.step_times_s[:MAX_KEPT_STEPS] if pair == 0 else (),
        loss=done.loss,
        conditions=done.conditions,
        page_faults=done.page_faults,
    )
    if pair and not plan.keep_disturbed:
        made = msgspec.structs.replace(made, disturbed=_disturbance(state, made, done.load))
    unwatched = tuple(dict.fromkeys((*state.unwatched, *done.unwatched)))
    bounded = msgspec.structs.replace(plan, metric=done.bounding(plan.metric))
    return msgspec.structs.replace(state, plan=bounded, runs=(*state.runs, made), unwatched=unwatched, preparing_s=preparing_s)


def _prepared(state: State, limit_s: float, tick: Tick) -> float:
    """Have the run prepared, and return how long that took."""
    meanwhile = run.ticking(functools.partial(tick, state, None))
    return measuring.prepare(state.plan.prepare, limit_s, meanwhile, show_output=state.plan.show_output)


def _in_pair(variant: Variant, seed: int, pair: int) -> Variant:
    """The variant with what varies from pair to pair and is the same in both of its runs: where memory lies, and the order of sets.

    One layout of memory may be faster by chance (Mytkowicz et al., ASPLOS 2009): the size of the environment moves the stack.
    """
    drawn = random.Random(f"{seed}/{pair}/environment")  # noqa: S311 - a layout, no secret
    varied = {"SYSPERF_PADDING": "x" * drawn.randrange(MAX_PADDING_BYTES)}
    if "PYTHONHASHSEED" not in os.environ:
        varied["PYTHONHASHSEED"] = str(drawn.randrange(1, 1 << 32))
    return msgspec.structs.replace(variant, env={**varied, **variant.env})


def _disturbance(state: State, done: Run, load: noise.Load | None) -> str:
    """Say why the run, or the pair that it completes, does not count; "" where it does. Blind to the arm."""
    history = [noise.Load(earlier.other_cpus, 0.0, earlier.wall_s) for earlier in state.runs if earlier.other_cpus is not None]
    met = [earlier.conditions for earlier in state.runs if earlier.conditions is not None]
    if reason := noise.disturbance(load, history) or noise.others_on_gpus(done.conditions, met):
        return reason
    first = state.runs[-1]
    if first.pair != done.pair:
        return ""
    earlier = [(a.conditions, b.conditions) for a, b in state.complete_pairs()]
    return noise.uneven((first.conditions, done.conditions), earlier, min(first.wall_s, done.wall_s))


def _with_warm_up(state: State) -> State:
    """After the first pair: how many steps both variants leave out."""
    if not state.plan.metric.counts or len(state.runs) != 2:
        return state
    a, b = state.runs
    return msgspec.structs.replace(state, warm_up_steps=probe.warm_up_steps(probe.Steps(a.step_times_s), probe.Steps(b.step_times_s)))
