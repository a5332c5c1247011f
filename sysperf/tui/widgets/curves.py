"""The last minutes as curves: two samples a column, four steps a row, with what happened on their axis."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sysperf.model import moment
from sysperf.model.text import neutral, size
from sysperf.tui.now import Now
from sysperf.tui.widgets.bar import percent, top_of_share
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, padded, span
from sysperf.tui.widgets.system import PRESSURES

SCALE = 10
LABEL = 26
SERIES = (
    "cpu.busy", "memory.available_bytes", *PRESSURES, "disk.busy", "network.received_bytes_per_s",
    *(f"gpu.{index}.utilization" for index in range(16)),
)  # fmt: skip
"""Those that are drawn where the past of them is known."""
LEAST = 3
"""Rows of one curve with its axis."""
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
_CELLS = {(left, right): chr(0x2800 + sum(_DOTS[0][:left]) + sum(_DOTS[1][:right])) for left in range(5) for right in range(5)}
_CELLS[0, 0] = " "
_TICKS_S = (10, 30, 60, 120, 300, 600)


class Curve(NamedTuple):
    """A series of the last minutes."""

    name: str
    values: Sequence[float]
    share: bool = True
    style: str = "cool"


class Event(NamedTuple):
    """What happened meanwhile."""

    at: float
    mark: str
    style: str
    text: str


def known(now: Now) -> list[Curve]:
    """The curves that there are samples for: what matters most first."""
    past = now.past
    gpus = [past[name] for device in now.devices() if len(past.get(name := f"gpu.{device.index}.utilization", ())) > 1]
    out: list[Curve] = []
    if gpus:
        longest = min(map(len, gpus))
        busy = [sum(column) / len(gpus) for column in zip(*([*values][-longest:] for values in gpus), strict=True)]
        out.append(Curve("GPU busy" + (f", mean of {len(gpus)}" if len(gpus) > 1 else ""), busy))
    total = (now.facts.memory.total_bytes or 0) if now.facts.memory else 0
    worst = max(PRESSURES, key=lambda name: now.meters.get(name, -1.0))
    used = [max(0.0, 1 - value / total) for value in past.get("memory.available_bytes", ())] if total else []
    out += [
        Curve("CPUs busy", past.get("cpu.busy", ())),
        Curve(f"pressure, {worst.split('.')[1]}", past.get(worst, ()), style="warm"),
        Curve("memory used", used, style="calm"),
        Curve("disk busy", past.get("disk.busy", ()), style="calm"),
        Curve("network in", past.get("network.received_bytes_per_s", ()), share=False, style="calm"),
        Curve("disk read", past.get("disk.read_bytes_per_s", ()), share=False, style="calm"),
    ]
    if len(gpus) > 1:
        out += [Curve(f"GPU {device.index} busy", past.get(f"gpu.{device.index}.utilization", ())) for device in now.devices()]
    return [curve for curve in out if len(curve.values) > 1]


def draw(now: Now, width: int, height: int) -> Lines:
    """Draw as many curves as there is room for, above one axis, with the latest events below; anew with each second sample.

    A column holds two samples, so that the rows would not move in between, and each row that moves costs the terminal a line.
    """
    key = ((now.samples + 1) // 2, width, height, now.changes)
    kept: tuple[object, Lines] | None = now.derived.get(("curves",))
    if kept is None or kept[0] != key:
        kept = now.derived["curves",] = key, _drawn(now, width, height)
    return kept[1]


def _drawn(now: Now, width: int, height: int) -> Lines:
    curves = known(now)
    wide = width - SCALE - LABEL - 1
    if not curves or height < LEAST or wide < 12:
        return []
    step_s = now.step_s
    span_s = 2 * wide * step_s
    seen = [event for event in events(now) if now.at - event.at <= span_s]
    told = seen[: max(0, min(3, (height - LEAST) // 4))]
    named = height > LEAST
    rows = height - 1 - named - len(told)
    number = max(1, min(len(curves), rows // 4))
    heights = [rows // number + (place < rows % number) for place in range(number)]
    ticks = _ticks(wide, step_s)
    out: Lines = []
    for curve, high in zip(curves, heights, strict=False):
        out += _curve(curve, wide, high, ticks)
    out += [_axis(wide, step_s, ticks, now.at, seen), *([_times(wide, ticks)] if named else [])]
    for event in told:
        when = time.strftime("%H:%M:%S", time.localtime(event.at))
        out.append(fitted(line(Span(" " * SCALE), span(f"{event.mark} ", event.style), span(f"{when} ", "dim"), span(event.text)), width))
    return out


def _curve(curve: Curve, wide: int, high: int, ticks: Iterable[int]) -> Lines:
    values = [*curve.values][-2 * wide :]
    top = _top(max(values), share=curve.share)
    out: Lines = []
    for place, row in enumerate(braille(values, wide, high, top)):
        scale = _value(curve, top) if place == 0 else _value(curve, 0.0) if place == high - 1 else ""
        about = [span(f" {curve.name}")] if place == 0 else [Span(" "), span(_value(curve, values[-1]), "strong")] if place == 1 else []
        out.append(line(Span(padded(scale, SCALE - 1, right=True) + " ", "dim"), *_ruled(row, ticks, curve.style), *about))
    return out


def _ruled(row: str, ticks: Iterable[int], style: str) -> list[Span]:
    """The curve, with a dotted line through it at each tick of the axis."""
    out, start = [], 0
    for tick in sorted(ticks):
        if row[tick] == " ":
            out += [Span(row[start:tick], style), Span("┊", "dim")]
            start = tick + 1
    return [part for part in (*out, Span(row[start:], style)) if part.text]


def braille(values: Sequence[float], wide: int, high: int, top: float) -> list[str]:
    """Rows of a filled curve, the latest value at the right; a value above 0 is one dot at least."""
    steps = 4 * high
    scale = steps / top
    dots = [min(steps, math.ceil(value * scale + 0.5)) if value > 0 else 0 for value in values]
    dots = [-1] * (2 * wide - len(dots)) + dots  # -1: not sampled, which is no 0
    pairs = [*zip(dots[::2], dots[1::2], strict=True)]
    out = []
    for below in range(steps - 4, -4, -4):
        least = 1 if below == 0 else 0  # a sampled 0 is a dot on the floor
        level = {dot: max(least if dot >= 0 else 0, min(4, dot - below)) for dot in {*dots}}
        out.append("".join([_CELLS[level[left], level[right]] for left, right in pairs]))
    return out


def _top(most: float, *, share: bool) -> float:
    if share:
        return top_of_share(most)
    return float(2 ** math.ceil(math.log2(max(most, 1024.0))))


def _value(curve: Curve, value: float) -> str:
    return percent(value) if curve.share else f"{size(round(value))}/s" if value else "0"


def _ticks(wide: int, step_s: float) -> dict[int, str]:
    """The columns of round times before now, with their names."""
    per_cell = 2 * step_s
    every = next((each for each in _TICKS_S if each / per_cell >= 12), _TICKS_S[-1])
    columns = ((wide - 1 - round(number * every / per_cell), number * every) for number in range(1, wide))
    return {column: f"-{ago // 60} min" if ago % 60 == 0 else f"-{ago // 60}:{ago % 60:02}" for column, ago in columns if column >= 0}


def _axis(wide: int, step_s: float, ticks: Mapping[int, str], at: float, seen: Sequence[Event]) -> Line:
    marks = {wide - 1 - int((at - event.at) / (2 * step_s)): event for event in reversed(seen)}
    cells = [Span("┴" if column in ticks else "─", "dim") for column in range(wide)]
    for column, event in marks.items():
        if 0 <= column < wide:
            cells[column] = Span(event.mark, event.style)
    return line(Span(" " * (SCALE - 1) + "└", "dim"), *_merged(cells))


def _merged(cells: Sequence[Span]) -> list[Span]:
    out: list[Span] = []
    for cell in cells:
        if out and out[-1].style == cell.style:
            out[-1] = Span(out[-1].text + cell.text, cell.style)
        else:
            out.append(cell)
    return out


def _times(wide: int, ticks: Mapping[int, str]) -> Line:
    text = [" "] * (SCALE + wide)
    for column, label in [*ticks.items(), (wide - 1, "now")]:
        first = SCALE + column - len(label) + 1
        if first >= 0:
            text[first : first + len(label)] = label
    return line(Span("".join(text), "dim"))


def events(now: Now) -> list[Event]:
    """What began and what was changed, the latest first."""
    found = [
        Event(since, "✗" if finding.severity == "error" else "!", finding.severity, f"{finding.about}: {finding.title}".removeprefix(": "))
        for finding in now.findings()
        if (since := now.since.get(finding.key))
    ]
    for transaction in now.changes:
        at = moment.seconds(transaction.taken_at)
        if at is not None:
            found.append(Event(at, "◆", "info", f"change {transaction.number}: {transaction.why}"))
    return sorted((event._replace(text=neutral(event.text)) for event in found), key=lambda event: -event.at)
