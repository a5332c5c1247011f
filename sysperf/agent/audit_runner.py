"""Audit passes of the agent: one at a time in a thread, at once after something was changed on the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from sysperf.agent.announcer import Announcer
from sysperf.agent.problems import Problems
from sysperf.agent.state import AgentState
from sysperf.live.auditor import Auditor, AuditPass
from sysperf.live.worker import Worker
from sysperf.model.change import Transaction

HANGING_S = 60.0
JOURNAL = "reading the journal of changes"
OURS = "agent: "
"""The reasons of changes that the agent itself asked for begin with this."""


class AuditRunner:
    """Runs the passes that are due."""

    def __init__(
        self,
        auditor: Auditor,
        state: AgentState,
        announcer: Announcer,
        problems: Problems,
        transactions: Callable[[], tuple[Transaction, ...]],
        take: Callable[[AuditPass, Collection[str]], None],
    ) -> None:
        """`take` gets what each pass found, and the rules for which something was changed just before it."""
        self._auditor, self._state, self._announcer, self._problems = auditor, state, announcer, problems
        self._transactions, self._take = transactions, take
        self._worker = Worker("sysperf-look")
        self._task: asyncio.Task[None] | None = None
        self._started_at = 0.0

    def start(self, now: float) -> None:
        """One pass at a time, and none while the last one hangs."""
        if self._task is not None and not self._task.done():
            if now - self._started_at > HANGING_S:
                self._problems["look"] = f"{self._auditor.doing or JOURNAL} takes more than {HANGING_S:g} s"
            return
        self._started_at = now
        self._task = asyncio.ensure_future(self._run())

    def cancel(self) -> None:
        """Wait for no pass any more."""
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    async def _run(self) -> None:
        """Audit what is due, or was changed."""
        with self._problems.reported("look"):
            transactions = await self._worker.run(self._transactions)
            changed = transactions != self._state.transactions
            if not changed and not self._auditor.due():
                return
            touched = self._invalidate_changed(transactions) if changed and self._state.last is not None else set()
            self._state.transactions = transactions
            self._take(await self._worker.run(self._auditor.run_pass), touched)
            self._problems.pop("look", None)

    def _invalidate_changed(self, transactions: tuple[Transaction, ...]) -> set[str]:
        """Have the next pass read what was changed or taken back, and announce it. Returns the rules behind it."""
        # one without steps is being written just now
        news = [transaction for transaction in transactions if transaction.steps and transaction not in self._state.transactions]
        for transaction in news:
            if not transaction.why.startswith(OURS):  # the agent's own are announced when it makes them
                self._announcer.change(transaction)
        return self._auditor.changed(news)
