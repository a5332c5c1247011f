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
from sysperf.report.formats.as_html import MARKS
from sysperf.report.frame import text as _text
from sysperf.report.profiling import tables
from sysperf.report.profiling.analysis import grouped, of_ranks
from sysperf.report.words import count
from sysperf.trace.facts import Rank
from sysperf.trace.intervals import length, union
from sysperf.trace.output.analysis import Analysis
from sysperf.trace.output.drawing import CAUSES, COPY_CALL, HOST, KINDS, LOADER, SYNC, Drawing, Event

MAX_STEPS = 400
_OPEN = ("error", "warning")
MAX_ROWS = 60
"""Rows of the timeline that the table has: a program of many threads has more than anybody reads."""
_OF_GAPS = {"sync": (SYNC, COPY_CALL), "dataloader": (LOADER,), "program": (HOST,), "device": (HOST,)}
"""Which gaps a cause of an area makes, by their colour."""
_NAMED = {"optimizer": "Optimizer.", "ddp": "nccl", "nccl": "nccl"}
"""How the names of the events begin that an area is about."""
SCRIPT = Path(__file__).with_name("timeline.js")


def render(analysis: Analysis, drawing: Drawing) -> str:
    """The whole page."""
    rank, whose = _told(analysis)
    lines = (
        f"<h1>{_text(tables.HEADLINES[analysis.trace.verdict])}: {_text(analysis.trace.why)}</h1>",
        f'<p class="about">{_text(_about(rank))}</p>',
        *(_ranks(analysis) if whose else _bar(rank)),
        *_findings(analysis, drawing),
        *_tables(rank, whose),
        *_operators(rank, whose),
        *_steps(rank, whose),
        *_drawing(drawing),
        f'<script type="application/json" id="data">{_data(drawing)}</script>',
    )
    title = f"sysperf: {analysis.trace.verdict}, {rank.file.rpartition('/')[2]}"
    return frame.framed(title, lines, script=SCRIPT.read_text(encoding="utf-8"))


def _told(analysis: Analysis) -> tuple[Rank, str]:
    """(the rank of which tables and steps tell, what headings call it): of several the first late one, else the first."""
    ranks, late = analysis.trace.ranks, analysis.trace.skew.late
    if len(ranks) == 1:
        return ranks[0], ""
    numbers = [place if rank.rank is None else rank.rank for place, rank in enumerate(ranks)]
    place = numbers.index(late[0]) if late else 0
    return ranks[place], f" of rank {numbers[place]}"


def _about(rank: Rank) -> str:
    parts = [
        rank.file,
        rank.gpu or ("no device" if not rank.has_device and not rank.trust.device_missing else ""),
        f"window: {rank.window_rule.replace('_', ' ')}",
    ]
    if rank.steps.by and rank.steps.median_ms is not None:
        parts.append(f"{count(rank.steps.count, 'iteration')} of {rank.steps.median_ms:.1f} ms by {rank.steps.by}")
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


def _operators(rank: Rank, whose: str) -> Iterator[str]:
    """What computes most on the CPU."""
    if operators := tables.longest_operators(rank):
        rows = ((site.what, f"{site.exposed_pct:.1f} %", str(site.count), site.where.text if site.where else "") for site in operators)
        yield f"<h2>Operators{_text(whose)} by their own time</h2>" + frame.table(("operator", "time", "calls", "where"), rows)


def _ranks(analysis: Analysis) -> Iterator[str]:
    """Each rank's time in a bar of its own, and what it waits for the others."""
    heads, rows = tables.matrix(analysis)
    yield "<h2>Ranks</h2>"
    for rank, row in zip(analysis.trace.ranks, rows, strict=True):
        own, waits = rank.collectives.own_pct or 0.0, rank.collectives.waiting_pct or 0.0
        busy = max(0.0, (rank.figures.gpu_busy_pct_mean or 0.0) - own - waits)
        yield f'<p class="about">rank {_text(row[0])}: computes {busy:.0f} %, exchanges {own:.0f} %, waits for others {waits:.0f} %</p>'
        yield from frame.bar((("c0", busy), ("c3", own), ("c1", waits), ("c5", max(0.0, 100 - busy - own - waits))))
    yield frame.table(heads, rows)


def _tables(rank: Rank, whose: str) -> Iterator[str]:
    """Tables of what takes the kernels' time, of the collectives, and of modules. What a row is about stands first: a phone shows that."""
    known = (
        ("Where the time of kernels{} goes", tables.BUSY_HEADS, tables.busy_rows(rank)),
        ("Collectives{} by kind and size", tables.EXCHANGE_HEADS, tables.exchange_rows(rank)),
        ("Modules{} by the time of what they compute", tables.MODULE_HEADS, tables.module_rows(rank)),
    )
    for title, (*heads, about), rows in known:
        if told := [(row[-1], *row[:-1]) for row in rows]:
            yield f"<h2>{_text(title.format(whose))}</h2>" + frame.table((about, *heads), told)


def _steps(rank: Rank, whose: str) -> Iterator[str]:
    """The length of each step: one that took longer stands out."""
    lengths = (rank.step_ms or ())[:MAX_STEPS]
    if len(lengths) < 2:
        return
    longest, wide = max(lengths) or 1.0, 100 / len(lengths)
    yield f'<h2>Steps{_text(whose)}</h2><p class="about">{len(lengths)} steps, {min(lengths):.1f} to {max(lengths):.1f} ms</p>'
    yield f'<svg viewBox="0 0 100 20" preserveAspectRatio="none" width="100%" height="80" role="img" aria-label="{len(lengths)} steps">'
    for number, step in enumerate(lengths):
        high = 20 * step / longest
        title = f"<title>step {number}: {step:.1f} ms</title>"
        yield f'<rect class="c3" x="{number * wide:.3f}" y="{20 - high:.3f}" width="{wide * 0.9:.3f}" height="{high:.3f}">{title}</rect>'
    yield "</svg>"


def _findings(analysis: Analysis, drawing: Drawing) -> Iterator[str]:
    if not analysis.findings:
        return
    yield "<h2>Findings</h2>"
    ranks = len(analysis.trace.ranks)
    for finding, group in grouped(analysis.findings):
        yield from _finding(finding, of_ranks(group, ranks), drawing if ranks == 1 else None)
    if analysis.together is not None:
        yield f"<p>Together: {_text(analysis.together.text())} of the step; {_text(analysis.together.assumes)}.</p>"


def _finding(finding: Finding, ranks: str, drawing: Drawing | None) -> Iterator[str]:
    """One finding as a block, which is as wide as the page: what it costs and gains stands beside its name."""
    costs = (("costs", finding.cost_pct), ("busy with it", finding.work_pct))
    numbers = (ranks, *(f"{word} {share:.1f} %" for word, share in costs if share is not None), f"gains {finding.gain.interval}")
    beside = " · ".join(number for number in numbers if number and number != "gains ")
    about = f"{finding.about}: {finding.message}" if finding.about else finding.message
    yield f'<section class="{finding.severity}"><details{" open" if finding.severity in _OPEN else ""}><summary>'
    yield f'<i aria-label="{finding.severity}">{MARKS[finding.severity]}</i><code>{_text(finding.rule)}</code>'
    yield f' <span class="subject">{_text(beside)}</span><p>{_text(about)}</p></summary>'
    if finding.gain.assumes:
        yield f"<p>Gains if: {_text(finding.gain.assumes)}</p>"
    yield from (f"<p>Where: {_text(place.text)}</p>" for place in finding.places)
    yield from (f"<p>Fix: {_text(fix.title or fix.note)}</p>" for fix in finding.fixes)
    yield from _place(finding, drawing)
    yield f"{frame.explained(finding.rule)}</details></section>"


def _place(finding: Finding, drawing: Drawing | None) -> Iterator[str]:
    """A link to the longest gap of such a cause on the timeline, or to the longest event that its name tells."""
    area = finding.rule.partition(".")[0]
    colors, name = _OF_GAPS.get(area, ()), _NAMED.get(area)
    if drawing is None:
        return
    of_its_kind = (
        event
        for row in drawing.rows
        for event in row.events
        if event.color in colors or (name is not None and drawing.names[event.name].startswith(name))
    )
    if longest := max(of_its_kind, key=lambda event: event.duration, default=None):
        yield f"<p>On the timeline: {_link(longest, 'the longest' if name else 'the longest gap')}</p>"


def _link(event: Event, before: str = "") -> str:
    """``2.5 ms at 120 ms``, which shows the event on the timeline."""
    start, end = event.start / 1e6, (event.start + event.duration) / 1e6
    said = f"{before}{', ' if before else ''}{event.duration / 1e6:.4g} ms at {start:.1f} ms"
    return f'<a href="#time={start:.6f}-{end:.6f}">{_text(said)}</a>'


def _drawing(drawing: Drawing) -> Iterator[str]:
    if not drawing.rows:
        return
    left = f"; {drawing.left_out} of the shortest events are not drawn" if drawing.left_out else ""
    yield f"<h2>{_text(f'Timeline of {drawing.of}' if drawing.of else 'Timeline')}</h2>"
    yield f'<p class="about">Wheel or + and − zoom, dragging or arrows move, 0 shows all{left}.</p>'
    used = sorted({color for row in drawing.rows for color in {event.color for event in row.events}})
    yield '<ul class="legend">'
    yield from (f'<li><i data-color="{color}"></i>{_text(KINDS[color])}</li>' for color in used)
    yield "</ul>"
    canvas = '<canvas id="timeline" tabindex="0" role="img" aria-label="timeline of the window"></canvas><div id="hint" hidden></div>'
    table = frame.table_of(("row", "what", "events", "time", "share", "the longest", "where"), _rows(drawing))
    yield frame.behind("The timeline as a table", canvas, table)


def _rows(drawing: Drawing) -> Iterator[tuple[str, ...]]:
    """What each row of the timeline shows, by kind: how many events, the time that they cover, and the longest of them."""
    for row in drawing.rows[:MAX_ROWS]:
        kinds: dict[int, list[Event]] = {}
        for event in row.events:
            kinds.setdefault(event.color, []).append(event)
        for color, events in sorted(kinds.items()):
            covered = length(union((event.start, event.start + event.duration) for event in events))
            longest = max(events, key=lambda event: event.duration)
            time, share = f"{covered / 1e6:.4g} ms", f"{100 * covered / drawing.duration:.1f} %"
            name = drawing.names[longest.name]
            shown = (row.name, KINDS[color], f"{len(events):,}", time, share, "" if name == KINDS[color] else name)
            yield *map(_text, shown), _link(longest)


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
