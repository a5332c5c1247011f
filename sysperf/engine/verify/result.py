"""What the runs of a study say: verdict, interval, and what else the reader should know."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median, stdev

import msgspec

from sysperf.engine.verify.study import State
from sysperf.host import redact
from sysperf.model.comparison import Arm, Comparison, Run, Variant
from sysperf.verify import noise, probe, stats
from sysperf.verify.study import Progress, Study

MIN_LOSSES, LOSS_BOUND, LOSS_ERRORS = 3, 0.02, 4.0
"""Losses at the end of so many runs of each variant must agree within 2 %, or within four standard errors."""


def _shown(variant: Variant) -> Variant:
    """A variant without the secrets of its command: results are shown, kept and sent."""
    return msgspec.structs.replace(variant, argv=redact.own_command(variant.argv))


def conclude(state: State, interrupted: str = "", spread: stats.Spread | None = None) -> Comparison:
    """Return what the runs so far say; of a study that was interrupted, by intervals that may be looked at any time.

    `spread`: what comparisons beside it tell of the spread of its pairs.
    """
    study = state.study()._replace(spread=spread)
    progress, advice = study.progress(), _advice(state)
    if progress.verdict == "unclear" and not progress.reason:
        progress = progress._replace(reason=advice)
    if interrupted:
        progress = _ended(progress, len(study.pairs), interrupted) if progress.verdict else _at_any_time(study, interrupted, advice)
    values = {arm: [done.value for done in state.counting(arm)] for arm in ("a", "b")}
    losses = {arm: [done.loss for done in state.counting(arm) if done.loss is not None] for arm in ("a", "b")}
    if progress.verdict in ("faster", "slower") and (differ := _different_losses(losses["a"], losses["b"])):
        progress = Progress("unclear", progress.interval, None, differ)  # other work has no ratio, that CI or a finding could take for one
    low, ratio, high = progress.gain.ratios() if progress.gain else (None, None, None)
    return Comparison(
        a=_shown(state.plan.a),
        b=_shown(state.plan.b),
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
        notes=(*_warm_up_notes(state), *constant_conditions(state.runs)),
        unwatched=state.unwatched,
        runs=tuple(msgspec.structs.replace(done, step_times_s=()) for done in state.runs),
    )


def _warm_up_notes(state: State) -> Iterator[str]:
    """Say what the warm-up took, which a variant may lose that gains afterwards, and where there was no steady state."""
    names: dict[Arm, str] = {"a": state.plan.a.name, "b": state.plan.b.name}
    first = {run.arm: probe.Steps(run.step_times_s) for run in state.runs[:2]}
    if not state.plan.metric.counts or len(first) < 2:
        return
    for arm, steps in first.items():
        if not steps.is_steady():
            yield f"no steady state was found in the first run of {names[arm]}"
    if state.warm_up_steps:
        took = " and ".join(f"{sum(first[arm].durations()[: state.warm_up_steps]):.1f} s of {names[arm]}" for arm in names)
        left = "step is" if state.warm_up_steps == 1 else f"{state.warm_up_steps} steps are"
        yield f"the first {left} left out as warm-up: {took}"


def constant_conditions(runs: Sequence[Run]) -> list[str]:
    """Say what others took all the time."""
    return noise.constant([run.other_cpus for run in runs], [run.conditions.gpu_others if run.conditions else None for run in runs])


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


def _ended(progress: Progress, pairs: int, why: str) -> Progress:
    """What the last look said, made when the time was over."""
    reason = f"{why} after {pairs} pairs; {progress.reason}" if progress.verdict == "unclear" else why
    return progress._replace(reason=reason)


def _advice(state: State) -> str:
    """Say what would decide: how many more pairs, and how long they take."""
    more, pair_s = state.study().more_pairs(), state.pair_s()
    takes = f" ({math.ceil(more * pair_s / 60)} min)" if pair_s else ""
    kept = " (--resume goes on)" if state.runs else ""
    return f"about {more} more pair{'s' if more > 1 else ''}{takes} would decide{kept}, or longer runs"


def _at_any_time(study: Study, why: str, advice: str) -> Progress:
    if not study.pairs:
        return Progress("unclear", None, None, f"{why} before a pair was complete; {advice}")
    pairs = f"{len(study.pairs)} pair{'s' if len(study.pairs) > 1 else ''}"
    interval = stats.anytime_interval(study.pairs)
    if interval is None:
        return Progress("unclear", None, None, f"{why} after {pairs}, too few for an interval; {advice}")
    verdict = stats.verdict(interval, study.margin)
    return Progress(verdict, interval, interval, f"{why} after {pairs}; {advice}" if verdict == "unclear" else why)
