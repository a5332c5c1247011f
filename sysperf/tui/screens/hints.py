"""The footer: what the keys do here, in one line. Textual's own makes a widget for each key, anew whenever a screen comes to the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from textual import events
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from sysperf.report.terminal import cells
from sysperf.tui.widgets.ink import styles


class Hint(NamedTuple):
    """A key, and what it does."""

    key: str
    key_name: str
    action: str
    about: str = ""
    not_now: str = ""
    """Why it can do nothing right now."""

    @property
    def text(self) -> str:
        """What it does, and why it does not now."""
        return f"{self.action} ({self.not_now})" if self.not_now else self.action

    @property
    def width(self) -> int:
        """Return its columns, with the blank behind it."""
        return cells(self.key_name) + cells(self.text) + 2


PALETTE = Hint("ctrl+p", "^p", "Commands", "find every command by its name")


def fitting(here: Sequence[Hint], everywhere: Sequence[Hint], width: int) -> list[Hint]:
    """Return as many as fit, from the left; those that help and quit stand at the end wherever they fit."""
    room = width + 1 - sum(hint.width for hint in everywhere)
    out: list[Hint] = []
    for hint in here:
        room -= hint.width
        if room < 0:
            break
        out.append(hint)
    return [*out, *everywhere]


class Hints(Widget):
    """The keys of the screen and of the focused widget. A click presses the key; the mouse over it shows its tooltip."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"hints--key"}
    DEFAULT_CSS = """
    Hints { dock: bottom; height: 1; color: $footer-foreground; background: $footer-background; }
    Hints > .hints--key { color: $footer-key-foreground; text-style: bold; }
    """

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, _: Screen[object]) -> None:
        self.refresh()

    def _hints(self) -> list[Hint]:
        of_screen: dict[str, Hint] = {}  # by action, which may have several keys
        of_app: dict[str, Hint] = {}
        for of, binding, _, about in self.screen.active_bindings.values():
            if binding.show:
                known = of_app if of is self.app else of_screen
                why = self._why(binding.action) if of is self.screen else ""
                known.setdefault(binding.action, Hint(binding.key, self.app.get_key_display(binding), binding.description, about, why))
        everywhere = sorted(of_app.values(), key=lambda hint: hint.action)  # help, then quit, whoever was bound first
        return fitting([*of_screen.values(), PALETTE], everywhere, self.size.width)

    def _why(self, action: str) -> str:
        not_now = getattr(self.screen, "not_now", None)  # a dialog is no view
        return str(not_now(action)) if not_now is not None else ""

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - one line
        under, key = self.rich_style, self.rich_style + self.get_component_rich_style("hints--key", partial=True)
        dim = under + styles(self.app, under.bgcolor)["dim"]
        parts = [
            part
            for hint in self._hints()
            for part in (Segment(hint.key_name, dim if hint.not_now else key), Segment(f" {hint.text} ", dim if hint.not_now else under))
        ]
        return Strip(parts).adjust_cell_length(self.size.width, under)

    def _at(self, x: int) -> Hint | None:
        for hint in self._hints():
            if x < hint.width:
                return hint
            x -= hint.width
        return None

    def on_click(self, event: events.Click) -> None:
        if (hint := self._at(event.x)) is not None:
            self.app.simulate_key(hint.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        hint = self._at(event.x)
        self.tooltip = hint.about or None if hint is not None else None
