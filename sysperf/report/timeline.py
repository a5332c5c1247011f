"""An analysis as one web page: the verdict, the findings, and the window's timeline with exposed time coloured by cause.

The page needs nothing else and asks nobody. Its style and script are in it, the script named by its hash, and names out of
the trace are text only.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator
from pathlib import Path

from sysperf.model.record import to_json
from sysperf.model.text import neutral
from sysperf.report.analysis import HEADLINES, longest_operators
from sysperf.trace.facts import Rank
from sysperf.trace.output.analysis import Analysis, Finding
from sysperf.trace.output.drawing import CAUSES, Drawing

_FOLDER = Path(__file__).parent


def render(analysis: Analysis, drawing: Drawing) -> str:
    """The whole page."""
    style, script = ((_FOLDER / f"timeline.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    # Widths of the bar are styles of their elements: they need 'unsafe-inline', which lets no script in.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    rank = analysis.trace.ranks[0]
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>sysperf: {_text(analysis.trace.verdict)}, {_text(rank.file.rpartition('/')[2])}</title>",
            f"<style>{style}</style></head><body>",
            f"<h1>{_text(HEADLINES[analysis.trace.verdict])}: {_text(analysis.trace.why)}</h1>",
            f'<p class="about">{_text(_about(rank))}</p>',
            *_bar(rank),
            *_findings(analysis),
            *_operators(rank),
            *_drawing(drawing),
            f'<script type="application/json" id="data">{_data(drawing)}</script><script>{script}</script></body></html>',
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _text(text: str) -> str:
    return html.escape(neutral(text, 1_000))


def _about(rank: Rank) -> str:
    parts = [
        rank.file,
        rank.gpu or ("no device" if not rank.has_device and not rank.trust.device_missing else ""),
        f"window: {rank.window_rule.replace('_', ' ')}",
    ]
    if rank.steps.by and rank.steps.median_ms is not None:
        parts.append(f"{rank.steps.count} iterations of {rank.steps.median_ms:.1f} ms by {rank.steps.by}")
    return " · ".join(part for part in parts if part)


def _bar(rank: Rank) -> Iterator[str]:
    """The window's time by cause."""
    figures, cpu = rank.figures, rank.cpu
    if rank.has_device:
        host = (figures.host_exposed_pct or 0.0) - (queued := min(figures.host_exposed_pct or 0.0, figures.idle_queued_pct or 0.0))
        shares: tuple[float | None, ...] = (
            figures.gpu_busy_pct_mean, figures.dataloader_exposed_pct, figures.sync_exposed_pct, figures.copy_api_exposed_pct, host, queued,
        )  # fmt: skip
        names: tuple[str, ...] = CAUSES
    elif cpu is not None:
        shares = (cpu.operator_pct, cpu.loader_pct, cpu.compile_pct, cpu.communication_pct, cpu.python_pct, None)
        names = ("operators", "loader", "compilation", "communication", "between operators", "")
    else:
        return
    known = [(number, share or 0.0) for number, share in enumerate(shares) if share]
    yield f'<div class="bar">{"".join(_part(number, share) for number, share in known)}</div>'
    yield '<ul class="legend">'
    yield from (f'<li><i class="c{number}"></i>{_text(names[number])} {share:.1f} %</li>' for number, share in known)
    yield "</ul>"


def _operators(rank: Rank) -> Iterator[str]:
    """What computes most on the CPU."""
    if not (operators := longest_operators(rank)):
        return
    yield "<h2>Operators by their own time</h2><table><tr><th>operator</th><th>time</th><th>calls</th><th>where</th></tr>"
    for site in operators:
        yield f"<tr><td>{_text(site.what)}</td><td>{site.exposed_pct:.1f} %</td><td>{site.count}</td><td>{_text(site.where)}</td></tr>"
    yield "</table>"


def _part(number: int, share: float) -> str:
    return f'<span class="c{number}" style="width:{share:.3f}%"></span>'


def _findings(analysis: Analysis) -> Iterator[str]:
    if not analysis.findings:
        return
    yield "<h2>Findings</h2><table><tr><th>severity</th><th>finding</th><th>exposed</th><th>busy</th><th>gains by replay</th></tr>"
    yield from (_finding(finding) for finding in analysis.findings)
    yield "</table>"
    if analysis.together is not None:
        yield f"<p>Together: {_text(analysis.together.text())} of the step; {_text(analysis.together.assumes)}.</p>"


def _finding(finding: Finding) -> str:
    cost, busy = ("" if share is None else f"{share:.1f} %" for share in (finding.exposed_pct, finding.work_pct))
    gain = (
        ""
        if finding.predicted_gain is None
        else f"{_text(finding.predicted_gain.text())}<small>{_text(finding.predicted_gain.assumes)}</small>"
    )
    beside = "".join(f"<small>{_text(text)}</small>" for text in (*finding.where, *finding.fixes))
    about = f"<b>{_text(finding.id)}</b> {_text(finding.subject)}<br>{_text(finding.message)}{beside}"
    return f'<tr><td>{_text(finding.severity)}</td><td>{about}</td><td class="n">{cost}</td><td class="n">{busy}</td><td>{gain}</td></tr>'


def _drawing(drawing: Drawing) -> Iterator[str]:
    if not drawing.rows:
        return
    left = f"; {drawing.left_out} of the shortest events are not drawn" if drawing.left_out else ""
    yield f'<h2>Timeline</h2><p class="about">Wheel or + and − zoom, dragging or arrows move, 0 shows all{left}.</p>'
    yield '<canvas id="timeline" tabindex="0" role="img" aria-label="timeline of the window"></canvas><div id="hint" hidden></div>'


def _data(drawing: Drawing) -> str:
    """The rows as columns. No text of the trace can end the element: `<` is written as an escape."""
    rows = [
        {
            "name": neutral(row.name, 80),
            "start": [event.start for event in row.events],
            "duration": [event.duration for event in row.events],
            "name_of": [event.name for event in row.events],
            "color": [event.color for event in row.events],
        }
        for row in drawing.rows
    ]
    data = {"duration": drawing.duration, "names": [neutral(name) for name in drawing.names], "rows": rows}
    return to_json(data).decode().replace("<", "\\u003c")
