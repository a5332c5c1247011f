"""Rules on facts: each rule says pass, finding, not applicable, unknown or suppressed, once for each subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.functions import Unknown, because, unknown_of
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope, Value
from sysperf.evaluate.subject import Subject
from sysperf.model.errors import RuleError
from sysperf.model.outcome import Outcome, Remedy, State, Tally
from sysperf.model.record import Fields, Record
from sysperf.model.rule import ITEMS, SEVERITIES, Confidence
from sysperf.model.snapshot import Snapshot

CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
JUDGED = ("host", "gpu", "python", "process")
"""Scopes that an audit judges; launches, traces and scripts have judges of their own."""


def judge_rules(ruleset: Ruleset, snapshot: Snapshot, ledger: Ledger) -> Judge:
    """Evaluate every rule on the machine."""
    judge = Judge(scope_names(snapshot), ruleset.tables, ledger)
    for rule in ruleset.rules:
        if rule.scope in JUDGED and not judge.has_none(rule.scope):
            judge.rule(ruleset.compiled(rule.key))
    return judge


class Judge:
    """Judges rules on one machine; counts all answers and keeps those that a person must see."""

    def __init__(self, names: dict[str, Value], tables: Mapping[str, Mapping[str, Value]], ledger: Ledger) -> None:
        self._names = names
        self._tables = tables
        self._ledger = ledger
        self.outcomes: list[Outcome] = []
        self.rules = 0
        self.passed = 0
        self.not_applicable = 0

    def tally(self, outcomes: Sequence[Outcome] | None = None) -> Tally:
        """The counts; `outcomes` are those kept, after waivers."""
        states = [outcome.state for outcome in (self.outcomes if outcomes is None else outcomes)]
        return Tally(
            rules=self.rules,
            passed=self.passed,
            findings=states.count("finding"),
            not_applicable=self.not_applicable,
            unknown=states.count("unknown"),
            suppressed=states.count("suppressed"),
        )

    def has_none(self, scope: str) -> bool:
        """Whether rules of this scope have no subject here (no GPU, no process): they are counted, and need no compiling."""
        if scope not in ITEMS or self._names.get(f"{ITEMS[scope][0]}s") != ():
            return False
        self.rules += 1
        self.not_applicable += 1
        return True

    def rule(self, rule: Compiled) -> None:
        """One rule on all its subjects."""
        self.rules += 1
        scope = Scope(dict(self._names), self._tables)
        if not rule.loop:
            self._decide(rule, scope, Subject())
            return
        items = rule.items(scope)
        if isinstance(items, Unknown):
            scope.record()
            self._undecided(rule, scope, rule.items(scope), Subject())
            return
        if not items:
            self.not_applicable += 1
        for place, item in enumerate(items):
            scope.names[rule.loop] = item
            self._decide(rule, scope, Subject(rule.loop, item, place))

    def subject(self, rule: Compiled, subject: Subject) -> None:
        """One rule on one subject."""
        names = {**self._names, rule.loop: subject.item} if rule.loop else dict(self._names)
        self._decide(rule, Scope(names, self._tables), subject)

    def _decide(self, rule: Compiled, scope: Scope, subject: Subject) -> None:
        """A condition that runs out of its budget is an unknown, not the end of the audit.

        Most subjects are fine: only what a person will see is evaluated again, with a record of the facts that it touched.
        """
        try:
            scope.restart()
            if rule.applies is not None and rule.applies(scope) is False:
                self.not_applicable += 1
            elif rule.when(scope) is False:
                self.passed += 1
            else:
                scope.record()
                self._answer(rule, scope, subject)
        except RuleError as error:
            self._undecided(rule, scope, because(rule.rule.id, str(error)), subject)

    def _answer(self, rule: Compiled, scope: Scope, subject: Subject) -> None:
        """What a person will see. An exemption that is unknown does not hide what is plainly there: the finding names it."""
        applies = rule.applies(scope) if rule.applies else True
        fires = rule.when(scope)
        guard = _guard(rule, scope) if not isinstance(fires, Unknown) else _Guard()
        doubt = unknown_of(applies, fires)
        if rule.rule.scope == "launch":  # what a launch rule says is done at once: an exemption that is unknown holds it back
            doubt = unknown_of(applies, fires, guard.doubt)
        if guard.holds:
            self.outcomes.append(self._outcome(rule, "suppressed", scope, subject, guard.because))
        elif doubt is not None:
            self._undecided(rule, scope, doubt, subject)
        elif not applies:
            self.not_applicable += 1
        elif fires:
            finding = self._outcome(rule, "finding", scope, subject)
            self.outcomes.append(finding if guard.doubt is None else self._uncertain(finding, guard.because, guard.doubt, subject))
        else:
            self.passed += 1

    def _uncertain(self, finding: Outcome, because_of: str, doubt: Unknown, subject: Subject) -> Outcome:
        """A finding that an exemption may concern: less sure, and nothing is done about it unasked."""
        return msgspec.structs.replace(
            finding,
            because=f"unless {because_of}: {', '.join(doubt.facts)} is unknown",
            confidence=CONFIDENCES[min(CONFIDENCES.index(finding.confidence) + 1, len(CONFIDENCES) - 1)],
            unknown=self._ledger.gaps(doubt.facts, doubt.reads, subject.item),
            fixes=tuple(msgspec.structs.replace(fix, safety="caution") if fix.safety == "safe" else fix for fix in finding.fixes),
        )

    def _undecided(self, rule: Compiled, scope: Scope, doubt: Unknown, subject: Subject) -> None:
        self.outcomes.append(
            Outcome(
                rule.rule.id,
                "unknown",
                rule.severity,
                rule.rule.scope,
                rule.rule.title,
                subject.name,
                confidence=rule.rule.confidence,
                evidence=self._ledger.evidence(scope.touched or {}, subject.item),
                unknown=self._ledger.gaps(doubt.facts, doubt.reads, subject.item),
                **_identities(rule, subject),
            )
        )

    def _outcome(self, rule: Compiled, state: State, scope: Scope, subject: Subject, guard: str = "") -> Outcome:
        evidence = self._ledger.evidence(scope.touched or {}, subject.item)  # before the message touches more
        return Outcome(
            rule.rule.id,
            state,
            rule.severity,
            rule.rule.scope,
            rule.rule.title,
            subject.name,
            message=rule.message().fill(scope),
            why=rule.rule.explain.strip(),
            because=guard,
            confidence=rule.rule.confidence,
            evidence=evidence,
            fixes=_remedies(rule, scope) if state == "finding" else (),
            impact=rule.rule.impact,
            refs=rule.rule.refs,
            **_identities(rule, subject),
        )


def _remedies(rule: Compiled, scope: Scope) -> tuple[Remedy, ...]:
    from sysperf.evaluate.remedy import remedies  # noqa: PLC0415 - 0.7 ms, which a launch without findings need not pay

    return remedies(rule, scope)


def _identities(rule: Compiled, subject: Subject) -> Fields:
    """Which very subject an outcome is about, and what stays the same of it."""
    return {
        "key": subject.key(rule.rule.id),
        "fingerprint": subject.fingerprint(rule.rule.id),
        "program": subject.program,
        "user": subject.user,
        "witness": rule.rule.witness,
    }


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


def rank(outcome: Outcome) -> tuple[int, int, int, str, str]:
    """What costs most and is surest comes first; a measured or documented effect before an opinion."""
    basis = ("measured", "arithmetic", "documented", "upper-bound", "opinion")
    weight = basis.index(outcome.impact.basis) if outcome.impact else len(basis)
    return (SEVERITIES.index(outcome.severity), CONFIDENCES.index(outcome.confidence), weight, outcome.rule, outcome.subject)


def at_least(outcomes: Iterable[Outcome], severity: str) -> bool:
    """Whether there is a finding of this severity or a worse one."""
    worst = SEVERITIES.index(severity)
    return any(outcome.state == "finding" and SEVERITIES.index(outcome.severity) <= worst for outcome in outcomes)
