"""Causes as TOML writes them: what makes a program slow, and the witnesses that show it. Each witness is judged as a rule."""

from typing import Annotated

import msgspec

from sysperf.model.record import JsonObject, Record, fact
from sysperf.model.rule import (
    AnyFix,
    Confidence,
    Experiment,
    Guard,
    Hold,
    Impact,
    Rule,
    RuleFile,
    Scope,
    Severity,
    SignalRule,
    Test,
    WitnessSource,
)

SCOPE_OF: dict[WitnessSource, Scope] = {
    "source": "script",
    "machine": "host",
    "outside": "process",
    "running": "diagnosis",
    "trace": "trace",
}
"""The scope in which a witness is judged."""


class Witness(Record, kw_only=True):
    """One place where a cause shows. Its title and its fixes are its cause's, and what else it leaves out."""

    from_: Annotated[WitnessSource, fact("from where it looks")] = msgspec.field(name="from")
    name: Annotated[str, fact("what tells it from another witness of the same source")] = ""
    severity: Severity
    message: Annotated[str, fact("one line with the observed value: {expression|filter}")]
    when: Annotated[str, fact("true: it shows")]
    explain: Annotated[str, fact("how it shows there, where that needs words of its own")] = ""
    confidence: Confidence = "medium"
    cost: str = ""
    work: str = ""
    predict: str = ""
    signals: tuple[SignalRule, ...] = ()
    lines: tuple[str, ...] = ()
    saves: str = ""
    saves_least: str = ""
    on_gpu: bool = False
    proof: str = ""
    for_each: str = ""
    applies: str = ""
    unless: tuple[Guard, ...] = ()
    params: JsonObject = {}
    hold: Hold | None = None
    impact: Impact | None = None
    measure: Experiment | None = None
    test: tuple[Test, ...] = ()


class Example(Record):
    """Source that shows a cause, and the same without it: run as a test, from end to end."""

    bad: str
    good: str


class Cause(Record, kw_only=True):
    """One thing that makes a PyTorch program slow, and its witnesses: where it shows."""

    id: Annotated[str, fact("dotted, names the pattern, stable for life")]
    title: str
    explain: Annotated[str, fact("what it is, and why it costs")]
    seeds: Annotated[tuple[str, ...], fact("the articles' statements that it covers (docs/seeds.md)")] = ()
    explains: Annotated[tuple[str, ...], fact("causes that are consequences of this one, by id")] = ()
    explains_where_most: Annotated[
        tuple[str, ...], fact("causes whose share has this one's in it, by id: it explains those of which it is most")
    ] = ()
    refs: tuple[str, ...] = ()
    impact: Impact | None = None
    measure: Experiment | None = None
    fix: tuple[AnyFix, ...] = ()
    example: Annotated[Example | None, fact("source that shows it, and the same without it: `bad` and `good`")] = None
    witness: tuple[Witness, ...]

    def rules(self) -> tuple[Rule, ...]:
        """Return the witnesses as rules."""
        return tuple(self._rule(witness) for witness in self.witness)

    def _rule(self, witness: Witness) -> Rule:
        own = {name: getattr(witness, name) for name in _TAKEN}
        return Rule(
            id=self.id, witness=f"{witness.from_}-{witness.name}" if witness.name else witness.from_, scope=SCOPE_OF[witness.from_],
            title=self.title, explain=witness.explain or self.explain, seeds=self.seeds, refs=self.refs,
            explains=self.explains, explains_where_most=self.explains_where_most, impact=witness.impact or self.impact,
            measure=witness.measure or self.measure, fix=tuple(fix for fix in self.fix if not fix.from_ or witness.from_ in fix.from_),
            **own,
        )  # fmt: skip


_TAKEN = tuple({*Witness.__struct_fields__} - {"from_", "name", "explain", "impact", "measure"})
"""What a rule has of its witness alone."""


class Explained(Record):
    """A cause, with those that it may be a consequence of."""

    cause: Cause
    because_of: tuple[str, ...]


class CauseFile(RuleFile):
    """One TOML file with causes beside its rules."""

    cause: tuple[Cause, ...] = ()
