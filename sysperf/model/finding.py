"""What a rule says of a subject: the finding, its places, its evidence, what it costs, what acting wins, and what to do."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sysperf.model.record import Json, Record, fact
from sysperf.model.rule import Confidence, Impact, Safety, Scope, Severity
from sysperf.model.setting import Setting
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral, quoted

State = Literal["finding", "unknown", "suppressed"]


class Evidence(Record):
    """A fact that the condition touched, its value, and where it was read."""

    fact: str
    value: Annotated[Json, fact("JSON value; long lists are cut")] = None
    source: str = ""


class Gap(Record):
    """A fact that the condition needed and nobody knows."""

    fact: str
    reason: str
    remedy: Annotated[str, fact("what would make it readable")] = ""


class Start(Record):
    """How a program is started otherwise: with other variables, or by `sysperf wrap`."""

    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    wrap: Annotated[tuple[str, ...] | None, fact("options of `sysperf wrap`; null: started without it")] = None
    program: Annotated[str, fact("its command line, for a shell")] = "python …"

    def title(self) -> str:
        """``set OMP_NUM_THREADS and unset KMP_AFFINITY``."""
        return " and ".join(f"{verb} {', '.join(names)}" for verb, names in (("set", self.set), ("unset", self.unset)) if names)

    def command(self) -> str:
        """The line to paste."""
        if self.wrap is not None:
            return " ".join(("sysperf wrap", *self.wrap, "--", self.program))
        given = (f"{name}={quoted(value)}" for name, value in self.set.items())
        return " ".join(("env", *(f"-u {name}" for name in self.unset), *given, self.program))


class SourceFix(Record):
    """A change of source that `sysperf lint --fix` makes."""

    file: str
    rule: str


class Remedy(Record):
    """A fix with its blanks filled in for this machine."""

    kind: str
    title: str
    safety: Safety
    command: str = ""
    undo: str = ""
    needs: str = ""
    note: str = ""
    numerics: bool = False
    setting: Annotated[Setting | None, fact("the change, where sysperf can make it (`sysperf apply`)")] = None
    start: Annotated[Start | None, fact("what differs at the program's start, where it is that")] = None
    source: Annotated[SourceFix | None, fact("what changes in the source, where sysperf can change it (`sysperf lint --fix`)")] = None

    def started(self, start: Start) -> Remedy:
        """The same fix by another start of the program; its title names the variables where it was made of them."""
        title = start.title() if self.start is not None and self.title == self.start.title() else self.title
        return msgspec.structs.replace(self, title=title, command=start.command(), start=start)


class Gain(Record):
    """What acting wins here. Unmeasured until it was measured on this machine."""

    state: Literal["unmeasured", "measured"] = "unmeasured"
    text: str = "unmeasured"


class Subject(Record, omit_defaults=True):
    """What a finding is about: the machine, one of its GPUs or processes, or another item of a list."""

    kind: Literal["machine", "gpu", "process", "item"] = "machine"
    name: Annotated[str, fact("of a GPU its model, of a process its name, of an item its path, address or number")] = ""
    index: Annotated[int | None, fact("number of a GPU")] = None
    bus_id: Annotated[str, fact("PCI address of a GPU")] = ""
    pid: int | None = None
    start_time: Annotated[int | None, fact("when a process started, in clock ticks since boot")] = None
    program: Annotated[str, fact("what a process runs: its interpreter and script, without options")] = ""
    user: Annotated[int | None, fact("user number of a process's owner")] = None

    @property
    def text(self) -> str:
        """What a person calls it: ``GPU 3 (NVIDIA H100)``, ``python (pid 4242)``, ``/opt/venv``; empty for the machine."""
        if self.kind == "gpu":
            return neutral(f"GPU {self.index} ({self.name or 'unknown model'})", 80)
        if self.kind == "process":
            return neutral(f"{self.name or 'process'} (pid {'?' if self.pid is None else self.pid})", 80)
        return neutral(self.name, 4_000)

    @property
    def identity(self) -> str:
        """This very subject: a process by its number and its start, so that no later process is taken for it."""
        if self.kind == "process":
            return f"process:{'?' if self.pid is None else self.pid}:{'?' if self.start_time is None else self.start_time}"
        return f"gpu:{self.bus_id or self.index}" if self.kind == "gpu" else self.text

    @property
    def common_name(self) -> str:
        """What it shares with its like: of a process the name without its number."""
        return self.name or "process" if self.kind == "process" else self.text

    @property
    def lasting_name(self) -> str:
        """What stays the same from run to run: of a process its name, program and owner."""
        return f"{self.common_name}\0{self.program}\0{self.user}" if self.kind == "process" else self.text


MACHINE = Subject()


class Place(Record):
    """A place in a source file."""

    file: str
    line: Annotated[int, fact("from 1")]
    column: Annotated[int, fact("in characters, from 1")]
    end_line: int
    end_column: Annotated[int, fact("column behind the last character")]
    code: Annotated[str, fact("the line of source")] = ""


class Finding(Record):
    """One rule about one subject. Passes are only counted (`Tally`)."""

    rule: str
    state: State
    severity: Severity
    scope: Scope
    title: str
    subject: Subject = MACHINE
    message: str = ""
    why: str = ""
    because: Annotated[str, fact("why it is suppressed, or what would exempt it and is unknown: the guard or the waiver that says so")] = ""
    confidence: Confidence = "medium"
    evidence: tuple[Evidence, ...] = ()
    unknown: tuple[Gap, ...] = ()
    fixes: tuple[Remedy, ...] = ()
    gain: Gain = Gain()
    impact: Impact | None = None
    refs: tuple[str, ...] = ()
    key: Annotated[
        str, fact("this rule about this very subject, for acts and links: a process by pid and start time; another after a restart")
    ] = ""
    fingerprint: Annotated[
        str, fact("this kind of finding over time, for baselines, code scanning and `first seen`; several subjects may share it")
    ] = ""
    place: Annotated[Place | None, fact("where in a source file; null: it is about no source")] = None

    @property
    def about(self) -> str:
        """What a person calls its subject; empty for the machine."""
        return self.subject.text


class Rewrap(Record):
    """How a running program would have been started by `sysperf wrap`, where that differs from how it was."""

    pid: int
    command: Annotated[str, fact("command line to start it again with")]
    changes: Annotated[tuple[str, ...], fact("what wrap would have set, such as OMP_NUM_THREADS=8")]
    rules: Annotated[tuple[str, ...], fact("the launch rules that say so")] = ()


class Tally(Record):
    """How often each answer was given, over all rules and subjects."""

    rules: int = 0
    passed: int = 0
    findings: int = 0
    not_applicable: int = 0
    unknown: int = 0
    suppressed: int = 0


class Report(Record, kw_only=True):
    """An audit: the machine as it was read and what the rules said of it."""

    schema: int = 1
    sysperf: str
    snapshot: Snapshot
    outcomes: tuple[Finding, ...]
    tally: Tally
    rewraps: Annotated[tuple[Rewrap, ...], fact("running programs that wrap would have started otherwise; gains are unmeasured")] = ()
    took_ms: float = 0.0

    def findings(self) -> tuple[Finding, ...]:
        """The outcomes that say something is wrong, most costly first."""
        return tuple(outcome for outcome in self.outcomes if outcome.state == "finding")
