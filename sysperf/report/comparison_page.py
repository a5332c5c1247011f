"""Results of `verify` as self-contained pages: every run of a comparison as a dot, tables of several."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence

from sysperf.model.comparison import Arm, Comparison, Run, TriedFix
from sysperf.model.text import neutral
from sysperf.report.comparison import arms, basis, gave, number, reasons, remarks, verdict
from sysperf.report.terminal import clip


def page(comparison: Comparison) -> str:
    """Return a comparison as a page."""
    return _document(verdict(comparison), body(comparison))


def tried_page(fixes: Sequence[TriedFix]) -> str:
    """Return what each fix was promised to gain and what it gave here."""
    rows = [(", ".join(fix.rules), gave(fix), fix.promised) for fix in fixes]
    unclear = "".join(f"<p>unclear of {html.escape(', '.join(names))}: {html.escape(reason)}" for reason, names in reasons(fixes).items())
    return table_page("What each fix was promised to gain, and what it gave here", ("fix", "gave here", "promised"), rows, unclear)


def table_page(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], after: str = "") -> str:
    """Return a page with a table; `after` is HTML that stands below it."""
    cells = "".join("<tr>" + "".join(f"<td>{html.escape(neutral(text, 2_000))}" for text in row) for row in rows)
    names = "".join(f"<th>{html.escape(name)}" for name in head)
    return _document(neutral(title, 600), f"<table><tr>{names}{cells}</table>{after}")


def body(comparison: Comparison) -> str:
    """Return what stands below the verdict: what it rests on, the runs, the commands. HTML."""
    notes = "".join(f"<p>{html.escape(line)}" for line in (comparison.reason, *remarks(comparison)) if line)
    rows = "".join(
        f"<tr><td>{html.escape(neutral(variant.name))}<td>{number(middle)} {html.escape(comparison.metric.unit)}"
        f"<td><code>{html.escape(neutral(shlex.join(variant.argv), 2_000))}</code>"
        for _, variant, middle in arms(comparison)
    )
    return f"<p>{html.escape(basis(comparison))}{notes}{_dots(comparison)}<table><tr><th>variant<th>median<th>command{rows}</table>"


def _document(title: str, content: str) -> str:
    head = html.escape(title)
    start = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{head}</title><style>{_CSS}</style>'
    return f"{start}<h1>{head}</h1>{content}</html>\n"


_CSS = (
    "body{font:16px system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "svg{width:100%;height:auto}circle{fill:#2a78d6;fill-opacity:.6}.b{fill:#d67f2a}.no{fill:#999}text{font-size:12px;fill:currentColor}"
    "td,th{text-align:left;padding:.2rem 1rem .2rem 0}code{overflow-wrap:anywhere}"
)
_WIDTH, _HEIGHT, _MARGIN = 800, 120, 110


def _dots(comparison: Comparison) -> str:
    """Every run but those of the first pair, on one axis; disturbed ones in grey."""
    runs = [run for run in comparison.runs if run.pair]
    if not runs:
        return ""
    low, high = min(run.value for run in runs), max(run.value for run in runs)
    labels = "".join(
        f'<text x="0" y="{_y(arm, 0) + 4}">{html.escape(clip(neutral(variant.name), 16))}</text>' for arm, variant, _ in arms(comparison)
    )
    axis = (
        f'<text x="{_MARGIN}" y="{_HEIGHT - 4}">{low:.4g}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{high:.4g} {html.escape(comparison.metric.unit)}</text>'
    )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{labels}{axis}{"".join(_dot(run, low, high) for run in runs)}</svg>'


def _dot(run: Run, low: float, high: float) -> str:
    x = _MARGIN + 6 + (run.value - low) / ((high - low) or 1) * (_WIDTH - _MARGIN - 12)
    kind = "no" if run.disturbed else run.arm
    title = f"pair {run.pair}: {run.value:.6g}{'; ' + run.disturbed if run.disturbed else ''}"
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{_y(run.arm, run.pair)}" r="4"><title>{html.escape(title)}</title></circle>'


def _y(arm: Arm, pair: int) -> int:
    return (30 if arm == "a" else 75) + pair * 7 % 21 - 10 * bool(pair)
