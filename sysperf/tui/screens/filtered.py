"""A screen whose list can be narrowed to the lines that hold some words: `/` asks for them, Esc shows all again."""

from __future__ import annotations

from typing import ClassVar

from textual.widgets import Input

from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens.view import View
from sysperf.tui.widgets.pane import Pane


class FilterBar(Input):
    """The line in which the words are written; it shows while somebody writes."""

    DEFAULT_CSS = "FilterBar { dock: bottom; height: 1; border: none; display: none; margin-bottom: 1; }"

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, id="filter", compact=True)


class Filtered(View):
    """What such screens share. They put a `FilterBar` into their body, and draw the lines that hold `words`."""

    LIST: ClassVar[str] = "#list"
    """The pane that is narrowed."""

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__(now, actions)
        self.words = ""

    def action_filter(self) -> None:
        bar = self.query_one(FilterBar)
        bar.display = True
        bar.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.words = event.value
        self.redraw()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        self._close_filter()

    def action_clear(self) -> None:
        self.query_one(FilterBar).value = ""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one(FilterBar).display = False
        self.query_one(self.LIST, Pane).focus()
