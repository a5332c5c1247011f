"""Lines of styled text: what every widget draws and `Pane` shows. Text of any origin becomes harmless here."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

from sysperf.model.text import neutral
from sysperf.report.terminal import cells, clip, wrap

_MAX_TEXT = 4_000


class Span(NamedTuple):
    """Text in one style: ``error``, ``dim``, ``strong``, ``command``, … as reports name them."""

    text: str
    style: str = ""


class Line(NamedTuple):
    """One line of the screen. A line with a key can be selected."""

    spans: tuple[Span, ...] = ()
    key: Hashable = None

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


Lines = list[Line]
BLANK = Line()


def span(text: str, style: str = "") -> Span:
    """Text that no terminal acts on, whoever wrote it."""
    return Span(text if text.isprintable() else neutral(text, _MAX_TEXT), style)


def line(*spans: Span | str, key: Hashable = None) -> Line:
    """A line of spans; plain text is a span without a style."""
    return Line(tuple(part if isinstance(part, Span) else span(part) for part in spans), key)


def width_of(spans: Iterable[Span]) -> int:
    """The columns that spans take."""
    return sum(cells(span.text) for span in spans)


def fitted(whole: Line, width: int) -> Line:
    """The line in at most `width` columns; what is longer ends in an ellipsis."""
    left, kept = width, []
    for part in whole.spans:
        taken = cells(part.text)
        if taken > left:
            kept.append(Span(clip(part.text, left), part.style))
            return Line(tuple(kept), whole.key)
        kept.append(part)
        left -= taken
    return whole


def folded(whole: Line, width: int) -> Lines:
    """The whole line, in as many lines as it takes: a command that is cut short is another command."""
    if width_of(whole.spans) <= width or width < 2:
        return [whole]
    out: Lines = []
    row: list[Span] = []
    left = width
    for part in whole.spans:
        rest = part.text
        while cells(rest) > left:
            head = clip(rest, left + 1)[:-1] if left else ""
            out.append(Line((*row, Span(head, part.style)), whole.key))
            rest, row, left = rest[len(head) :], [], width
        row.append(Span(rest, part.style))
        left -= cells(rest)
    return [*out, Line(tuple(row), whole.key)]


def paragraph(text: str, width: int, style: str = "", indent: str = "") -> Lines:
    """Wrapped text."""
    return [line(indent, span(part, style)) for part in wrap(neutral(text, _MAX_TEXT), width - cells(indent))]


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` columns of text."""
    if text.isascii() and text.isprintable() and len(text) <= width:
        return text.rjust(width) if right else text.ljust(width)
    clipped = clip(text if text.isprintable() else neutral(text), width)
    blanks = " " * (width - cells(clipped))
    return blanks + clipped if right else clipped + blanks


def beside(left: Lines, right: Lines, width: int, gap: int = 2) -> Lines:
    """Two columns: the left one takes `width`. Keys of the left lines win."""
    rows = max(len(left), len(right))
    out: Lines = []
    for index in range(rows):
        first = fitted(left[index], width) if index < len(left) else BLANK
        second = right[index] if index < len(right) else BLANK
        blanks = Span(" " * (width - width_of(first.spans) + gap)) if second.spans else Span("")
        out.append(Line((*first.spans, blanks, *second.spans), first.key if first.key is not None else second.key))
    return out
