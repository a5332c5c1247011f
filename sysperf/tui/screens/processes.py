"""The PyTorch programs: a live row each, and everything that is known of the selected one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget
from textual.widgets import Input

from sysperf.model.errors import SysperfError
from sysperf.model.outcome import Rewrap
from sysperf.model.text import neutral
from sysperf.report.machine import look
from sysperf.report.words import LONGEST_COMMAND
from sysperf.tui.screens.view import View
from sysperf.tui.source import Facts, Meters, Problem
from sysperf.tui.widgets import programs
from sysperf.tui.widgets.line import Lines, Span, fitted, line, span
from sysperf.tui.widgets.pane import Pane

UNKNOWN = "unknown here: `sysperf ps --verbose` on that machine tells"
RIGHT = "wrap would have started it as it is, or cannot start it again"


class Processes(View):
    """One row a program or rank, its DataLoader workers folded in."""

    NAME = "processes"
    HELP_TEXT = (
        "Each PyTorch program or rank. CPUs: how many it uses. main: share of the time in which its main thread runs; wait: in which that "
        "thread is ready and has no CPU. work: DataLoader workers and the CPUs they use. local: share of its memory beside its CPUs."
    )
    concerns = (Facts, Meters, Problem)
    DEFAULT_CSS = """
    Processes #body { layout: vertical; height: 1fr; }
    Processes #rows { height: 1fr; }
    Processes #detail { height: 55%; border-top: solid $panel; padding: 0 1; display: none; }
    Processes.-open #detail { display: block; }
    Processes #filter { dock: bottom; height: 1; border: none; display: none; margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Details"),
        Binding("y", "copy", "Copy wrap", tooltip="copy the wrap command that would have been right (OSC 52)"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="only programs with these words"),
        Binding("o", "order", "Order", tooltip="sort by start, CPU, GPU memory or memory"),
        Binding("escape", "clear", "Close", show=False),
        Binding("r", "app.look_again", "Look again", show=False),
    ]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._words, self._order = "", "start"
        self._wraps: dict[int, Rewrap | str] = {}

    def body(self) -> Iterable[Widget]:
        yield Pane(self._head, classes="fixed", id="head")
        yield Container(Pane(self._rows, id="rows", partial=True), Pane(self._detail, id="detail"), id="body")
        yield Input(placeholder="words, all of which a program must have", id="filter", compact=True)

    def on_mount(self) -> None:
        self.query_one("#head", Pane).can_focus = False
        self.query_one("#rows", Pane).focus()

    def _head(self, width: int, _: int) -> Lines:
        number = len(self.now.processes())
        parts = [span(f"{number} PyTorch program{'' if number == 1 else 's'}", "strong"), span(f"  by {self._order}", "dim")]
        parts += [span(f"  with “{self._words}”", "info")] if self._words else []
        parts += [span(f"  ! {self.now.problem}", "warning")] if self.now.problem else []
        return [fitted(line(*parts), width), programs.head(self.now, width)] if number else [fitted(line(*parts), width)]

    def _rows(self, width: int, _: int) -> Lines:
        wanted = programs.chosen(self.now, self._words, self._order)
        return programs.draw(self.now, wanted, width, self.query_one("#rows", Pane).in_sight)

    def _detail(self, width: int, _: int) -> Lines:
        one = self._chosen()
        if one is None:
            return [line(Span("This program has ended.", "dim"))] if self.has_class("-open") else []
        return programs.detail(self.now, one, self._wraps.get(look(one, "pid")), width)

    def _chosen(self) -> Any:
        key = self.query_one("#rows", Pane).key
        return next((one for one in self.now.processes() if look(one, "pid") == key), None)

    # ------------------------------------------------------------------ actions

    def on_pane_picked(self, event: Pane.Picked) -> None:
        if event.pane.id == "rows":
            self.action_open()

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane.id == "rows" and self.has_class("-open"):
            self._open()

    def action_open(self) -> None:
        if self._chosen() is not None:
            self.add_class("-open")
            self._open()

    def _open(self) -> None:
        one = self._chosen()
        if one is None:
            return
        pid = look(one, "pid")
        if pid not in self._wraps:
            self._look_up(pid)
        pane = self.query_one("#detail", Pane)
        self.call_after_refresh(pane.redraw)
        pane.scroll_home(animate=False, immediate=True)

    @work(thread=True, exit_on_error=False)
    def _look_up(self, pid: int) -> None:
        """The wrap command, in a thread: it reads the machine."""
        rewrap, snapshot = self.doors.rewrap, self.now.snapshot
        found: Rewrap | str = UNKNOWN
        if rewrap is not None and snapshot is not None:
            try:
                found = rewrap(snapshot, pid) or RIGHT
            except SysperfError as error:
                found = str(error)
        self.app.call_from_thread(self._looked_up, pid, found)

    def _looked_up(self, pid: int, found: Rewrap | str) -> None:
        self._wraps[pid] = found
        self.query_one("#detail", Pane).redraw()

    def action_copy(self) -> None:
        one = self._chosen()
        again = self._wraps.get(look(one, "pid")) if one is not None else None
        if isinstance(again, Rewrap):
            command = neutral(again.command, LONGEST_COMMAND)
            self.app.copy_to_clipboard(command)
            self.say(f"copied: {command}")
        else:
            self.say("open the program first: there is no command yet" if again is None else str(again))

    def action_filter(self) -> None:
        entry = self.query_one("#filter", Input)
        entry.display = True
        entry.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value
        self.redraw()

    def on_input_submitted(self, _: Input.Submitted) -> None:
        self._close_filter()

    def action_clear(self) -> None:
        """First the details close, then the filter."""
        if self.has_class("-open") and not self.query_one("#filter", Input).display:
            self.remove_class("-open")
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one("#rows", Pane).focus()

    def action_order(self) -> None:
        self._order = programs.ORDERS[(programs.ORDERS.index(self._order) + 1) % len(programs.ORDERS)]
        self.redraw()
