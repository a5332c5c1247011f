"""What is changed on a machine, step by step, so that every step can be taken back.

A `Setting` is what is requested, a `Change` what it means here (what is there now, what will be), a `Step` a change with its
fate, and a `Transaction` the steps that were applied together and are undone together.
"""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Record, fact
from sysperf.model.setting import Setting

__all__ = (
    "LIVE",
    "Change",
    "Conflict",
    "Keeper",
    "Lease",
    "Plan",
    "Setting",
    "Skipped",
    "Step",
    "StepState",
    "SupersededStep",
    "Transaction",
    "TransactionState",
    "Undone",
)

StepState = Literal["intended", "applied", "refused", "undone", "foreign", "gone", "lost"]
"""intended: announced, and nobody wrote down whether it took (sysperf was killed); foreign: somebody else has
changed it since; gone: what it was about is not there any more (the process ended, the machine restarted); lost: its line in
the journal is damaged."""

Doubt = Literal["", "steps", "before"]
TransactionState = Literal["open", "applied", "rolled-back", "undone", "partly-undone", "damaged"]
LIVE: tuple[StepState, ...] = ("intended", "applied")


class Change(Record):
    """One value that changes on this machine."""

    knob: str
    item: str
    target: Annotated[str, fact("what is written: a path, or the thing that a system call sets")]
    before: str
    after: str
    rule: str = ""
    start_time: Annotated[int, fact("start time of the process in clock ticks since boot; 0 when it is about none")] = 0
    shown_before: Annotated[str, fact("`before` for people, where it is long")] = ""

    def label(self) -> str:
        """The setting, and the item that has it: ``block.read_ahead_kb of nvme0n1``."""
        return f"{self.knob} of {self.item}" if self.item else self.knob


class Skipped(Record):
    """A requested setting that is not in the plan, and why."""

    setting: Setting
    reason: str
    already: Annotated[bool, fact("because it is so already")] = False


class Conflict(Record):
    """Somebody else who sets the same."""

    knob: str
    who: str
    what: str


class Plan(Record):
    """What would be done, before anything is."""

    changes: tuple[Change, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


class SupersededStep(Record):
    """A step about the same that was taken back although a later one was in force."""

    number: int
    step: int
    after: Annotated[str, fact("what it had set, which the later one went back to until then")]


class Step(Record):
    """A change and what became of it."""

    change: Change
    state: StepState = "intended"
    read: Annotated[str, fact("the value as it was read back after writing")] = ""
    reason: str = ""
    superseded: Annotated[tuple[SupersededStep, ...], fact("earlier steps that were taken back first: their `before` is its own now")] = ()


class Lease(Record):
    """The end of a transaction. Measured on the clock that no administrator sets and that sleeps are part of."""

    boot: Annotated[str, fact("the boot that the clock belongs to", "/proc/sys/kernel/random/boot_id")]
    until_s: Annotated[float, fact("CLOCK_BOOTTIME, seconds")]


class Keeper(Record):
    """The process that takes a transaction back when its lease ends, and that holds what only a process can hold."""

    pid: int
    start_time: int
    is_helper: bool = False


class Transaction(Record, kw_only=True):
    """Changes that were applied together."""

    number: int
    state: TransactionState
    steps: tuple[Step, ...] = ()
    taken_at: str = ""
    boot: str = ""
    by: Annotated[str, fact("who asked: user name, or the agent")] = ""
    why: Annotated[str, fact("the command or the rules that asked for it")] = ""
    lease: Lease | None = None
    keeper: Keeper | None = None
    persisted: Annotated[tuple[str, ...], fact("files of the system that set it again at the next start")] = ()
    problem: str = ""
    damaged_lines: Annotated[tuple[int, ...], fact("lines of its journal that were whole once and cannot be read")] = ()
    doubt: Annotated[Doubt, fact("what these lines may have said: of a step that is not known, or to what a known one goes back")] = ""

    @property
    def live(self) -> bool:
        """Whether something of it is in force, as far as sysperf did it."""
        return any(step.state in LIVE for step in self.steps)


class Undone(Record):
    """What became of one step when it was taken back."""

    number: int
    step: Step
    message: str = ""
