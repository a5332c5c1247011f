"""Mode `apply` in the agent's loop: leases are renewed and changes made by one thread, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

from sysperf.agent.announcer import Announcer
from sysperf.agent.apply_policy import ApplyPolicy
from sysperf.agent.problems import Problems
from sysperf.agent.setup import Options, Setup
from sysperf.live.auditor import Auditor
from sysperf.live.hysteresis import FindingTracker
from sysperf.live.worker import Worker
from sysperf.model.finding import Finding

STOP_S = 20
"""How long the end of the agent waits for changes to be taken back; leases take them back after that."""


class Fixing:
    """Makes the changes that a site allowed; in other modes it does nothing."""

    def __init__(
        self,
        options: Options,
        findings: FindingTracker,
        auditor: Auditor,
        announcer: Announcer,
        problems: Problems,
        log: logging.Logger,
    ) -> None:
        self._options, self._findings, self._auditor = options, findings, auditor
        self._announcer, self._problems, self._log = announcer, problems, log
        self._worker = Worker("sysperf-fix")
        self._task: asyncio.Task[None] | None = None
        self._policy: ApplyPolicy | None = None

    @property
    def problem(self) -> str:
        """Why something could not be changed; empty when nothing is wrong."""
        return self._policy.problem if self._policy else ""

    def use(self, setup: Setup) -> None:
        """Change what this setup allows; what was changed under another is taken back."""
        if self._policy is not None:
            self._task = asyncio.ensure_future(self._worker.run(self._policy.stop))
        change_service = self._options.change_service() if setup.settings.mode == "apply" else None
        self._policy = (
            None
            if change_service is None
            else ApplyPolicy(change_service, self._options.settings_of, setup.settings.apply, setup.settings.lease_s, self._log)
        )

    def start_if_due(self) -> None:
        """Renew leases: audit passes may be further apart than a lease lasts."""
        if self._policy is not None and self._policy.due(time.monotonic()):
            self.start()

    def start(self) -> None:
        """Renew leases, and make changes for what is new; one at a time."""
        if self._policy is not None and (self._task is None or self._task.done()):
            self._task = asyncio.ensure_future(self._step(self._policy))

    async def close(self) -> None:
        """Take everything back, and end the thread."""
        if self._task is not None:
            self._task.cancel()
        if self._policy is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._worker.run(self._policy.stop), STOP_S)
        self._worker.close()

    async def _step(self, policy: ApplyPolicy) -> None:
        with self._problems.reported("fix"):
            active = self._findings.active()
            fixed: Sequence[tuple[str, Finding]] = await self._worker.run(lambda: policy.step(active, time.monotonic()))
            for transaction, outcome in fixed:
                self._announcer.fixed(outcome, transaction)
            if fixed:
                self._auditor.invalidate(*{area for _, outcome in fixed for area in self._auditor.areas_of(outcome.rule)})
