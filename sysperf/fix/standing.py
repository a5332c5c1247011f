"""Whether what sysperf changed is still in force, and whose it is when somebody else has changed it since."""

from __future__ import annotations

from typing import NamedTuple

from sysperf.fix import targets
from sysperf.fix.journal import Journal
from sysperf.fix.journal_lines import StepResult
from sysperf.fix.recovery import At, key_of, later_steps
from sysperf.fix.restore import FAILURES, failed, foreign, holds
from sysperf.host import Host
from sysperf.model.change import LIVE, Plan, Setting, Skipped, Step, Transaction


class Standing(NamedTuple):
    """How a step stands now."""

    step: Step
    now: str
    verdict: str
    """holds | replaced | changed | gone | unknown | over"""


def standings(host: Host, journal: Journal, transaction: Transaction) -> list[Standing]:
    """How each step of a transaction stands."""
    later = later_steps(journal, transaction.number) if transaction.live else {}
    if transaction.state == "open":
        return [Standing(step, "it was interrupted, or is at work right now", "unknown") for step in transaction.steps]
    return [_standing(host, step, later.get(key_of(step.change))) for step in transaction.steps]


def _standing(host: Host, step: Step, above: At | None) -> Standing:
    """Whether a change is still in force, by reading what is there."""
    if step.state not in LIVE:
        return Standing(step, "", "over")
    try:
        target = targets.of(host, step.change)
        now = target.read()
        in_force = not target.exact or holds(target, now, step)
    except FAILURES as error:
        result = failed(error)
        return Standing(step, result.reason, result.state or "unknown")
    if above and not in_force:
        return Standing(step, f"transaction {above.number}", "replaced")
    return Standing(step, now, "holds" if in_force else "changed")


def release_ownership(host: Host, journal: Journal, number: int, index: int) -> str:
    """Give up a change that somebody else has overwritten: it is theirs now. Returns who may have; "" when it still holds."""
    with journal.locked():
        current = standings(host, journal, journal.read(number))[index]
        if current.verdict != "changed":
            return ""
        reason = foreign(host, current.step.change, current.now)
        with journal.resume(number) as log:
            log.add(StepResult(index, "foreign", reason=reason))
    return reason


def without_foreign(journal: Journal, planned: Plan) -> Plan:
    """A plan without what somebody else has set after sysperf had: the agent does not fight over a setting."""
    latest = {step.change.target: step for transaction in journal.transactions() for step in transaction.steps}
    theirs = {change.target for change in planned.changes if change.target in latest and latest[change.target].state == "foreign"}
    left = tuple(
        Skipped(Setting(change.knob, change.after, change.item, change.rule), latest[change.target].reason)
        for change in planned.changes
        if change.target in theirs
    )
    kept = tuple(change for change in planned.changes if change.target not in theirs)
    return Plan(kept, (*planned.skipped, *left), planned.conflicts)
