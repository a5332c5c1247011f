"""Two traces side by side: what a change did."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page, table
from sysperf.trace.output.difference import MIN_CHANGE, Change, Comparison

MAX_NAME = 70
_STYLES = {"faster": "good", "slower": "error", "no difference": "strong", "cannot tell": "unknown"}


def render(ranks: Sequence[Comparison], *, color: bool = False, width: int = 100) -> str:
    """The comparison as text; of several ranks a row for each, and the whole of the one whose own time changed most."""
    page = Page(Ink(color), width)
    comparison = max(ranks, key=_change)
    if len(ranks) > 1:
        times = [(one.step_ms_before, one.step_ms_after, one.own_ms_before, one.own_ms_after) for one in ranks]
        cells = [[_name(place, one), *map(_ms, of_one), one.verdict] for place, (one, of_one) in enumerate(zip(ranks, times, strict=True))]
        heads = ("rank", "before ms", "after ms", "own before", "own after", "a step is")
        for line in table(heads, cells, page.ink, page.width, right=range(5)):
            page.line(line)
        page.line(page.ink("dim", "own: without collectives that run alone, which may wait for another rank"))
        page.line()
        page.line(page.ink("strong", f"rank {_name(ranks.index(comparison), comparison)}, which changed most"))
    page.line(page.ink("dim", f"before  {neutral(comparison.before)}"))
    page.line(page.ink("dim", f"after   {neutral(comparison.after)}"))
    page.line()
    page.paragraph(_headline(comparison), _STYLES[comparison.verdict])
    if comparison.times:
        _table(page, "time of a step", comparison.times)
    if comparison.kernels:
        _table(page, "what runs", comparison.kernels)
    return str(page)


def _name(place: int, comparison: Comparison) -> str:
    return str(place if comparison.rank_after is None else comparison.rank_after)


def _change(comparison: Comparison) -> tuple[float, float]:
    """Return by how much its own time changed, and then the whole step: where one rank is late, the steps of all are longer."""
    own = _relative(comparison.own_ms_before, comparison.own_ms_after)
    return (own if own >= MIN_CHANGE else 0.0), _relative(comparison.step_ms_before, comparison.step_ms_after)


def _relative(before: float | None, after: float | None) -> float:
    return abs(after - before) / before if before and after is not None else -1.0


def _headline(comparison: Comparison) -> str:
    if comparison.difference_ms is None or comparison.step_ms_before is None or comparison.step_ms_after is None:
        return f"Cannot tell: {comparison.why}."
    low, high = comparison.difference_ms
    percent = 100 * (comparison.step_ms_after - comparison.step_ms_before) / comparison.step_ms_before if comparison.step_ms_before else 0.0
    return (
        f"{comparison.verdict.capitalize()}: a step takes {comparison.step_ms_after:.1f} ms instead of {comparison.step_ms_before:.1f} ms "
        f"({percent:+.0f} %; difference {low:+.1f} to {high:+.1f} ms with 95 % confidence, "
        f"{comparison.steps_before} and {comparison.steps_after} steps). That is of these two runs; "
        "`sysperf verify` tells how far two runs of one program differ."
    )


def _table(page: Page, title: str, rows: tuple[Change, ...]) -> None:
    page.line()
    cells = [[_ms(row.before_ms), _ms(row.after_ms), _difference(row), row.kind, neutral(row.what, MAX_NAME)] for row in rows]
    for line in table(("before ms", "after ms", "difference", "", title), cells, page.ink, page.width, right=(0, 1, 2)):
        page.line(line)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _difference(row: Change) -> str:
    if row.before_ms is None and row.after_ms is None:
        return "-"
    return f"{(row.after_ms or 0.0) - (row.before_ms or 0.0):+.2f}"
