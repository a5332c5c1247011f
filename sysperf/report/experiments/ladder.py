"""A ladder of the reference trainer, alone or beside that of another machine: as text, as Markdown, as a page with a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator

from sysperf.model.comparison import Comparison
from sysperf.model.ladder import Ladder, Parity, RungResult
from sysperf.model.text import neutral
from sysperf.report import frame
from sysperf.report.experiments.ceilings import number
from sysperf.report.experiments.comparison import cell, interval, markdown_tables, percent
from sysperf.report.terminal import Ink, Page, table
from sysperf.report.words import count

HEAD = ("rung", "added", "left out of all", "its sign in the trace", "predicted, measured", "losses", "outcome")
COMPARED = ("rung", "here", "there")
STYLES = {
    "gain with its mechanism": "good",
    "gain without its mechanism": "info",
    "gain": "good",
    "no gain here": "hint",
    "harms here": "error",
    "unclear here": "unknown",
    "losses differ": "warning",
    "skipped": "hint",
}


def text(ladder: Ladder, other: Ladder | None = None, *, color: bool = False, width: int = 100) -> str:
    """Return the ladder for a terminal."""
    page = Page(Ink(color), width)
    page.line(page.ink("strong", headline(ladder)))
    page.paragraph(basis(ladder), "dim")
    for title, head, rows in _tables(ladder, other):
        page.line()
        page.line(page.ink("strong", title))
        for line in table(head, rows, page.ink, max(width, page.width)):
            page.line(line)
    for remark in remarks(ladder):
        page.line()
        page.paragraph(remark, "dim")
    return str(page)


def markdown(ladder: Ladder, other: Ladder | None = None) -> str:
    """Return the same for a pull request."""
    lines = [f"**{cell(headline(ladder))}** ({cell(basis(ladder))})", "", *markdown_tables(_tables(ladder, other))]
    return "\n".join([*lines, *(f"{cell(remark)}\n" for remark in remarks(ladder))])


def page(ladder: Ladder, other: Ladder | None = None) -> str:
    """Return the same as one self-contained page; links lead to the traces' timelines."""
    lines = (
        f"<header><h1>{frame.text(headline(ladder))}</h1><p>{frame.text(basis(ladder))}</p></header><main>",
        *_picture(ladder),
        *frame.sections(_tables(ladder, other)),
        *_links(ladder),
        *("</main><footer>", *frame.paragraphs(*remarks(ladder)), "</footer>"),
    )
    return frame.framed(f"sysperf: {headline(ladder)}", lines)


def headline(ladder: Ladder) -> str:
    """Return the total gain in one line."""
    total = ladder.total
    ended = f", {ladder.interrupted}" if ladder.interrupted else ""
    if total is None or total.ratio is None or total.low is None or total.high is None:
        return neutral(f"{ladder.workload}: not known yet how fast all rungs together are{ended}", 300)
    ends = f"{total.low:.2f} to {total.high:.2f} at {total.confidence * 100:.4g} %"
    return neutral(f"{ladder.workload}: all rungs together are {total.ratio:.2f} times as fast as none ({ends}){ended}", 300)


def basis(ladder: Ladder) -> str:
    """Return where and how it was measured."""
    machine = ladder.machine.get("cpu.model_name", "") if ladder.device == "cpu" else ladder.device
    speed = ""
    if ladder.bottom_units_per_s is not None:
        top = next((rung.units_per_s for rung in reversed(ladder.rungs) if rung.role == "ladder" and rung.units_per_s), None)
        speed = f"{number(ladder.bottom_units_per_s)} to {number(top)} {ladder.unit}/s"
    runs = f"{count(ladder.rounds, 'round')} of {ladder.max_steps} steps in {ladder.took_s / 60:.1f} min"
    parts = (machine, f"torch {ladder.torch}" if ladder.torch else "", f"size {ladder.size}" if ladder.size else "", speed, runs)
    return neutral(", ".join(part for part in parts if part), 400)


def remarks(ladder: Ladder) -> list[str]:
    """Return what stands below: the error of predictions, the peak, what was skipped."""
    out = []
    if ladder.predicted_held is not None and ladder.predicted_error is not None:
        held, every = ladder.predicted_held
        out.append(
            f"predicted by the trace without a rung against what was measured: {ladder.predicted_error:.1f} points of percent of the step "
            f"apart (median of {every}); {held} intervals held what was measured, {ladder.predicted_agree} agree with its interval"
        )
    if ladder.peak_tflops:
        peaks = ", ".join(f"{number(value)} TFLOP/s in {dtype}" for dtype, value in ladder.peak_tflops.items())
        shares = [rung.share_of_peak for rung in ladder.rungs if rung.role == "ladder" and rung.share_of_peak]
        ends = f"; of the highest the model used {_share(ladder.bottom_share_of_peak)} with no rung and {_share(shares[-1])} with all"
        used = (
            ends if shares and shares[-1] <= 1 else "; others took the CPUs while that was measured: which part the model used is not known"
        )
        out.append(f"matrix products measured between the rounds: {peaks}{used}")
    if variables := [f"{name.removeprefix('env.')}={value}" for name, value in ladder.machine.items() if name.startswith("env.")]:
        out.append(neutral(f"started with {', '.join(variables)}", 500))
    reasons: dict[str, list[str]] = {}
    for rung in ladder.rungs:
        if rung.skipped:
            reasons.setdefault(rung.skipped, []).append(rung.id)
    out += [neutral(f"skipped {', '.join(names)}: {why}", 600) for why, names in reasons.items()]
    out += [neutral(note, 500) for note in ladder.notes]
    return out


def _share(value: float | None) -> str:
    return "an unknown part" if value is None else f"{value:.1%}"


def _tables(ladder: Ladder, other: Ladder | None) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    tried = [rung for rung in ladder.rungs if not rung.skipped]
    if other is not None:
        there = {rung.id: rung for rung in other.rungs}
        rows = [("all", _gain(ladder.total), _gain(other.total))]
        yield "Beside the other record", COMPARED, [*rows, *((rung.id, _of(rung), _of(there.get(rung.id))) for rung in tried)]
        return
    for title, role in (("The ladder", True), ("Tried beside it", False)):
        some = [rung for rung in tried if (rung.role == "ladder") == role]
        if some:
            yield title, HEAD, [_rung(rung) for rung in some]


def _of(rung: RungResult | None) -> str:
    return "not tried" if rung is None or rung.skipped else f"{_gain(rung.trial('added', 'at the bottom'))}, {rung.outcome}"


def _rung(rung: RungResult) -> tuple[str, ...]:
    return (
        neutral(rung.id, 40),
        _gain(rung.trial("added", "at the bottom")),
        _gain(rung.trial("left out", "at the top")),
        _mechanism(rung),
        _predicted(rung),
        _losses(rung.parity),
        rung.outcome,
    )


def _gain(comparison: Comparison | None) -> str:
    """``+12.1 % (+9.0 to +15.2 %)``."""
    if comparison is None or comparison.ratio is None:
        return "unknown"
    return f"{percent(comparison.ratio)} % ({interval(comparison)})"


def _mechanism(rung: RungResult) -> str:
    """The sign that changed most, and whether that is what the rung does."""
    known = [sign for sign in rung.signs if sign.before is not None and sign.after is not None]
    if not known:
        return "unknown"
    sign = next((sign for sign in known if sign.seen), known[0])
    return f"{rung.mechanism}: {neutral(sign.figure, 60).rpartition('.')[2]} {number(sign.before)} → {number(sign.after)}"


def _predicted(rung: RungResult) -> str:
    if rung.predicted is None:
        return ""
    measured = "unknown" if rung.predicted.measured is None else f"{rung.predicted.measured:.1f} %"
    return f"{rung.predicted.low:.0f} to {rung.predicted.high:.0f} %, {measured}"


def _losses(parity: Parity | None) -> str:
    if parity is None:
        return "unknown"
    if parity.equal:
        return "equal"
    apart = abs(parity.with_ - parity.without) / max(abs(parity.without), 1e-12)
    return f"{apart:.1e} apart{'' if parity.holds else ', too much'}"


def _links(ladder: Ladder) -> Iterator[str]:
    """The timelines of the traces, from the bottom to the top."""
    some = [("no rung", ladder.bottom_trace), *((rung.id, rung.trace) for rung in ladder.rungs)]
    links = [f'<li><a href="{frame.text(path)}" rel="noreferrer noopener">{frame.text(name)}</a></li>' for name, path in some if path]
    if links:
        yield f"<section><h2>Timelines</h2><ul>{''.join(links)}</ul></section>"


WIDTH, ROW, NAME = 800, 22, 190


def _picture(ladder: Ladder) -> Iterator[str]:
    """Each rung's gain as a bar with its interval, on one logarithmic scale; the line is no gain."""
    bars = [(rung, known) for rung in ladder.rungs if (known := rung.trial("added", "at the bottom")) is not None and known.ratio]
    if not bars:
        return
    ends = [math.log(max(1e-3, value)) for _, known in bars for value in (known.low or 1.0, known.high or 1.0, 1.0)]
    low, high = max(min(ends), math.log(0.2)), min(max(ends), math.log(20))

    def x(ratio: float) -> float:
        place = (math.log(max(ratio, 1e-3)) - low) / ((high - low) or 1.0)
        return NAME + max(0.0, min(1.0, place)) * (WIDTH - NAME - 90)

    height = ROW * (len(bars) + 1)
    yield f'<svg class="ladder" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="the gain of each rung">'
    yield f'<line class="none" x1="{x(1):.1f}" y1="0" x2="{x(1):.1f}" y2="{height - ROW}"/>'
    for number_, (rung, known) in enumerate(bars):
        middle, y = known.ratio or 1.0, ROW * number_ + ROW / 2
        left, right = sorted((x(1), x(middle)))
        yield f'<g class="{STYLES[rung.outcome]}"><title>{frame.text(f"{rung.title}: {_gain(known)}, {rung.outcome}")}</title>'
        yield f'<text x="0" y="{y + 4:.1f}">{frame.text(rung.id)}</text>'
        yield f'<rect x="{left:.1f}" y="{y - 6:.1f}" width="{max(1.0, right - left):.1f}" height="12"/>'
        yield f'<line x1="{x(known.low or middle):.1f}" y1="{y:.1f}" x2="{x(known.high or middle):.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{WIDTH}" y="{y + 4:.1f}" text-anchor="end">{frame.text(percent(middle))} %</text></g>'
    yield f'<text x="{x(1):.1f}" y="{height - 6}" text-anchor="middle">no gain</text></svg>'
