"""Lines for a terminal: colours, columns as wide as the characters really are, wrapping, tables."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from sysperf.startup import lazy

MIN_WIDTH, MAX_WIDTH = 40, 120
"""Columns between which a report follows the terminal; longer lines are hard to read."""
MAX_TAIL = 12
_NARROW = lazy("[ -~─-▟⠀-⣿…≤▸▾●·•✓✗◆→←↓■□×°µ⏎]*")
"""Text of characters of one column that we write often, frames and curves among them: to look each one up takes 50 times as long."""

COLORS = {
    "error": "1;31",
    "warning": "1;33",
    "info": "1;36",
    "hint": "36",
    "good": "1;32",
    "unknown": "35",
    "strong": "1",
    "command": "32",
    "dim": "2",
    "plain": "",
}


class Ink:
    """Colours text by what it is (``error``, ``command``, ``dim``), or leaves it alone."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, style: str, text: str) -> str:
        code = COLORS[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and code and text else text


def cells(text: str) -> int:
    """How many terminal columns a text takes: two for a CJK character, none for a combining mark."""
    return len(text) if text.isascii() or _NARROW.fullmatch(text) else sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """The text in at most `width` columns, its end replaced by an ellipsis where it is longer."""
    if cells(text) <= width:
        return text
    return _head(text, width - 1) + "…" if width > 0 else ""


def tail(text: str, width: int) -> str:
    """The end of a text in at most `width` columns, behind an ellipsis when it was cut: of a path, the end tells most."""
    if cells(text) <= width:
        return text
    kept = text[max(0, len(text) - width + 1) :]
    while kept and cells(kept) > width - 1:
        kept = kept[1:]
    return f"…{kept}" if width > 0 else ""


def shorten(text: str, width: int) -> str:
    """A sentence in at most `width` columns: cut at the end of a word where one is near."""
    clipped = clip(text, width)
    if clipped == text:
        return text
    blank = clipped.rfind(" ", max(len(clipped) - MAX_TAIL, 1))
    return f"{clipped[:blank].rstrip(' ,;:.')}…" if blank > 0 else clipped


def pad(text: str, width: int) -> str:
    """The text followed by blanks up to `width` columns."""
    return text + " " * (width - cells(text))


def wrap(text: str, width: int) -> list[str]:
    """The words of a text in lines of at most `width` columns; a word that is wider alone is cut."""
    width = max(width, 2)
    lines, line = [], ""
    for word in text.split():
        if line and cells(line) + 1 + cells(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, width)
        lines += full
    return [*lines, line] if line else lines


def _pieces(word: str, width: int) -> list[str]:
    pieces = []
    while cells(word) > width:
        head = _head(word, width)
        pieces.append(head)
        word = word[len(head) :]
    return [*pieces, word]


def _head(text: str, width: int) -> str:
    """The first characters of a text that fit in `width` columns."""
    if text.isascii():
        return text[:width]
    used = 0
    for index, char in enumerate(text):
        used += _cells(char)
        if used > width:
            return text[:index]
    return text


class Page:
    """The lines of a report for a terminal of this width."""

    label_width = 10

    def __init__(self, ink: Ink, width: int) -> None:
        self.ink = ink
        self.width = min(max(width, MIN_WIDTH), MAX_WIDTH)
        self.room = max(width, MIN_WIDTH)
        """Columns of the terminal; more than any line has where no terminal reads."""
        self.lines: list[str] = []

    def line(self, text: str = "") -> None:
        """One line as it is; a blank line after a blank line is dropped."""
        if text or (self.lines and self.lines[-1]):
            self.lines.append(text)

    def paragraph(self, text: str, style: str = "plain", indent: str = "") -> None:
        """Wrapped text."""
        for part in wrap(text, self.width - cells(indent)):
            self.line(indent + self.ink(style, part))

    def labelled(self, label: str, text: str, style: str = "plain") -> None:
        """Wrapped text with a dim label before its first line."""
        for part in wrap(text, self.width - 2 - self.label_width):
            self.line(self._label(label) + self.ink(style, part))
            label = ""

    def verbatim(self, label: str, text: str, style: str = "plain") -> None:
        """A text that must stay whole, so that it can be copied."""
        self.line(self._label(label) + self.ink(style, text))

    def _label(self, label: str) -> str:
        return "  " + self.ink("dim", pad(label, self.label_width)) if label else " " * (2 + self.label_width)

    def __str__(self) -> str:
        while self.lines and not self.lines[-1]:
            self.lines.pop()
        return "\n".join([*self.lines, ""])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], ink: Ink, width: int, *, right: Sequence[int] = ()) -> list[str]:
    """Rows under a dim head, columns two blanks apart, the last one clipped to the terminal; `right` ones are right-aligned."""
    rows = [[*row] for row in rows]
    widths = [max(cells(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for number, row in enumerate((head, *rows)):
        parts = [_aligned(text, widths[column], column in right) for column, text in enumerate(row[:-1])]
        before = "".join(f"{part}  " for part in parts)
        line = before + clip(row[-1], max(width - cells(before), 8))
        lines.append(ink("dim", line.rstrip()) if number == 0 else line.rstrip())
    return lines


def _aligned(text: str, width: int, right: bool) -> str:
    return " " * (width - cells(text)) + text if right else pad(text, width)
