"""A diagnosis in the dashboard: a window that fills in as signals arrive. The work is done in a thread, which ends with the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.worker import Worker, get_current_worker

from sysperf.model.errors import SysperfError
from sysperf.report import diagnosis
from sysperf.tui import acting
from sysperf.tui.screens.dialogs import Reading
from sysperf.tui.screens.view import View, go_on
from sysperf.tui.widgets import ansi
from sysperf.tui.widgets.line import Lines
from sysperf.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from sysperf.diagnosis.verdict import Verdict
    from sysperf.tui.actions import Diagnose

ELSEWHERE = "This is another machine: run sysperf diagnose there, with the number that the program has on it."
READ_ONLY = "This dashboard is read-only: run sysperf diagnose {pid} in a terminal."


class Closed(SysperfError):
    """The window was closed while the program was looked at."""


class Diagnosing(Reading):
    """What is known so far, and what is being looked at."""

    def __init__(self, pid: int, diagnose: Diagnose) -> None:
        super().__init__(f"Diagnosis of process {pid}", self._lines)
        self._pid, self._diagnose = pid, diagnose
        self._looking, self._found = "the kernel's accounting", ""
        self._verdict: Verdict | None = None

    def on_mount(self) -> None:
        self.run_worker(self._work, thread=True, exit_on_error=False)

    def _work(self) -> None:
        worker: Worker[None] = get_current_worker()

        def tell(looking: str, verdict: Verdict | None) -> None:
            if worker.is_cancelled:
                raise Closed("the window was closed")
            go_on(self, self._show, looking, verdict)

        try:
            verdict = self._diagnose(self._pid, tell)
        except SysperfError as error:
            go_on(self, self._fail, acting.error_text(error))
        except OSError as error:  # no room for temporary files, no thread to be had
            go_on(self, self._fail, f"{error}")
        else:
            go_on(self, self._show, "", verdict)

    def _show(self, looking: str, verdict: Verdict | None) -> None:
        self._looking, self._verdict = looking, verdict or self._verdict
        if self._verdict is not None:
            self._copy = diagnosis.text(self._verdict)
        self.query_one(Pane).redraw()

    def _fail(self, problem: str) -> None:
        self._looking, self._found = "", problem
        self.query_one(Pane).redraw()

    def _lines(self, width: int, _: int) -> Lines:
        text = self._found or (diagnosis.text(self._verdict, color=True, width=width) if self._verdict is not None else "")
        return ansi.folded_lines(f"{text}\n\nlooking at {self._looking} …" if self._looking else text, width)


def diagnose(view: View, pid: int) -> None:
    """Open the window, or say why it cannot be."""
    if view.actions.refusal:
        view.say(READ_ONLY.format(pid=pid), "warning")
    elif view.actions.diagnose is None:
        view.say(ELSEWHERE, "warning")
    else:
        view.app.push_screen(Diagnosing(pid, view.actions.diagnose))
