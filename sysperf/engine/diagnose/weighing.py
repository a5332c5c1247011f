"""Which causes are said: what programs have in common is said once, and what another cause explains is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sysperf.diagnosis.verdict import Cause
from sysperf.engine.diagnose.causes import with_gain
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.rule import Rule

MIN_SHARE_OF_GAIN = 0.5
"""Of another cause's share: one that takes as much of the step explains it."""
_STATES = ("confirmed", "likely", "explained", "contradicted")


def one_per_rule(causes: Sequence[Cause]) -> list[Cause]:
    """One cause a rule: what the programs of a job have in common is said once, by the one that shows it most clearly."""
    by_id: dict[str, list[Cause]] = {}
    for cause in causes:
        by_id.setdefault(cause.id, []).append(cause)
    return [_merged(sorted(several, key=order)) for several in by_id.values()]


def _merged(several: Sequence[Cause]) -> Cause:
    first = several[0]
    same = [cause for cause in several if cause.state == first.state]
    return msgspec.structs.replace(
        first, subjects=tuple(name for cause in same for name in cause.subjects), pids=tuple(pid for cause in same for pid in cause.pids)
    )


def order(cause: Cause) -> tuple[object, ...]:
    """What causes are sorted by: how sure they are, then how much acting on them gains."""
    return (_STATES.index(cause.state), -(cause.gain or 0.0), -len(cause.signals), cause.id)


def without_consequences(causes: Sequence[Cause], ruleset: Ruleset) -> tuple[list[Cause], list[Cause]]:
    """(causes, those that another one of them explains). What is itself explained explains nothing.

    Causes that may explain many are asked first: they stand nearer to the root.
    """
    running = {rule.id: rule for rule in ruleset.rules if rule.scope == "diagnosis"}
    rules = {cause.id: running[cause.id] for cause in causes}
    explained: dict[str, str] = {}
    for cause in sorted(causes, key=lambda other: (-_explained(rules[other.id], running), *order(other))):
        if cause.id not in explained:
            explained |= {other.id: cause.id for other in causes if other.id not in explained and _explains(cause, other, rules)}
    dropped = [
        msgspec.structs.replace(cause, state="explained", because=f"a consequence of {explained[cause.id]}")
        for cause in causes
        if cause.id in explained
    ]
    kept = [cause for cause in causes if cause.id not in explained]
    return [_rest(cause, [part for part in kept if cause.id in rules[part.id].explains_where_most]) for cause in kept], dropped


def _explained(rule: Rule, running: Mapping[str, Rule]) -> int:
    """How many causes of running programs it may explain."""
    return len(running.keys() & {*rule.explains, *rule.explains_where_most})


def _explains(cause: Cause, other: Cause, rules: Mapping[str, Rule]) -> bool:
    """Whether another cause is a consequence of this one, or is within it to the most part.

    Of two that are within each other, which is the same time seen from two sides, the one with the larger gain explains the other.
    """
    if other.id in rules[cause.id].explains:
        return True
    if other.id not in rules[cause.id].explains_where_most:
        return False
    mutual = cause.id in rules[other.id].explains_where_most
    return other.gain is None or (cause.gain or 0.0) >= (1.0 if mutual else MIN_SHARE_OF_GAIN) * other.gain


def _rest(cause: Cause, parts: Sequence[Cause]) -> Cause:
    """A cause with what is left to gain when its largest part is gone."""
    largest = max((part.gain or 0.0 for part in parts), default=0.0)
    if cause.gain is None or not largest:
        return cause
    return with_gain(cause, cause.gain - largest)
