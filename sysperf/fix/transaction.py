"""Doing a plan, and taking it back: every value is written down before it is changed and read back afterwards.

A transaction is done as a whole: when one step is refused, those before it are taken back. Taking back works after
kill -9, after a restart of the machine, and as often as one likes; a value that somebody else changed since stays.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sysperf.fix import conflicts, latency, persist, process, targets
from sysperf.fix.journal import (
    BeforeRewritten,
    End,
    Journal,
    JournalError,
    KeeperStarted,
    LeaseSet,
    Log,
    StepResult,
    StepStarted,
    boot_id,
    expired,
    lease_of,
)
from sysperf.fix.targets import Target
from sysperf.host import Host
from sysperf.model.change import LIVE, Change, Keeper, Plan, Setting, Skipped, Step, StepState, Transaction, Undone
from sysperf.model.cpuset import CpuSet
from sysperf.model.knob import KNOBS

_ABSENT = (errno.ENOENT, errno.ESRCH, errno.ENODEV)
_FAILURES = (OSError, ValueError, OverflowError)
"""What reading and writing may raise; a journal that somebody edited can hold values that are none."""
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _silent(_: Change) -> None:
    """Nobody watches."""


class Request(NamedTuple):
    """Who asks for changes, for how long, and who hears of each step."""

    by: str
    why: str
    taken_at: str
    lease_s: float | None = None
    persist: bool = False
    keep: Callable[[int], Keeper] | None = None
    """Starts the process that takes a transaction back when its lease ends, and that keeps what only a process can."""
    progress: Callable[[Change], None] = _silent


# ---------------------------------------------------------------------- doing


def apply(host: Host, journal: Journal, plan: Plan, request: Request) -> Transaction:
    """Do a plan as a whole. Raises JournalError, with nothing changed, when the journal can not be written.

    A step that is refused (the transaction says why), an error or an interruption takes all steps back.
    """
    with journal.locked():
        recover(host, journal)
        lease = lease_of(request.lease_s) if request.lease_s is not None else None
        with journal.begin(boot=boot_id(), by=request.by, why=request.why, taken_at=request.taken_at, lease=lease) as log:
            done = False
            try:
                done = all(_do(host, log, index, change, request.progress) for index, change in enumerate(_changes(plan, log, request)))
                if done and request.keep:
                    log.add(KeeperStarted(request.keep(log.number)))
                if done:
                    log.add(End("applied"))
            except BaseException:
                done = False
                raise
            finally:
                if not done:
                    _roll_back(host, log)
    return journal.read(log.number)


def _changes(plan: Plan, log: Log, request: Request) -> list[Change]:
    lasting = persist.files(filter(persist.lasting, plan.changes), log.number) if request.persist else ()
    return [*plan.changes, *lasting]


def _do(host: Host, log: Log, index: int, change: Change, progress: Callable[[Change], None]) -> bool:
    """One step; False when it is refused, and then what there was is there again."""
    progress(change)
    try:
        target = targets.of(host, change)
        now = target.read()
        reason = "" if target.same(now, change.before) else f"it has become {now} since the plan was made"
    except _FAILURES as error:
        reason = _said(error)
    if reason:
        log.add(StepStarted(index, change), StepResult(index, "refused", reason=reason))
        return False
    log.add(StepStarted(index, change))
    read, reason = _write(target, change.after)
    if reason:
        log.add(StepResult(index, "refused" if _put_back(target, change) else "intended", read, reason))
        return False
    log.add(StepResult(index, "applied", read))
    return True


def _write(target: Target, value: str) -> tuple[str, str]:
    """Write and read back: (what is there now, why it did not take)."""
    try:
        target.write(value)
        read = target.read()
        took = not target.exact or target.same(read, value)
    except _FAILURES as error:
        return "", _said(error)
    return read, "" if took else f"it reads {read} after {value} was written"


def _put_back(target: Target, change: Change) -> bool:
    """After a write that did not take: whether what was there is there again."""
    if _held(change):
        latency.release()
        return True
    with contextlib.suppress(*_FAILURES):
        target.write(change.before)
    with contextlib.suppress(*_FAILURES):
        return target.same(target.read(), change.before)
    return False


def _roll_back(host: Host, log: Log) -> None:
    """Take all steps back, also when the journal can not be written any more: the values matter more."""
    with _undisturbed():
        for index, step in reversed([*enumerate(log.read().steps)]):
            if step.state in LIVE:
                _tell(log, index, step, _restore(host, step, rebooted=False, force=False))
        with contextlib.suppress(JournalError):
            log.add(End("rolled-back"))


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that would end this process wait: half of the way back is the worst place to stop at."""
    if threading.current_thread() is not threading.main_thread():  # Python's handlers run in the main thread only
        yield
        return
    waiting: list[int] = []
    # Blocking them would not do: a thread that does not block them (NVML's) would take them, and its handler would still run here.
    before = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for waited in dict.fromkeys(waiting):
            signal.raise_signal(waited)


def _said(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _held(change: Change) -> bool:
    knob = KNOBS.get(change.knob)
    return knob is not None and knob.held


# ---------------------------------------------------------------------- taking back


def undo(host: Host, journal: Journal, number: int, *, force: bool = False) -> list[Undone]:
    """Take a transaction back, the last step first; what is back already is left alone.

    A value that is neither what sysperf set nor what was there before belongs to somebody else and is kept, unless `force`.
    What was interrupted is taken back first, or it would be taken for somebody else's. Raises JournalError when the
    transaction can not be read, or when its values are back and that can not be written down.
    """
    with journal.locked():
        done = []
        with contextlib.suppress(JournalError):  # another transaction's; it is tried again
            done = recover(host, journal, but=number)
        return done + _undo(host, journal, number, force=force)


def renew(journal: Journal, number: int, lease_s: float) -> Transaction:
    """Let the lease of a transaction end so many seconds from now. Raises JournalError when it is over or has none."""
    with journal.locked():
        one = journal.read(number)
        if not one.live or not one.lease or expired(one.lease):
            raise JournalError(f"transaction {number} has no lease that could be renewed", "apply it again")
        with journal.resume(number) as log:
            log.add(LeaseSet(lease_of(lease_s)))
    return journal.read(number)


def recover(host: Host, journal: Journal, *, but: int = 0) -> list[Undone]:
    """Take back what was interrupted and what has a lease that ended. Under the journal's lock, so nobody is at work.

    Raises JournalError after the last one, when one could not be.
    """
    undone: list[Undone] = []
    problem: JournalError | None = None
    _finish(journal)
    for one in journal.transactions():
        if one.number != but and is_over(one):
            try:
                undone += _undo(host, journal, one.number, ended=True)
            except JournalError as error:
                problem = problem or error
    if problem:
        raise problem
    return undone


def is_over(one: Transaction) -> bool:
    """Whether it was interrupted (while nobody holds the lock), or has a lease that ended."""
    return one.state == "open" or (one.live and one.lease is not None and expired(one.lease))


def _undo(host: Host, journal: Journal, number: int, *, force: bool = False, ended: bool = False) -> list[Undone]:
    one = journal.read(number)
    if one.state == "damaged":
        raise JournalError(f"transaction {number}: {one.problem}", f"its values before are in {journal.path(number)}")
    rebooted = one.boot != boot_id()
    keeper = None if rebooted else one.keeper
    # a restart ends what was interrupted or leased, unless a file of ours has set it again
    over = ended and rebooted and not any(_lasts(step.change) and step.state in LIVE for step in one.steps)
    later = _later(journal, number)
    done: list[Undone] = []
    problem: JournalError | None = None
    with journal.resume(number) as log:
        for index, step in reversed([*enumerate(one.steps)]):
            if step.state not in _OWN:
                continue
            if over and not _lasts(step.change):
                result: UndoResult = ("gone", "the machine restarted since")
            elif above := later.get(_key(step.change)):
                result = _hand_over(host, journal, _At(number, index, step), above, rebooted=rebooted, force=force)
            else:
                result = _restore(host, step, rebooted=rebooted, force=force, keeper=keeper)
            problem = _tell(log, index, step, result) or problem
            done.append(Undone(number, Step(step.change, result[0] or step.state, step.read, result[1]), result[1]))
        if one.state == "open" and not problem:
            log.add(End("rolled-back"))
    if not any(undone.step.state in LIVE for undone in done):
        _dismiss(keeper)
    if problem:
        raise JournalError(f"{problem} (what could be put back is; the journal does not say so yet)", problem.hint)
    return done


_OWN = (*LIVE, "kept")
UndoResult = tuple[StepState | None, str]
"""What became of a step that was to be taken back; None: it is as it was, because of the reason."""


def _tell(log: Log, index: int, step: Step, result: UndoResult) -> JournalError | None:
    """Write down what is new. Returns why it could not be: the other steps do not wait for room on a disk."""
    state = result[0] or step.state
    if (state, result[1]) == (step.state, step.reason):
        return None
    try:
        log.add(StepResult(index, state, reason=result[1]))
    except JournalError as error:
        return error
    return None


def _lasts(change: Change) -> bool:
    return change.knob.startswith("persist.")


Key = tuple[str, str, str, int]


def _key(change: Change) -> Key:
    """What a change is about; a process number alone may be another process by now."""
    return change.knob, change.item, change.target, change.born


class _At(NamedTuple):
    """A step, and where it is."""

    number: int
    place: int
    step: Step


def _later(journal: Journal, number: int) -> dict[Key, _At]:
    """The first later step about each thing."""
    found: dict[Key, _At] = {}
    for one in journal.transactions():
        if one.number > number:
            for index, step in enumerate(one.steps):
                if step.state in _OWN and not _lasts(step.change) and not _held(step.change):
                    found.setdefault(_key(step.change), _At(one.number, index, step))
    return found


def _hand_over(host: Host, journal: Journal, at: _At, above: _At, *, rebooted: bool, force: bool) -> UndoResult:
    """A later transaction set the same: what was there before us is now what it goes back to.

    Unless somebody else had set it between the two: then that is what it goes back to.
    """
    before, found = at.step.change.before, above.step.change.before
    try:
        target = targets.of(host, at.step.change)
        if target.same(found, before):
            return "undone", "it was so already"
        if not force and not _ours(target, found, at.step):
            return "gone" if rebooted else "kept", f"it was {found} when transaction {above.number} set it"
        with journal.resume(above.number) as log:
            log.add(BeforeRewritten(above.place, before, at.number, at.place))
    except _FAILURES as error:
        return _failed(error)
    except JournalError as error:
        return None, str(error)
    return "undone", _handed_over(above, before)


def _handed_over(above: _At, before: str) -> str:
    return f"transaction {above.number} has set it since and goes back to {before} when it is undone"


def _finish(journal: Journal) -> None:
    """Complete what was handed over when sysperf was killed before it wrote that down on both sides. Raises JournalError."""
    found = {one.number: one for one in journal.transactions()}
    for one in found.values():
        for place, step in enumerate(one.steps):
            for taken in step.took_over:
                steps = found[taken.number].steps if taken.number in found else ()
                if taken.step < len(steps) and steps[taken.step].state in _OWN:
                    with journal.resume(taken.number) as log:
                        log.add(StepResult(taken.step, "undone", reason=_handed_over(_At(one.number, place, step), step.change.before)))


def _failed(error: Exception) -> UndoResult:
    return "gone" if isinstance(error, OSError) and error.errno in _ABSENT else None, _said(error)


def _restore(host: Host, step: Step, *, rebooted: bool, force: bool, keeper: Keeper | None = None) -> UndoResult:
    """Put back what was there before a step."""
    change = step.change
    if change.born and rebooted:
        return "gone", "the machine restarted since"
    if _held(change):
        return _released(keeper)
    try:
        target = targets.of(host, change)
        now = target.read()
        if target.same(now, change.before):
            return "undone", "it was so already" if step.state == "kept" else ""
        if (result := _not_ours(host, target, now, step, rebooted)) and not force:
            return result
        target.write(change.before)
        read = target.read()
        back = not target.exact or target.same(read, change.before)
    except _FAILURES as error:
        return _failed(error)
    return ("undone", "") if back else (None, f"it reads {read} after {change.before} was written")


def _not_ours(host: Host, target: Target, now: str, step: Step, rebooted: bool) -> UndoResult | None:
    """Why a value must stay; None when it is what sysperf set."""
    change = step.change
    if not target.exact:
        if len(CpuSet.parse(change.before)) == 1:
            return None
        return "gone", f"memory came from nodes {change.before}; which page was where is not known any more"
    if _ours(target, now, step):
        return None
    if rebooted:
        return "gone", f"the machine restarted since, and it is {now} now"
    return "kept", _foreign(host, change, now)


def _foreign(host: Host, change: Change, now: str) -> str:
    """That somebody has changed it, and who that may be."""
    if _lasts(change):
        return "somebody has edited it since"
    who = conflicts.setters(host, change.knob)
    return f"somebody has set it to {now} since{' (' + ', '.join(who) + '?)' if who else ''}"


def _holds(target: Target, now: str, step: Step) -> bool:
    """Whether a value is one that sysperf set."""
    known = (step.change.after, *filter(None, [step.read]), *(taken.after for taken in step.took_over))
    return any(target.same(now, one) for one in known)


def _ours(target: Target, now: str, step: Step) -> bool:
    """Whether a value is what sysperf set, or what the kernel or a kill made of it."""
    change = step.change
    if _holds(target, now, step):
        return True
    if isinstance(target, process.Threads):  # killed between two threads
        return target.between(now, change.before, change.after)
    knob = KNOBS.get(change.knob)
    if knob and knob.partial and (step.state == "intended" or step.reason):  # nobody read back what came of it
        low, high = sorted((int(change.before), int(change.after)))
        return low <= int(now) <= high
    return False


def _released(keeper: Keeper | None) -> UndoResult:
    """What only a process holds ends with that process."""
    latency.release()
    if keeper and keeper.is_helper and keeper.pid != os.getpid() and alive(keeper):
        return None, "sysperf's helper holds it: `sysperf undo` asks it when it runs as a member of group sysperf"
    _dismiss(keeper)
    return "undone", ""


# ---------------------------------------------------------------------- the process that keeps a lease


def alive(keeper: Keeper) -> bool:
    """Whether that very process still runs."""
    try:
        return process.born(Host(), keeper.pid) == keeper.born
    except (OSError, ValueError, IndexError):
        return False


def _dismiss(keeper: Keeper | None) -> None:
    """A keeper whose transaction is over has nothing left to do, and what it holds goes with it."""
    if keeper and not keeper.is_helper and keeper.pid != os.getpid() and alive(keeper):
        with contextlib.suppress(OSError):
            os.kill(keeper.pid, signal.SIGKILL)


# ---------------------------------------------------------------------- does it still hold?


class Standing(NamedTuple):
    """How a step stands now."""

    step: Step
    now: str
    verdict: str
    """holds | replaced | changed | gone | unknown | over"""


def standings(host: Host, journal: Journal, one: Transaction) -> list[Standing]:
    """How each step of a transaction stands."""
    later = _later(journal, one.number) if one.live else {}
    if one.state == "open":
        return [Standing(step, "it was interrupted, or is at work right now", "unknown") for step in one.steps]
    return [_standing(host, step, later.get(_key(step.change))) for step in one.steps]


def _standing(host: Host, step: Step, above: _At | None) -> Standing:
    """Whether a change is still in force, by reading what is there."""
    if step.state not in LIVE:
        return Standing(step, "", "over")
    try:
        target = targets.of(host, step.change)
        now = target.read()
        holds = not target.exact or _holds(target, now, step)
    except _FAILURES as error:
        result, reason = _failed(error)
        return Standing(step, reason, result or "unknown")
    if above and not holds:
        return Standing(step, f"transaction {above.number}", "replaced")
    return Standing(step, now, "holds" if holds else "changed")


def release_ownership(host: Host, journal: Journal, number: int, index: int) -> str:
    """Give up a change that somebody else has overwritten: it is theirs now. Returns who may have; "" when it still holds."""
    with journal.locked():
        now = standings(host, journal, journal.read(number))[index]
        if now.verdict != "changed":
            return ""
        reason = _foreign(host, now.step.change, now.now)
        with journal.resume(number) as log:
            log.add(StepResult(index, "kept", reason=reason))
    return reason


def without_foreign(journal: Journal, planned: Plan) -> Plan:
    """A plan without what somebody else has set after sysperf had: nobody fights over a setting by himself."""
    latest = {step.change.target: step for one in journal.transactions() for step in one.steps}
    taken = {change.target for change in planned.changes if change.target in latest and latest[change.target].state == "kept"}
    left = tuple(
        Skipped(Setting(one.knob, one.after, one.item, one.rule), latest[one.target].reason)
        for one in planned.changes
        if one.target in taken
    )
    kept = tuple(one for one in planned.changes if one.target not in taken)
    return Plan(kept, (*planned.skipped, *left), planned.conflicts)
