"""What `check --drain` does: a node drains itself for what two checks in a row found, and takes that back when two found it gone.

One look does nothing, and neither does a scheduler that cannot be read. What the look before found lies in a file of this machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import msgspec

from sysperf import paths
from sysperf.engine.fleet.marks import Brake, BrakeTripped, Marks
from sysperf.fix.lease import boot_id
from sysperf.host.files import make_folder, write_whole
from sysperf.host.plain_files import read_named
from sysperf.model.change import Transaction
from sysperf.model.check import Checked, Fault
from sysperf.model.record import Record, from_json, to_json
from sysperf.report.fleet.check import line, reason

WHY = "check --drain"
MAX_BYTES = 64 << 10


class Look(Record):
    """What one check found of the machine itself, and whether the brake has tripped since a person looked."""

    sick: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    tripped: str = ""


class OwnDrain:
    """The drain of this node, by its own checks."""

    def __init__(self, node: str, folder: str = "") -> None:
        self._node, self._by = node, Marks(folder=folder or None)
        self._path = f"{folder or paths.state_folder()}/check-drain.json"

    def reset(self) -> None:
        """Forget the brake, and what the look before found: nothing old is replayed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def act(self, checked: Checked, brake: Brake) -> list[str]:
        """Drain, take back, or leave it as it is; the lines say what was done. Raises SysperfError, and OSError."""
        before = self._before()
        sick = [fault for fault in checked.faults if fault.is_sick]
        now = Look(tuple(fault.rule for fault in sick), checked.passed, before.tripped)
        self._keep(now)
        own = self._by.of(self._node, WHY)
        if any(each.state == "open" for each in own):
            self._by.recover()
            own = self._by.of(self._node, WHY)
        again = [fault for fault in sick if fault.rule in before.sick]
        if own:
            return self._taken_back(own, before, now)
        if not again:
            return []
        if before.tripped:
            return [line(f"nothing is drained here until a person says --reset: {before.tripped}")]
        try:
            return self._drained(again[0], brake)
        except BrakeTripped as error:
            self._keep(msgspec.structs.replace(now, tripped=str(error)))
            return [line(f"the brake: {error}")]

    def _drained(self, fault: Fault, brake: Brake) -> list[str]:
        planned = self._by.plan({self._node: reason(fault)}, "drain", fault.rule)
        done: list[Transaction] = []
        self._by.mark(planned, WHY, brake, done.append)
        try:
            self._by.check(planned, brake)  # another node may have drained itself in the same moment
        except BrakeTripped:
            for each in done:
                self._by.undo(each.number)
            raise
        said = [line(step.reason or "drained by the fault above") for each in done for step in each.steps]
        return said + [line(f"not drained: {skipped.reason}") for skipped in planned.skipped if not skipped.already]

    def _taken_back(self, own: Sequence[Transaction], before: Look, now: Look) -> list[str]:
        """A fault is gone where its rule passes, twice in a row or once after a restart. What could not be read is no evidence."""
        rules = {step.change.rule for each in own for step in each.steps}
        gone = not now.sick and rules <= {*now.passed}
        twice = not before.sick and rules <= {*before.passed}
        restarted = all(each.boot != boot_id() for each in own)
        if not gone or not (twice or restarted):
            return []
        undone = [each for transaction in own for each in self._by.undo(transaction.number)]
        return [line(f"drain left as it is: {each.message}" if each.step.state != "undone" else "drain taken back") for each in undone]

    def _before(self) -> Look:
        """What the look before found; nothing, where that cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            return from_json(read_named(self._path, MAX_BYTES), Look)
        return Look()

    def _keep(self, look: Look) -> None:
        make_folder(os.path.dirname(self._path))
        write_whole(self._path, lambda file: file.write(to_json(look)), mode=0o600)
