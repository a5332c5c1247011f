"""Rules on facts: each rule says pass, finding, not applicable, unknown or suppressed, once for each subject."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.expression import Scope
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.remedy import remedies
from sysperf.evaluate.ruleset import Compiled, Ruleset
from sysperf.evaluate.sieve import SIEVE_FROM
from sysperf.model.outcome import Outcome, Tally
from sysperf.model.rule import ITEMS, SEVERITIES
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral

CONFIDENCES = ("high", "medium", "low")
JUDGED = ("host", "gpu", "python", "process", "launch")
"""Scopes that an audit judges; traces and scripts have judges of their own."""


class Verdicts:
    """Counts answers and keeps those that a person must see."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.passed = 0
        self.not_applicable = 0

    def tally(self, rules: int) -> Tally:
        states = [outcome.state for outcome in self.outcomes]
        return Tally(
            rules=rules,
            passed=self.passed,
            findings=states.count("finding"),
            not_applicable=self.not_applicable,
            unknown=states.count("unknown"),
            suppressed=states.count("suppressed"),
        )


def judge(ruleset: Ruleset, snapshot: Snapshot, ledger: Ledger) -> Verdicts:
    """Evaluate every rule on the machine; outcomes come ranked, what costs most first."""
    names = scope_names(snapshot)
    verdicts = Verdicts()
    for rule in ruleset.rules:
        if rule.scope in JUDGED:
            judge_rule(ruleset.compiled(rule.id), names, ruleset, ledger, verdicts)
    verdicts.outcomes.sort(key=rank)
    return verdicts


def scope_names(snapshot: Snapshot) -> dict[str, Any]:
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


def judge_rule(rule: Compiled, names: dict[str, Any], ruleset: Ruleset, ledger: Ledger, verdicts: Verdicts) -> None:
    """One rule on all its subjects."""
    if not rule.loop:
        judge_one(rule, Scope(dict(names), ruleset.tables), None, "", ledger, verdicts)
        return
    scope = Scope(dict(names), ruleset.tables)
    items = rule.items(scope)
    if isinstance(items, Unknown):
        _undecided(rule, scope, items, None, "", ledger, verdicts)
        return
    for index, item in _suspects(rule, items, names, ruleset, verdicts):
        scope = Scope({**names, rule.loop: item}, ruleset.tables)
        judge_one(rule, scope, item, subject_of(rule.loop, item, index), ledger, verdicts)


def _suspects(rule: Compiled, items: Sequence[Any], names: dict[str, Any], ruleset: Ruleset, verdicts: Verdicts) -> Iterator[tuple[int, Any]]:
    """The items that are not plainly fine: on long lists, compiled code passes the others quickly."""
    if not items:
        verdicts.not_applicable += 1
        return
    if len(items) < SIEVE_FROM:
        yield from enumerate(items)
        return
    suspects, skipped = rule.sieve(items, names)
    verdicts.not_applicable += skipped
    verdicts.passed += len(items) - len(suspects) - skipped
    for index in suspects:
        yield index, items[index]


def judge_one(rule: Compiled, scope: Scope, item: Any, subject: str, ledger: Ledger, verdicts: Verdicts) -> None:
    """One rule on one subject."""
    applies = rule.applies(scope) if rule.applies else True
    if applies is False:
        verdicts.not_applicable += 1
        return
    fires = rule.when(scope)
    if fires is False:
        verdicts.passed += 1
        return
    guard = _guard(rule, scope) if not isinstance(fires, Unknown) else False
    doubts = [value for value in (applies, fires, guard) if isinstance(value, Unknown)]
    if isinstance(guard, str):
        verdicts.outcomes.append(_outcome(rule, "suppressed", scope, item, subject, ledger, because=guard))
    elif doubts:
        _undecided(rule, scope, sum(doubts[1:], doubts[0]), item, subject, ledger, verdicts)
    elif not applies:
        verdicts.not_applicable += 1
    elif fires:
        verdicts.outcomes.append(_outcome(rule, "finding", scope, item, subject, ledger))
    else:
        verdicts.passed += 1


def _guard(rule: Compiled, scope: Scope) -> str | Unknown | bool:
    """Why it is not reported; False when nothing speaks against it; an unknown when that cannot be told."""
    doubt: Unknown | bool = False
    for condition, because in rule.guards():
        answer = condition(scope)
        if isinstance(answer, Unknown):
            doubt = answer if isinstance(doubt, bool) else doubt + answer
        elif answer:
            return because
    return doubt


def _undecided(rule: Compiled, scope: Scope, doubt: Unknown, item: Any, subject: str, ledger: Ledger, verdicts: Verdicts) -> None:
    gaps = ledger.gaps(doubt.facts, doubt.reads, item)
    verdicts.outcomes.append(
        Outcome(
            rule.rule.id,
            "unknown",
            rule.severity,
            rule.rule.scope,
            rule.rule.title,
            subject,
            confidence=rule.rule.confidence,
            evidence=ledger.evidence(scope.touched, item),
            unknown=gaps,
            fingerprint=fingerprint(rule.rule.id, subject),
        )
    )


def _outcome(rule: Compiled, state: Any, scope: Scope, item: Any, subject: str, ledger: Ledger, because: str = "") -> Outcome:
    touched = dict(scope.touched)
    return Outcome(
        rule.rule.id,
        state,
        rule.severity,
        rule.rule.scope,
        rule.rule.title,
        subject,
        message=rule.message().fill(scope),
        why=rule.rule.explain.strip(),
        because=because,
        confidence=rule.rule.confidence,
        evidence=ledger.evidence(touched, item),
        fixes=remedies(rule, scope) if state == "finding" else (),
        impact=rule.rule.impact,
        refs=rule.rule.refs,
        fingerprint=fingerprint(rule.rule.id, subject),
    )


def fingerprint(rule_id: str, subject: str) -> str:
    """A name of a finding that stays the same from run to run: the rule and its subject, without process numbers."""
    stable = subject.partition(" (pid ")[0]
    return hashlib.sha256(f"{rule_id}\0{stable}".encode("utf-8", "replace")).hexdigest()[:16]


def subject_of(bound: str, item: Any, index: int) -> str:
    """What a finding is about: ``GPU 3 (NVIDIA H100)``, ``python (pid 4242)``, ``/opt/venv``."""
    if bound == "gpu":
        return neutral(f"GPU {getattr(item, 'index', index)} ({getattr(item, 'name', None) or 'unknown model'})", 80)
    if bound == "proc":
        return neutral(f"{getattr(item, 'name', None) or 'process'} (pid {getattr(item, 'pid', '?')})", 80)
    for key in ("prefix", "name", "path", "address", "target", "id"):
        value = getattr(item, key, None)
        if value is not None:
            return neutral(str(value), 120)
    return f"#{index}"


def at_least(outcomes: Iterable[Outcome], severity: str) -> bool:
    """Whether there is a finding of this severity or a worse one."""
    worst = SEVERITIES.index(severity)  # type: ignore[arg-type]  # the command line offers these only
    return any(outcome.state == "finding" and SEVERITIES.index(outcome.severity) <= worst for outcome in outcomes)
