"""What was measured on this machine, as bars with intervals."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from sysperf.model.trial import Trial
from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens.listing import Listing
from sysperf.tui.widgets import trials
from sysperf.tui.widgets.line import Lines
from sysperf.tui.widgets.pane import Pane
from sysperf.verify.trials import Trials


class Bench(Listing):
    """Results of measurements."""

    NAME = "bench"
    HELP_TEXT = (
        "Each bar is a change that was tried here against what was there before, in pairs of runs: ● the ratio of the two speeds, ━ the "
        "interval in which the true ratio lies, │ no change. same and slower are normal answers. `sysperf verify` measures."
    )
    DEFAULT_CSS = """
    Bench #body { layout: vertical; height: 1fr; }
    Bench #list { height: 1fr; }
    Bench #detail { height: 9; border-top: solid $frame; padding: 0 1; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "read", "Read again", show=False)]

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__(now, actions)
        self._trials: Trials | None = None

    def listed(self, width: int, _: int) -> Lines:
        return trials.draw(self._trials, width, here=self.actions.trials is not None)

    def detail(self, width: int, _: int) -> Lines:
        chosen = self._chosen()
        return trials.detail(chosen, width, stale=bool(chosen and self._trials and self._trials.is_stale(chosen)))

    def _chosen(self) -> Trial | None:
        key = self.query_one("#list", Pane).key
        results = self._trials.results if self._trials else ()
        return next((trial for trial in results if (trial.experiment, trial.rung, trial.at, trial.what) == key), None)

    def action_read(self) -> None:
        if self.actions.trials is not None:
            self.in_thread(self.actions.trials, self._have, group="trials")

    def _have(self, trials: Trials) -> None:
        self._trials = trials
        self.redraw()
        self.query_one("#detail").display = bool(trials.results)
