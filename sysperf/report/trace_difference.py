"""Two traces side by side: what a change did."""

from __future__ import annotations

from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page, table
from sysperf.trace.difference import Change, Comparison

MAX_NAME = 70
_STYLES = {"faster": "good", "slower": "error", "no difference": "strong", "cannot tell": "unknown"}


def render(found: Comparison, *, color: bool = False, width: int = 100) -> str:
    """The comparison as text."""
    page = Page(Ink(color), width)
    page.line(page.ink("dim", f"before  {neutral(found.before)}"))
    page.line(page.ink("dim", f"after   {neutral(found.after)}"))
    page.line()
    page.paragraph(_headline(found), _STYLES[found.verdict])
    if found.times:
        _table(page, "time of a step", found.times)
    if found.kernels:
        _table(page, "what runs", found.kernels)
    return str(page)


def _headline(found: Comparison) -> str:
    if found.difference_ms is None or found.step_ms_before is None or found.step_ms_after is None:
        return f"Cannot tell: {found.why}."
    low, high = found.difference_ms
    percent = 100 * (found.step_ms_after - found.step_ms_before) / found.step_ms_before if found.step_ms_before else 0.0
    return (
        f"{found.verdict.capitalize()}: a step takes {found.step_ms_after:.1f} ms instead of {found.step_ms_before:.1f} ms "
        f"({percent:+.0f} %; difference {low:+.1f} to {high:+.1f} ms with 95 % confidence, "
        f"{found.steps_before} and {found.steps_after} steps)."
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
