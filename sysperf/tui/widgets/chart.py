"""Series over time as filled curves above one axis, with what happened on it, and a cursor through all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from sysperf.live.metric import BYTES, BYTES_PER_S, COUNT, SHARE
from sysperf.live.metrics import find
from sysperf.model.text import size
from sysperf.report.changes import duration
from sysperf.tui.source import History, Mark, Points
from sysperf.tui.widgets.bar import top_of_share
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, fitted, line, padded, span

LEVELS = " ▁▂▃▄▅▆▇█"
SCALE = 11
MARKS = {"finding": ("✗", "error"), "gone": ("✓", "good"), "change": ("◆", "info")}
SIDE_S = 600.0
"""Before and after a change: ten minutes each."""
MAX_MARKS = 12
LARGE, SMALL = (4, 16), (2, 4)
"""The least and the most rows of the chosen curve, and of each other one."""
TICKS_S = (10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
TICK = 12
"""The least columns from one time on the axis to the next."""


def draw(history: History, names: Sequence[tuple[str, str]], width: int, height: int, cursor: float | None = None) -> Lines:
    """Curves of (series, label), the chosen one first, as many as there is room for; one axis, and the marks in words, newest first."""
    first = names[0][0]
    if not history.points(first):
        return [line(span("Nothing is known of this series in this time.", "dim"))]
    room = columns_of(width)
    told = _told(history, first, width)[: max(1, height // 4)]
    large, small, number = _rows(len(names) - 1, height - 2 - len(told))
    through = _events(history, room)
    at = None if cursor is None else _column(history, room, cursor)
    out: Lines = []
    for place, (name, label) in enumerate(names[: 1 + number]):
        columns = _columns(history, history.points(name), room)
        if place:
            out += [BLANK, fitted(line(span(padded(label, 34), "strong"), *figures(history, name, cursor)), width)]
        top = _top(name, max((value for value in columns if value is not None), default=0.0))
        out += _curve(columns, small if place else large, top, name, {**through, **({} if at is None else {at: "┃"})})
    return [*out, *_axis(history, room, through, at), *told]


def columns_of(width: int) -> int:
    """Return how many columns a curve has."""
    return max(10, width - SCALE - 1)


def time_at(history: History, width: int, x: int) -> float | None:
    """Return the time of a column of the screen; None beside the curves."""
    room = columns_of(width)
    return history.since + (x - SCALE + 0.5) / room * (history.until - history.since) if SCALE <= x < SCALE + room else None


def figures(history: History, name: str, cursor: float | None) -> list[Span]:
    """The value at the cursor, or the latest one; the least, mean and most of the time that is shown."""
    points = history.points(name)
    if not points:
        return [Span("not sampled in this time", "dim")]
    latest = min(points, key=lambda point: abs(point[0] - cursor)) if cursor is not None else points[-1]
    near = cursor is None or abs(latest[0] - cursor) <= 2 * (history.until - history.since) / len(points)
    low, mean, high = min(point[2] for point in points), sum(point[1] for point in points) / len(points), max(point[3] for point in points)
    texts = [f"{word} {value_of(name, value)}" for word, value in (("min", low), ("mean", mean), ("max", high))]
    return [span(value_of(name, latest[1]) if near else "not sampled then", "strong"), Span("  " + "  ".join(texts), "dim")]


def _rows(others: int, height: int) -> tuple[int, int, int]:
    """Return the rows of the chosen curve, those of each other one, and how many others there are."""
    number = max(0, min(others, (height - LARGE[0]) // (SMALL[0] + 2)))
    small = max(SMALL[0], min(SMALL[1], (height - LARGE[1]) // number - 2)) if number else 0
    return max(LARGE[0], min(LARGE[1], height - number * (small + 2))), small, number


def _column(history: History, room: int, at: float) -> int:
    """Return the column of a time; of another one than is shown, none of them."""
    return math.floor((at - history.since) / max(history.until - history.since, 1e-9) * room)


def _columns(history: History, points: Points, room: int) -> list[float | None]:
    """The mean of each column's points; None where nothing was sampled."""
    sums: list[list[float]] = [[] for _ in range(room)]
    for at, mean, *_ in points:
        column = _column(history, room, at)
        if 0 <= column < room and math.isfinite(mean):
            sums[column].append(mean)
    means = [sum(total) / len(total) if total else None for total in sums]
    return _joined(means, len(points))


def _joined(means: list[float | None], points: int) -> list[float | None]:
    """Fewer points than columns: each point reaches to the next; a longer gap stays a gap."""
    reach = max(1, math.ceil(len(means) / max(points, 1))) + 1
    out, last, since = [], None, reach
    for value in means:
        last, since = (value, 0) if value is not None else (last, since + 1)
        out.append(last if since < reach else None)
    return out


def _top(name: str, most: float) -> float:
    """The top of the scale: a round number above the largest value."""
    if is_share(name) and most <= 1:
        return top_of_share(most)
    if most <= 0:
        return 1.0
    if name.endswith(("_bytes", "_bytes_per_s")):
        return float(2 ** math.ceil(math.log2(most)))
    step = 10.0 ** math.floor(math.log10(most))
    return next(step * factor for factor in (1, 2, 5, 10) if step * factor >= most)


def _events(history: History, room: int) -> dict[int, str]:
    """The newest marks by their column, each with its kind; a change is not hidden by what it did."""
    newest = sorted(history.marks, key=lambda mark: -mark.at)[:MAX_MARKS]
    placed = [(_column(history, room, mark.at), mark.kind) for mark in newest if mark.kind in MARKS]
    return {column: kind for column, kind in sorted(placed, key=lambda one: one[1] == "change") if 0 <= column < room}


def _curve(columns: Sequence[float | None], rows: int, top: float, name: str, through: Mapping[int, str]) -> Lines:
    """The curve from the top down, a line through it where something happened, and where the cursor is."""
    out: Lines = []
    for row in range(rows - 1, -1, -1):
        drawn = "".join(" " if value is None else LEVELS[min(8, max(0, round((value / top * rows - row) * 8)))] for value in columns)
        parts, begun = [], 0
        for column, kind in sorted(through.items()):
            if 0 <= column < len(drawn):
                parts += [Span(drawn[begun:column], "cool"), Span("│", MARKS[kind][1]) if kind in MARKS else Span(kind, "strong")]
                begun = column + 1
        scale = value_of(name, top) if row == rows - 1 else value_of(name, 0.0) if row == 0 else ""
        out.append(line(Span(padded(scale, SCALE - 1, right=True), "dim"), Span("│", "dim"), *parts, Span(drawn[begun:], "cool")))
    return out


def _axis(history: History, room: int, events: Mapping[int, str], cursor: int | None) -> Lines:
    """The axis with its ticks and marks, and the times below it; that of the cursor hides those that it would touch."""
    ticks = _ticks(history, room)
    marks = {**{column: Span("┴", "dim") for column in ticks}, **{column: Span(*MARKS[kind]) for column, kind in events.items()}}
    if cursor is not None:
        marks[cursor] = Span("┸", "strong")
    parts = [marks.get(column, Span("─", "dim")) for column in range(room)]
    times = [" "] * room
    for column, label in ticks.items():
        first = max(0, min(room - len(label), column - len(label) // 2))
        times[first : first + len(label)] = label
    return [Line((Span(" " * (SCALE - 1)), Span("└", "dim"), *parts)), line(Span(" " * SCALE), span("".join(times), "dim"))]


def _ticks(history: History, room: int) -> dict[int, str]:
    """The columns of round times, as the clock here says them."""
    span_s = max(history.until - history.since, 1e-9)
    step = next((each for each in TICKS_S if each / span_s * room >= TICK), TICKS_S[-1])
    ahead = time.localtime(history.since).tm_gmtoff
    first = math.ceil((history.since + ahead) / step) * step - ahead
    number = int((history.until - first) // step) + 1
    form = "%H:%M:%S" if step < 60 else "%H:%M" if span_s < 86_400 else "%a %H:%M"
    times = [first + place * step for place in range(min(number, room))]
    return {column: time.strftime(form, time.localtime(at)) for at in times if (column := _column(history, room, at)) < room}


def _told(history: History, name: str, width: int) -> Lines:
    """What happened, in words; a finding that is gone again is one line."""
    newest = sorted((mark for mark in history.marks if mark.kind in MARKS), key=lambda mark: -mark.at)[:MAX_MARKS]
    gone: dict[str, Mark] = {}
    pairs: list[tuple[Mark, Mark | None]] = []
    for mark in newest:
        if mark.kind == "gone" and mark.key:
            gone.setdefault(mark.key, mark)
        else:
            pairs.append((mark, gone.pop(mark.key, None) if mark.kind == "finding" else None))
    pairs += [(mark, None) for mark in gone.values()]
    out: Lines = []
    for mark, end in sorted(pairs, key=lambda pair: -pair[0].at):
        char, style = MARKS[mark.kind]
        when = time.strftime("%a %H:%M:%S", time.localtime(mark.at))
        parts = [span(f"{char} ", style), span(f"{when}  ", "dim"), span(mark.text), span(_effect(history, mark, name), "strong")]
        parts += [Span("  ✓ ", "good"), span(f"gone after {duration(end.at - mark.at)}")] if end else []
        out.append(fitted(line(*parts), width))
    return out


def _effect(history: History, mark: Mark, name: str) -> str:
    """The means of the ten minutes before and after a change. No proof of a gain: other things happen, too."""
    if mark.kind != "change":
        return ""
    points = history.points(name)
    before = [mean for at, mean, *_ in points if mark.at - SIDE_S <= at < mark.at]
    after = [mean for at, mean, *_ in points if mark.at <= at <= mark.at + SIDE_S]
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
