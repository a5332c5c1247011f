"""What the rules said last: how often each answer was given, and what could not be checked.

A verdict that leaves out what could not be checked would claim more than is known.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sysperf.live.auditor import AuditPass
from sysperf.model.finding import Finding, Tally
from sysperf.model.text import neutral

DENIED = ("Permission denied", "Operation not permitted", "No such file or directory")
"""What a sandbox or a missing privilege looks like: files of others are refused, and folders that are hidden are not there."""
KEPT = 20
"""So many unknown answers of a rule are kept whole; all are counted."""


class _Answers(NamedTuple):
    """The answers of one rule."""

    tally: Tally
    unknown: tuple[Finding, ...]
    denied: tuple[tuple[str, str], ...]
    """(subject, reason) of programs whose files were closed"""


class Checks:
    """The latest answers of each rule in force: a pass judges some of them."""

    def __init__(self) -> None:
        self._answers: dict[str, _Answers] = {}

    def take(self, audit: AuditPass) -> None:
        """What these rules say now replaces what they said before."""
        outcomes: dict[str, list[Finding]] = {rule: [] for rule in audit.rules}
        for outcome in audit.outcomes:
            outcomes.setdefault(outcome.rule, []).append(outcome)
        self._answers |= {
            rule: _answers(said, audit.passed.get(rule, 0), audit.not_applicable.get(rule, 0)) for rule, said in outcomes.items()
        }

    def keep_rules(self, known: Collection[str]) -> None:
        """Forget what rules said that are no longer in force."""
        self._answers = {rule: said for rule, said in self._answers.items() if rule in known}

    def tally(self) -> Tally:
        """How often each answer was given."""
        tallies = [said.tally for said in self._answers.values()]
        return Tally(
            rules=len(tallies),
            passed=sum(tally.passed for tally in tallies),
            findings=sum(tally.findings for tally in tallies),
            not_applicable=sum(tally.not_applicable for tally in tallies),
            unknown=sum(tally.unknown for tally in tallies),
            suppressed=sum(tally.suppressed for tally in tallies),
        )

    def unknown(self) -> tuple[Finding, ...]:
        """What could not be judged, the first few of each rule."""
        return tuple(outcome for said in self._answers.values() for outcome in said.unknown)

    def problem(self) -> str:
        """Say in a sentence which checks of programs found their files closed; empty when none did."""
        denied = [(rule, *entry) for rule, said in self._answers.items() for entry in said.denied]
        if not denied:
            return ""
        programs = len({subject for _, subject, _ in denied})
        checks = f"{len(denied)} check{'' if len(denied) == 1 else 's'}"
        rule, subject, reason = denied[0]
        return (
            f"{checks} of {programs} PyTorch program{'' if programs == 1 else 's'} could not be made, such as {rule} of "
            f"{neutral(subject, 80)}: {neutral(reason, 200)}"
        )


def _answers(outcomes: Collection[Finding], passed: int, not_applicable: int) -> _Answers:
    states = [outcome.state for outcome in outcomes]
    unknown = [outcome for outcome in outcomes if outcome.state == "unknown"]
    tally = Tally(
        rules=1,
        passed=passed,
        findings=states.count("finding"),
        not_applicable=not_applicable,
        unknown=len(unknown),
        suppressed=states.count("suppressed"),
    )
    denied = [(outcome.about, reason) for outcome in unknown if outcome.scope == "process" and (reason := _denied(outcome))]
    return _Answers(tally, tuple(unknown[:KEPT]), tuple(denied))


def _denied(outcome: Finding) -> str:
    return next((gap.reason for gap in outcome.unknown if gap.reason.endswith(DENIED)), "")
