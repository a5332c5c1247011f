"""Changing things from the dashboard: what a plan would do, doing it, taking it back. Every call may block.

What changes a machine is imported by the first call: a dashboard that only shows is 0.5 MB smaller without it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sysperf.model.change import Change, Plan, Transaction, Undone
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.finding import Finding
from sysperf.model.knob import KNOBS
from sysperf.report import changes
from sysperf.tui.actions import Actions

if TYPE_CHECKING:
    from sysperf.engine.change import Changer
    from sysperf.fix.standing import Standing

_turn = threading.Lock()
"""Held while something is changed: the dashboard does not end in the middle of it."""


class PastChange(NamedTuple):
    """A transaction, where it is written down, and how it stands now."""

    folder: str
    transaction: Transaction
    standings: Sequence[Standing]
    left_s: float | None = None
    """Seconds that are left of its lease."""


HELD_S = 8 * 3_600.0
"""The lease of a setting that only a process can hold, when the user gives none."""


class Proposal(NamedTuple):
    """What acting on a finding would do."""

    plan: Plan
    manual: str = ""
    """What a person has to do, where sysperf does not change anything."""
    lease_s: float | None = None
    """It is taken back by itself after this time."""
    kept_knob: str = ""
    """The setting that holds only while a process keeps it."""

    def text(self, width: int) -> str:
        """Render as a diff, with the report's colours."""
        diff = changes.plan(self.plan, color=True, width=width).rstrip()
        return "\n".join(part for part in (diff, self._until(), self.manual) if part) or "There is nothing to change."

    def _until(self) -> str:
        if self.lease_s is None or not self.plan.changes:
            return ""
        keeper = [f"{self.kept_knob} holds only while a process keeps it: sysperf leaves one behind."] if self.kept_knob else []
        return "\n".join([*keeper, f"It is taken back by itself after {changes.duration(self.lease_s)}; u takes it back before."])


def propose(actions: Actions, outcome: Finding, lease: str = "") -> Proposal:
    """The plan for one finding, and for how long; its cautious fixes too, since the user names it. Raises SysperfError."""
    from sysperf.engine import change  # noqa: PLC0415 - as above

    lease_s = change.seconds(lease) if lease else None
    if actions.changer is None:
        raise UsageError(actions.refuses())
    requested = change.requested_settings([outcome], [outcome.rule])
    if requested.manual:
        return Proposal(Plan(), f"Left to you: {requested.manual[0].reason}")
    planned = actions.changer().plan(requested.settings)
    kept_knob = next((changed.knob for changed in planned.changes if KNOBS[changed.knob].needs_keeper), "")
    return Proposal(planned, "", HELD_S if kept_knob and lease_s is None else lease_s, kept_knob)


def apply(actions: Actions, outcome: Finding, planned: Plan, lease_s: float | None = None) -> Transaction:
    """Do it, for good or until a lease ends: the helper or a process that stays behind ends it. Raises SysperfError."""
    from sysperf.engine import change  # noqa: PLC0415 - as above

    if actions.changer is None or actions.refuses():
        raise UsageError(actions.refuses())
    with _turn:
        return actions.changer().apply(planned, change.request(f"apply {outcome.rule} (dashboard)", lease_s=lease_s))


def outcome_text(done: Transaction, width: int) -> str:
    """What became of it."""
    return changes.outcome(done, color=True, width=width)


def undo(actions: Actions, number: int, folder: str = "") -> list[Undone]:
    """Take a transaction back, of this user's own journal or the one in `folder`. Raises SysperfError."""
    changer = next((candidate for candidate in _changers(actions) if folder in ("", candidate.journal.folder)), None)
    if changer is None or actions.refuses():
        raise UsageError(actions.refuses())
    with _turn:
        return changer.undo(number)


def finished() -> None:
    """Wait until nothing is being changed."""
    with _turn:
        return


def past_changes(actions: Actions) -> list[PastChange]:
    """What was changed on this machine, the newest first. Raises SysperfError."""
    changes = [
        PastChange(changer.journal.folder, transaction, standings, _left(transaction))
        for changer in _changers(actions)
        for transaction, standings in changer.transactions()
    ]
    return sorted(changes, key=lambda change: (change.transaction.taken_at, change.transaction.number), reverse=True)


def _changers(actions: Actions) -> list[Changer]:
    """Return this user's own journal first, then the machine's."""
    if actions.changer is None:
        return []
    from sysperf.engine.change import Changer  # noqa: PLC0415 - as above

    own = actions.changer()
    others = [Changer(own.host, folder) for folder in actions.journals]
    return [own, *(other for other in others if other.journal.folder != own.journal.folder)]


def _left(transaction: Transaction) -> float | None:
    from sysperf.fix import lease  # noqa: PLC0415 - as above

    return None if transaction.lease is None else lease.left_s(transaction.lease)


def in_force(actions: Actions, outcome: Finding) -> tuple[str, Transaction] | None:
    """(journal, transaction) that was made last for this finding and still holds: by this user, or by the helper."""
    if actions.changer is None or actions.refuses():
        raise UsageError(actions.refuses())
    candidates = [
        (transaction.taken_at, transaction.number, changer.journal.folder, transaction)
        for changer in _changers(actions)
        for transaction in changer.journal.transactions()
        if transaction.live and any(_is_for(step.change, outcome) for step in transaction.steps)
    ]
    if not candidates:
        return None
    _, _, folder, transaction = max(candidates, key=lambda candidate: candidate[:3])
    return folder, transaction


def _is_for(change: Change, outcome: Finding) -> bool:
    """Whether a change was made for this finding about this very subject: other programs have findings of the same rule."""
    settings = (fix.setting for fix in outcome.fixes if fix.setting is not None)
    return change.rule == outcome.rule and any(
        (change.knob, change.item) == (setting.knob, setting.item) and setting.start_time in (0, change.start_time) for setting in settings
    )


def error_text(error: SysperfError) -> str:
    """An error with its hint, for a notice."""
    return f"{error}" + (f"\n{error.hint}" if error.hint else "")
