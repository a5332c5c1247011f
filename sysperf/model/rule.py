"""Rules as TOML writes them: what is wrong, why it matters, what to do, and tests that prove the rule."""

from typing import Annotated, Literal

import msgspec

from sysperf.model.record import JsonObject, Record, fact

Severity = Literal["error", "warning", "info", "hint"]
FailOn = Literal[Severity, "never"]
"""From which severity on a command says by its exit code that something was found."""
Confidence = Literal["high", "medium", "low"]
Safety = Literal["safe", "caution", "manual"]
Scope = Literal["host", "gpu", "python", "process", "launch", "trace", "script", "diagnosis"]
SignalSource = Literal["scheduler", "memory", "io", "limits", "machine", "gpu", "settings", "stacks", "native", "trace", "script"]
WitnessSource = Literal["source", "machine", "outside", "running", "trace"]
"""From where a witness of a cause looks: source code, machine or shell, a process from outside, a program that is watched, a trace."""
Expect = Literal["fire", "pass", "skip", "unknown"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info", "hint")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
ITEMS = {"gpu": ("gpu", "gpu", "devices"), "process": ("proc", "process", "processes"), "python": ("env", "torch", "installs")}
"""Scopes that are judged once an item: the name bound to the item, and the area and field that list them."""


class Guard(Record):
    """A reason not to report: printed, never silent."""

    when: str
    because: str


class Impact(Record):
    """What acting may win, and how anybody knows. A borrowed figure is never a promise."""

    metric: str
    basis: Literal["measured", "documented", "arithmetic", "upper-bound", "opinion"]
    claim: str = ""
    cite: str = ""


class Experiment(Record):
    """The built-in experiment that can test the recommendation on this machine."""

    experiment: str
    min_effect: float = 0.03


class Hold(Record):
    """A time that a condition must hold before it is a finding, for the agent."""

    samples: int = 1
    window_s: float = 0.0


class SignalRule(Record):
    """An observation that speaks for the cause, or against it, for diagnoses. Those of one source are one witness."""

    source: SignalSource
    when: str
    says: str
    against: bool = False


class Fix(Record):
    """What can be done. The kind says which of our typed changes it is."""

    title: str = ""
    when: Annotated[str, fact("condition under which it is offered; one that is unknown does not keep it back")] = ""
    safety: Safety = "manual"
    numerics: Annotated[bool, fact("results may change: never applied automatically")] = False
    needs: Annotated[Literal["", "root", "restart", "reboot", "reset"], fact("what acting takes")] = ""
    note: str = ""
    verify: Annotated[str, fact("condition that holds once the fix took")] = ""
    from_: Annotated[tuple[WitnessSource, ...], fact("of a cause: the witnesses that offer it; none named: all")] = msgspec.field(
        name="from", default=()
    )


class Sysctl(Fix, tag="sysctl", tag_field="kind", kw_only=True):
    """Set a kernel parameter of the allow-list."""

    key: str
    value: str | int
    was: Annotated[str, fact("template of the value to go back to")] = ""


class Sysfs(Fix, tag="sysfs", tag_field="kind", kw_only=True):
    """Set a sysfs knob of the allow-list, by its name there."""

    knob: str
    value: str | int
    item: Annotated[str, fact("template of the device name, for knobs of a device")] = ""
    was: str = ""


class SetKnob(Fix, tag="setting", tag_field="kind", kw_only=True):
    """Set one of the settings that a system call or a held file sets, by its name in the allow-list."""

    knob: str
    value: str | int
    item: Annotated[str, fact("template of the process number, for settings of a process")] = ""
    was: str = ""


class Nvml(Fix, tag="nvml", tag_field="kind", kw_only=True):
    """Change a setting of one GPU."""

    setting: Literal["persistence"]


class Affinity(Fix, tag="affinity", tag_field="kind", kw_only=True):
    """Let a running process use these CPUs."""

    cpus: Annotated[str, fact("template of a CPU list")]
    was: str = ""


class MigratePages(Fix, tag="migrate-pages", tag_field="kind", kw_only=True):
    """Move a running process's memory to these NUMA nodes."""

    nodes: Annotated[str, fact("template of a node list")]


class Env(Fix, tag="env", tag_field="kind", kw_only=True):
    """Start the program with other environment variables."""

    set: dict[str, str] = {}
    unset: tuple[str, ...] = ()


class Preload(Fix, tag="preload", tag_field="kind", kw_only=True):
    """Start the program with an allocator, chosen by logical name and found on the machine."""

    library: Literal["tcmalloc_minimal", "jemalloc", "mimalloc"]


class Bind(Fix, tag="bind", tag_field="kind", kw_only=True):
    """Start the program with CPUs and memory near something."""

    to: Literal[
        "gpu-node",
        "node",
        "rank-share",
        "memory-preferred",
        "memory-strict",
        "memory-interleave",
        "physical-cores",
        "performance-cores",
        "allowed",
    ]


class Advice(Fix, tag="advice", tag_field="kind", kw_only=True):
    """Something that a person does. `command` is printed for them, never run; values in it are quoted for a shell."""

    by: Literal["code", "command", "package", "driver", "container", "scheduler", "service", "boot", "bios", "hardware", "environment"]
    text: str = ""
    command: str = ""
    undo: Annotated[str, fact("command that takes it back, for a shell")] = ""
    undo_text: Annotated[str, fact("how a person takes it back, where that is no command")] = ""


AnyFix = Sysctl | Sysfs | SetKnob | Nvml | Affinity | MigratePages | Env | Preload | Bind | Advice


class Test(Record):
    """A small machine and what the rule must say of it."""

    name: str
    expect: Expect | tuple[Expect, ...]
    given: JsonObject = {}
    params: JsonObject = {}
    message_has: tuple[str, ...] = ()
    fix_has: tuple[str, ...] = ()


class Rule(Record, kw_only=True):
    """One thing that makes a PyTorch machine slow."""

    id: Annotated[str, fact("dotted, names the pattern, stable for life; a witness has its cause's")]
    witness: Annotated[str, fact("for a witness of a cause: from where it looks, and its name; set when loaded")] = ""
    title: Annotated[str, fact("the pattern, in a line")]
    scope: Annotated[Scope, fact("what it is judged on; a witness has that of its source")]
    severity: Annotated[Severity, fact("how bad it is where it is there")]
    message: Annotated[str, fact("one line with the observed value: {expression|filter}")]
    when: Annotated[str, fact("true: the pattern is there")]
    explain: Annotated[str, fact("why it matters, and what to know besides")]
    confidence: Annotated[Confidence, fact("how sure it is that acting helps, before anything was measured")] = "medium"
    seeds: Annotated[tuple[str, ...], fact("the articles' statements that it covers (docs/seeds.md)")] = ()
    explains: Annotated[tuple[str, ...], fact("causes that are consequences of this one, by id")] = ()
    explains_where_most: Annotated[
        tuple[str, ...], fact("causes whose share has this one's in it, by id: it explains those of which it is most")
    ] = ()
    cost: Annotated[str, fact("for traces and diagnoses: expression of the exposed time that it is about, in percent")] = ""
    work: Annotated[str, fact("for traces: expression of the busy time of the kernels or operators that it is about, in percent")] = ""
    predict: Annotated[str, fact("for traces: the fix that is replayed to predict the gain")] = ""
    signals: Annotated[tuple[SignalRule, ...], fact("for diagnoses: what speaks for the cause and against it")] = ()
    lines: Annotated[tuple[str, ...], fact("for diagnoses: the phases and activities whose lines of the program are shown")] = ()
    saves: Annotated[str, fact("for diagnoses: expression of what acting gains, in percent, if less than the cost; unknown if it is")] = ""
    saves_least: Annotated[str, fact("for diagnoses: expression of what acting gains in any case, if that may be far less")] = ""
    on_gpu: Annotated[bool, fact("for diagnoses: what it costs is a GPU's time, too; else no more can be gained than the GPU is idle")] = (
        False
    )
    proof: Annotated[str, fact("for diagnoses: what `sysperf verify` compares")] = ""
    for_each: Annotated[str, fact("'name in list': one finding an element")] = ""
    applies: Annotated[str, fact("false: the rule says nothing about this machine")] = ""
    unless: Annotated[tuple[Guard, ...], fact("reasons not to report it, which are printed: when, because")] = ()
    params: Annotated[JsonObject, fact("thresholds: `p.NAME` in conditions; a site can override them")] = {}
    hold: Annotated[Hold | None, fact("for the agent: how long it must hold before it is a finding")] = None
    refs: Annotated[tuple[str, ...], fact("who says so: addresses")] = ()
    impact: Annotated[Impact | None, fact("what acting may win, and how anybody knows")] = None
    measure: Annotated[Experiment | None, fact("the built-in experiment that can test it on this machine")] = None
    fix: Annotated[tuple[AnyFix, ...], fact("what can be done, each of a kind")] = ()
    test: Annotated[tuple[Test, ...], fact("small machines, and what it must say of them")] = ()
    file: Annotated[str, fact("the file that defines it; set when loaded")] = ""

    @property
    def key(self) -> str:
        """What tells it from the other witnesses of its cause."""
        return f"{self.id}#{self.witness}" if self.witness else self.id


class Override(Record):
    """A later file's change to a rule of an earlier one."""

    rule: str
    severity: Severity | None = None
    disabled: bool = False
    params: JsonObject = {}


class Pack(Record):
    """The author of a rule file."""

    id: str
    version: str = ""
    needs: str = ""


class RuleFile(Record):
    """One TOML file of rules, tables and overrides."""

    schema: Literal[1] = 1
    pack: Pack | None = None
    table: dict[str, JsonObject] = {}
    rule: Annotated[tuple[Rule, ...], fact("rules, and behind them the witnesses of the causes")] = ()
    override: tuple[Override, ...] = ()
