"""What all screens share: the line of tabs, the footer, and being told update."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import Worker, WorkerState, get_current_worker

from sysperf.model.errors import SysperfError
from sysperf.model.text import neutral
from sysperf.report.terminal import cells, tail
from sysperf.tui.acting import error_text
from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens.hints import Hints
from sysperf.tui.source import SourceUpdate
from sysperf.tui.widgets.boxes import box
from sysperf.tui.widgets.ink import cursor, styles
from sysperf.tui.widgets.line import Lines, Span, paragraph
from sysperf.tui.widgets.pane import Pane

TABS = ("overview", "findings", "processes", "topology", "history", "changes", "bench")
MAX_TAB = max(map(len, TABS))

T = TypeVar("T")


class Tabs(Widget):
    """The screens by number, the one that is shown, and where its facts come from."""

    DEFAULT_CSS = "Tabs { height: 1; dock: top; background: $panel; }"

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, current: str, origin: str) -> None:
        super().__init__()
        self._current, self._origin = current, origin

    def _labels(self) -> list[tuple[str, str]]:
        """(name, label): shorter ones where the terminal is narrow."""
        full = [(name, f" {number} {name.capitalize()} ") for number, name in enumerate(TABS, 1)]
        for letters in (MAX_TAB, 4, 0):
            labels = [(name, label if name == self._current else f"{label[: 3 + letters].rstrip()} ") for name, label in full]
            if sum(len(label) for _, label in labels) <= self.size.width:
                break
        return labels

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - one line
        under, width = self.rich_style, self.size.width
        chosen = under + cursor(self.app, under.bgcolor, focused=True)
        inks, on_chosen = styles(self.app, under.bgcolor), styles(self.app, chosen.bgcolor)
        segments, used = [], 0
        for name, label in self._labels():
            style, ink = (chosen, on_chosen) if name == self._current else (under, inks)
            number, rest = label[:2], label[2:]
            segments += [Segment(number, style + ink["strong"]), Segment(rest, style + ink["plain"])]
            used += len(label)
        room = width - used - 1
        origin = tail(self._origin, room) if room > 8 else ""
        segments.append(Segment(" " * max(0, width - used - cells(origin) - 1) + origin + " ", under + inks["dim"]))
        return Strip(segments).adjust_cell_length(width, under)

    def on_click(self, event: events.Click) -> None:
        at = 0
        for name, label in self._labels():
            at += len(label)
            if event.x < at:
                self.post_message(self.Chosen(name))
                return


def counted(matching: int | None, everything: int | None, name: str) -> str:
    """``2 of 7 findings`` with a filter, ``1 finding`` without; no number where nobody knows it."""
    if everything is None:
        return f"{name}s"
    return f"{everything} {name}{'' if everything == 1 else 's'}" if matching is None else f"{matching} of {everything} {name}s"


class Card(Pane):
    """A sentence for a newcomer, above the footer."""

    DEFAULT_CSS = "Card { dock: bottom; margin-bottom: 1; }"


class View(Screen[None]):
    """One of the dashboard's screens."""

    NAME: ClassVar[str] = ""
    HELP_TEXT: ClassVar[str] = ""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-middle"), (160, "-wide")]
    concerns: ClassVar[tuple[type, ...]] = ()
    """The kinds of update that change what this screen shows."""
    watches_cpus: ClassVar[bool] = False
    """Whether it shows the load of each CPU, which is read only then."""

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__()
        self.now, self.actions = now, actions

    def compose(self) -> ComposeResult:
        yield Tabs(self.NAME, self.now.origin)
        yield from self.body()
        if getattr(self.app, "cards", ()):
            yield Card(self._card, classes="fixed")
        yield Hints()

    def _card(self, width: int, _: int) -> Lines:
        """The card of the tour, in a frame; nothing behind the last one."""
        cards, number = getattr(self.app, "cards", ()), getattr(self.app, "card", 0)
        if number >= len(cards):
            return []
        title = (Span(f"Card {number + 1} of {len(cards)}", "strong"),)
        keys = (Span("n", "key"), Span(" next  "), Span("N", "key"), Span(" back"))
        return box(title, paragraph(cards[number], width - 2), width, keys=keys)

    def body(self) -> Iterable[Widget]:
        """What the screen shows between its tabs and its footer."""
        raise NotImplementedError

    def source_updated(self, update: SourceUpdate) -> None:
        """Draw again when the update concerns this screen."""
        if isinstance(update, self.concerns):
            self.redraw()

    def redraw(self) -> None:
        """Draw everything again; panes send what changed."""
        for pane in self.query(Pane):
            pane.redraw()

    def on_screen_resume(self) -> None:
        self.actions.source.watch_cpus(on=self.watches_cpus)
        self.redraw()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show an unexpected error of a thread; it ends nothing else."""
        if event.state == WorkerState.ERROR:
            error = event.worker.error
            self.say(f"internal error: {type(error).__name__}: {error}", "error")

    def in_thread(
        self, ask: Callable[[], T], then: Callable[[T], object], at_last: Callable[[], object] = lambda: None, *, group: str = ""
    ) -> None:
        """Ask in a thread, go on here: to read rules, journals and the helper may take long. An error is shown.

        Of one `group`, a later question replaces an earlier one.
        """

        def run() -> None:
            try:
                answer = ask()
            except SysperfError as error:
                go_on(self, self.say, error_text(error), "error")
            except ImportError as error:
                go_on(self, self.say, f"{error}. sysperf was replaced while this ran: leave with q, and start it anew", "error")
            else:
                go_on(self, then, answer)
            finally:
                go_on(self, at_last)

        self.run_worker(run, thread=True, exit_on_error=False, exclusive=bool(group), group=group or "default")

    def not_now(self, action: str) -> str:  # noqa: ARG002 - for the screens that know
        """Why an action can do nothing right now, in a word or two; empty where it can. The footer says it."""
        return ""

    def say(self, text: str, severity: SeverityLevel = "information") -> None:
        """A short notice: never markup, never a code that a terminal acts on."""
        lines = "\n".join(neutral(row) for row in text.split("\n")[:4])
        self.notify(lines, severity=severity, timeout=6, markup=False)


def go_on(screen: Screen[Any], then: Callable[..., object], *arguments: object) -> None:  # any: whatever the screen gives back
    """Call this in the dashboard's own thread; not where the screen ends meanwhile, or the work of this thread was given up."""
    worker: Worker[None] = get_current_worker()

    def call() -> None:
        if screen.is_running and not worker.is_cancelled:
            then(*arguments)

    if not worker.is_cancelled:
        screen.app.call_from_thread(call)
