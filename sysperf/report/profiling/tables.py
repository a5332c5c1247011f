"""Tables of an analysis, which its text and its web page share: ranks, operators, kernels, collectives, modules."""

from __future__ import annotations

import os

from sysperf.model.text import neutral, size
from sysperf.trace.accounting.causes import MIN_EXPOSED_PCT, longest_own_pct
from sysperf.trace.facts import Rank, Skew, Trace
from sysperf.trace.host_facts import Site
from sysperf.trace.output.analysis import Analysis

LARGE = 999.5
MAX_NAME = 60
MOST_OPERATORS, MIN_OPERATOR_PCT = 4, 2.0
HEADLINES = {
    "input-bound": "Input-bound",
    "host-bound": "Host-bound",
    "sync-bound": "Bound by synchronisation",
    "copy-bound": "Bound by copies",
    "comm-bound": "Bound by communication",
    "pipeline-bound": "Bound by waiting for stages of a pipeline",
    "compute-bound": "Compute-bound",
    "healthy": "Healthy",
    "cannot-tell": "Cannot tell",
}


def longest_operators(rank: Rank) -> tuple[Site, ...]:
    """The operators that take most of the time on the CPU, but those that take next to nothing."""
    return tuple(site for site in rank.cpu.top if site.exposed_pct >= MIN_OPERATOR_PCT)[:MOST_OPERATORS] if rank.cpu else ()


def matrix(analysis: Analysis) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(heads, a row for each rank): how busy it is, how long its steps, how long it waits for others, and what bounds it."""
    rows, skew = [], analysis.trace.skew
    for place, (name, rank) in enumerate(zip(_names(analysis.trace), analysis.trace.ranks, strict=True)):
        figures, exchange = rank.figures, rank.collectives
        busy = figures.gpu_busy_pct_mean if rank.has_device else rank.cpu.operator_pct if rank.cpu else None
        shares = (busy, figures.nccl_pct, exchange.own_pct, exchange.waiting_pct)
        step = "" if rank.steps.median_ms is None else f"{rank.steps.median_ms:.1f}"
        told = f"Waits for {skew.who}" if waits_for_late(rank, skew) else HEADLINES[rank.verdict]
        if (place if rank.rank is None else rank.rank) in skew.late:
            told = f"Late: {told[0].lower()}{told[1:]}"
        rows.append((name, step, *("" if share is None else f"{share:.1f}" for share in shares), told))
    return ("rank", "step ms", "busy %", "collectives %", "alone %", "waits %", "verdict"), rows


def waits_for_late(rank: Rank, skew: Skew) -> bool:
    """Whether waiting for a late rank costs this one more than anything else does."""
    waits = rank.collectives.waiting_pct or 0.0
    least = max(MIN_EXPOSED_PCT, rank.collectives.own_pct or 0.0, longest_own_pct(rank))
    return bool(skew.late) and rank.rank not in skew.late and waits >= least


def _names(trace: Trace) -> list[str]:
    """What the ranks are called: by their number, else their place; beside a number that several files have stands the file."""
    numbers = [number if rank.rank is None else rank.rank for number, rank in enumerate(trace.ranks)]
    if not trace.skew.doubles:
        return [str(number) for number in numbers]
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(rank.file)) for rank in trace.ranks])
    files = [neutral(os.path.relpath(os.path.abspath(rank.file), folder), MAX_NAME) for rank in trace.ranks]
    return [f"{number} {file}" if number in trace.skew.doubles else str(number) for number, file in zip(numbers, files, strict=True)]


BUSY_HEADS = ("share", "launched", "TFLOP/s", "of peak", "GB/s", "bound", "operator, shapes")
EXCHANGE_HEADS = ("share", "count", "bytes each", "median ms", "shortest ms", "bus GB/s", "collective")


def busy_rows(rank: Rank) -> list[tuple[str, ...]]:
    """The operators that the kernels' time goes to, a row for each shape."""
    return [
        (
            f"{row.share_pct:.1f} %", f"{row.count:,}", _figure(row.tflops), _figure(row.peak_pct, " %"), _figure(row.gb_per_s), row.bound,
            " ".join(filter(None, (neutral(row.operator, 80), neutral(row.shapes, 100)))),
        )
        for row in rank.busy
    ]  # fmt: skip


def exchange_rows(rank: Rank) -> list[tuple[str, ...]]:
    """A rank's collectives, a row for each kind and size."""
    return [
        (
            f"{row.share_pct:.1f} %", f"{row.count:,}", "" if row.bytes is None else size(row.bytes), f"{row.median_ms:.3f}",
            f"{row.shortest_ms:.3f}", _figure(row.bus_gb_per_s), neutral(row.name, 60),
        )
        for row in rank.collectives.kinds
    ]  # fmt: skip


MODULE_HEADS = ("share", "calls", "module")


def module_rows(rank: Rank) -> list[tuple[str, ...]]:
    """The tree of modules, a row for each."""
    return [(f"{row.share_pct:.1f} %", f"{row.calls:,}", "· " * row.depth + neutral(row.name, 60)) for row in rank.modules]


def _figure(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.3g}{unit}" if value < LARGE else f"{value:,.0f}{unit}"
