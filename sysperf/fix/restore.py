"""Putting back what was there before one step, unless it belongs to somebody else by now."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from sysperf.fix import conflicts, latency, process, targets
from sysperf.fix.keepers import alive, dismiss
from sysperf.fix.target import Target
from sysperf.host import Host
from sysperf.model.change import LIVE, Change, Keeper, Step, StepState
from sysperf.model.cpuset import CpuSet
from sysperf.model.knob import KNOBS, of_mark

FAILURES = (OSError, ValueError, OverflowError)
"""What reading and writing may raise; a journal that somebody edited can hold values that are none."""
OWN = (*LIVE, "foreign")
"""The states of steps that undoing is about."""
_ABSENT = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


class UndoResult(NamedTuple):
    """What became of a step that was to be undone."""

    state: StepState | None
    """None: it is as it was, because of the reason."""
    reason: str = ""


class Undoing(NamedTuple):
    """The circumstances in which steps are undone."""

    rebooted: bool = False
    force: bool = False
    keeper: Keeper | None = None
    keeper_unknown: bool = False
    """The journal is damaged: which process keeps what only a process can is not known."""


def restore(host: Host, step: Step, undoing: Undoing) -> UndoResult:
    """Put back what was there before a step."""
    change = step.change
    if change.start_time and undoing.rebooted:
        return UndoResult("gone", "the machine restarted since")
    if needs_keeper(change):
        return _released(undoing)
    try:
        target = targets.of(host, change)
        now = target.read()
        if target.same(now, change.before):
            return UndoResult("undone", "it was so already" if step.state == "foreign" else "")
        theirs = _not_ours(host, target, now, step, undoing.rebooted and not lasts(change))
        if theirs and (not undoing.force or of_mark(change.knob)):  # nobody's words about a node are replaced, whoever insists
            return theirs
        target.write(change.before)
        read = target.read()
        back = not target.exact or target.same(read, change.before)
    except FAILURES as error:
        return failed(error)
    return UndoResult("undone") if back else UndoResult(None, f"it reads {read} after {change.before} was written")


def failed(error: Exception) -> UndoResult:
    """What a failure to read or write means."""
    return UndoResult("gone" if isinstance(error, OSError) and error.errno in _ABSENT else None, reason_of(error))


def reason_of(error: Exception) -> str:
    """What a failure says, in words."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def needs_keeper(change: Change) -> bool:
    """Whether it holds only while a process keeps it."""
    knob = KNOBS.get(change.knob)
    return knob is not None and knob.needs_keeper


def lasts(change: Change) -> bool:
    """Whether a restart of this machine leaves it: a file that sets something at every start, or what a scheduler was told."""
    return change.knob.startswith("persist.") or of_mark(change.knob) is not None


def holds(target: Target, now: str, step: Step) -> bool:
    """Whether a value is one that sysperf set."""
    known = (step.change.after, *filter(None, [step.read]), *(superseded.after for superseded in step.superseded))
    return any(target.same(now, value) for value in known)


def ours(target: Target, now: str, step: Step) -> bool:
    """Whether a value is what sysperf set, or what the kernel or a kill made of it."""
    change = step.change
    if holds(target, now, step):
        return True
    if isinstance(target, process.Threads):  # killed between two threads
        return target.between(now, change.before, change.after)
    knob = KNOBS.get(change.knob)
    if knob and knob.partial and (step.state == "intended" or step.reason):  # nobody read back what came of it
        low, high = sorted((int(change.before), int(change.after)))
        return low <= int(now) <= high
    return False


def foreign(host: Host, change: Change, now: str) -> str:
    """Say that somebody has changed it, and who that may be."""
    if change.knob.startswith("persist."):
        return "somebody has edited it since"
    who = conflicts.setters(host, change.knob)
    return f"somebody has set it to {now} since{' (' + ', '.join(who) + '?)' if who else ''}"


def _not_ours(host: Host, target: Target, now: str, step: Step, rebooted: bool) -> UndoResult | None:
    """Why a value must stay; None when it is what sysperf set."""
    change = step.change
    if not target.exact:
        if len(CpuSet.parse(change.before)) == 1:
            return None
        return UndoResult("gone", f"memory came from nodes {change.before}; which page was where is not known any more")
    if ours(target, now, step):
        return None
    if rebooted:
        return UndoResult("gone", f"the machine restarted since, and it is {now} now")
    return UndoResult("foreign", foreign(host, change, now))


def _released(undoing: Undoing) -> UndoResult:
    """What only a process holds ends with that process."""
    latency.release()
    keeper = undoing.keeper
    if keeper is None and undoing.keeper_unknown:
        return UndoResult(None, "the journal is damaged: it does not say which process holds it; it ends with that process")
    if keeper and keeper.is_helper and keeper.pid != os.getpid() and alive(keeper):
        return UndoResult(None, "sysperf's helper holds it: `sysperf undo` asks it when it runs as a member of group sysperf")
    dismiss(keeper)
    return UndoResult("undone")
