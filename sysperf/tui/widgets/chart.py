"""A series over time as a filled curve, with what happened on its axis."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from sysperf.live.metric import BYTES, BYTES_PER_S, COUNT, SHARE
from sysperf.live.metrics import find
from sysperf.model.text import size
from sysperf.tui.source import History, Mark
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span

LEVELS = " ▁▂▃▄▅▆▇█"
SCALE = 11
MARKS = {"finding": ("✗", "error"), "gone": ("✓", "good"), "change": ("◆", "info")}
SIDE_S = 600.0
"""Before and after a change: ten minutes each."""
MAX_MARKS = 12


def draw(history: History, name: str, width: int, height: int) -> Lines:
    """The curve, its axis, and the marks in words, the newest first."""
    if not history.points:
        return [line(span("Nothing is known of this series in this time.", "dim"))]
    room = max(10, width - SCALE - 1)
    rows = max(4, min(16, height - 6 - min(len(history.marks), MAX_MARKS)))
    columns = _columns(history, room)
    top = _top(name, max((value for value in columns if value is not None), default=0.0))
    events = _events(history, room)
    return [*_curve(columns, rows, top, name, events), *_axis(history, room, events), *_summary(history, name, width)]


def _columns(history: History, room: int) -> list[float | None]:
    """The mean of each column's points; None where nothing was sampled."""
    span_s = max(history.until - history.since, 1e-9)
    sums: list[list[float]] = [[] for _ in range(room)]
    for at, mean, *_ in history.points:
        column = int((at - history.since) / span_s * room)
        if 0 <= column < room and math.isfinite(mean):
            sums[column].append(mean)
    means = [sum(total) / len(total) if total else None for total in sums]
    return _joined(means, len(history.points))


def _joined(means: list[float | None], points: int) -> list[float | None]:
    """Fewer points than columns: each point reaches to the next; a longer gap stays a gap."""
    reach = max(1, math.ceil(len(means) / max(points, 1))) + 1
    out, last, since = [], None, reach
    for value in means:
        last, since = (value, 0) if value is not None else (last, since + 1)
        out.append(last if since < reach else None)
    return out


def _top(name: str, most: float) -> float:
    """The top of the scale: all of a share, else a round number above the largest value."""
    if is_share(name) and most <= 1:
        return 1.0
    if most <= 0:
        return 1.0
    if name.endswith(("_bytes", "_bytes_per_s")):
        return float(2 ** math.ceil(math.log2(most)))
    step = 10.0 ** math.floor(math.log10(most))
    return next(step * factor for factor in (1, 2, 5, 10) if step * factor >= most)


def _events(history: History, room: int) -> dict[int, str]:
    """The newest marks by their column, each with its kind; a change is not hidden by what it did."""
    newest = sorted(history.marks, key=lambda mark: -mark.at)[:MAX_MARKS]
    span_s = max(history.until - history.since, 1e-9)
    placed = [(int((mark.at - history.since) / span_s * room), mark.kind) for mark in newest if mark.kind in MARKS]
    return {column: kind for column, kind in sorted(placed, key=lambda one: one[1] == "change") if 0 <= column < room}


def _curve(columns: Sequence[float | None], rows: int, top: float, name: str, events: Mapping[int, str]) -> Lines:
    """The curve from the top down, a line through it where something happened."""
    out: Lines = []
    for row in range(rows - 1, -1, -1):
        drawn = "".join(" " if value is None else LEVELS[min(8, max(0, round((value / top * rows - row) * 8)))] for value in columns)
        parts, begun = [], 0
        for column, kind in sorted(events.items()):
            parts += [Span(drawn[begun:column], "cool"), Span("│", MARKS[kind][1])]
            begun = column + 1
        scale = value_of(name, top) if row == rows - 1 else value_of(name, 0.0) if row == 0 else ""
        out.append(line(Span(padded(scale, SCALE - 1, right=True), "dim"), Span("│", "dim"), *parts, Span(drawn[begun:], "cool")))
    return out


def _axis(history: History, room: int, events: Mapping[int, str]) -> Lines:
    marks = {column: Span(*MARKS[kind]) for column, kind in events.items()}
    parts = [marks.get(column, Span("─", "dim")) for column in range(room)]
    first, last = (_clock(at, history.until - history.since) for at in (history.since, history.until))
    times = first + " " * max(1, room - len(first) - len(last)) + last
    return [Line((Span(" " * (SCALE - 1)), Span("└", "dim"), *parts)), line(Span(" " * SCALE), span(times, "dim"))]


def _clock(at: float, span_s: float) -> str:
    return time.strftime("%H:%M" if span_s < 86_400 else "%a %H:%M", time.localtime(at))


def _summary(history: History, name: str, width: int) -> Lines:
    out: Lines = []
    for mark in sorted(history.marks, key=lambda mark: -mark.at)[:MAX_MARKS]:
        if mark.kind in MARKS:
            char, style = MARKS[mark.kind]
            when = time.strftime("%a %H:%M:%S", time.localtime(mark.at))
            out.append(
                fitted(
                    line(span(f"{char} ", style), span(f"{when}  ", "dim"), span(mark.text), span(_effect(history, mark, name), "strong")),
                    width,
                )
            )
    return out


def _effect(history: History, mark: Mark, name: str) -> str:
    """The means of the ten minutes before and after a change. No proof of a gain: other things happen, too."""
    if mark.kind != "change":
        return ""
    before = [mean for at, mean, *_ in history.points if mark.at - SIDE_S <= at < mark.at]
    after = [mean for at, mean, *_ in history.points if mark.at <= at <= mark.at + SIDE_S]
    if not before or not after:
        return ""
    return f"  before {value_of(name, sum(before) / len(before))}, after {value_of(name, sum(after) / len(after))}"


def is_share(name: str) -> bool:
    """Whether a series is a share from 0 to 1."""
    metric = find(name).metric
    return metric is not None and metric.unit is SHARE


def value_of(name: str, value: float) -> str:
    """A value with its unit; without one for a series that this version does not know."""
    metric = find(name).metric
    unit = metric.unit if metric is not None else COUNT
    if unit is BYTES:
        return size(round(value))
    if unit is BYTES_PER_S:
        return f"{size(round(value))}/s"
    if unit is SHARE:
        return f"{value * 100:.0f} %"
    return f"{value:.4g}{unit.symbol}"
