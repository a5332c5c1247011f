"""Publishing events: they are kept in the store, streamed to clients, and written to the log with what to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from sysperf.agent.async_store import AsyncStore
from sysperf.agent.events import Events
from sysperf.agent.log import NOTICE
from sysperf.agent.store import Event
from sysperf.live.tracked_finding import TrackedFinding, Transition
from sysperf.model.change import Transaction
from sysperf.model.finding import Finding, Remedy

MAX_TEXT = 300
_ENDINGS = {"gone": "gone", "flapping": "keeps coming and going"}


class Announcer:
    """Publishes what happens."""

    def __init__(self, store: AsyncStore, events: Events, log: logging.Logger) -> None:
        self._store = store
        self._events = events
        self._log = log

    def tell(
        self, kind: str, subject: str, text: str, data: dict[str, object] | None = None, payload: TrackedFinding | None = None
    ) -> None:
        """Keep an event, and pass it on; listeners get `payload` in place of the data where there is one."""
        at = time.time()
        number = self._store.event(at, kind, subject, text, data)
        if self._events.listeners:
            self._events.publish(kind, Event(number, at, kind, subject, text, data if payload is None else payload), number)

    def findings(self, transitions: Iterable[Transition], *, advise: bool) -> None:
        """Findings that came, went or flap; with `advise`, the log says what to do."""
        for transition in transitions:
            if transition.restored:
                continue
            kind, outcome = transition.kind, transition.finding.outcome
            text = outcome.message if kind == "finding" else f"{outcome.title}: {_ENDINGS[kind]}"
            data: dict[str, object] = {"rule": outcome.rule, "key": outcome.key, "fingerprint": outcome.fingerprint}
            self.tell(kind, outcome.about, text, data, transition.finding)
            if advise:
                self._advise(transition)

    def change(self, transaction: Transaction) -> None:
        """Something was changed on this machine, or taken back."""
        data: dict[str, object] = {"transaction": transaction.number, "state": transaction.state}
        self.tell("change", transaction.steps[0].change.label(), change_text(transaction), data)

    def fixed(self, outcome: Finding, transaction: str) -> None:
        """The agent itself has changed something."""
        self.tell("change", outcome.about, f"fixed {outcome.rule}", {"rule": outcome.rule, "transaction": transaction})

    def _advise(self, transition: Transition) -> None:
        """Say in the log what is new, and what to do."""
        outcome = transition.finding.outcome
        where = f" [{outcome.about}]" if outcome.about else ""
        if transition.kind != "finding":
            self._log.info("%s%s %s", outcome.rule, where, _ENDINGS[transition.kind])
            return
        level = logging.WARNING if outcome.severity in ("error", "warning") else NOTICE
        fix = _best_fix(outcome)
        todo = f" Fix: {fix.command or fix.title}" if fix else ""
        self._log.log(level, "%s%s: %s%s", outcome.rule, where, outcome.message, todo)


def change_text(transaction: Transaction) -> str:
    """``vm.swappiness: 60 → 10``, or that it is ``undone``."""
    change = transaction.steps[0].change
    more = f" and {len(transaction.steps) - 1} more" if len(transaction.steps) > 1 else ""
    text = f"{change.label()}: {change.before} → {change.after}{more}"
    return (text if transaction.state == "applied" else f"{transaction.state.replace('-', ' ')}: {text}")[:MAX_TEXT]


def _best_fix(outcome: Finding) -> Remedy | None:
    """The fix to name: one with a command rather than an advice."""
    return next((fix for fix in outcome.fixes if fix.command), outcome.fixes[0] if outcome.fixes else None)
