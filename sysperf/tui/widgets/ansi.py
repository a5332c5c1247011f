"""Reports as lines: the colours of `sysperf.report.terminal` turned back into the names of their styles."""

from __future__ import annotations

from sysperf.report.terminal import COLORS
from sysperf.startup import lazy
from sysperf.tui.widgets.line import Line, Lines, folded, line, span

_CODE = lazy(r"\x1b\[([0-9;]*)m")
_STYLES = {code: name for name, code in COLORS.items() if code}


def lines(text: str) -> Lines:
    """The lines of a coloured report. Its text is harmless already; other escapes would be spelled out."""
    return [_line(row) for row in text.rstrip("\n").split("\n")] if text.strip() else []


def folded_lines(text: str, width: int) -> Lines:
    """The same with nothing cut: what is wider goes on in the next line."""
    return [part for line in lines(text) for part in folded(line, width)]


def _line(text: str) -> Line:
    parts = _CODE.split(text)
    spans, style = [], ""
    for index, part in enumerate(parts):
        if index % 2:
            style = _STYLES.get(part, "")
        elif part:
            spans.append(span(part, style))
    return line(*spans)
