"""The overview: what costs most, and the machine that it happens on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from sysperf.model.finding import Finding
from sysperf.tui.screens import diagnosis
from sysperf.tui.screens.view import View
from sysperf.tui.source import Changed, Facts, Load, Meters, Past, Problem
from sysperf.tui.widgets import findings, overview
from sysperf.tui.widgets.pane import Pane


class Board(Pane):
    """The whole overview. Its footer says what Enter does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "pick", "Open", tooltip="of a finding what was seen, why it matters, the fix; of a program all that is known")
    ]


class Overview(View):
    """Headline, identity, what costs most, GPUs, CPUs, other meters, programs, curves."""

    NAME = "overview"
    watches_cpus = True
    HELP_TEXT = (
        "What costs most comes first, a row a rule: what it costs, whether that was measured here, predicted here or seen elsewhere, "
        "who can cure it, and how. Below it is the machine: GPUs, CPUs and who uses them, programs, and the last minutes. "
        "Of a GPU's busy time ▓ is that with its units in use, █ with its tensor cores. Of a program's main thread █ runs, ▒ is ready "
        "and has no CPU, ░ waits for data at most."
    )
    concerns = (Facts, Meters, Past, Problem, Changed)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open"),
        Binding("d", "diagnose", "Diagnose", tooltip="what slows the selected program down: half a minute of looking, nothing is changed"),
        Binding("a", "apply", "Apply", tooltip="the change for the selected finding, shown first; nothing happens without a yes"),
        Binding("y", "copy", "Copy", tooltip="copy the command of the selected finding's fix (OSC 52)"),
        Binding("r", "app.look_again", "Audit again"),
    ]

    def body(self) -> Iterable[Widget]:
        yield Board(lambda width, height: overview.draw(self.now, width, height))

    def source_updated(self, update: object) -> None:
        """Loads of CPUs are drawn with the next sample: one drawing a second is enough."""
        if isinstance(update, self.concerns) or (isinstance(update, Load) and not self.now.meters):
            self.redraw()

    @property
    def _key(self) -> object:
        return self.query_one(Pane).key

    @property
    def _finding(self) -> Finding | None:
        return self.now.finding(self._key) if isinstance(self._key, str) else None

    def action_open(self) -> None:
        self.query_one(Pane).action_pick()

    def on_pane_picked(self, event: Pane.Picked) -> None:
        action = f"open_program({event.key})" if isinstance(event.key, int) else f"open_finding({str(event.key)!r})"
        self.app.call_later(self.app.run_action, action)

    def action_diagnose(self) -> None:
        """The selected program, that of the selected finding, or the only one that runs."""
        finding, programs = self._finding, self.now.processes()
        pid = self._key if isinstance(self._key, int) else finding.subject.pid if finding is not None else None
        pid = programs[0].pid if pid is None and len(programs) == 1 else pid
        if pid is None:
            self.say("Select a program: its row is below, and on screen 3." if programs else "No PyTorch program is running.")
        else:
            diagnosis.diagnose(self, pid)

    def action_copy(self) -> None:
        if (finding := self._finding) is not None:
            command = findings.command_of(finding)
            self.app.copy_to_clipboard(command)
            self.say(f"copied: {command}")

    def action_apply(self) -> None:
        """Ask on the screen of findings."""
        if (finding := self._finding) is not None:
            self.app.call_later(self.app.run_action, f"apply_finding({finding.key!r})")
