"""What sysperf changed here: state, lease, whether it still holds, and undo."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from sysperf.model.change import Undone
from sysperf.report import changes
from sysperf.tui import acting
from sysperf.tui.acting import PastChange
from sysperf.tui.actions import Actions
from sysperf.tui.now import Now
from sysperf.tui.screens.dialogs import Question, Reading
from sysperf.tui.screens.listing import Listing
from sysperf.tui.source import Changed, SourceUpdate
from sysperf.tui.widgets import ansi, transactions
from sysperf.tui.widgets.line import Lines, line, paragraph, span
from sysperf.tui.widgets.pane import Pane

UNKNOWN = "What was changed on this machine is not in its capture."


class Changes(Listing):
    """The journal."""

    NAME = "changes"
    HELP_TEXT = (
        "Each call that changed something is a transaction: all of it was done, or nothing. "
        "Undo puts every old value back, but not one that somebody else has set since."
    )
    concerns = (Changed,)
    DEFAULT_CSS = """
    Changes #body { layout: vertical; height: 1fr; }
    Changes #list { height: 40%; }
    Changes #detail { height: 1fr; border-top: solid $frame; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "undo", "Undo", tooltip="take the selected transaction back, after a question"),
        Binding("r", "read", "Read again", show=False),
    ]

    def __init__(self, now: Now, actions: Actions) -> None:
        super().__init__(now, actions)
        self._changes: list[PastChange] | None = None

    def listed(self, width: int, _: int) -> Lines:
        if self.actions.changer is None:
            return (
                transactions.elsewhere(self.now.changes, width) if self.actions.source.remembers else paragraph(UNKNOWN, width, "unknown")
            )
        return (
            [line(span("reading …", "dim"))]
            if self._changes is None
            else transactions.draw(self._changes, width, {cure.number: cure.summary() for cure in self.now.cures})
        )

    def detail(self, width: int, _: int) -> Lines:
        return transactions.detail(self._chosen(), width)

    def _chosen(self) -> PastChange | None:
        key = self.query_one("#list", Pane).key
        return next((change for change in self._changes or () if (change.folder, change.transaction.number) == key), None)

    def source_updated(self, update: SourceUpdate) -> None:
        if isinstance(update, Changed):
            self.action_read()
            self.redraw()

    def action_read(self) -> None:
        if self.actions.changer is not None:
            self.in_thread(lambda: acting.past_changes(self.actions), self._have, group="journal")

    def _have(self, changes: list[PastChange]) -> None:
        self._changes = changes
        self.redraw()

    def action_undo(self) -> None:
        change = self._chosen()
        if self.actions.refuses():
            self.say(self.actions.refuses(), "warning")
            return
        if change is None:
            return
        if not change.transaction.live:
            self.say(f"Transaction {change.transaction.number} is not in force: there is nothing to take back.")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.in_thread(
                    lambda: acting.undo(self.actions, change.transaction.number, change.folder), lambda taken: self._undone(change, taken)
                )

        title = f"Undo transaction {change.transaction.number}?"
        self.app.push_screen(Question(title, lambda width, _: transactions.detail(change, width)), answered)

    def _undone(self, change: PastChange, taken: list[Undone]) -> None:
        self.now.fixed = {name: number for name, number in self.now.fixed.items() if number != change.transaction.number}
        self.actions.source.look_again()
        self.action_read()
        reading = Reading(
            f"Transaction {change.transaction.number}",
            lambda width, _: ansi.folded_lines(changes.undone(taken, color=True, width=width), width),
        )
        self.app.push_screen(reading)
