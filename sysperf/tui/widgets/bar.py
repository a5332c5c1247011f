"""Bars and small curves."""

from __future__ import annotations

from collections.abc import Iterable

from sysperf.tui.widgets.line import Span

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
WARM, HOT = 0.7, 0.9


def bar(share: float | None, width: int, *, heat: bool = False) -> tuple[Span, Span]:
    """A bar for a share from 0 to 1; unknown is not empty. `heat`: the fuller, the worse."""
    if width <= 0:
        return Span(""), Span("")
    if share is None:
        return Span("", ""), Span("·" * width, "dim")
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Span(drawn, shade(share) if heat else "cool"), Span("─" * (width - len(drawn)), "dim")


def shade(share: float) -> str:
    """A colour for a load."""
    return "hot" if share >= HOT else "warm" if share >= WARM else "cool"


def spark(values: Iterable[float], width: int, most: float = 0.0) -> str:
    """The last values as a curve of `width` columns; `most` is the top, or the largest value where it is 0."""
    if width <= 0:
        return ""
    known = [*values][-width:]
    top = most or max(known, default=0.0) or 1.0
    drawn = "".join(_LEVELS[min(7, max(0, int(value / top * 7.999)))] if value > 0 else _LEVELS[0] for value in known)
    return " " * (width - len(drawn)) + drawn


def percent(share: float | None) -> str:
    """``7 %``, ``100 %``; `?` when unknown."""
    return "?" if share is None else f"{share * 100:.0f} %"
