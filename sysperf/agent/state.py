"""The agent's state in memory: what the loop last saw, for whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec

from sysperf import __version__
from sysperf.agent.async_store import AsyncStore
from sysperf.agent.status import Cost, Mode, Status
from sysperf.collect.machine_facts import MachineFacts
from sysperf.collect.process.records import Process
from sysperf.live.checks import Checks
from sysperf.live.hysteresis import FindingTracker
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.model.change import Transaction
from sysperf.model.record import Record, fact
from sysperf.model.snapshot import Snapshot


class Program(Record):
    """A running PyTorch process: its facts as they were read last, and its meters now."""

    process: Process
    meters: Annotated[dict[str, float], fact("the series process.PID.…, without that prefix")] = msgspec.field(default_factory=dict)


class AgentState:
    """What the agent knows right now. The loop writes, the server reads, both in one thread; every call answers at once."""

    def __init__(self, store: AsyncStore, findings: FindingTracker, mode: Mode, started_at: float) -> None:
        self.store = store
        self.tracked = findings
        self.checks = Checks()
        self.mode: Mode = mode
        self.started_at = started_at
        self.values: dict[str, float] = {}
        self.samples = 0
        self.cost = Cost()
        self.problems: Callable[[], tuple[str, ...]] = tuple
        self.clients: Callable[[], int] = int
        self.unknown: Callable[[], dict[str, str]] = dict
        self.transactions: tuple[Transaction, ...] = ()
        self.last: Snapshot | None = None

    def snapshot(self) -> Snapshot | None:
        """The last snapshot; None before the first."""
        return self.last

    def findings(self) -> tuple[TrackedFinding, ...]:
        """What rules found, most costly first; findings that went stay for a while as `gone`."""
        return self.tracked.all()

    def running(self) -> tuple[Process, ...]:
        """The facts of the PyTorch programs that run."""
        return MachineFacts(self.last.areas).programs if self.last else ()

    def processes(self) -> tuple[Program, ...]:
        """The PyTorch programs, each with its live meters."""
        meters: dict[str, dict[str, float]] = {}
        for name, value in self.values.items():
            if name.startswith("process."):
                _, pid, meter = name.split(".", 2)
                meters.setdefault(pid, {})[meter] = value
        return tuple(Program(process, meters.get(str(process.pid), {})) for process in self.running())

    def meters(self) -> Mapping[str, float]:
        """The latest value of each series."""
        return self.values

    def changes(self) -> tuple[Transaction, ...]:
        """What was changed on this machine, newest first."""
        return self.transactions

    def status(self) -> Status:
        """How the agent itself is doing."""
        return Status(
            version=__version__,
            mode=self.mode,
            started_at=self.started_at,
            samples=self.samples,
            cost=self.cost,
            clients=self.clients(),
            store_problem=self.store.problem,
            problems=self.problems(),
        )
