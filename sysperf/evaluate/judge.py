"""Rules on facts: each rule says pass, finding, not applicable, unknown or suppressed, once for each subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.functions import Unknown, because, unknown_of
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope, Value
from sysperf.evaluate.subject import Item, fingerprint
from sysperf.model.errors import RuleError
from sysperf.model.finding import Finding, Remedy, State, Tally
from sysperf.model.record import Record
from sysperf.model.rule import CONFIDENCES, ITEMS, Rule
from sysperf.model.snapshot import Snapshot

JUDGED = ("host", "gpu", "python", "process")
"""Scopes that an audit judges; launches, traces and scripts have judges of their own."""


def judge(
    ruleset: Ruleset, snapshot: Snapshot, scopes: Collection[str], ledger: Ledger | None = None, *, rules: Iterable[Rule] | None = None
) -> Judge:
    """Judge what was read by the rules of these scopes: all in force, or those of `rules`. Raises RuleError where one is wrong."""
    judging = Judge(scope_names(snapshot), ruleset.tables, ledger or Ledger(snapshot))
    for rule in ruleset.rules if rules is None else rules:
        if rule.scope in scopes and not judging.has_none(rule):
            judging.rule(ruleset.compiled(rule.key))
    return judging


class Answer(NamedTuple):
    """What a rule says, and of what."""

    finding: Finding
    rule: Compiled
    item: Item

    @property
    def is_of_item(self) -> bool:
        """Whether it is about what the rule is for: not that the list of its items is unknown."""
        return bool(self.rule.loop) == bool(self.item.bound)


class Judge:
    """Judges rules on one machine; counts all answers and keeps those that a person must see."""

    def __init__(self, names: dict[str, Value], tables: Mapping[str, Mapping[str, Value]], ledger: Ledger) -> None:
        self._names = names
        self._tables = tables
        self._ledger = ledger
        self.answers: list[Answer] = []
        self.rules = 0
        self.passed: Counter[str] = Counter()
        """For how many of its subjects each rule passed."""
        self.passed_rules: list[str] = []
        """The ids of the rules that passed for some of their subjects, and said nothing else of the others."""
        self.not_applicable: Counter[str] = Counter()

    @property
    def outcomes(self) -> list[Finding]:
        """The answers, without what they are about."""
        return [answer.finding for answer in self.answers]

    def tally(self, outcomes: Sequence[Finding] | None = None) -> Tally:
        """The counts; `outcomes` are those kept, after waivers."""
        states = [outcome.state for outcome in (self.outcomes if outcomes is None else outcomes)]
        return Tally(
            rules=self.rules,
            passed=self.passed.total(),
            findings=states.count("finding"),
            not_applicable=self.not_applicable.total(),
            unknown=states.count("unknown"),
            suppressed=states.count("suppressed"),
        )

    def has_none(self, rule: Rule) -> bool:
        """Whether a rule has no subject here (no GPU, no process): it is counted, and needs no compiling."""
        if rule.scope not in ITEMS or self._names.get(f"{ITEMS[rule.scope][0]}s") != ():
            return False
        self.rules += 1
        self.not_applicable[rule.id] += 1
        return True

    def rule(self, rule: Compiled) -> None:
        """One rule on all its subjects."""
        passed, kept = self.passed[rule.rule.id], len(self.answers)
        self.rules += 1
        self._on_subjects(rule)
        if self.passed[rule.rule.id] > passed and len(self.answers) == kept:
            self.passed_rules.append(rule.rule.id)

    def _on_subjects(self, rule: Compiled) -> None:
        scope = Scope(dict(self._names), self._tables)
        if not rule.loop:
            self._decide(rule, scope, Item())
            return
        try:
            items = rule.items(scope)
        except RuleError as error:
            items = because(rule.rule.id, str(error))
        if isinstance(items, Unknown):
            scope.record()
            self._undecided(rule, scope, items, Item())
            return
        if not items:
            self.not_applicable[rule.rule.id] += 1
        for place, value in enumerate(items):
            scope.names[rule.loop] = value
            self._decide(rule, scope, Item(rule.loop, value, place))

    def item(self, rule: Compiled, item: Item) -> None:
        """One rule on one item."""
        names = {**self._names, rule.loop: item.value} if rule.loop else dict(self._names)
        self._decide(rule, Scope(names, self._tables), item)

    def _decide(self, rule: Compiled, scope: Scope, item: Item) -> None:
        """A condition that runs out of its budget is an unknown, not the end of the audit.

        Most subjects are fine: only what a person will see is evaluated again, with a record of the facts that it touched.
        """
        try:
            scope.restart()
            if rule.applies is not None and rule.applies(scope) is False:
                self.not_applicable[rule.rule.id] += 1
            elif rule.when(scope) is False:
                self.passed[rule.rule.id] += 1
            else:
                scope.record()
                self._answer(rule, scope, item)
        except RuleError as error:
            self._undecided(rule, scope, because(rule.rule.id, str(error)), item)

    def _answer(self, rule: Compiled, scope: Scope, item: Item) -> None:
        """What a person will see. An exemption that is unknown does not hide what is plainly there: the finding names it."""
        applies = rule.applies(scope) if rule.applies else True
        fires = rule.when(scope)
        guard = _guard(rule, scope) if not isinstance(fires, Unknown) else _Guard()
        doubt = unknown_of(applies, fires)
        if rule.rule.scope == "launch":  # what a launch rule says is done at once: an exemption that is unknown holds it back
            doubt = unknown_of(applies, fires, guard.doubt)
        if guard.holds:
            self._keep(self._outcome(rule, "suppressed", scope, item, guard.because), rule, item)
        elif doubt is not None:
            self._undecided(rule, scope, doubt, item)
        elif not applies:
            self.not_applicable[rule.rule.id] += 1
        elif fires:
            finding = self._outcome(rule, "finding", scope, item)
            finding = finding if guard.doubt is None else self._uncertain(finding, guard.because, guard.doubt, item)
            self._keep(finding, rule, item)
        else:
            self.passed[rule.rule.id] += 1

    def _uncertain(self, finding: Finding, because_of: str, doubt: Unknown, item: Item) -> Finding:
        """A finding that an exemption may concern: less sure, and nothing is done about it unasked."""
        return msgspec.structs.replace(
            finding,
            because=f"unless {because_of}, which is not known",
            confidence=CONFIDENCES[min(CONFIDENCES.index(finding.confidence) + 1, len(CONFIDENCES) - 1)],
            unknown=self._ledger.gaps(doubt.facts, doubt.reads, item.value),
            fixes=tuple(msgspec.structs.replace(fix, safety="caution") if fix.safety == "safe" else fix for fix in finding.fixes),
        )

    def _undecided(self, rule: Compiled, scope: Scope, doubt: Unknown, item: Item) -> None:
        subject = item.subject()
        finding = Finding(
            rule.rule.id,
            "unknown",
            rule.severity,
            rule.rule.scope,
            rule.rule.title,
            subject,
            confidence=rule.rule.confidence,
            evidence=self._ledger.evidence(scope.touched or {}, item.value),
            unknown=self._ledger.gaps(doubt.facts, doubt.reads, item.value),
            key=f"{rule.rule.id}@{subject.identity}",
            fingerprint=fingerprint(rule.rule.id, subject.lasting_name),
            witness=rule.rule.witness,
        )
        self._keep(finding, rule, item)

    def _keep(self, finding: Finding, rule: Compiled, item: Item) -> None:
        self.answers.append(Answer(finding, rule, item))

    def _outcome(self, rule: Compiled, state: State, scope: Scope, item: Item, guard: str = "") -> Finding:
        subject = item.subject()
        evidence = self._ledger.evidence(scope.touched or {}, item.value)  # before the message touches more
        return Finding(
            rule.rule.id,
            state,
            rule.severity,
            rule.rule.scope,
            rule.rule.title,
            subject,
            message=rule.message().sentence(scope),
            why=rule.rule.explain.strip(),
            because=guard,
            confidence=rule.rule.confidence,
            evidence=evidence,
            fixes=_remedies(rule, scope) if state == "finding" else (),
            impact=rule.rule.impact,
            refs=rule.rule.refs,
            explains=rule.rule.explains,
            key=f"{rule.rule.id}@{subject.identity}",
            fingerprint=fingerprint(rule.rule.id, subject.lasting_name),
            witness=rule.rule.witness,
        )


def _remedies(rule: Compiled, scope: Scope) -> tuple[Remedy, ...]:
    from sysperf.evaluate.remedy import remedies  # noqa: PLC0415 - 0.7 ms, which a launch without findings need not pay

    return remedies(rule, scope)


class _Guard(Record):
    """The first exemption that holds, or those that may: `because` has the reason of the first."""

    holds: bool = False
    because: str = ""
    doubt: Unknown | None = None


def _guard(rule: Compiled, scope: Scope) -> _Guard:
    """Why it is not reported, or what may be a reason and is unknown."""
    maybe = _Guard()
    for condition, reason in rule.guards():
        answer = condition(scope)
        if isinstance(answer, Unknown):
            maybe = _Guard(False, maybe.because or reason, answer if maybe.doubt is None else maybe.doubt + answer)
        elif answer:
            return _Guard(True, reason)
    return maybe


def scope_names(snapshot: Snapshot) -> dict[str, Value]:
    """The names that conditions use: areas, and the lists of the item scopes."""
    names = {name: area.facts for name, area in snapshot.areas.items()}
    for bound, area, field in ITEMS.values():
        names[f"{bound}s"] = getattr(names.get(area), field, None)
    return names
