"""What a rule says of a subject: the finding, its places, its evidence, what it costs, what acting wins, and what to do."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from sysperf.model.record import Json, Record, fact
from sysperf.model.rule import CONFIDENCES, SEVERITIES, Confidence, FailOn, Impact, Safety, Scope, Severity, SignalSource
from sysperf.model.setting import Setting
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral, quoted

State = Literal["finding", "unknown", "suppressed", "confirmed", "likely", "contradicted", "explained"]
HOLDS: tuple[State, ...] = ("finding", "confirmed", "likely")
"""The states of what is there, or probably is."""


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
    program: Annotated[str, fact("its command line, for a shell; empty: it is not known")] = ""

    def title(self) -> str:
        """``set OMP_NUM_THREADS and unset KMP_AFFINITY``."""
        return " and ".join(f"{verb} {', '.join(names)}" for verb, names in (("set", self.set), ("unset", self.unset)) if names)

    def command(self) -> str:
        """The line to paste: the program's start, or what changes the shell that starts it, where its command line is not known."""
        given = " ".join(f"{name}={quoted(value)}" for name, value in self.set.items())
        if self.wrap is not None:
            return " ".join(("sysperf wrap", *self.wrap, "--", self.program or "python …"))
        if self.program:
            return " ".join(filter(None, ("env", *(f"-u {name}" for name in self.unset), given, self.program)))
        return "; ".join(filter(None, (f"unset {' '.join(self.unset)}" if self.unset else "", f"export {given}" if given else "")))

    def undo(self) -> str:
        """How a person takes it back."""
        if self.wrap is not None:
            return "start it without the wrap"
        return "start it without this prefix" if self.program else "start it from another shell, which has what its profile sets"


class SourceEdit(Record):
    """A part of a source, from a position to the one behind its end, and what stands there instead."""

    line: Annotated[int, fact("from 1")]
    column: Annotated[int, fact("in characters, from 1")]
    end_line: int
    end_column: int
    text: str


class SourceFix(Record):
    """A change of source that `sysperf lint --fix` makes: all of its edits, or none."""

    file: str
    rule: str
    edits: tuple[SourceEdit, ...] = ()


class Remedy(Record):
    """A fix with its blanks filled in for this machine."""

    kind: str
    title: str
    safety: Safety
    command: str = ""
    undo: Annotated[str, fact("command that takes it back")] = ""
    undo_text: Annotated[str, fact("how a person takes it back, where that is no command")] = ""
    needs: str = ""
    note: str = ""
    numerics: bool = False
    setting: Annotated[Setting | None, fact("the change, where sysperf can make it (`sysperf apply`)")] = None
    start: Annotated[Start | None, fact("what differs at the program's start, where it is that")] = None
    source: Annotated[SourceFix | None, fact("what changes in the source, where sysperf can change it (`sysperf lint --fix`)")] = None

    def started(self, start: Start) -> Remedy:
        """The same fix by another start of the program; its title names the variables where it was made of them."""
        title = start.title() if self.start is not None and self.title == self.start.title() else self.title
        return msgspec.structs.replace(self, title=title, command=start.command(), undo_text=start.undo(), start=start)


class Gain(Record):
    """What acting wins here, in percent of the time of a step. Unmeasured until it was measured on this machine."""

    basis: Annotated[
        Literal["unmeasured", "replay", "samples", "measured"],
        fact("replay: a trace was replayed without the cause; samples: predicted from what a running program showed"),
    ] = "unmeasured"
    text: str = "unmeasured"
    low: float | None = None
    middle: float | None = None
    high: float | None = None
    assumes: Annotated[str, fact("what a replay takes for granted")] = ""

    @property
    def interval(self) -> str:
        """The bounds for people: ``8 to 12 %``, ``5 %`` or ``below 1 %``; empty where nothing is predicted."""
        return "" if self.low is None or self.high is None else percent_interval(self.low, self.high)


def percent_interval(low: float, high: float) -> str:
    """``8 to 12 %``, ``5 %`` or ``below 1 %``."""
    low, high = round(low), round(high)
    if high < 1:
        return "below 1 %"
    return f"{high} %" if low == high else f"{low} to {high} %"


class Signal(Record, kw_only=True):
    """One observation about one cause."""

    source: SignalSource
    supports: Annotated[bool, fact("false: it speaks against the cause")] = True
    text: str = ""


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
        """Return this very subject: a process by its number and its start, so that no later process is taken for it."""
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


class Place(Record, omit_defaults=True):
    """A place in a source file."""

    file: Annotated[str, fact("empty where only a package is known")] = ""
    line: Annotated[int, fact("from 1; 0: not known")] = 0
    function: Annotated[str, fact("function around it, with its class; empty: the module")] = ""
    code: Annotated[str, fact("the line of source")] = ""
    what: Annotated[str, fact("what the program does there: a phase or an activity")] = ""
    share: Annotated[float | None, fact("of the time of the thread that is there")] = None
    package: Annotated[str, fact("installed package whose code it is; empty: the program's own")] = ""
    calls: Annotated[str, fact("installed package that is called there")] = ""
    cell: Annotated[int, fact("of a notebook, the cell that `line` counts in; 0: no notebook")] = 0
    column: Annotated[int, fact("in characters, from 1")] = 0
    end_line: int = 0
    end_column: Annotated[int, fact("column behind the last character")] = 0

    @property
    def start(self) -> str:
        """``train.py:12:5``, as editors take it; of a notebook, with its cell."""
        cell = f" cell {self.cell}" if self.cell else ""
        return f"{self.file}{cell}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """``train.py:31 (step), in numpy``, with the line of source where it is known."""
        number = f":{self.line}" if self.line else ""
        function = f" ({self.function})" if self.function else ""
        package = f", in {self.calls}" if self.calls else f", of the package {self.package}" if self.package else ""
        return f"{self.file}{number}{function}{package}{f': {self.code}' if self.code else ''}"


class Finding(Record):
    """One rule about one subject. Passes are only counted (`Tally`)."""

    rule: Annotated[str, fact("id of the rule or cause")]
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
    places: Annotated[tuple[Place, ...], fact("where in the source, what costs most first")] = ()
    cost_pct: Annotated[float | None, fact("time that waits for it, percent of the time looked at; null: it is about none")] = None
    work_pct: Annotated[float | None, fact("busy time of the kernels or operators that it is about, percent")] = None
    signals: Annotated[tuple[Signal, ...], fact("what speaks for the cause and against it")] = ()
    also: Annotated[tuple[Subject, ...], fact("other programs or ranks that show the same")] = ()
    confirmed_by: Annotated[tuple[str, ...], fact("of a hypothesis about source: the findings of a run or a trace that confirm it")] = ()
    keep: Annotated[str, fact("the command that keeps what is there, before a fix changes it by hand")] = ""
    verify: Annotated[str, fact("the command that proves the fix; empty where there is no speed to compare")] = ""

    witness: Annotated[str, fact("which witness of the cause it is; empty: the rule is its own")] = ""
    explains: Annotated[tuple[str, ...], fact("causes that are consequences of this one")] = ()

    @property
    def rule_key(self) -> str:
        """The key of its rule."""
        return f"{self.rule}#{self.witness}" if self.witness else self.rule

    @property
    def holds(self) -> bool:
        """Whether something is wrong, for certain or probably."""
        return self.state in HOLDS

    def reaches(self, severity: FailOn) -> bool:
        """Whether something is wrong, and is as severe or worse."""
        return severity != "never" and self.holds and SEVERITIES.index(self.severity) <= SEVERITIES.index(severity)

    @property
    def place(self) -> Place | None:
        """The place in the source that it is about most; None: it is about none."""
        return self.places[0] if self.places else None

    @property
    def source_fix(self) -> SourceFix | None:
        """The change of source that `sysperf lint --fix` can make."""
        return next((fix.source for fix in self.fixes if fix.source is not None), None)

    @property
    def about(self) -> str:
        """What a person calls its subject; empty for the machine."""
        return self.subject.text


def by_weight(finding: Finding) -> tuple[int, int, int, str, str]:
    """Sort what costs most and is surest to the front; a measured or documented effect before an opinion."""
    basis = ("measured", "arithmetic", "documented", "upper-bound", "opinion")
    weight = basis.index(finding.impact.basis) if finding.impact else len(basis)
    return (SEVERITIES.index(finding.severity), CONFIDENCES.index(finding.confidence), weight, finding.rule, finding.about)


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
    passed: Annotated[tuple[str, ...], fact("ids of the rules that could be checked, and found nothing in all that they are about")] = ()
    source_files: Annotated[int, fact("files that a lint read; 0: no lint")] = 0
    rewraps: Annotated[tuple[Rewrap, ...], fact("running programs that wrap would have started otherwise; gains are unmeasured")] = ()
    took_ms: float = 0.0

    def findings(self) -> tuple[Finding, ...]:
        """The outcomes that say something is wrong, most costly first."""
        return tuple(outcome for outcome in self.outcomes if outcome.holds)

    def reaches(self, severity: FailOn) -> bool:
        """Whether there is a finding of this severity or a worse one."""
        return any(outcome.reaches(severity) for outcome in self.outcomes)

    def without_below(self, severity: Severity) -> Report:
        """The same without findings that are less severe; what is unknown stays, and so do the counts."""
        kept = tuple(outcome for outcome in self.outcomes if not outcome.holds or outcome.reaches(severity))
        return msgspec.structs.replace(self, outcomes=kept)
