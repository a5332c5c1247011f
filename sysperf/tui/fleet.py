"""The dashboard of a fleet: a row a node by class, what differs, who is silent. One key leads to a node's own dashboard."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container

from sysperf.model.errors import SysperfError
from sysperf.model.fleet import Fleet
from sysperf.model.text import neutral
from sysperf.tui.acting import error_text
from sysperf.tui.screens.dialogs import Reading
from sysperf.tui.screens.hints import Hints
from sysperf.tui.shell import Shell
from sysperf.tui.widgets import helping, nodes
from sysperf.tui.widgets.line import Lines, line, span
from sysperf.tui.widgets.pane import Pane

Say = Callable[[int, int], object]
"""Told how many nodes answered, and of how many."""
Ask = Callable[[Say], Fleet]
"""Asks all nodes, in a thread. Raises SysperfError."""
SAY_S = 0.2
"""Between two lines of progress."""


class FleetDashboard(Shell):
    """Many machines at once. Nothing is changed on any of them."""

    TITLE = "sysperf fleet"
    NAME = "fleet"
    HELP_TEXT = "Nodes are compared with those of equal hardware; the worst of each class come first. Of who is silent nothing is known."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "open", "Open", tooltip="the node's own dashboard, through ssh, as Enter does"),
        Binding("r", "ask", "Ask again", tooltip="ask all nodes again now"),
        Binding("question_mark", "help", "Help", key_display="?"),
    ]
    DEFAULT_CSS = """
    FleetDashboard #head { padding: 0 1; }
    FleetDashboard #body { layout: vertical; height: 1fr; }
    FleetDashboard #list { height: 1fr; }
    FleetDashboard #detail { height: 30%; border-top: solid $frame; padding: 0 1; }
    """

    def __init__(self, ask: Ask, dashboard_of: Callable[[str], Sequence[str]], *, every_s: float, theme: str = "") -> None:
        """`dashboard_of` gives the command that shows a node."""
        super().__init__(theme)
        self._ask, self._dashboard_of, self._every_s = ask, dashboard_of, every_s
        self._fleet: Fleet | None = None
        self._known: dict[str, nodes.Node] = {}
        self._asked_at = 0.0
        self._progress = ""
        self._problem = ""
        self._say_at = 0.0

    def compose(self) -> ComposeResult:
        yield Pane(self._head, id="head", classes="fixed")
        yield Container(Pane(self._listed, id="list"), Pane(self._detail, id="detail"), id="body")
        yield Hints()

    def on_mount(self) -> None:
        self.end_on_signals()
        self.query_one("#list", Pane).focus()
        self.action_ask()
        self.set_interval(self._every_s, self.action_ask)

    # ------------------------------------------------------------------ what is shown

    def _head(self, width: int, _: int) -> Lines:
        about = [line(span(self._progress, "dim"))] if self._progress else []
        if self._problem:
            about = [line(span(self._problem, "error"))]
        elif self._fleet is not None and not about:
            about = [line(span(f"asked at {time.strftime('%H:%M:%S', time.localtime(self._asked_at))}", "dim"))]
        return [*(nodes.head(self._fleet, width) if self._fleet is not None else []), *about]

    def _listed(self, width: int, _: int) -> Lines:
        return nodes.draw(self._fleet, self._known, width) if self._fleet is not None else []

    def _detail(self, width: int, _: int) -> Lines:
        return nodes.detail(self._known.get(self.chosen), width)

    @property
    def chosen(self) -> str:
        """The selected node; empty without one."""
        return str(self.query_one("#list", Pane).key or "")

    def _redraw(self) -> None:
        for pane in self.query(Pane):
            pane.redraw()

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane.id == "list":
            self.query_one("#detail", Pane).redraw()

    def on_pane_picked(self, event: Pane.Picked) -> None:
        if event.pane.id == "list":
            self.action_open()

    # ------------------------------------------------------------------ asking

    def action_ask(self) -> None:
        """Ask all nodes, where nobody is asking."""
        if not self._progress:
            self._progress = "asking the nodes"
            self._redraw()
            threading.Thread(target=self._asking, daemon=True).start()  # who quits waits for no node; programs end with this process

    def _asking(self) -> None:
        """Ask in a thread; what came is shown in the dashboard's own."""
        fleet, problem = None, ""
        try:
            fleet = self._ask(self._say)
        except SysperfError as error:
            problem = error_text(error)
        except Exception as error:  # noqa: BLE001 - what was known before stays on the screen
            problem = f"internal error: {type(error).__name__}: {error}"
        self._show(lambda: self._have(fleet, problem))

    def _say(self, answered: int, of: int) -> None:
        if time.monotonic() >= self._say_at:
            self._say_at = time.monotonic() + SAY_S
            self._show(lambda: self._tell(f"asking: {answered} of {of} nodes"))

    def _show(self, then: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the dashboard has ended
            self.call_from_thread(then)

    def _tell(self, progress: str) -> None:
        self._progress = progress
        self.query_one("#head", Pane).redraw()

    def _have(self, fleet: Fleet | None, problem: str) -> None:
        self._progress, self._problem = "", neutral(problem)
        if fleet is not None:
            self._fleet, self._known, self._asked_at = fleet, nodes.nodes(fleet), time.time()
        self._redraw()

    # ------------------------------------------------------------------ one node

    def action_open(self) -> None:
        """Show the dashboard of the selected node in this terminal, and come back when it ends."""
        if not self.chosen:
            return
        command = [*self._dashboard_of(self.chosen)]
        try:
            with self.suspend():
                ended = subprocess.run(command, check=False)
                if ended.returncode:
                    input("Enter goes back to the fleet. ")
        except (SuspendNotSupported, EOFError, OSError):
            self.notify(shlex.join(command), timeout=10, markup=False)

    def action_help(self) -> None:
        if len(self.screen_stack) == 1:
            self.push_screen(Reading("Keys", lambda width, _: helping.draw(self.NAME, self.HELP_TEXT, self.BINDINGS, width)))
