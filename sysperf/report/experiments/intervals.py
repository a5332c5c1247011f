"""Ratios of speeds as a picture: each interval beside the line of no change, single pairs as dots, on one axis in percent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sysperf.report.frame import text
from sysperf.report.terminal import clip

WIDTH, ROW, NAME, SAYS = 800, 34, 170, 200
LEAST, MOST = 0.1, 5.0
"""Ratios beyond these are drawn at the edge; the words beside them are exact."""
TICKS = 6


class Row(NamedTuple):
    """A line of the picture: an interval with its middle, or dots, or both."""

    name: str
    low: float | None = None
    middle: float | None = None
    high: float | None = None
    says: str = ""
    dots: Sequence[tuple[float, str, bool]] = ()
    """(ratio, what it is, whether it counts)."""


def picture(label: str, rows: Sequence[Row]) -> str:
    """Rows on one axis; `label` is what a screen reader says of it."""
    values = [1.0, *(value for row in rows for value in (row.low, row.middle, row.high, *(dot[0] for dot in row.dots)) if value)]
    low, high = max(LEAST, min(values)), min(MOST, max(values))
    reach = max(high - low, 0.02)
    low, high = low - reach * 0.05, high + reach * 0.05

    def x(ratio: float) -> float:
        return NAME + (min(high, max(low, ratio)) - low) / (high - low) * (WIDTH - NAME - SAYS)

    bottom = ROW * len(rows) + 18
    parts = [f'<svg class="intervals" viewBox="0 0 {WIDTH} {bottom + 22}" role="img" aria-label="{text(label)}">']
    parts.append(f'<text x="{x(1) - 8:.1f}" y="12" text-anchor="end" class="soft sides">slower</text>')
    parts.append(f'<text x="{x(1) + 8:.1f}" y="12" class="soft sides">faster</text>')
    for tick in ticks(low, high):
        kind, label = ("none", "0 %") if abs(tick - 1) < 1e-9 else ("tick", f"{(tick - 1) * 100:+.4g} %")
        parts.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="18" y2="{bottom}"/>')
        parts.append(f'<text class="soft" x="{x(tick):.1f}" y="{bottom + 15}" text-anchor="middle">{label}</text>')
    for place, row in enumerate(rows):
        parts += _row(row, 18 + ROW * place + ROW / 2, x)
    return "".join([*parts, "</svg>"])


def _row(row: Row, y: float, x: Callable[[float], float]) -> Iterator[str]:
    yield f'<text class="row" x="0" y="{y + 4:.1f}">{text(clip(row.name, 26))}</text>'
    for number, (ratio, what, counts) in enumerate(row.dots):
        shifted = y + number * 7 % 19 - 9
        yield f'<circle{"" if counts else " class=no"} cx="{x(ratio):.1f}" cy="{shifted:.1f}" r="3.5"><title>{text(what)}</title></circle>'
    if row.low and row.high:
        yield f'<line class="interval" x1="{x(row.low):.1f}" x2="{x(row.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
    if row.middle:
        yield f'<circle class="middle" cx="{x(row.middle):.1f}" cy="{y:.1f}" r="6"/>'
    yield f'<text class="says" x="{WIDTH}" y="{y + 4:.1f}" text-anchor="end">{text(row.says)}</text>'


def ticks(low: float, high: float) -> list[float]:
    """Round ratios from `low` to `high`, no change among them: steps of 1, 2 or 5."""
    least = (high - low) / TICKS
    step = 10.0 ** math.floor(math.log10(least))
    step = next(step * factor for factor in (1, 2, 5, 10) if step * factor >= least)
    first, last = math.ceil((low - 1) / step), math.floor((high - 1) / step)
    return [1 + step * number for number in range(first, last + 1)]
