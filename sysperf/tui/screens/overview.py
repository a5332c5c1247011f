"""The overview: what is wrong, next to the meter that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from sysperf.tui.screens.view import View
from sysperf.tui.source import Facts, Meters, Past, Problem
from sysperf.tui.widgets import overview
from sysperf.tui.widgets.pane import Pane


class Board(Pane):
    """The whole overview. Its footer says what Enter does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "pick", "Open finding", tooltip="what was seen, why it matters, the fix")]


class Overview(View):
    """Verdict, identity, meters, GPUs, findings."""

    NAME = "overview"
    HELP_TEXT = "The verdict, this machine, and its meters. A finding stands beside the meter that it is about; Enter opens it."
    concerns = (Facts, Meters, Past, Problem)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open finding"),
        Binding("r", "app.look_again", "Audit again"),
    ]

    def body(self) -> Iterable[Widget]:
        yield Board(lambda width, height: overview.draw(self.now, width, height))

    def action_open(self) -> None:
        self.query_one(Pane).action_pick()

    def on_pane_picked(self, event: Pane.Picked) -> None:
        self.app.call_later(self.app.run_action, f"open_finding({str(event.key)!r})")
