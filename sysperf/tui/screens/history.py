"""The past of series, as the agent keeps it, with findings and changes on their axis."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Final

from textual import work
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from sysperf.model.errors import SysperfError
from sysperf.model.finding import Finding, Report
from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens.filtered import FilterBar, Filtered
from sysperf.tui.screens.view import go_on
from sysperf.tui.source import History as Past
from sysperf.tui.widgets import chart, one_program
from sysperf.tui.widgets.bar import spark
from sysperf.tui.widgets.curves import SERIES
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, fitted, line, padded, paragraph, span
from sysperf.tui.widgets.pane import Pane

SPANS = (("10 min", 600.0), ("1 h", 3_600.0), ("6 h", 21_600.0), ("24 h", 86_400.0), ("7 d", 604_800.0))
POINTS, CURVE = 400, 8
BESIDE, OF_FINDINGS = 6, 3
"""So many series are drawn below the chosen one; so many of them may be those that findings are about, the others are the machine's."""
TELLING = ("utilization", "celsius", "sm_clock_mhz", "data_wait", "main_wait", "cpu")
"""Of a GPU or a program that a finding is about, these say most."""
ENDED: Final = ("ended",)
"""The key of the row that stands for the series of programs that have ended."""
RETRY_S = 5.0
MAX_PROGRAMS = 3
"""Programs with findings whose series come first: more would push the machine's out of sight."""
STILL = "A captured machine stands still: it has no history."
NO_AGENT = (
    "There is no history here: the agent keeps it, and this dashboard samples by itself. "
    "`sysperf agent` in another terminal, or `sysperf service install` as a service, keeps seven days; start the dashboard again then."
)


class History(Filtered):
    """Any series over ten minutes to seven days, above those that tell more of the same time."""

    NAME = "history"
    HELP_TEXT = (
        "The past of any series, first of those that findings are about; below it others of the same time. ← and → move a cursor "
        "through all of them, as a click does, and each shows its value there. ✗ a finding began, ✓ it is gone, ◆ something was changed: "
        "beside it stand the means of the ten minutes before and after, which prove nothing by themselves."
    )
    LIST = "#names"
    DEFAULT_CSS = """
    History #body { layout: horizontal; height: 1fr; }
    History #names { width: 34; }
    History.-narrow #names { width: 26; }
    History #chart { width: 1fr; border-left: solid $frame; padding: 0 1; }
    History.-forgets #names { display: none; }
    History.-forgets #chart { border-left: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket,minus", "longer(-1)", "Shorter", key_display="["),
        Binding("right_square_bracket,plus", "longer(1)", "Longer", key_display="]"),
        Binding("left,h", "cursor(-1)", "Cursor", key_display="← →", tooltip="read all curves at one moment; Esc: the latest values again"),
        Binding("right,l", "cursor(1)", "Cursor", show=False),
        Binding("shift+left,H", "cursor(-10)", "Cursor", show=False),
        Binding("shift+right,L", "cursor(10)", "Cursor", show=False),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="only series with these words"),
        Binding("escape", "clear", "Clear", show=False),
        Binding("r", "again", "Read again", show=False),
    ]

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__(now, actions)
        self._span = 1
        self._fits = False
        """Whether the span was made to fit what is known."""
        self._names: list[tuple[str, str]] = []
        self._placed: Report | None = None
        """The findings by which the names are in order."""
        self._past: tuple[list[str], Past] | None = None
        """What was read last: the series in the order in which they are drawn."""
        self._cursor: float | None = None
        """The time at which the curves are read."""
        self._width = 80
        """Columns of the chart."""
        self._unfolded = False
        """Whether the series of ended programs are listed."""
        self._problem = ""

    def body(self) -> Iterable[Widget]:
        yield Container(Pane(self._listed, id="names"), Pane(self._chart, id="chart"), id="body")
        yield FilterBar("words of the series' names")

    def on_mount(self) -> None:
        self.set_class(not self.actions.source.remembers, "-forgets")
        self.query_one("#names", Pane).focus()
        if self.actions.source.remembers:
            self._read_names()
            self.set_interval(RETRY_S, self._tick)

    def _tick(self) -> None:
        if self.is_active:
            self.action_again()

    # ------------------------------------------------------------------ drawing

    def _listed(self, width: int, _: int) -> Lines:
        if self._placed is not self.now.report:
            self._order()
        wanted = self.words.lower().split()
        named = [(name, self._label(name), doc) for name, doc in self._names]
        wanted_names = [(name, label) for name, label, doc in named if all(word in f"{name} {label} {doc}".lower() for word in wanted)]
        ended = [] if self._unfolded or wanted else [name for name, label in wanted_names if label.endswith(", ended")]
        rows = [self._row(name, label, width) for name, label in wanted_names if name not in ended]
        if ended:
            rows.append(fitted(line(span(f"▸ {len(ended)} of ended programs", "dim"), key=ENDED), width))
        return rows or [line(span("no series" if self._names else "reading …", "dim"))]

    def _label(self, name: str) -> str:
        """What a series is called: those of programs by the program."""
        kind, _, rest = name.partition(".")
        pid, _, meter = rest.partition(".")
        process = next((one for one in self.now.processes() if kind == "process" and str(one.pid) == pid), None)
        return (
            f"{meter} of {one_program.short(process)} {pid}"
            if process is not None
            else f"{meter} of {pid}, ended"
            if kind == "process"
            else name
        )

    def _row(self, name: str, label: str, width: int) -> Line:
        """The name, and its last minutes where somebody looks at them."""
        past = self.now.past.get(name, ())
        curve = spark(past, CURVE, 1.0 if chart.is_share(name) else 0.0) if past and width > CURVE + 20 else ""
        room = width - len(curve) - bool(curve)
        return fitted(
            line(
                span(padded(label, room), "dim" if label.endswith(", ended") else ""),
                Span(" " if curve else ""),
                span(curve, "cool"),
                key=name,
            ),
            width,
        )

    def _chart(self, width: int, height: int) -> Lines:
        if not self.actions.source.remembers:
            return paragraph(NO_AGENT if self.actions.source.live else STILL, width)
        if self._problem:
            return paragraph(self._problem, width, "warning")
        name, self._width = self._chosen(), width
        if not name:
            return paragraph("Enter lists the series of programs that have ended." if self._names else "reading …", width, "dim")
        doc = next((doc for series, doc in self._names if series == name), "")
        when = f"   at {time.strftime('%a %H:%M:%S', time.localtime(self._cursor))}" if self._cursor is not None else ""
        head = [fitted(line(span(name, "strong"), span(f"  {SPANS[self._span][0]}", "info"), span(when, "strong")), width)]
        if self._past is None or self._past[0][0] != name:
            return [*head, fitted(line(span(doc, "dim")), width), BLANK, line(span("reading …", "dim"))]
        names, past = self._past
        head += [fitted(line(*chart.figures(past, name, self._cursor), span(f"  {doc}", "dim")), width), BLANK]
        return head + chart.draw(past, [(each, self._label(each)) for each in names], width, height - len(head), self._cursor)

    def _chosen(self) -> str:
        """The selected series; empty without one."""
        key = self.query_one("#names", Pane).key
        return key if isinstance(key, str) else ""

    def _beside(self, name: str) -> list[str]:
        """The series that are drawn below this one: what findings are about, and what the machine does."""
        found, known = _mentioned(self.now.findings()), [name for name, _ in self._names]
        about = [each for each in known if each != name and _about(each, found)[0] == 0]
        about.sort(key=lambda each: each not in found and not each.endswith(TELLING))
        return list(dict.fromkeys([*about[:OF_FINDINGS], *(each for each in SERIES if each in known and each != name)]))[:BESIDE]

    # ------------------------------------------------------------------ reading

    @work(thread=True, exit_on_error=False, exclusive=True, group="names")
    def _read_names(self) -> None:
        try:
            names = self.actions.source.series()
        except (SysperfError, KeyError, TypeError) as error:
            go_on(self, self._failed, str(error))
        else:
            go_on(self, self._have_names, names)

    def _have_names(self, names: list[tuple[str, str]]) -> None:
        self._names = names
        self._order()
        self.redraw()

    def _order(self) -> None:
        """The series that findings are about first."""
        alive = {str(process.pid) for process in self.now.processes()}
        found = _mentioned(self.now.findings())
        self._names.sort(key=lambda name: (*_about(name[0], found), *_place(name[0], alive)))
        self._placed = self.now.report

    @work(thread=True, exit_on_error=False, exclusive=True, group="past")
    def _read(self, names: list[str], span_s: float) -> None:
        try:
            past = self.actions.source.history(names, span_s, POINTS)
        except (SysperfError, KeyError, TypeError, ValueError) as error:
            go_on(self, self._failed, str(error))
        else:
            go_on(self, self._have, names, past)

    def _have(self, names: list[str], past: Past) -> None:
        self._past, self._problem = (names, past), ""
        if self._cursor is not None and not past.since <= self._cursor <= past.until:
            self._cursor = None
        if not self._fits and (points := past.points(names[0])):
            self._fits = True
            known_s = past.until - points[0][0]
            fitting = next((number for number, (_, span_s) in enumerate(SPANS) if span_s >= known_s), self._span)
            if fitting < self._span:
                self._span = fitting
                self.action_again()
        self.query_one("#chart", Pane).redraw()

    def _failed(self, problem: str) -> None:
        self._problem = problem
        self.redraw()

    # ------------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Refuse to filter or to stretch without a history."""
        return self.actions.source.remembers if action in ("longer", "filter", "cursor") else super().check_action(action, parameters)

    def on_pane_moved(self, event: Pane.Moved) -> None:
        if event.pane.id == "names":
            self.action_again()

    def on_pane_picked(self, event: Pane.Picked) -> None:
        if event.key == ENDED:
            self._unfolded = True
            self.redraw()

    def on_pane_pressed(self, event: Pane.Pressed) -> None:
        if event.pane.id == "chart" and self._past is not None:
            self._read_at(chart.time_at(self._past[1], self._width, event.x - event.pane.gutter.left))

    def action_again(self) -> None:
        if not self._names and self.actions.source.remembers:
            self._read_names()
            return
        self.query_one("#chart", Pane).redraw()
        if name := self._chosen():
            self._read([name, *self._beside(name)], SPANS[self._span][1])

    def action_cursor(self, step: int) -> None:
        """Move the cursor by columns, from the latest value."""
        if self._past is None:
            return
        past = self._past[1]
        column_s = (past.until - past.since) / chart.columns_of(self._width)
        at = past.until if self._cursor is None else self._cursor
        self._read_at(min(past.until - column_s / 2, max(past.since, at + step * column_s)))

    def action_clear(self) -> None:
        """Take back what was asked for last: the cursor, then the filter."""
        if self._cursor is not None:
            self._read_at(None)
        else:
            super().action_clear()

    def _read_at(self, at: float | None) -> None:
        self._cursor = at
        self.query_one("#chart", Pane).redraw()

    def action_longer(self, step: int) -> None:
        self._fits = True
        self._span = min(len(SPANS) - 1, max(0, self._span + step))
        self.action_again()


def _place(name: str, alive: Collection[str]) -> tuple[int, str]:
    """The machine's series first, those of programs that run, of ended ones, the agent's own."""
    kind, _, rest = name.partition(".")
    if kind == "process":
        return (1 if rest.partition(".")[0] in alive else 2), name
    return (3 if kind == "agent" else 0), name


def _mentioned(findings: Iterable[Finding]) -> dict[str, int]:
    """Facts, areas, GPUs and the first programs that findings are about, each with the place of the first one."""
    out: dict[str, int] = {}
    programs: dict[str, int] = {}
    for place, finding in enumerate(findings):
        for fact in finding.evidence:
            out.setdefault(fact.fact, place)
        out.setdefault(finding.rule.partition(".")[0], place)
        if finding.subject.kind == "gpu":
            out.setdefault(f"gpu.{finding.subject.index}", place)
        elif finding.subject.pid is not None:
            programs.setdefault(f"process.{finding.subject.pid}", place)
    return out | dict([*programs.items()][:MAX_PROGRAMS])


def _about(name: str, found: Mapping[str, int]) -> tuple[int, int]:
    """(0, which) where a finding is about this very series, GPU or program; (1, which) of one in its area; then all others."""
    area, _, rest = name.partition(".")
    item = f"{area}.{rest.partition('.')[0]}"
    for rank, key in ((0, name), (0, item), (1, area)):
        if key in found and not (key == area and area == "process"):
            return rank, found[key]
    return 2, 0
