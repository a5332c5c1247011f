"""What could not be checked of the programs that run: a verdict that leaves it out would claim more than was checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sysperf.model.finding import Finding
from sysperf.model.text import neutral

DENIED = ("Permission denied", "Operation not permitted", "No such file or directory")
"""What a sandbox or a missing privilege looks like: files of others are refused, and folders that are hidden are not there."""


class Unchecked:
    """The checks of running programs that found their files closed, by the key of the outcome."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, str, str]] = {}
        """(rule, subject, reason)"""

    def take(self, judged: Collection[str], outcomes: Iterable[Finding]) -> None:
        """What these rules say now replaces what they said before."""
        self._reasons = {key: entry for key, entry in self._reasons.items() if entry[0] not in judged}
        for outcome in outcomes:
            reason = next((gap.reason for gap in outcome.unknown if gap.reason.endswith(DENIED)), "")
            if outcome.state == "unknown" and outcome.scope == "process" and reason:
                self._reasons[outcome.key] = (outcome.rule, outcome.about, reason)

    def problem(self) -> str:
        """Say in a sentence what could not be checked; empty when all could be."""
        if not self._reasons:
            return ""
        programs = len({subject for _, subject, _ in self._reasons.values()})
        checks = f"{len(self._reasons)} check{'' if len(self._reasons) == 1 else 's'}"
        rule, subject, reason = next(iter(self._reasons.values()))
        return (
            f"{checks} of {programs} PyTorch program{'' if programs == 1 else 's'} could not be made, such as {rule} of "
            f"{neutral(subject, 80)}: {neutral(reason, 200)}"
        )
