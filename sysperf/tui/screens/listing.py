"""A screen of a list and, below it, all about the selected line; both are read again whenever it comes to the front."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Container
from textual.widget import Widget

from sysperf.tui.screens.view import View
from sysperf.tui.widgets.line import Lines
from sysperf.tui.widgets.pane import Pane


class Listing(View):
    """What such screens share. They say what is in both panes, and how it is read."""

    def listed(self, width: int, height: int) -> Lines:
        """The list."""
        raise NotImplementedError

    def detail(self, width: int, height: int) -> Lines:
        """About the selected line."""
        raise NotImplementedError

    def action_read(self) -> None:
        """Read it again, in a thread."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        yield Container(Pane(self.listed, id="list"), Pane(self.detail, id="detail"), id="body")

    def on_mount(self) -> None:
        self.query_one("#list", Pane).focus()

    def on_screen_resume(self) -> None:
        self.action_read()

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane.id == "list":
            self.query_one("#detail", Pane).redraw()

    def on_pane_picked(self, event: Pane.Picked) -> None:
        if event.pane.id == "list":
            self.query_one("#detail", Pane).focus()
