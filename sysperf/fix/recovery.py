"""Undoing transactions: as often as one likes, after kill -9, after a restart, and from a journal that is damaged or read-only.

A value that somebody else changed since stays, and is reported.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from sysperf.fix import lease_timer, targets
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import BeforeRewritten, End, LeaseSet, StepResult
from sysperf.fix.journal_log import JournalError, Log
from sysperf.fix.keepers import dismiss
from sysperf.fix.lease import boot_id, expired, lease_of
from sysperf.fix.restore import FAILURES, OWN, Undoing, UndoResult, failed, lasts, needs_keeper, ours, restore
from sysperf.host import Host
from sysperf.model.change import LIVE, Change, Step, Transaction, Undone


def undo(host: Host, journal: Journal, number: int, *, force: bool = False) -> list[Undone]:
    """Undo a transaction, the last step first; what is back already is left alone.

    A value that is neither what sysperf set nor what was there before belongs to somebody else and stays, unless `force`.
    What was interrupted is undone first, or it would be taken for somebody else's. Raises JournalError when the
    transaction cannot be read, or when its values are back and that cannot be written down.
    """
    with journal.locked():
        undone = []
        with contextlib.suppress(JournalError):  # another transaction's; it is tried again
            undone = recover(host, journal, but=number)
        return undone + _undo(host, journal, number, force=force)


def renew(journal: Journal, number: int, lease_s: float) -> Transaction:
    """Let the lease of a transaction end so many seconds from now. Raises JournalError when it is over or has none."""
    with journal.locked():
        transaction = journal.read(number)
        if not transaction.live or not transaction.lease or expired(transaction.lease):
            raise JournalError(f"transaction {number} has no lease that could be renewed", "apply it again")
        with journal.resume(number) as log:
            log.add(LeaseSet(lease_of(lease_s)))
    lease_timer.renew(journal, number, lease_s)
    return journal.read(number)


def recover(host: Host, journal: Journal, *, but: int = 0) -> list[Undone]:
    """Undo what was interrupted and what has a lease that ended. Under the journal's lock, so nobody is at work.

    Raises JournalError after the last one, when one could not be.
    """
    undone: list[Undone] = []
    problem: JournalError | None = None
    _finish(journal)
    for transaction in journal.transactions():
        if transaction.number != but and is_over(transaction):
            try:
                undone += _undo(host, journal, transaction.number, ended=True)
            except JournalError as error:
                problem = problem or error
    if problem:
        raise problem
    return undone


def is_over(transaction: Transaction) -> bool:
    """Whether it was interrupted (while nobody holds the lock), or has a lease that ended."""
    return transaction.state == "open" or (transaction.live and transaction.lease is not None and expired(transaction.lease))


def _undo(host: Host, journal: Journal, number: int, *, force: bool = False, ended: bool = False) -> list[Undone]:
    transaction = journal.read(number)
    if transaction.state == "damaged" and not transaction.steps:
        raise JournalError(f"transaction {number}: {transaction.problem}", f"its values before are in {journal.path(number)}")
    rebooted = transaction.boot not in (boot_id(), "")  # "": its first line is damaged
    undoing = Undoing(rebooted, force, None if rebooted else transaction.keeper, bool(transaction.damaged_lines))
    # a restart ends what was interrupted or leased, unless a file of ours has set it again
    over = ended and rebooted and not any(lasts(step.change) and step.state in LIVE for step in transaction.steps)
    later = later_steps(journal, number)
    undone: list[Undone] = []
    problem: JournalError | None = None
    with journal.resume(number) as log:
        for index, step in reversed([*enumerate(transaction.steps)]):
            if step.state not in OWN:
                continue
            if over and not lasts(step.change):
                result = UndoResult("gone", "the machine restarted since")
            elif above := later.get(key_of(step.change)):
                result = _hand_over(host, journal, At(number, index, step), above, undoing)
            else:
                result = restore(host, step, undoing)
            problem = write_result(log, index, step, result) or problem
            undone.append(Undone(number, Step(step.change, result.state or step.state, step.read, result.reason), result.reason))
        left = any(item.step.state in LIVE for item in undone)
        if transaction.state in ("open", "damaged") and not problem and not left:
            log.add(End("rolled-back", len(transaction.steps)))
    if not left:
        dismiss(undoing.keeper)
        lease_timer.stop(journal, number)
    if problem:
        raise JournalError(f"{problem} ({_back(undone)}; the journal does not say so yet)", problem.hint)
    return undone + _lost(journal, transaction)


def _back(undone: list[Undone]) -> str:
    """What of a transaction could be put back, for a journal that cannot tell."""
    left = [item for item in undone if item.step.state in OWN]
    if not left:
        return "all values are back"
    return "what could be put back is, but not " + ", ".join(
        f"{item.step.change.target} to {item.step.change.before}: {item.message}" for item in left
    )


def _lost(journal: Journal, transaction: Transaction) -> list[Undone]:
    """What a damaged journal does not tell any more."""
    steps = [step for step in transaction.steps if step.state == "lost"]
    doubtful = transaction.doubt == "steps" or (transaction.doubt == "before" and _may_go_further_back(journal, transaction))
    if not steps and doubtful:
        lines = ", ".join(map(str, transaction.damaged_lines[:20]))
        change = Change("unreadable", "", f"line {lines} of the journal", before="", after="")
        steps = [Step(change, "lost", reason="it is damaged, and its content is not known: compare the settings with what you expect")]
    return [Undone(transaction.number, step, step.reason) for step in steps]


def _may_go_further_back(journal: Journal, transaction: Transaction) -> bool:
    """Whether an earlier transaction about the same, undone or forgotten since, may have handed its values over to this one."""
    earlier = [number for number in journal.numbers() if number < transaction.number]
    if len(earlier) < transaction.number - 1:
        return True
    keys = {key_of(step.change) for step in transaction.steps}
    return any(key_of(step.change) in keys or step.state == "lost" for number in earlier for step in journal.read(number).steps)


def write_result(log: Log, index: int, step: Step, result: UndoResult) -> JournalError | None:
    """Write down what is new. Returns why it could not be: the other steps do not wait for room on a disk."""
    state = result.state or step.state
    if (state, result.reason) == (step.state, step.reason):
        return None
    try:
        log.add(StepResult(index, state, reason=result.reason))
    except JournalError as error:
        return error
    return None


# ---------------------------------------------------------------------- two transactions about the same

Key = tuple[str, str, str, int]


def key_of(change: Change) -> Key:
    """What a change is about; a process number alone may be another process by now."""
    return change.knob, change.item, change.target, change.start_time


def steps_in_force(transaction: Transaction) -> tuple[Step, ...]:
    """The steps that nobody has taken back. A restart has taken back all, unless a file of ours sets them at every start."""
    steps = tuple(step for step in transaction.steps if step.state in LIVE)
    restarted = transaction.boot not in (boot_id(), "")
    return () if restarted and not any(lasts(step.change) for step in steps) else steps


class At(NamedTuple):
    """A step, and where it is."""

    number: int
    place: int
    step: Step


def later_steps(journal: Journal, number: int) -> dict[Key, At]:
    """The first later step about each thing."""
    later: dict[Key, At] = {}
    for transaction in journal.transactions():
        if transaction.number > number:
            for index, step in enumerate(transaction.steps):
                if step.state in OWN and not lasts(step.change) and not needs_keeper(step.change):
                    later.setdefault(key_of(step.change), At(transaction.number, index, step))
    return later


def _hand_over(host: Host, journal: Journal, at: At, above: At, undoing: Undoing) -> UndoResult:
    """A later transaction set the same: what was there before us is now what it goes back to.

    Unless somebody else had set it between the two: then that is what it goes back to.
    """
    before, between = at.step.change.before, above.step.change.before
    try:
        target = targets.of(host, at.step.change)
        if target.same(between, before):
            return UndoResult("undone", "it was so already")
        if not undoing.force and not ours(target, between, at.step):
            return UndoResult("gone" if undoing.rebooted else "foreign", f"it was {between} when transaction {above.number} set it")
        with journal.resume(above.number) as log:
            log.add(BeforeRewritten(above.place, before, at.number, at.place))
    except FAILURES as error:
        return failed(error)
    except JournalError as error:
        return UndoResult(None, str(error))
    return UndoResult("undone", _handed_over(above, before))


def _handed_over(above: At, before: str) -> str:
    return f"transaction {above.number} has set it since and goes back to {before} when it is undone"


def _finish(journal: Journal) -> None:
    """Complete what was handed over when sysperf was killed before it wrote that down on both sides. Raises JournalError."""
    by_number = {transaction.number: transaction for transaction in journal.transactions()}
    for transaction in by_number.values():
        for index, step in enumerate(transaction.steps):
            for superseded in step.superseded:
                steps = by_number[superseded.number].steps if superseded.number in by_number else ()
                if superseded.step < len(steps) and steps[superseded.step].state in OWN:
                    with journal.resume(superseded.number) as log:
                        reason = _handed_over(At(transaction.number, index, step), step.change.before)
                        log.add(StepResult(superseded.step, "undone", reason=reason))
