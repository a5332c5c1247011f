"""The result of `tune`: as text, and as a page, with a picture of what mattered."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence

from sysperf.model.text import neutral
from sysperf.model.tuning import FactorEffect, LevelEffect, Tuning
from sysperf.report.experiments import comparison
from sysperf.report.experiments.intervals import Row, picture
from sysperf.report.frame import behind, command, framed, paragraphs, table
from sysperf.report.frame import text as _text
from sysperf.report.terminal import Ink, Page, clip, pad

STYLE = {"confirmed": "good", "nothing": "plain", "unconfirmed": "unknown"}
MAX_BAR = 24
MAX_NAME = 28
_BLOCKS = " ▏▎▍▌▋▊▉█"


def verdict(tuning: Tuning) -> str:
    """Return the result in one sentence."""
    if tuning.state == "confirmed" and tuning.comparison and tuning.comparison.ratio:
        return f"{named_winner(tuning)}: {(tuning.comparison.ratio - 1) * 100:.1f} % faster than plain, confirmed by fresh pairs"
    return "nothing helps here" if tuning.state == "nothing" else "nothing is confirmed yet"


def named_winner(tuning: Tuning) -> str:
    """Return the winner in words."""
    if tuning.winner is None:
        return "plain"
    if min(tuning.winner, default=0) < 0:
        return "sysperf wrap without a profile"
    parts = [f"{factor.name}: {factor.levels[level].name}" for factor, level in zip(tuning.factors, tuning.winner, strict=True) if level]
    return neutral(", ".join(parts), 400)


def summary(tuning: Tuning) -> str:
    """Return how many runs of what the result rests on."""
    failed = sum(1 for run in tuning.runs if run.failed)
    disturbed = sum(1 for run in tuning.runs if run.disturbed)
    searched = tuning.factors[0].name if len(tuning.factors) == 1 else f"{len(tuning.factors)} factors"
    parts = [f"{len(tuning.runs)} runs of {neutral(searched)} by {tuning.metric.name}"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{disturbed} disturbed and repeated"] if disturbed else []
    if len(tuning.factors) == 1:
        return "; ".join((*parts, "each level in turn, in shuffled blocks"))
    parts.append(
        "main-effects model and TPE" if tuning.with_tpe else "main-effects model alone (no TPE: it needs optuna, and 30 runs or more)"
    )
    return "; ".join(parts)


def text(tuning: Tuning, *, color: bool = False, width: int = 100) -> str:
    """Return the result for a terminal."""
    page = Page(Ink(color), width)
    page.line(page.ink(STYLE[tuning.state], verdict(tuning)))
    if tuning.comparison:
        page.paragraph(comparison.basis(tuning.comparison), "dim")
    if tuning.reason:
        page.paragraph(tuning.reason, "unknown" if tuning.state == "unconfirmed" else "plain")
    page.paragraph(summary(tuning), "dim")
    for note in tuning.notes:
        page.paragraph(neutral(note, 500), "dim")
    if tuning.effects:
        page.line()
        page.line(page.ink("strong", "What mattered"))
        top = max(abs(level.ratio - 1) for effect in tuning.effects for level in effect.levels) or 1.0
        for effect in tuning.effects:
            _factor(page, effect, top, alone=len(tuning.effects) == 1)
    failures = dict.fromkeys(neutral(run.failed, 200) for run in tuning.runs if run.failed)
    for failure in list(failures)[:5]:
        page.paragraph(f"! a run failed: {failure}", "unknown")
    if tuning.left_out:
        page.line()
        page.paragraph("left as it is: " + "; ".join(f"{left.name} ({neutral(left.reason, 200)})" for left in tuning.left_out), "dim")
    page.line()
    page.line(f"plain  {page.ink('command', neutral(shlex.join(tuning.argv), 2_000))}")
    return str(page)


def _factor(page: Page, effect: FactorEffect, top: float, *, alone: bool) -> None:
    share = "" if alone else f"{effect.importance:4.0%} of what the factors explain"
    page.line(f"{pad(clip(effect.name, MAX_NAME), MAX_NAME)}  {share}".rstrip())
    for level in effect.levels[1:]:
        if not level.runs:
            page.line(f"  {pad(clip(level.name, MAX_NAME - 2), MAX_NAME - 2)}  {page.ink('dim', 'no run that counts')}")
            continue
        ratio_text = f"{(level.ratio - 1) * 100:+6.1f} %  ±{_error(level) * 100:.1f}"
        style = "good" if level.low > 1 else "error" if level.high < 1 else "plain"
        page.line(
            f"  {pad(clip(level.name, MAX_NAME - 2), MAX_NAME - 2)}  {page.ink(style, pad(bar(level.ratio, top), MAX_BAR))}  {ratio_text}"
        )


def bar(ratio: float, top: float) -> str:
    """Return a bar as long as the difference from 1, of which `top` has the full length."""
    eighths = round(abs(ratio - 1) / top * MAX_BAR * 8)
    return "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")


def _error(level: LevelEffect) -> float:
    return (level.high - level.low) / 2


def page(tuning: Tuning) -> str:
    """Return the result as one self-contained page: what mattered with standard errors, and every run in its order."""
    basis = comparison.basis(tuning.comparison) if tuning.comparison else ""
    left = "; ".join(f"{left.name} ({neutral(left.reason, 200)})" for left in tuning.left_out)
    lines = (
        f"<h1>{_text(verdict(tuning))}</h1>",
        *paragraphs(basis, tuning.reason, summary(tuning), *tuning.notes),
        f"<h2>What mattered</h2>{_effects(tuning.effects)}<h2>Runs</h2>{_runs(tuning)}",
        *paragraphs(f"left as it is: {left}"),
        f"<h2>Profile</h2><pre>{html.escape(tuning.profile)}</pre>" if tuning.profile else "",
        f"<h2>The plain program</h2>{command(shlex.join(tuning.argv))}",
    )
    return framed(verdict(tuning), lines)


_WIDTH, _LABEL = 800, 64


def _effects(effects: Sequence[FactorEffect]) -> str:
    """Every level beside the plain program, with one standard error each way, and the same as a table."""
    rows = [(effect, level) for effect in effects for level in effect.levels[1:] if level.runs]
    if not rows:
        return "<p>Nothing was tried often enough to say.</p>"
    says = [f"{(level.ratio - 1) * 100:+.1f} % ± {_error(level) * 100:.1f}" for _, level in rows]
    drawn = [
        Row(f"{effect.name}: {level.name}", level.low, level.ratio, level.high, said)
        for (effect, level), said in zip(rows, says, strict=True)
    ]
    figures = [(effect.name, level.name, said, str(level.runs)) for (effect, level), said in zip(rows, says, strict=True)]
    return behind(
        "The same as a table", picture("what each level does to the speed", drawn), table(("factor", "level", "speed", "runs"), figures)
    )


def _runs(tuning: Tuning) -> str:
    """Every run's value in the order of the runs; plain ones in grey, so that drift shows."""
    runs = [run for run in tuning.runs if run.value is not None]
    if not runs:
        return "<p>none"
    values = [run.value or 0.0 for run in runs]
    low, reach = min(values), (max(values) - min(values)) or 1.0
    last = max(1, runs[-1].number)
    dots = "".join(
        f'<circle{"" if any(run.choice) else " class=plain"} cx="{_LABEL + run.number / last * (_WIDTH - _LABEL - 10):.1f}" '
        f'cy="{130 - (value - low) / reach * 110:.1f}" r="4"><title>run {run.number}, {run.phase}: {value:.5g}</title></circle>'
        for run, value in zip(runs, values, strict=True)
    )
    unit = html.escape(tuning.metric.unit)
    ends = f'<text x="0" y="12">{max(values):.4g} {unit}</text><text x="0" y="138">{low:.4g}</text>'
    drawn = f'<svg class="chart" viewBox="0 0 {_WIDTH} 140" role="img" aria-label="every run in its order">{ends}{dots}</svg>'
    figures = [(str(run.number), run.phase, f"{run.value:.5g}") for run in runs]
    return behind("The runs as a table", drawn, table(("run", "phase", f"{tuning.metric.name}, {tuning.metric.unit}"), figures))
