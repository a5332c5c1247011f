"""Findings that somebody accepted are suppressed, and what accepts nothing is a finding; a baseline only shrinks."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from sysperf.evaluate.accepted import Accepted, Baseline, Waiver
from sysperf.evaluate.judge import JUDGED
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import fingerprint
from sysperf.model.finding import Finding, Subject


def apply_waivers(outcomes: Sequence[Finding], waivers: Sequence[Waiver], baseline: Baseline | None, ruleset: Ruleset) -> list[Finding]:
    """Suppress what was accepted; a waiver or baseline entry that suppresses nothing is itself a finding."""
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    used: set[int] = set()
    named = [_named(waiver, ruleset, outcomes) for waiver in waivers]
    kept = [_waived(outcome, list(zip(waivers, named, strict=True)), today, used) for outcome in outcomes]
    in_force = {rule.id for rule in ruleset.rules if rule.scope in JUDGED}  # a waiver for `sysperf lint` is not stale in an audit
    for index, waiver in enumerate(waivers):
        if index not in used and (named[index] & in_force or not named[index]):
            kept.append(_stale(waiver))
    if baseline is not None:
        kept = _against(baseline, kept, in_force)
    return kept


def _named(waiver: Waiver, ruleset: Ruleset, outcomes: Sequence[Finding]) -> frozenset[str]:
    """The ids that a waiver names: of rules, and of findings about our own lists."""
    known = ruleset.known_ids | ruleset.others | {outcome.rule for outcome in outcomes}
    return frozenset(rule for rule in known if fnmatchcase(rule, waiver.rule))


def _waived(outcome: Finding, waivers: Sequence[tuple[Waiver, frozenset[str]]], today: datetime.date, used: set[int]) -> Finding:
    if outcome.state != "finding":
        return outcome
    for index, (waiver, rules) in enumerate(waivers):
        if not (outcome.rule in rules and waiver.covers(outcome)):
            continue
        used.add(index)
        if waiver.expires is None or today <= waiver.expires:
            until = f" (until {waiver.expires})" if waiver.expires else ""
            whom = f" for {waiver.reach()}" if outcome.subject.program else ""
            return msgspec.structs.replace(outcome, state="suppressed", because=f"waived{whom}: {waiver.reason}{until}")
        return msgspec.structs.replace(outcome, because=f"its waiver expired on {waiver.expires}: {waiver.reason}")
    return outcome


def _stale(waiver: Waiver) -> Finding:
    return _about(
        "waiver.stale",
        waiver.rule,
        f"The waiver of `{waiver.rule}` ({waiver.reason}) matches no finding here.",
        "A waiver that nothing needs hides the next finding that happens to match it. Remove it from the configuration file.",
    )


def _against(baseline: Baseline, outcomes: list[Finding], in_force: set[str]) -> list[Finding]:
    accepted = {entry.fingerprint for entry in baseline.accepted}
    present = {name for outcome in outcomes for name in _names(outcome, baseline)}
    kept = [_accepted(outcome, accepted, baseline) for outcome in outcomes]
    gone = [entry for entry in baseline.accepted if entry.fingerprint not in present and entry.rule in in_force]
    if gone:
        names = ", ".join(entry.text() for entry in gone[:5])
        kept.append(
            _about(
                "baseline.stale",
                "",
                f"{len(gone)} of {len(baseline.accepted)} entries are no longer found: {names}.",
                "A baseline only shrinks: `sysperf baseline` drops what is fixed, so that it cannot come back unseen.",
            )
        )
    return kept


def _accepted(outcome: Finding, accepted: set[str], baseline: Baseline) -> Finding:
    names = _names(outcome, baseline)
    if outcome.state != "finding" or accepted.isdisjoint(names):
        return outcome
    old = " (of an earlier version, which knows programs by name only: `sysperf baseline` renews it)"
    return msgspec.structs.replace(outcome, state="suppressed", because=f"in the baseline{'' if outcome.fingerprint in accepted else old}")


def _names(outcome: Finding, baseline: Baseline) -> set[str]:
    """The fingerprints under which a baseline may have this finding."""
    if baseline.schema > 1 or outcome.scope != "process":
        return {outcome.fingerprint}
    return {outcome.fingerprint, fingerprint(outcome.rule, outcome.subject.common_name)}


OWN_FINDINGS = {
    "waiver.stale": (
        "A `[[waive]]` of the configuration matches no finding of this audit: what it spoke of is mended, was renamed, or has another "
        "subject, program or user today. It would hide the next finding that happens to match. Remove it from the configuration file "
        "(docs/configuration.md)."
    ),
    "baseline.stale": (
        "The baseline lists findings that are no longer there. Until they are dropped they could come back unseen: `sysperf baseline` "
        "drops what is fixed and adds nothing."
    ),
}
"""Findings about our own lists, which no rule file defines: what `sysperf explain` says of them."""
_TITLES = {"waiver.stale": "A waiver suppresses nothing", "baseline.stale": "The baseline lists findings that are gone"}


def _about(rule: str, subject: str, message: str, why: str) -> Finding:
    """A finding about our own lists."""
    return Finding(
        rule,
        "finding",
        "info",
        "host",
        _TITLES[rule],
        Subject("item", subject),
        message,
        why,
        confidence="high",
        key=f"{rule}@{subject}",
        fingerprint=fingerprint(rule, subject),
    )


def shrink(baseline: Baseline | None, outcomes: Sequence[Finding], now: str) -> tuple[Baseline, list[Finding]]:
    """The baseline without what is gone, and the findings that are not in it. The first baseline takes everything."""
    seen = [outcome for outcome in outcomes if not outcome.rule.startswith(("waiver.", "baseline."))]
    findings = [outcome for outcome in seen if outcome.state == "finding"]
    if baseline is None:
        return _written(findings, now), []
    accepted = {entry.fingerprint for entry in baseline.accepted}
    # What is unknown today may still be there: only what was seen to be gone is dropped.
    kept = [outcome for outcome in seen if not accepted.isdisjoint(_names(outcome, baseline))]
    return _written(kept, now), [outcome for outcome in findings if accepted.isdisjoint(_names(outcome, baseline))]


def _written(outcomes: Sequence[Finding], now: str) -> Baseline:
    entries = {
        outcome.fingerprint: Accepted(outcome.rule, subject.common_name, outcome.fingerprint, subject.program, subject.user)
        for outcome in outcomes
        for subject in (outcome.subject,)
    }
    return Baseline(schema=2, written_at=now, accepted=tuple(entries.values()))
