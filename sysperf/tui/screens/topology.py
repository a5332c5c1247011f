"""The map of the machine, with load as colour and a program's place marked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens.view import View
from sysperf.tui.source import Facts, Load
from sysperf.tui.widgets import one_program, topology
from sysperf.tui.widgets.line import Lines, Span, fitted, line, span
from sysperf.tui.widgets.pane import Pane


class Topology(View):
    """Sockets, nodes, caches, cores."""

    NAME = "topology"
    watches_cpus = True
    HELP_TEXT = (
        "Sockets, NUMA nodes with their memory and devices, L3 domains, cores and their threads. The colour and height of "
        "a CPU are its load. "
        "m marks the next program: its CPUs stand out, and each node shows how much of its memory it has there."
    )
    concerns = (Facts, Load)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "mark(1)", "Mark program", tooltip="mark the next program's CPUs and memory"),
        Binding("M", "mark(-1)", "", show=False),
        Binding("escape", "unmark", "No mark", show=False),
        Binding("r", "app.look_again", "Audit again", show=False),
    ]

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__(now, actions)
        self._pid: int | None = None

    def body(self) -> Iterable[Widget]:
        yield Pane(self._draw)

    def _draw(self, width: int, _: int) -> Lines:
        marked = next((process for process in self.now.processes() if process.pid == self._pid), None)
        head: Lines = []
        if marked is not None:
            head = [fitted(line(Span("marked: ", "dim"), span(f"{self._pid} {one_program.program(marked)}", "mark")), width)]
        return head + topology.draw(self.now, width, marked)

    def mark(self, pid: int) -> None:
        """Mark this program."""
        self._pid = pid
        self.redraw()

    def action_mark(self, step: int) -> None:
        if not self.now.processes():
            self.say("No PyTorch program is running.")
        self._pid = topology.next_marked(self.now.processes(), self._pid, step)
        self.redraw()

    def action_unmark(self) -> None:
        self._pid = None
        self.redraw()
