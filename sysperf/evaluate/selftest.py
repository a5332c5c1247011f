"""The tests inside rule files: small machines, and what the rule must say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.judge import Judge
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.schema import Schema, element, fields, is_record, suggest
from sysperf.evaluate.scope import Scope, Value
from sysperf.evaluate.subject import Item
from sysperf.model.errors import RuleError
from sysperf.model.finding import Finding
from sysperf.model.record import Record, TypeForm, convert, origin_of
from sysperf.model.rule import ITEMS, Override, Rule, Test
from sysperf.model.snapshot import Snapshot


class Failure(Record):
    """A test inside a rule file that did not give what it says."""

    rule: str
    test: str
    problem: str


def run_tests(ruleset: Ruleset, schema: Schema, rules: list[Rule]) -> tuple[int, list[Failure]]:
    """(how many tests ran, the failures) of these rules."""
    count, failures = 0, []
    for rule in rules:
        for test in rule.test:
            count += 1
            try:
                problems = list(_problems(rule, test, ruleset, schema))
            except RuleError as error:
                problems = [str(error)]
            failures += [Failure(rule.id, test.name, problem) for problem in problems]
        failures += [Failure(rule.id, "", f"no test expects `{missing}`") for missing in _uncovered(rule)]
    return count, failures


def _uncovered(rule: Rule) -> list[str]:
    expected = {state for test in rule.test for state in ((test.expect,) if isinstance(test.expect, str) else test.expect)}
    missing = [] if "fire" in expected else ["fire"]
    missing += [] if expected & {"pass", "skip"} else ["pass or skip"]
    return missing + ([] if "unknown" in expected else ["unknown"])


def _problems(rule: Rule, test: Test, ruleset: Ruleset, schema: Schema) -> Iterator[str]:
    compiled = Compiled(rule, schema, Override(rule.id, params=test.params))
    given = list(answers(compiled, test, ruleset, schema))
    expected = [test.expect] if isinstance(test.expect, str) else list(test.expect)
    got = [state for state, _ in given]
    if got != expected:
        gaps = (gap for _, outcome in given if outcome for gap in outcome.unknown)
        doubts = ", ".join(gap.reason if gap.fact == rule.id else gap.fact for gap in gaps)
        yield f"expected {' '.join(expected)}, got {' '.join(got) or 'nothing'}{f' (unknown: {doubts})' if doubts else ''}"
    message = " ".join(_text(outcome) for _, outcome in given if outcome)
    yield from (f"the message has no {text!r}: {message[:300]}" for text in test.message_has if text not in message)
    done = " ".join(_fixes(outcome) for _, outcome in given if outcome)
    yield from (f"the fix has no {text!r}: {done[:300]}" for text in test.fix_has if text not in done)


def _text(outcome: Finding) -> str:
    return f"{outcome.about} {outcome.message} {outcome.because} {' '.join(gap.fact for gap in outcome.unknown)}"


def _fixes(outcome: Finding) -> str:
    return " ".join(f"{fix.title} {fix.command} {fix.undo} {fix.undo_text} {fix.note}" for fix in outcome.fixes)


def answers(compiled: Compiled, test: Test, ruleset: Ruleset, schema: Schema) -> Iterator[tuple[str, Finding | None]]:
    """(state, finding) of each subject of a test."""
    names = machine(test.given, compiled.rule.scope, schema)
    for item in _items(compiled, names, ruleset):
        judge = Judge(names, ruleset.tables, Ledger(Snapshot(taken_at="", areas={})))
        judge.item(compiled, item) if item else judge.rule(compiled)
        if judge.outcomes:
            (outcome,) = judge.outcomes
            yield {"finding": "fire", "suppressed": "skip", "unknown": "unknown"}[outcome.state], outcome
        else:
            yield ("pass" if judge.passed else "skip"), None


def _items(compiled: Compiled, names: dict[str, Value], ruleset: Ruleset) -> list[Item | None]:
    """The items to judge one by one; None where the rule itself must say what it makes of the whole."""
    items = compiled.items(Scope(dict(names), ruleset.tables)) if compiled.loop else None
    if items is None or isinstance(items, Unknown):
        return [None]
    return [Item(compiled.loop, item, index) for index, item in enumerate(items)]


def machine(given: dict[str, Value], scope: str, schema: Schema) -> dict[str, Value]:
    """The names of a partial machine: what `given` leaves out is unknown. Raises RuleError on a name that is no fact."""
    names: dict[str, Value] = {}
    bound, _, _ = ITEMS.get(scope, ("", "", ""))
    for name, value in given.items():
        if name == bound:
            names[f"{bound}s"] = (partial(element(schema.root(f"{bound}s")), value, name),)
        else:
            names[name] = partial(schema.root(name), value, name)
    return names


def partial(annotation: TypeForm, value: Value, path: str) -> Value:
    """A record out of a dict, with None for every field that is not given."""
    if is_record(annotation):
        if not isinstance(value, dict):
            raise RuleError(f"given.{path} must be a table")
        known = fields(annotation)
        for name in value:
            if name not in known:
                raise RuleError(f"given.{path}.{name} is no fact{suggest(name, known, f'{path}.')}")
        return annotation(
            **{name: partial(field.type, value[name], f"{path}.{name}") if name in value else None for name, field in known.items()}
        )
    if origin_of(annotation) in (tuple, list) and isinstance(value, list):
        return tuple(partial(get_args(annotation)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    try:
        return convert(value, annotation)
    except ValueError as error:
        raise RuleError(f"given.{path}: {error}") from None
