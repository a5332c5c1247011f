"""Results of `verify` as self-contained pages: every run of a comparison as a dot, tables of several."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence

from sysperf.model.comparison import Arm, Comparison, Run, TriedFix
from sysperf.model.text import neutral
from sysperf.report.comparison import arms, basis, gave, number, reasons, remarks, verdict
from sysperf.report.frame import framed, paragraphs, table, text
from sysperf.report.terminal import clip


def page(comparison: Comparison) -> str:
    """Return a comparison as a page."""
    return framed(verdict(comparison), [f"<h1>{text(verdict(comparison))}</h1>", _body(comparison)])


def tried_page(fixes: Sequence[TriedFix]) -> str:
    """Return what each fix was promised to gain and what it gave here."""
    rows = [(", ".join(fix.rules), gave(fix), fix.promised) for fix in fixes]
    unclear = paragraphs(*(f"unclear of {', '.join(names)}: {reason}" for reason, names in reasons(fixes).items()))
    title = "What each fix was promised to gain, and what it gave here"
    return framed(title, [f"<h1>{title}</h1>", table(("fix", "gave here", "promised"), rows), *unclear])


def _body(comparison: Comparison) -> str:
    """Return what stands below the verdict: what it rests on, the runs, the commands. HTML."""
    rows = (
        (neutral(variant.name), f"{number(middle)} {comparison.metric.unit}", shlex.join(variant.argv))
        for _, variant, middle in arms(comparison)
    )
    notes = paragraphs(basis(comparison), comparison.reason, *remarks(comparison))
    return "".join((*notes, _dots(comparison), table(("variant", "median", "command"), rows)))


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
    dots = "".join(_dot(run, low, high) for run in runs)
    return f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{labels}{axis}{dots}</svg>'


def _dot(run: Run, low: float, high: float) -> str:
    x = _MARGIN + 6 + (run.value - low) / ((high - low) or 1) * (_WIDTH - _MARGIN - 12)
    kind = "no" if run.disturbed else run.arm
    title = f"pair {run.pair}: {run.value:.6g}{'; ' + run.disturbed if run.disturbed else ''}"
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{_y(run.arm, run.pair)}" r="4"><title>{html.escape(title)}</title></circle>'


def _y(arm: Arm, pair: int) -> int:
    return (30 if arm == "a" else 75) + pair * 7 % 21 - 10 * bool(pair)
