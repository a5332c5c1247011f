"""A transaction from the lines of its journal. What is damaged is isolated: the rest is known, and can be undone."""

from __future__ import annotations

import msgspec

from sysperf.fix.journal_lines import (
    BeforeRewritten,
    Begin,
    DamagedLine,
    End,
    KeeperStarted,
    LeaseSet,
    Line,
    NewerVersion,
    StepResult,
    StepStarted,
    decode,
    is_checked,
)
from sysperf.model.change import Change, Doubt, Keeper, Lease, Step, SupersededStep, Transaction, TransactionState
from sysperf.startup import lazy

MAX_BYTES = 16 << 20
MAX_STEPS = 10_000
_TORN = lazy(rb"[0-9a-f]{1,8}|[0-9a-f]{8} (?:\{[^\0-\x1f]*)?|\{[^\0-\x1f]*")
"""The beginning of a line, which a crash cut short: it announces a step that never began. Anything else at the end is damage."""
_NOTHING_LEFT = ("refused", "undone", "gone")
_ENDED = Lease(boot="", until_s=0.0)
"""Of a lease whose end is not known: nothing may stay because its line is damaged."""


def replay(number: int, raw: bytes) -> Transaction:
    """A transaction from the content of its file. Never raises: one that cannot be read is `damaged`."""
    if len(raw) > MAX_BYTES:
        return Transaction(number=number, state="damaged", problem="the file is too large to be a journal")
    *lines, tail = raw.split(b"\n")
    if tail and (is_whole(tail) or not is_torn(tail)):
        lines.append(tail)
    if not lines:
        # killed before the first line was on the disk: nothing had begun
        return Transaction(number=number, state="rolled-back", problem="it never began" if tail else "")
    return _Replay(number).run(lines)


def is_whole(tail: bytes) -> bool:
    """Whether a last line lacks only what ends it; without a checksum that is not known, and it announces nothing."""
    try:
        return bool(tail) and is_checked(tail) and decode(tail) is not None
    except DamagedLine:
        return False


def is_torn(tail: bytes) -> bool:
    """Whether a last line is the beginning of one that a crash cut short. One that is whole but for what ends it is damaged."""
    return bool(_TORN.fullmatch(tail)) and not is_whole(tail[:-1])


class _Replay:
    """The lines of a transaction, one after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.begin: Begin | None = None
        self.steps: dict[int, Step] = {}
        self.lease: Lease | None = None
        self.keeper: Keeper | None = None
        self.end: End | None = None
        self.last_step = self.end_at = 0
        """The lines of the last step that began, and of the end; 0 when there is none."""
        self.unreadable: list[int] = []
        """Lines that cannot be read."""
        self.damaged: list[int] = []
        """Those of them that were whole once. One without a checksum may be a line that a crash cut short."""

    def run(self, lines: list[bytes]) -> Transaction:
        for index, line in enumerate(lines):
            if not line and not is_checked(lines[0]):
                continue  # version 1 began a new line after one that was cut short
            try:
                self._line(decode(line), index + 1)
            except NewerVersion:
                return Transaction(number=self.number, state="damaged", problem="a newer sysperf wrote it: update this one to undo it")
            except DamagedLine:
                self.unreadable.append(index + 1)
                self.damaged += [index + 1] if is_checked(line) or index == 0 else []
        if self.begin is None and not self.steps:
            return Transaction(number=self.number, state="damaged", problem=self._problem() or "its first line is missing")
        return self._transaction(self.begin or Begin(version=0, number=self.number, taken_at="", boot="", by=""))

    def _transaction(self, begin: Begin) -> Transaction:
        known = max(self.steps, default=-1) + 1
        begun = max(known, self.end.steps) if self.end else known
        steps = tuple(self.steps.get(index) or _lost(index) for index in range(min(begun, MAX_STEPS)))
        return Transaction(
            number=self.number,
            state=self._state({step.state for step in steps}),
            steps=steps,
            taken_at=begin.taken_at,
            boot=begin.boot,
            by=begin.by,
            why=begin.why,
            lease=self.lease or (_ENDED if begin.leased else None),
            keeper=self.keeper,
            persisted=tuple(step.change.target for step in steps if step.change.knob.startswith("persist.") and step.state == "applied"),
            problem=self._problem(),
            damaged_lines=tuple(self.damaged),
            doubt=self._doubt(begin, known),
        )

    def _doubt(self, begin: Begin, known: int) -> Doubt:
        """What damaged lines may have said. A step of which a line is left is known, or known to be lost, and in no doubt."""
        if not self.damaged:
            return ""
        counted = bool(self.end and self.end.steps) or 0 < begin.steps <= known
        if not counted:
            return "steps"
        late = [line for line in self.damaged if line > (self.end_at or self.last_step)]
        return "before" if len(late) > (self.end is None) else ""  # what goes further back was handed over after the end, which is one line

    def _line(self, line: Line, number: int) -> None:
        if isinstance(line, Begin):
            self.begin = line
        elif isinstance(line, LeaseSet):
            self.lease = line.lease
        elif isinstance(line, KeeperStarted):
            self.keeper = line.keeper
        elif isinstance(line, StepStarted | StepResult | BeforeRewritten):
            if not 0 <= line.step < MAX_STEPS:
                raise DamagedLine
            self._step(line)
            self.last_step = number if isinstance(line, StepStarted) else self.last_step
        else:
            self.end, self.end_at = line, number

    def _step(self, line: StepStarted | StepResult | BeforeRewritten) -> None:
        step = self.steps.get(line.step) or _lost(line.step)
        if isinstance(line, StepStarted):
            step = Step(line.change)
        elif isinstance(line, StepResult):
            lost = step.state == "lost"  # what it was about is not known, but whether something of it is left may be
            state = step.state if lost and line.state not in _NOTHING_LEFT else line.state
            step = msgspec.structs.replace(
                step, state=state, read=line.read or step.read, reason=line.reason or (step.reason if lost else "")
            )
        else:
            superseded = (*step.superseded, SupersededStep(line.number, line.earlier, step.change.before))
            change = msgspec.structs.replace(step.change, before=line.before)
            step = msgspec.structs.replace(step, change=change, superseded=superseded)
        self.steps[line.step] = step

    def _state(self, states: set[str]) -> TransactionState:
        if self.end is None:
            return "damaged" if self.damaged else "open"  # what ends it may be what is damaged: a person decides
        live = states & {"applied", "intended"}
        if self.end.state == "rolled-back" and "lost" not in states:
            return "partly-undone" if live else "rolled-back"
        if live:
            return "partly-undone" if states & {"undone", "gone", "foreign"} else "applied"
        return "partly-undone" if states & {"foreign", "lost"} else "undone"

    def _problem(self) -> str:
        if not self.unreadable:
            return ""
        several = len(self.unreadable) > 1
        return f"line{'s' if several else ''} {', '.join(map(str, self.unreadable[:20]))} of its journal cannot be read"


def _lost(index: int) -> Step:
    """A step whose announcement cannot be read: nobody knows any more what it was about."""
    change = Change("unreadable", "", f"step {index + 1}, whose line in the journal is damaged", before="", after="")
    return Step(change, "lost", reason="nobody knows what it changed: compare the settings with what you expect")
