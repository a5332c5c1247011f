"""Results of `verify --experiment`: a setting at several levels, or why it cannot be told, as text and as Markdown."""

from __future__ import annotations

import html
from collections.abc import Sequence

from sysperf.model.sweep import NotHere, Sweep, SweptLevel
from sysperf.model.text import neutral
from sysperf.report import comparison, comparison_page
from sysperf.report.terminal import Ink, Page, table


def text(result: Sweep | NotHere, *, color: bool = False, width: int = 100) -> str:
    """Return the result for a terminal."""
    page = Page(Ink(color), width)
    page.line(page.ink("unknown" if result.cannot else "strong", headline(result)))
    head, rows = _table(result)
    if rows:
        page.line()
        for line in table(head, rows, page.ink, width):
            page.line(line)
    for remark in _remarks(result):
        page.line()
        page.paragraph(remark, "dim")
    if isinstance(result, Sweep) and result.comparison:
        page.line()
        return f"{page}{comparison.text(result.comparison, color=color, width=width)}"
    return str(page)


def markdown(result: Sweep | NotHere) -> str:
    """Return the same for a pull request."""
    head, rows = _table(result)
    lines = [f"**{comparison.cell(headline(result))}**", ""]
    if rows:
        lines += [_row(head), f"|{'---|' * len(head)}", *map(_row, rows), ""]
    lines += [f"{comparison.cell(remark)}\n" for remark in _remarks(result)]
    after = comparison.markdown(result.comparison) if isinstance(result, Sweep) and result.comparison else ""
    return "\n".join(lines) + after


def page(result: Sweep | NotHere) -> str:
    """Return the same as one self-contained page."""
    head, rows = _table(result)
    remarks = "".join(f"<p>{html.escape(remark)}" for remark in _remarks(result))
    compared = result.comparison if isinstance(result, Sweep) else None
    after = f"<h2>{html.escape(comparison.verdict(compared))}</h2>{comparison_page.body(compared)}" if compared else ""
    return comparison_page.table_page(headline(result), head, rows, f"{remarks}{after}")


def headline(result: Sweep | NotHere) -> str:
    """Return what was found in one sentence."""
    if isinstance(result, NotHere) or result.cannot:
        return f"{result.experiment}: this cannot be measured here: {neutral(result.cannot, 500)}"
    if result.comparison is None:
        return f"{result.experiment}: nothing helps: no level was faster than the program as it is"
    return f"{result.experiment}: {result.factor}: {result.best} was the best of {len(result.levels)}; compared with plain in fresh pairs:"


def _table(result: Sweep | NotHere) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    if isinstance(result, NotHere):
        return (), []
    return (result.factor, "median", "runs"), [_level(level, result.metric.unit) for level in result.levels]


def _level(level: SweptLevel, unit: str) -> tuple[str, ...]:
    if level.median is None:
        return neutral(level.name), "unknown", f"failed: {neutral(level.failed, 200)}" if level.failed else "none"
    return neutral(level.name), f"{level.median:.4g} {unit}", ", ".join(f"{value:.4g}" for value in level.values)


def _remarks(result: Sweep | NotHere) -> list[str]:
    if isinstance(result, NotHere):
        return []
    basis = [neutral(result.basis, 500)] if result.basis else []
    lines = ", ".join(f"`{neutral(line, 200)}`" for line in result.profile.splitlines() if line)
    return (
        [*basis, f"To start with it, write a file best.toml of these lines: {lines}; then `sysperf wrap --profile best.toml -- …`"]
        if lines
        else basis
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(comparison.cell, cells))} |"
