"""Which causes are said: what programs have in common is said once, and what another cause explains is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sysperf.engine.diagnose.causes import TOO_HIGH, with_gain
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.finding import Finding
from sysperf.model.rule import Rule

MIN_SHARE_OF_GAIN = 0.5
"""Of another cause's share: one that takes as much of the step explains it."""
GENERAL = "program.statement-in-step"
"""What names any statement: a cause that knows what the line is for stands before it, unless it is about a small part only."""
MIN_SHARE_OF_GENERAL = 0.6
_STATES = ("confirmed", "likely", "explained", "contradicted")


def one_per_rule(causes: Sequence[Finding]) -> list[Finding]:
    """One cause a rule: what the programs of a job have in common is said once, by the one that shows it most clearly."""
    by_id: dict[str, list[Finding]] = {}
    for cause in causes:
        by_id.setdefault(cause.rule, []).append(cause)
    return [_merged(sorted(several, key=order)) for several in by_id.values()]


def _merged(several: Sequence[Finding]) -> Finding:
    first = several[0]
    same = [cause for cause in several if cause.state == first.state]
    return msgspec.structs.replace(first, also=tuple(cause.subject for cause in same[1:]))


def order(cause: Finding) -> tuple[object, ...]:
    """What causes are sorted by: how sure they are, then how much acting on them gains."""
    return (_STATES.index(cause.state), -(cause.gain.middle or 0.0), -len(cause.signals), cause.rule)


def without_consequences(causes: Sequence[Finding], ruleset: Ruleset) -> tuple[list[Finding], list[Finding]]:
    """(causes, those that another one of them explains). What is itself explained explains nothing.

    Findings that may explain many are asked first: they stand nearer to the root.
    """
    running = {rule.id: rule for rule in ruleset.rules if rule.scope == "diagnosis"}
    rules = {cause.rule: running[cause.rule] for cause in causes}
    explained: dict[str, str] = {}
    for cause in sorted(causes, key=lambda other: (-_explained(rules[other.rule], running), *order(other))):
        if cause.rule not in explained:
            explained |= {other.rule: cause.rule for other in causes if other.rule not in explained and _explains(cause, other, rules)}
    dropped = [
        msgspec.structs.replace(cause, state="explained", because=f"a consequence of {explained[cause.rule]}")
        for cause in causes
        if cause.rule in explained
    ]
    kept = [cause for cause in causes if cause.rule not in explained]
    return [_rest(cause, [part for part in kept if cause.rule in rules[part.rule].explains_where_most]) for cause in kept], dropped


def _explained(rule: Rule, running: Mapping[str, Rule]) -> int:
    """How many causes of running programs it may explain."""
    return len(running.keys() & {*rule.explains, *rule.explains_where_most})


def _explains(cause: Finding, other: Finding, rules: Mapping[str, Rule]) -> bool:
    """Whether another cause is a consequence of this one, or is within it to the most part.

    Of two that are within each other, which is the same time seen from two sides, the one with the larger gain explains the other.
    """
    if other.rule in rules[cause.rule].explains:
        return True
    if other.rule not in rules[cause.rule].explains_where_most:
        return False
    mutual = cause.rule in rules[other.rule].explains_where_most
    share, of_other = _share(cause, rules), _share(other, rules)
    least = 1.0 if mutual else MIN_SHARE_OF_GAIN
    if mutual and GENERAL in (cause.rule, other.rule):
        least = MIN_SHARE_OF_GENERAL if other.rule == GENERAL else 1 / MIN_SHARE_OF_GENERAL
    return of_other is None or (share or 0.0) >= least * of_other


def _share(cause: Finding, rules: Mapping[str, Rule]) -> float | None:
    """How much of the step it takes, where acting on it gains less than that."""
    return cause.cost_pct if rules[cause.rule].saves or cause.rule == GENERAL else cause.gain.middle


def _rest(cause: Finding, parts: Sequence[Finding]) -> Finding:
    """A cause with what is left to gain when its largest part is gone."""
    largest = max((part.gain.middle or 0.0 for part in parts), default=0.0)
    if cause.gain.middle is None or not largest:
        return cause
    least = (cause.gain.low or 0.0) / TOO_HIGH
    return with_gain(cause, cause.gain.middle - largest, least=max(0.0, least - largest))
