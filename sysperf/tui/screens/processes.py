"""The PyTorch programs: a live row each, and everything that is known of the selected one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from sysperf.collect.process.records import Process
from sysperf.collect.process.workers import Workers
from sysperf.model.errors import SysperfError
from sysperf.model.finding import Rewrap
from sysperf.model.text import neutral
from sysperf.report.words import MAX_COMMAND
from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens import diagnosis, profiling
from sysperf.tui.screens.filtered import FilterBar, Filtered
from sysperf.tui.screens.view import counted, go_on
from sysperf.tui.source import Facts, Meters, Problem
from sysperf.tui.widgets import one_program, program, programs
from sysperf.tui.widgets.line import Lines, Span, fitted, line, span
from sysperf.tui.widgets.pane import Pane
from sysperf.tui.widgets.workers import WorkerReadings

UNKNOWN = "unknown here: `sysperf ps --verbose` on that machine tells"
WORKERS_S = 1.0
MARK_WIDTH = 1
RIGHT = "wrap would have started it as it is, or cannot start it again"


class Rows(Pane):
    """The programs: keys that scroll elsewhere unfold here."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "pick", "Details", tooltip="everything that is known of the program; Esc closes it"),
        Binding("space", "screen.fold(0)", "Workers", tooltip="show or hide the DataLoader workers; → or l shows, ← or h hides"),
        Binding("right,l", "screen.fold(1)", "unfold", show=False),
        Binding("left,h", "screen.fold(-1)", "fold", show=False),
    ]


class Processes(Filtered):
    """One row a program or rank, its DataLoader workers folded in."""

    NAME = "processes"
    HELP_TEXT = (
        "Each PyTorch program or rank. CPUs: how many it uses. main: share of the time in which its main thread runs; wait: in which that "
        "thread is ready and has no CPU. work: DataLoader workers and the CPUs they use. local: share of its memory beside its CPUs. "
        "data: at most this share of the time its main thread waited for its workers: it slept, and no backward ran; - without workers, "
        "since loading in the main thread looks like work from outside. A click on a column's name sorts by it, on ▸ unfolds the workers."
    )
    concerns = (Facts, Meters, Problem)
    LIST = "#rows"
    DEFAULT_CSS = """
    Processes #body { layout: vertical; height: 1fr; }
    Processes #rows { height: 1fr; }
    Processes #detail { height: 55%; border-top: solid $frame; padding: 0 1; display: none; }
    Processes.-open #detail { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Details"),
        Binding("d", "diagnose", "Diagnose", tooltip="what slows it down: half a minute of looking, nothing is changed"),
        Binding("y", "copy", "Copy", tooltip="copy the wrap command that would have been right (OSC 52)"),
        Binding("c", "stacks", "Stacks", tooltip="where each of its threads is now, by py-spy; it is not stopped for this"),
        Binding("x", "trace", "Trace", tooltip="have it write a trace of 5 steps, after a question; started by wrap --traceable"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="only programs with these words"),
        Binding("o", "order", "Sort", tooltip="sort by start, CPUs, wait for data, memory and the other columns"),
        Binding("m", "map", "Map", show=False, tooltip="its CPUs and its memory on the map of the machine"),
        Binding("escape", "clear", "Close", show=False),
        Binding("r", "app.look_again", "Audit again", show=False),
    ]

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__(now, actions)
        self._order = programs.START
        self._readings: dict[int, WorkerReadings] = {}
        self._counting = False
        self._wraps: dict[int, Rewrap | str] = {}

    def body(self) -> Iterable[Widget]:
        yield Pane(self._head, classes="fixed", id="head")
        yield Container(Rows(self._rows, id="rows", partial=True), Pane(self._detail, id="detail"), id="body")
        yield FilterBar("words, all of which a program must have")

    def on_mount(self) -> None:
        self.query_one("#head", Pane).can_focus = False
        self.query_one("#rows", Pane).focus()
        self.set_interval(WORKERS_S, self._read_workers)

    def _head(self, width: int, _: int) -> Lines:
        number = None if self.now.facts.process is None else len(self.now.processes())
        matching = len(programs.chosen(self.now, self.words, programs.START)) if self.words else None
        parts = [span(counted(matching, number, "PyTorch program"), "strong"), span(f"  by {self._order}", "dim")]
        parts += [span(f"  with “{self.words}”", "info")] if self.words else []
        parts += [span(f"  ! {notice}", "warning")] if (notice := self.now.notice()) else []
        return [fitted(line(*parts), width), programs.head(self.now, self._wide, self._order)] if number else [fitted(line(*parts), width)]

    @property
    def _wide(self) -> int:
        """The columns of the screen that rows have: names stand over them."""
        return self.query_one("#rows", Pane).scrollable_content_region.width

    def _rows(self, width: int, _: int) -> Lines:
        wanted = programs.chosen(self.now, self.words, self._order)
        return programs.draw(self.now, wanted, width, self.query_one("#rows", Pane).in_sight, self._readings)

    def _detail(self, width: int, _: int) -> Lines:
        process = self._chosen()
        if process is None:
            return [line(Span("This program has ended.", "dim"))] if self.has_class("-open") else []
        return program.detail(self.now, process, self._wraps.get(process.pid), width)

    def _chosen(self) -> Process | None:
        key = self.query_one("#rows", Pane).key
        key = key[0] if isinstance(key, tuple) else key  # a worker belongs to its program
        return next((process for process in self.now.processes() if process.pid == key), None)

    def not_now(self, action: str) -> str:
        """Why this key does nothing here."""
        if action in ("diagnose", "stacks", "trace") and self.actions.refusal:
            return "read-only"
        return "elsewhere" if action == "diagnose" and self.actions.diagnose is None else ""

    # ------------------------------------------------------------------ actions

    def on_pane_picked(self, event: Pane.Picked) -> None:
        if event.pane.id == "rows" and 0 <= event.x <= MARK_WIDTH and not isinstance(event.key, tuple):
            self.action_fold(0)
        elif event.pane.id == "rows":
            self.action_open()

    def on_pane_pressed(self, event: Pane.Pressed) -> None:
        """A click on the name of a column."""
        if event.pane.id == "head" and event.row == 1:
            self._order = programs.column_at(self.now, self._wide, event.x) or self._order
            self.redraw()

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane.id == "rows" and self.has_class("-open"):
            self._open()

    def show(self, pid: int) -> None:
        """Open this program, as soon as there are rows."""
        self.words = ""
        self.call_after_refresh(self._show, pid)

    def _show(self, pid: int) -> None:
        self.query_one("#rows", Pane).select(pid)
        self.action_open()

    def action_open(self) -> None:
        if self._chosen() is not None:
            self.add_class("-open")
            self._open()

    def _open(self) -> None:
        process = self._chosen()
        if process is None:
            return
        pid = process.pid
        if pid not in self._wraps:
            self._look_up(pid)
        pane = self.query_one("#detail", Pane)
        self.call_after_refresh(pane.redraw)
        pane.scroll_home(animate=False, immediate=True)

    @work(thread=True, exit_on_error=False)
    def _look_up(self, pid: int, *, copy: bool = False) -> None:
        """The wrap command, in a thread: it reads the machine."""
        rewrap, snapshot = self.actions.rewrap, self.now.snapshot
        wrap: Rewrap | str = UNKNOWN
        if rewrap is not None and snapshot is not None:
            try:
                wrap = rewrap(snapshot, pid) or RIGHT
            except SysperfError as error:
                wrap = str(error)
        go_on(self, self._looked_up, pid, wrap)
        if copy:
            go_on(self, self._copy, wrap)

    def _looked_up(self, pid: int, wrap: Rewrap | str) -> None:
        self._wraps[pid] = wrap
        self.query_one("#detail", Pane).redraw()

    def action_copy(self) -> None:
        if (process := self._chosen()) is not None:
            pid = process.pid
            if pid in self._wraps:
                self._copy(self._wraps[pid])
            else:
                self._look_up(pid, copy=True)

    def _copy(self, again: Rewrap | str) -> None:
        if isinstance(again, Rewrap):
            command = neutral(again.command, MAX_COMMAND)
            self.app.copy_to_clipboard(command)
            self.say(f"copied: {command}")
        else:
            self.say(again)

    def action_stacks(self) -> None:
        if (process := self._chosen()) is not None:
            profiling.take_stacks(self, process.pid)

    def action_trace(self) -> None:
        if (process := self._chosen()) is not None:
            profiling.take_trace(self, process.pid)

    def action_diagnose(self) -> None:
        if (process := self._chosen()) is not None:
            diagnosis.diagnose(self, process.pid)

    def action_clear(self) -> None:
        """First the details close, then the filter."""
        if self.has_class("-open") and not self.query_one(FilterBar).display:
            self.remove_class("-open")
        super().action_clear()

    def action_order(self) -> None:
        known = programs.orders(self.now, self._wide)
        self._order = known[(known.index(self._order) + 1) % len(known)] if self._order in known else programs.START
        self.redraw()

    def action_map(self) -> None:
        if (process := self._chosen()) is not None:
            self.app.call_later(self.app.run_action, f"show_place({process.pid})")

    # ------------------------------------------------------------------ workers

    def action_fold(self, step: int) -> None:
        """Show the workers of the selected program (1), hide them (-1), or the other of both (0)."""
        process = self._chosen()
        if process is None:
            return
        pid = process.pid
        if pid in self._readings and step <= 0:
            del self._readings[pid]
            self.query_one("#rows", Pane).select(pid)
        elif pid not in self._readings and step >= 0 and one_program.has_workers(self.now, process):
            self._readings[pid] = WorkerReadings()
            self._read_workers(anew=True)
        elif pid not in self._readings and step >= 0:
            self.say(f"Program {pid} has no DataLoader worker right now.")
        self.query_one("#rows", Pane).redraw()

    def _read_workers(self, *, anew: bool = False) -> None:
        """Each second while a program is unfolded and somebody looks; once of a machine that stands still."""
        alive = {process.pid for process in self.now.processes()}
        self._readings = {pid: readings for pid, readings in self._readings.items() if pid in alive}
        if self._readings and not self._counting and self.is_active and (anew or self.actions.source.live):
            self._counting = True
            self._count(tuple(self._readings))

    @work(thread=True, exit_on_error=False, group="workers")
    def _count(self, pids: tuple[int, ...]) -> None:
        go_on(self, self._counted, {pid: self._asked(pid) for pid in pids})

    def _asked(self, pid: int) -> Workers | str | None:
        """The workers, or why they are unknown."""
        try:
            return self.actions.source.workers(pid)
        except SysperfError as error:
            return str(error)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"

    def _counted(self, readings: dict[int, Workers | str | None]) -> None:
        self._counting = False
        for pid, read in readings.items():
            if pid in self._readings:
                problem = read if isinstance(read, str) else "" if read is not None else "this source does not tell"
                self._readings[pid] = self._readings[pid].then(None if isinstance(read, str) else read, problem)
        self.query_one("#rows", Pane).redraw()
        if self._readings.keys() - readings.keys():
            self._read_workers(anew=True)
