"""Mode `apply`: the changes that a site allowed, made by somebody who may, and undone when the agent is no longer there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from sysperf.agent.log import NOTICE
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.model.change import Setting
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.finding import Finding

RETRY_S = 3600.0
"""After a refusal, this long nobody is asked again."""
RENEWALS = 3
"""A lease is renewed so often within its time."""

SettingsOf = Callable[[Finding], Sequence[Setting]]
"""The settings that a finding's fixes ask for; empty when none of them can be set here."""


class ChangeService(Protocol):
    """The maker of changes: the helper, over its socket. Every call may raise OSError or SysperfError, and may take seconds."""

    def apply(self, settings: Sequence[Setting], rule: str, lease_s: float) -> str:
        """Make these changes, to be undone when the lease runs out; returns the transaction."""

    def renew(self, transaction: str, lease_s: float) -> None:
        """Let it hold so long from now."""

    def undo(self, transaction: str) -> None:
        """Take it back now."""


class ApplyPolicy:
    """What the agent has changed, and keeps changed."""

    def __init__(
        self, change_service: ChangeService, settings_of: SettingsOf, rules: Collection[str], lease_s: float, log: logging.Logger
    ) -> None:
        self._service = change_service
        self._settings_of = settings_of
        self._rules = frozenset(rules)
        self._lease_s = lease_s
        self._log = log
        self._transactions: dict[str, str] = {}
        """Transactions by the key of the finding."""
        self._refused_s: dict[str, float] = {}
        self._renew_s = 0.0
        self.problem = ""

    @property
    def transactions(self) -> tuple[str, ...]:
        return tuple(self._transactions.values())

    def due(self, now_s: float) -> bool:
        """Whether a lease must be renewed before the next look."""
        return bool(self._transactions) and now_s >= self._renew_s

    def step(self, active: Sequence[TrackedFinding], now_s: float) -> list[tuple[str, Finding]]:
        """Renew what was made, and make what is new. Runs in the worker; returns the new transactions."""
        self._renew(now_s)
        new = []
        for finding in active:
            key = finding.outcome.key
            if finding.outcome.rule not in self._rules or key in self._transactions or now_s < self._refused_s.get(key, 0.0):
                continue
            transaction = self._apply(finding.outcome)
            if transaction:
                self._transactions[key] = transaction
                new.append((transaction, finding.outcome))
            else:
                self._refused_s[key] = now_s + RETRY_S
        return new

    def stop(self) -> None:
        """Take everything back: nobody would look after it."""
        while self._transactions:
            self._undo(self._transactions.popitem()[1])

    def _undo(self, transaction: str) -> None:
        try:
            self._service.undo(transaction)
            self._log.log(NOTICE, "undid %s", transaction)
        except (OSError, SysperfError) as error:
            self._log.warning("%s could not be undone now, and is undone when its lease ends: %s", transaction, error)

    def _apply(self, outcome: Finding) -> str:
        settings = self._settings_of(outcome)
        if not settings:
            self._log.warning("%s: none of its fixes can be made by the agent", outcome.rule)
            return ""
        try:
            transaction = self._service.apply(settings, outcome.rule, self._lease_s)
        except (OSError, SysperfError) as error:
            self._log.warning("%s %s was not fixed: %s", outcome.rule, outcome.about, error)
            self.problem = f"{outcome.rule} was not fixed: {error}"
            return ""
        self.problem = ""
        self._log.log(NOTICE, "fixed %s %s: %s (%s)", outcome.rule, outcome.about, _listed(settings), transaction)
        return transaction

    def _renew(self, now_s: float) -> None:
        if now_s < self._renew_s:
            return
        self._renew_s = now_s + self._lease_s / RENEWALS
        for key in list(self._transactions):
            self._renew_one(key, now_s)

    def _renew_one(self, key: str, now_s: float) -> None:
        transaction = self._transactions[key]
        try:
            self._service.renew(transaction, self._lease_s)
        except SysperfError as error:  # it is no longer there: somebody undid it, and we do not do it again
            self._log.warning("%s is no longer ours: %s", transaction, error)
            del self._transactions[key]
            self._refused_s[key] = now_s + RETRY_S
        except OSError as error:
            self.problem = f"the lease of {transaction} could not be renewed: {error}"


def checked(rules: Sequence[str], known: Collection[str]) -> None:
    """Refuse a list that does not name rules. Raises UsageError."""
    if not rules:
        raise UsageError(
            "mode `apply` changes nothing without a list of rules", 'name them: `[agent] apply = ["thp.…"]` in the configuration'
        )
    for rule in rules:
        if rule not in known:
            raise UsageError(f"[agent] apply: no rule `{rule}`", "`sysperf rules list` shows all")


def _listed(settings: Sequence[Setting]) -> str:
    return ", ".join(f"{setting.knob}{f' of {setting.item}' if setting.item else ''} = {setting.value}" for setting in settings)
