"""What a rule says of a machine: pass, finding, not applicable, unknown or suppressed."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Json, Record, fact
from sysperf.model.rule import Confidence, Impact, Safety, Scope, Severity
from sysperf.model.setting import Setting
from sysperf.model.snapshot import Snapshot

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


class Gain(Record):
    """What acting wins here. Unmeasured until it was measured on this machine."""

    state: Literal["unmeasured", "measured"] = "unmeasured"
    text: str = "unmeasured"


class SourcePlace(Record):
    """A place in a source file."""

    file: str
    line: Annotated[int, fact("from 1")]
    column: Annotated[int, fact("in characters, from 1")]
    end_line: int
    end_column: Annotated[int, fact("column behind the last character")]
    code: Annotated[str, fact("the line of source")] = ""


class Outcome(Record):
    """One rule about one subject. Passes are only counted (`Tally`)."""

    rule: Annotated[str, fact("id of the rule or cause")]
    state: State
    severity: Severity
    scope: Scope
    title: str
    subject: str = ""
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
    program: Annotated[str, fact("what the process runs: its interpreter and script, without options")] = ""
    user: Annotated[int | None, fact("user number of the process's owner")] = None
    place: Annotated[SourcePlace | None, fact("where in a source file; null: it is about no source")] = None
    witness: Annotated[str, fact("which witness of the cause it is; empty: the rule is its own")] = ""

    @property
    def rule_key(self) -> str:
        """The key of its rule."""
        return f"{self.rule}#{self.witness}" if self.witness else self.rule


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
    outcomes: tuple[Outcome, ...]
    tally: Tally
    rewraps: Annotated[tuple[Rewrap, ...], fact("running programs that wrap would have started otherwise; gains are unmeasured")] = ()
    took_ms: float = 0.0

    def findings(self) -> tuple[Outcome, ...]:
        """The outcomes that say something is wrong, most costly first."""
        return tuple(outcome for outcome in self.outcomes if outcome.state == "finding")
