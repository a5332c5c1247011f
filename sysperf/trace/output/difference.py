"""Two traces of one program: what a change did, in ms a step."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Annotated

from sysperf.model.record import Record, fact
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.accounting.cpu import self_times
from sysperf.trace.accounting.exposed import members
from sysperf.trace.intervals import median

MIN_STEPS = 4
"""Of fewer, nobody knows how steps differ."""
MAX_DEPENDENCE = 0.9
MAX_KERNELS = 20
LEAST_MS = 0.005
"""What is less is shown as 0."""
MIN_CHANGE = 0.05
"""Kernels whose time changes by less, relative to the larger of both, are the same."""
EXCHANGE, COMMUNICATION = "collectives, exposed", "communication"
_PARTS = {
    "device busy": "gpu_busy_pct_mean",
    "loader": "dataloader_exposed_pct",
    "synchronisation": "sync_exposed_pct",
    "copy calls": "copy_api_exposed_pct",
    "host": "host_exposed_pct",
    "copies to the device, exposed": "h2d_exposed_pct",
    EXCHANGE: "nccl_exposed_pct",
    "allocator, exposed": "alloc_api_exposed_pct",
}
_CPU_PARTS = {
    "operators": "operator_pct",
    "loader": "loader_pct",
    "compilation": "compile_pct",
    COMMUNICATION: "communication_pct",
    "between operators": "python_pct",
}


class Change(Record, kw_only=True):
    """One row: ms a step before and after; None where one of the files does not tell."""

    what: str
    before_ms: float | None
    after_ms: float | None
    kind: Annotated[str, fact("came, went, changed or same")]


class Comparison(Record, kw_only=True):
    """What differs between two traces of one program."""

    schema: int = 1
    before: str
    after: str
    rank_before: Annotated[int | None, fact("of a job, as the files say")] = None
    rank_after: int | None = None
    steps_before: int
    steps_after: int
    step_ms_before: float | None
    step_ms_after: float | None
    difference_ms: Annotated[tuple[float, float] | None, fact("95 % interval of the difference of the medians of these two runs")]
    own_ms_before: Annotated[float | None, fact("a step without collectives that run alone, which may wait for another rank")] = None
    own_ms_after: float | None = None
    verdict: Annotated[str, fact("faster, slower, no difference, or cannot tell")]
    why: str = ""
    times: tuple[Change, ...] = ()
    kernels: tuple[Change, ...] = ()


class Comparisons(Record, kw_only=True):
    """The same of each rank of a job."""

    schema: int = 1
    ranks: tuple[Comparison, ...]


def compare(before: Accounting, after: Accounting) -> Comparison:
    """Match the steps of two traces, and tell what came, went and changed."""
    steps = [_steps(accounting) for accounting in (before, after)]
    interval = _interval(*steps) if all(len(step) >= MIN_STEPS for step in steps) else None
    middle = [median(step) if step else None for step in steps]
    alike = len(steps[0]) > 0 and len(steps[1]) > 0
    sides = list(zip((before, after), steps, strict=True))
    times = _times(before, after, middle) if alike else ()
    exchange = next(((row.before_ms, row.after_ms) for row in times if row.what in (EXCHANGE, COMMUNICATION)), (None, None))
    return Comparison(
        before=before.timeline.file,
        after=after.timeline.file,
        rank_before=before.timeline.rank,
        rank_after=after.timeline.rank,
        own_ms_before=_own(middle[0], exchange[0]),
        own_ms_after=_own(middle[1], exchange[1]),
        steps_before=len(steps[0]),
        steps_after=len(steps[1]),
        step_ms_before=middle[0],
        step_ms_after=middle[1],
        difference_ms=interval,
        verdict=_verdict(interval),
        why="" if interval else f"fewer than {MIN_STEPS} steps were found in one of the files",
        times=tuple(row for row in times if max(row.before_ms or 0.0, row.after_ms or 0.0) >= LEAST_MS),
        kernels=_kernels([_totals(*side) for side in sides]) if alike else (),
    )


def _steps(accounting: Accounting) -> list[float]:
    """The lengths of the iterations in ms."""
    if accounting.host is None:
        return []
    return [(end - start) / 1e6 for start, end in accounting.iterations(accounting.host)[1]]


def _own(step_ms: float | None, exchange_ms: float | None) -> float | None:
    return None if step_ms is None or exchange_ms is None else step_ms - exchange_ms


def _interval(before: list[float], after: list[float]) -> tuple[float, float]:
    """95 % interval of the difference of the medians, for steps that may depend on the step before them (Welch's t)."""
    spreads = [_spread_of_median(steps) for steps in (before, after)]
    variance = sum(spread for spread, _ in spreads)
    freedom = variance**2 / (sum(spread**2 / (count - 1) for spread, count in spreads) or 1.0) if variance else 1.0
    middle, half = median(after) - median(before), _t95(freedom) * math.sqrt(variance)
    return middle - half, middle + half


def _spread_of_median(steps: list[float]) -> tuple[float, float]:
    """(variance of the median of these steps, the number of independent steps that they are worth)."""
    count, mean = len(steps), sum(steps) / len(steps)
    squares = sum((step - mean) ** 2 for step in steps)
    follows = sum((left - mean) * (right - mean) for left, right in itertools.pairwise(steps)) / squares if squares else 0.0
    follows = min(MAX_DEPENDENCE, max(0.0, follows + (1 + 4 * follows) / count))  # of few steps, the estimate is too low by this
    worth = max(2.0, count * (1 - follows) / (1 + follows))
    return math.pi / 2 * squares / (count - 1) / worth, worth


def _t95(freedom: float) -> float:
    """The quantile of Student's t for 95 % (Abramowitz and Stegun 26.7.5)."""
    return 1.96 + 2.372 / freedom + 2.823 / freedom**2 + 2.555 / freedom**3


def _verdict(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return "cannot tell"
    return "faster" if interval[1] < 0 else "slower" if interval[0] > 0 else "no difference"


def _times(before: Accounting, after: Accounting, step_ms: list[float | None]) -> tuple[Change, ...]:
    """Exposed time by cause, in ms a step."""
    both = [accounting.facts(with_gains=False) for accounting in (before, after)]
    on_device = all(rank.has_device for rank in both)
    rows = []
    for what, name in (_PARTS if on_device else _CPU_PARTS).items():
        shares = [getattr(rank.figures if on_device else rank.cpu, name, None) for rank in both]
        values = [None if share is None or ms is None else share / 100 * ms for share, ms in zip(shares, step_ms, strict=True)]
        rows.append(Change(what=what, before_ms=values[0], after_ms=values[1], kind=_kind(values[0], values[1])))
    return tuple(rows)


def _kind(before: float | None, after: float | None) -> str:
    if not before:
        return "came" if after else "same"
    if not after:
        return "went"
    return "changed" if abs(after - before) > MIN_CHANGE * max(after, before) else "same"


def _kernels(totals: list[dict[str, float]]) -> tuple[Change, ...]:
    """Kernels (operators on the CPU) whose time a step differs, most first."""
    rows = []
    for name in {*totals[0], *totals[1]}:
        old, new = totals[0].get(name), totals[1].get(name)
        if (kind := _kind(old, new)) != "same":
            rows.append(Change(what=name, before_ms=old, after_ms=new, kind=kind))
    rows.sort(key=lambda row: (-abs((row.after_ms or 0) - (row.before_ms or 0)), row.what))
    return tuple(rows[:MAX_KERNELS])


def _totals(accounting: Accounting, steps: list[float]) -> dict[str, float]:
    """The time of each kernel (operator on the CPU) in ms a step. The window may hold parts of steps."""
    host, rows, texts, totals = accounting.host, accounting.timeline.operations, accounting.timeline.names.texts, Counter[int]()
    if host is None:
        return {}
    for time in accounting.times:
        for index in members(time, time.operations):
            totals[rows.name[index]] += rows.end[index] - rows.start[index]
    if not accounting.times:
        totals, _, _ = self_times(host, accounting.threads)
    in_window = host.window.duration / 1e6 / (sum(steps) / len(steps))
    return {texts[name]: time / 1e6 / in_window for name, time in totals.items()}
