"""An analysis as one web page: the verdict, the findings, and the window's timeline with exposed time coloured by cause.

Its script is in the page, named by its hash, and names out of the trace are text only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sysperf.model.finding import Finding
from sysperf.model.record import to_json
from sysperf.model.text import neutral
from sysperf.report import frame
from sysperf.report.analysis import HEADLINES, longest_operators
from sysperf.report.frame import text as _text
from sysperf.trace.facts import Rank
from sysperf.trace.output.analysis import Analysis
from sysperf.trace.output.drawing import CAUSES, Drawing

SCRIPT = Path(__file__).with_name("timeline.js")


def render(analysis: Analysis, drawing: Drawing) -> str:
    """The whole page."""
    rank = analysis.trace.ranks[0]
    lines = (
        f"<h1>{_text(HEADLINES[analysis.trace.verdict])}: {_text(analysis.trace.why)}</h1>",
        f'<p class="about">{_text(_about(rank))}</p>',
        *_bar(rank),
        *_findings(analysis),
        *_operators(rank),
        *_drawing(drawing),
        f'<script type="application/json" id="data">{_data(drawing)}</script>',
    )
    title = f"sysperf: {analysis.trace.verdict}, {rank.file.rpartition('/')[2]}"
    return frame.framed(title, lines, script=SCRIPT.read_text(encoding="utf-8"))


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
    yield from frame.bar((f"c{number}", share) for number, share in known)
    yield '<ul class="legend">'
    yield from (f'<li><i class="c{number}"></i>{_text(names[number])} {share:.1f} %</li>' for number, share in known)
    yield "</ul>"


def _operators(rank: Rank) -> Iterator[str]:
    """What computes most on the CPU."""
    if not (operators := longest_operators(rank)):
        return
    yield "<h2>Operators by their own time</h2><table><tr><th>operator</th><th>time</th><th>calls</th><th>where</th></tr>"
    for site in operators:
        where = _text(site.where.text) if site.where else ""
        yield f"<tr><td>{_text(site.what)}</td><td>{site.exposed_pct:.1f} %</td><td>{site.count}</td><td>{where}</td></tr>"
    yield "</table>"


def _findings(analysis: Analysis) -> Iterator[str]:
    if not analysis.findings:
        return
    yield "<h2>Findings</h2><table><tr><th>severity</th><th>finding</th><th>exposed</th><th>busy</th><th>gains by replay</th></tr>"
    yield from (_finding(finding) for finding in analysis.findings)
    yield "</table>"
    if analysis.together is not None:
        yield f"<p>Together: {_text(analysis.together.text())} of the step; {_text(analysis.together.assumes)}.</p>"


def _finding(finding: Finding) -> str:
    cost, busy = ("" if share is None else f"{share:.1f} %" for share in (finding.cost_pct, finding.work_pct))
    gain = f"{_text(finding.gain.interval)}<small>{_text(finding.gain.assumes)}</small>" if finding.gain.interval else ""
    notes = (*(place.text for place in finding.places), *(fix.title or fix.note for fix in finding.fixes))
    beside = "".join(f"<small>{_text(text)}</small>" for text in notes)
    about = f"<b>{_text(finding.rule)}</b> {_text(finding.about)}<br>{_text(finding.message)}{beside}"
    numbers = "".join(f'<td class="n">{number}</td>' for number in (cost, busy))
    return f'<tr><td class="n">{_text(finding.severity)}</td><td>{about}</td>{numbers}<td>{gain}</td></tr>'


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
