"""Bars and small curves."""

from __future__ import annotations

from collections.abc import Iterable

from sysperf.tui.widgets.line import Span

_LEVELS = "▁▂▃▄▅▆▇█"
FULL = "▇"
"""It leaves an eighth of the row free, so that the bars of neighbouring rows do not become one shape."""
WARM, HOT = 0.7, 0.9


def bar(share: float | None, width: int, *, style: str = "") -> tuple[Span, Span]:
    """A bar for a share from 0 to 1; unknown is not empty. Without a style: the fuller, the worse."""
    if width <= 0:
        return Span(""), Span("")
    if share is None:
        return Span("", ""), Span("·" * width, "dim")
    share = min(1.0, max(0.0, share))
    full = max(round(share * width), int(share > 0))
    return Span(FULL * full, style or shade(share)), Span("─" * (width - full), "dim")


def shade(share: float) -> str:
    """A colour for a load."""
    return "hot" if share >= HOT else "warm" if share >= WARM else "cool"


def cell(share: float) -> Span:
    """One character for a load: by height and by colour."""
    return Span(_LEVELS[min(7, max(0, int(share * 7.999)))], shade(share))


def spark(values: Iterable[float], width: int, most: float = 0.0) -> str:
    """The last values as a curve of `width` columns; `most` is the top, or the largest value where it is 0."""
    if width <= 0:
        return ""
    known = [*values][-width:]
    top = most or max(known, default=0.0) or 1.0
    drawn = "".join(_LEVELS[min(7, max(0, int(value / top * 7.999)))] if value > 0 else _LEVELS[0] for value in known)
    return " " * (width - len(drawn)) + drawn


def top_of_share(most: float) -> float:
    """The top of a curve of shares: all, or a round part of it where they are small."""
    return next((top for top in (0.1, 0.25, 0.5) if most <= top), 1.0)


def percent(share: float | None) -> str:
    """``7 %``, ``100 %``; `?` when unknown."""
    return "?" if share is None else f"{share * 100:.0f} %"
