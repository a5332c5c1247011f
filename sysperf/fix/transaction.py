"""Doing a plan as a whole: every value is written down before it is changed, and read back afterwards.

When one step is refused, those before it are undone. `sysperf.fix.recovery` undoes later, also after kill -9 and after a restart.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sysperf.fix import latency, persist, targets
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import End, KeeperStarted, StepResult, StepStarted
from sysperf.fix.journal_log import JournalError, Log
from sysperf.fix.lease import boot_id, lease_of
from sysperf.fix.recovery import recover, write_result
from sysperf.fix.restore import FAILURES, Undoing, needs_keeper, reason_of, restore
from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.change import LIVE, Change, Keeper, Plan, Transaction

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _nobody_guards(_: int) -> None:
    """Guard nothing: no lease, or nobody beside its keeper."""


def _nobody_watches(_: Change) -> None:
    """Nobody watches."""


class Request(NamedTuple):
    """A request for changes: who asks, for how long, and who hears of each step."""

    by: str
    why: str
    taken_at: str
    lease_s: float | None = None
    persist: bool = False
    keep: Callable[[int], Keeper] | None = None
    """Starts the process that takes a transaction back when its lease ends, and that keeps what only a process can."""
    guard: Callable[[int], None] = _nobody_guards
    """Has somebody else end the lease, should that process be killed. May raise SysperfError, before anything is changed."""
    progress: Callable[[Change], None] = _nobody_watches


def apply(host: Host, journal: Journal, plan: Plan, request: Request) -> Transaction:
    """Do a plan as a whole. Raises JournalError, with nothing changed, when the journal cannot be written.

    A step that is refused (the transaction says why), an error or an interruption undoes all steps.
    """
    with journal.locked():
        recover(host, journal)
        lease = lease_of(request.lease_s) if request.lease_s is not None else None
        steps = len(_changes(plan, 0, request))
        with journal.begin(boot=boot_id(), by=request.by, why=request.why, taken_at=request.taken_at, lease=lease, steps=steps) as log:
            done = False
            try:
                request.guard(log.number)
                changes = _changes(plan, log.number, request)
                done = all(_do(host, log, index, change, request.progress) for index, change in enumerate(changes))
                if done and request.keep:
                    log.add(KeeperStarted(request.keep(log.number)))
                if done:
                    log.add(End("applied", steps))
            except BaseException:
                done = False
                raise
            finally:
                if not done:
                    _roll_back(host, log)
    return journal.read(log.number)


def _changes(plan: Plan, number: int, request: Request) -> list[Change]:
    """The steps of transaction `number`."""
    lasting = persist.files(filter(persist.lasting, plan.changes), number) if request.persist else ()
    return [*plan.changes, *lasting]


def _do(host: Host, log: Log, index: int, change: Change, progress: Callable[[Change], None]) -> bool:
    """One step; False when it is refused, and then what there was is there again."""
    progress(change)
    try:
        target = targets.of(host, change)
        reason = _differs(target, change, "since the plan was made")
    except FAILURES as error:
        reason = reason_of(error)
    if reason:
        log.add(StepStarted(index, change), StepResult(index, "refused", reason=reason))
        return False
    log.add(StepStarted(index, change))
    if reason := _differs(target, change, "while its old value was written to the journal"):
        log.add(StepResult(index, "refused", reason=reason))
        return False
    read, reason = _write(target, change.after)
    if reason:
        log.add(StepResult(index, "refused" if _put_back(target, change) else "intended", read, reason))
        return False
    log.add(StepResult(index, "applied", read))
    return True


def _differs(target: Target, change: Change, when: str) -> str:
    """Why the value that the plan and the journal have as the old one is not what would be lost; "" when it is."""
    try:
        now = target.read()
        return "" if target.same(now, change.before) else f"it has become {now} {when}"
    except FAILURES as error:
        return reason_of(error)


def _write(target: Target, value: str) -> tuple[str, str]:
    """Write and read back: (what is there now, why it did not take)."""
    try:
        target.write(value)
        read = target.read()
        took = target.took(read, value)
    except FAILURES as error:
        return "", reason_of(error)
    return read, "" if took else f"it reads {read} after {value} was written"


def _put_back(target: Target, change: Change) -> bool:
    """After a write that did not take: whether what was there is there again."""
    if needs_keeper(change):
        latency.release()
        return True
    with contextlib.suppress(*FAILURES):
        target.write(change.before)
    with contextlib.suppress(*FAILURES):
        return target.same(target.read(), change.before)
    return False


def _roll_back(host: Host, log: Log) -> None:
    """Undo all steps, also when the journal cannot be written any more: the values matter more."""
    with undisturbed():
        left = False
        steps = log.read().steps
        for index, step in reversed([*enumerate(steps)]):
            if step.state in LIVE:
                result = restore(host, step, Undoing())
                write_result(log, index, step, result)
                left |= (result.state or step.state) in LIVE
        if not left:  # what is left is tried again by whoever recovers next
            with contextlib.suppress(JournalError):
                log.add(End("rolled-back", len(steps)))


@contextlib.contextmanager
def undisturbed() -> Iterator[list[int]]:
    """Delay signals that would end this process until all is done; give those that came meanwhile."""
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # Python's handlers run in the main thread only
        yield waiting
        return
    # Blocking them would not do: a thread that does not block them (NVML's) would take them, and its handler would still run here.
    ending = [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in ending}
    try:
        yield waiting
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for waited in dict.fromkeys(waiting):
            signal.raise_signal(waited)
