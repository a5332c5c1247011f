"""Frames around parts of a screen, with a title above and keys below."""

from __future__ import annotations

from collections.abc import Sequence

from sysperf.tui.widgets.line import Line, Lines, Span, fitted, width_of


def box(title: Sequence[Span], rows: Lines, width: int, *, keys: Sequence[Span] = (), framed: bool = True) -> Lines:
    """The rows in a frame of this width; without one, below a rule with the title."""
    if not framed:
        return [_rule("─ ", title, "", width), *(fitted(row, width) for row in rows)]
    side = Span("│", "frame")
    inside = [fitted(row, width - 2) for row in rows]
    blanks = (Span(" " * (width - 2 - width_of(row.spans))) for row in inside)
    body = [Line((side, *row.spans, blank, side), row.key) for row, blank in zip(inside, blanks, strict=True)]
    return [_rule("╭─ ", title, "╮", width), *body, _rule("╰─ " if keys else "╰", keys, "╯", width)]


def _rule(first: str, title: Sequence[Span], last: str, width: int) -> Line:
    room = width - len(first) - len(last)
    text = fitted(Line((*title, Span(" ")) if title else ()), room).spans
    return Line((Span(first, "frame"), *text, Span("─" * (room - width_of(text)) + last, "frame")))
