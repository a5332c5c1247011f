"""The help of a screen: what it shows, and its keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding, BindingType

from sysperf.report.terminal import wrap
from sysperf.tui.widgets.line import BLANK, Lines, Span, line, padded, paragraph, span

EVERYWHERE = (
    ("1 … 7", "the screens: overview, findings, processes, topology, history, changes, bench"),
    ("↑ ↓ j k", "up and down; PgUp, PgDn, g and G go further"),
    ("Tab", "to the other pane"),
    ("Enter", "open"),
    ("/", "filter, where there is a list; Esc clears it"),
    ("Ctrl+P", "all commands by name"),
    ("r", "look at the machine again now"),
    ("s", "save the screen as an SVG picture"),
    ("t", "theme"),
    ("q", "quit"),
)
KEY = 10


def draw(name: str, about: str, bindings: Sequence[BindingType], width: int) -> Lines:
    """The screen's own keys first."""
    out: Lines = [line(span(name.capitalize(), "title")), *paragraph(about, width), BLANK]
    own = [binding for binding in bindings if isinstance(binding, Binding) and binding.description and binding.key not in ("enter", "r")]
    for shortcut in own:
        out += _key(key_of(shortcut), shortcut.tooltip or shortcut.description, width)
    if own:
        out.append(BLANK)
    out.append(line(span("Everywhere", "title")))
    for key, action in EVERYWHERE:
        out += _key(key, action, width)
    return out


def _key(key: str, about: str, width: int) -> Lines:
    parts = wrap(about, max(20, width - KEY))
    return [line(Span(padded("" if number else key, KEY), "strong"), span(part)) for number, part in enumerate(parts)]


def key_of(binding: Binding) -> str:
    """How a key is written."""
    return binding.key_display or _key_name(binding.key)


def _key_name(key: str) -> str:
    return {"slash": "/", "question_mark": "?", "escape": "Esc", "left_square_bracket": "[", "right_square_bracket": "]"}.get(
        key, key
    ).replace(",", " ")
