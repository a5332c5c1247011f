"""Changing things from the dashboard: what a plan would do, doing it, taking it back. Every call may block."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from sysperf import changing
from sysperf.changing import Changer
from sysperf.fix import journal
from sysperf.fix.transaction import Standing
from sysperf.model.change import Plan, Transaction, Undone
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.knob import KNOBS
from sysperf.model.outcome import Outcome
from sysperf.report import changes
from sysperf.tui.doors import Doors

_turn = threading.Lock()
"""Held while something is changed: the dashboard does not end in the middle of it."""


class Made(NamedTuple):
    """A transaction, where it is written down, and how it stands now."""

    folder: str
    transaction: Transaction
    standings: Sequence[Standing]
    left_s: float | None = None
    """Seconds that are left of its lease."""


class Proposal(NamedTuple):
    """What acting on a finding would do."""

    plan: Plan
    manual: str = ""
    """What a person has to do, where sysperf does not change anything."""

    def text(self, width: int) -> str:
        """As a diff, with the report's colours."""
        shown = changes.plan(self.plan, color=True, width=width).rstrip()
        return "\n".join(part for part in (shown, self.manual) if part) or "There is nothing to change."


def propose(doors: Doors, outcome: Outcome) -> Proposal:
    """The plan for one finding; its cautious fixes too, since the user names it. Raises SysperfError."""
    if doors.changer is None:
        raise UsageError(doors.refuses())
    wished = changing.wishes([outcome], [outcome.rule])
    if wished.manual:
        return Proposal(Plan(), f"Left to you: {wished.manual[0].reason}")
    changer = doors.changer()
    planned = changer.plan(wished.settings)
    held = next((one for one in planned.changes if KNOBS[one.knob].held), None)
    if held is not None and not changer.asks_helper(wished.settings):
        told = f"{held.knob} holds only while a process keeps it. Run it beside your job: sysperf apply {outcome.rule} --lease 8h"
        return Proposal(Plan(skipped=planned.skipped, conflicts=planned.conflicts), told)
    return Proposal(planned)


def apply(doors: Doors, outcome: Outcome, planned: Plan) -> Transaction:
    """Do it. Raises SysperfError."""
    if doors.changer is None or doors.refuses():
        raise UsageError(doors.refuses())
    with _turn:
        return doors.changer().apply(planned, changing.request(f"apply {outcome.rule} (dashboard)"))


def outcome_text(done: Transaction, width: int) -> str:
    """What became of it."""
    return changes.outcome(done, color=True, width=width)


def undo(doors: Doors, number: int, folder: str = "") -> list[Undone]:
    """Take a transaction back, of this user's own journal or the one in `folder`. Raises SysperfError."""
    changer = next((one for one in _changers(doors) if folder in ("", one.journal.folder)), None)
    if changer is None or doors.refuses():
        raise UsageError(doors.refuses())
    with _turn:
        return changer.undo(number)


def finished() -> None:
    """Wait until nothing is being changed."""
    with _turn:
        return


def made(doors: Doors) -> list[Made]:
    """What was changed on this machine, the newest first. Raises SysperfError."""
    found = [
        Made(changer.journal.folder, one, standings, _left(one))
        for changer in _changers(doors)
        for one, standings in changer.transactions()
    ]
    return sorted(found, key=lambda one: (one.transaction.taken_at, one.transaction.number), reverse=True)


def _changers(doors: Doors) -> list[Changer]:
    """This user's own journal first, then the machine's."""
    if doors.changer is None:
        return []
    own = doors.changer()
    return [
        own,
        *(Changer(own.host, folder) for folder in doors.journals if Changer(own.host, folder).journal.folder != own.journal.folder),
    ]


def _left(one: Transaction) -> float | None:
    if one.lease is None:
        return None
    return 0.0 if journal.expired(one.lease) else one.lease.until_s - journal.boot_s()


def made_by(doors: Doors, rule: str) -> int | None:
    """The latest transaction in force that this rule asked for."""
    if doors.changer is None or doors.refuses():
        raise UsageError(doors.refuses())
    made = [
        one.number for one in doors.changer().journal.transactions() if one.live and any(step.change.rule == rule for step in one.steps)
    ]
    return max(made, default=None)


def told(error: SysperfError) -> str:
    """An error with its hint, for a notice."""
    return f"{error}" + (f"\n{error.hint}" if error.hint else "")
