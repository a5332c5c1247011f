"""Looking into a program from the dashboard: its stacks in a window, a trace into a file. Both in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import Worker, get_current_worker

from sysperf.model.errors import SysperfError
from sysperf.model.profile import Stacks, Trace
from sysperf.model.text import neutral
from sysperf.report.profiling import profile
from sysperf.tui import acting
from sysperf.tui.actions import Profilers
from sysperf.tui.screens.dialogs import Question, Reading, note
from sysperf.tui.screens.view import View
from sysperf.tui.widgets import ansi
from sysperf.tui.widgets.ink import styles
from sysperf.tui.widgets.line import Span, fitted, line, span

if TYPE_CHECKING:
    from sysperf.plugin import ReportProgress
    from sysperf.trace.output.analysis import Analysis


ELSEWHERE = "This is another machine: run sysperf {command} there, with the number that the program has on it."
READ_ONLY = "This dashboard is read-only: run sysperf {command} {pid} in a terminal."
ASKED = (
    "The program writes 5 optimizer steps to a file in {folder}. It asks for work every 5 s and warms its profiler up, so this takes "
    "some 10 s; meanwhile it is slower. It goes on as before then. If it ends meanwhile, it waits for the trace if wrap started it."
)


class Progress(Widget):
    """A line above the footer while a trace is taken. The thread writes `told`; the line looks twice a second."""

    DEFAULT_CSS = "Progress { dock: bottom; height: 1; margin-bottom: 1; background: $panel; }"

    def __init__(self, doing: str) -> None:
        super().__init__()
        self.doing = doing

    def on_mount(self) -> None:
        self.set_interval(0.5, self.refresh)

    def render_line(self, y: int) -> Strip:  # noqa: ARG002 - one line
        inks, under, width = styles(self.app, self.rich_style.bgcolor), self.rich_style, self.size.width
        spans = fitted(line(Span(" Trace: ", "strong"), span(self.doing)), width).spans
        segments = [Segment(part.text, under + inks[part.style] if part.style else under) for part in spans]
        return Strip(segments).adjust_cell_length(width, under)


class Left(SysperfError):
    """The dashboard ends while a trace is taken."""


def take_stacks(view: View, pid: int) -> None:
    """Show where the threads of a program are, or say why not."""
    profilers = _allowed(view, pid, "stacks")
    if profilers is None:
        return

    def show(stacks: Stacks) -> None:
        title = f"Stacks of process {pid}"
        plain = profile.stacks(stacks)
        view.app.push_screen(
            Reading(title, lambda width, _: ansi.folded_lines(profile.stacks(stacks, color=True, width=width, cut=True), width), plain)
        )

    view.in_thread(lambda: profilers.stacks(pid), show)


def take_trace(view: View, pid: int) -> None:
    """Ask, then have the program write a trace; or say why not."""
    profilers = _allowed(view, pid, "trace")
    if profilers is None:
        return
    if view.query(Progress):
        view.say("A trace is being taken already.", "warning")
        return

    def ask(folder: str) -> None:
        view.app.push_screen(
            Question(f"Take a trace of process {pid}?", lambda width, _: note(ASKED.format(folder=neutral(folder)), width)),
            lambda yes: _trace(view, profilers, pid) if yes else None,
        )

    view.in_thread(lambda: profilers.traceable(pid), ask)


def _trace(view: View, profilers: Profilers, pid: int) -> None:
    progress = Progress(f"of process {pid}")
    view.mount(progress)

    def take() -> _Taken:
        worker: Worker[None] = get_current_worker()

        def tell(text: str) -> None:
            if worker.is_cancelled:
                raise Left("the dashboard ends")
            progress.doing = text

        written = profilers.trace(pid, tell)
        return _analyzed(profilers, written, tell)

    def show(taken: _Taken) -> None:
        view.app.push_screen(
            Reading(
                f"Trace of process {pid}",
                lambda width, _: ansi.folded_lines(_report(taken, profilers.iterations, width, color=True), width),
                taken.trace.path,
            )
        )

    view.in_thread(take, show, progress.remove)


class _Taken(NamedTuple):
    """A trace that was written, and what its time was lost to, or why that is not known."""

    trace: Trace
    analysis: Analysis | None = None
    why: str = ""


def _analyzed(profilers: Profilers, trace: Trace, tell: ReportProgress) -> _Taken:
    """Read the trace. It stays the user's, and is shown, also where it cannot be read."""
    if profilers.analysis is None or not trace.events:
        return _Taken(trace)
    try:
        return _Taken(trace, profilers.analysis(trace.path, tell))
    except Left:
        raise
    except SysperfError as error:
        return _Taken(trace, why=acting.error_text(error))


def _report(taken: _Taken, iterations: int, width: int, *, color: bool) -> str:
    """The analysis, and below it the facts about the file."""
    written = profile.trace(taken.trace, iterations=iterations, color=color, width=width)
    if taken.analysis is None:
        return f"{written}\nIt was not analyzed: {taken.why}\n" if taken.why else written
    from sysperf.report.profiling import analysis  # noqa: PLC0415 - no dashboard needs it before a trace is taken

    return analysis.render(taken.analysis, color=color, width=width) + "\n" + written


def _allowed(view: View, pid: int, command: str) -> Profilers | None:
    """The profilers, or None when the reason why not was shown."""
    actions = view.actions
    if actions.refusal:
        view.say(READ_ONLY.format(command=command, pid=pid), "warning")
        return None
    if actions.profilers is None:
        view.say(ELSEWHERE.format(command=command), "warning")
    return actions.profilers
