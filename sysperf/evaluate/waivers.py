"""Findings that somebody accepted: waivers with a reason and an end, and a baseline that only shrinks."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import fingerprint
from sysperf.model.outcome import Outcome
from sysperf.model.record import Record, fact


class Waiver(Record):
    """`[[waive]]` in a configuration file."""

    rule: Annotated[str, fact("a rule id or a pattern: shm.*")]
    reason: Annotated[str, msgspec.Meta(min_length=3)]
    expires: datetime.date | None = None
    subject: Annotated[str, fact("pattern of the finding's subject")] = "*"


class Accepted(Record):
    """One finding of a baseline."""

    rule: str
    subject: str
    fingerprint: str


class Baseline(Record):
    """The findings that were there when the baseline was written."""

    schema: int = 1
    written_at: str = ""
    accepted: tuple[Accepted, ...] = ()


def apply_waivers(outcomes: Sequence[Outcome], waivers: Sequence[Waiver], baseline: Baseline | None, ruleset: Ruleset) -> list[Outcome]:
    """Suppress what was accepted; a waiver or baseline entry that suppresses nothing is itself a finding."""
    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    used: set[int] = set()
    named = [_named(waiver, ruleset, outcomes) for waiver in waivers]
    kept = [_waived(outcome, list(zip(waivers, named, strict=True)), today, used) for outcome in outcomes]
    in_force = {rule.id for rule in ruleset.rules}
    for index, waiver in enumerate(waivers):
        if index not in used and (named[index] & in_force or not named[index]):
            kept.append(_stale(waiver))
    if baseline is not None:
        kept = _against(_of_today(baseline, ruleset), kept, in_force)
    return kept


def _named(waiver: Waiver, ruleset: Ruleset, outcomes: Sequence[Outcome]) -> frozenset[str]:
    """The ids that a waiver names: of rules, by their ids of today or earlier, and of findings about our own lists."""
    known = {rule.id for rule in ruleset.known_rules} | {outcome.rule for outcome in outcomes}
    today = frozenset(rule for rule in known if fnmatchcase(rule, waiver.rule))
    return ruleset.earlier_ids.add(waiver.rule, today, known)


def _of_today(baseline: Baseline, ruleset: Ruleset) -> Baseline:
    """The baseline with the ids that its rules have today; a fingerprint is made from the id."""
    entries = ((entry, ruleset.earlier_ids.today(entry.rule)) for entry in baseline.accepted)
    accepted = (entry if entry.rule == rule else Accepted(rule, entry.subject, fingerprint(rule, entry.subject)) for entry, rule in entries)
    return msgspec.structs.replace(baseline, accepted=tuple(accepted))


def _waived(outcome: Outcome, waivers: Sequence[tuple[Waiver, frozenset[str]]], today: datetime.date, used: set[int]) -> Outcome:
    if outcome.state != "finding":
        return outcome
    for index, (waiver, rules) in enumerate(waivers):
        if not (outcome.rule in rules and fnmatchcase(outcome.subject, waiver.subject)):
            continue
        used.add(index)
        if waiver.expires is None or today <= waiver.expires:
            until = f" (until {waiver.expires})" if waiver.expires else ""
            return msgspec.structs.replace(outcome, state="suppressed", because=f"waived: {waiver.reason}{until}")
        return msgspec.structs.replace(outcome, because=f"its waiver expired on {waiver.expires}: {waiver.reason}")
    return outcome


def _stale(waiver: Waiver) -> Outcome:
    return _about(
        "waiver.stale",
        waiver.rule,
        f"The waiver of `{waiver.rule}` ({waiver.reason}) matches no finding here.",
        "A waiver that nothing needs hides the next finding that happens to match it. Remove it from the configuration file.",
    )


def _against(baseline: Baseline, outcomes: list[Outcome], in_force: set[str]) -> list[Outcome]:
    accepted = {one.fingerprint for one in baseline.accepted}
    found = {outcome.fingerprint for outcome in outcomes if outcome.state in ("finding", "unknown", "suppressed")}
    kept = [
        msgspec.structs.replace(outcome, state="suppressed", because="in the baseline")
        if outcome.state == "finding" and outcome.fingerprint in accepted
        else outcome
        for outcome in outcomes
    ]
    gone = [one for one in baseline.accepted if one.fingerprint not in found and one.rule in in_force]
    if gone:
        names = ", ".join(f"{one.rule} {one.subject}".strip() for one in gone[:5])
        kept.append(
            _about(
                "baseline.stale",
                "",
                f"{len(gone)} of {len(baseline.accepted)} entries are no longer found: {names}.",
                "A baseline only shrinks: `sysperf baseline` drops what is fixed, so that it cannot come back unseen.",
            )
        )
    return kept


_TITLES = {"waiver.stale": "A waiver suppresses nothing", "baseline.stale": "The baseline lists findings that are gone"}


def _about(rule: str, subject: str, message: str, why: str) -> Outcome:
    """A finding about our own lists."""
    return Outcome(
        rule,
        "finding",
        "info",
        "host",
        _TITLES[rule],
        subject,
        message,
        why,
        confidence="high",
        key=f"{rule}@{subject}",
        fingerprint=fingerprint(rule, subject),
    )


def shrink(baseline: Baseline | None, outcomes: Sequence[Outcome], now: str, ruleset: Ruleset) -> tuple[Baseline, list[Outcome]]:
    """The baseline without what is gone, and the findings that are not in it. The first baseline takes everything."""
    findings = [outcome for outcome in outcomes if outcome.state == "finding" and not outcome.rule.startswith(("waiver.", "baseline."))]
    if baseline is None:
        entries = {one.fingerprint: Accepted(one.rule, one.subject, one.fingerprint) for one in findings}
        return Baseline(written_at=now, accepted=tuple(entries.values())), []
    baseline = _of_today(baseline, ruleset)
    # What is unknown today may still be there: only what was seen to be gone is dropped.
    present = {one.fingerprint for one in outcomes if not one.rule.startswith(("waiver.", "baseline."))}
    kept = tuple(one for one in baseline.accepted if one.fingerprint in present)
    known = {one.fingerprint for one in baseline.accepted}
    return Baseline(written_at=now, accepted=kept), [one for one in findings if one.fingerprint not in known]
