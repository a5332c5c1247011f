"""What the agent knows right now: the one object that its faces read from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

from sysperf.agent.shelf import Shelf
from sysperf.model.outcome import Outcome
from sysperf.model.record import Record, fact
from sysperf.model.snapshot import Snapshot

Mode = Literal["observe", "advise", "apply"]


class Held(Record):
    """A finding over time: what a rule says, since when, and whether it still does."""

    outcome: Outcome
    first_seen: Annotated[float, fact("when it was found first, in Unix time; agents before this one count")]
    last_seen: Annotated[float, fact("when it held last, in Unix time")]
    state: Annotated[Literal["active", "gone"], fact("gone: it held before, and no longer does")] = "active"
    samples: Annotated[int, fact("in how many samples in a row it held; 0 once it is gone")] = 0


class Cost(Record):
    """What the agent itself uses."""

    cpu_s: Annotated[float | None, fact("CPU seconds since it started", "/proc/self/stat")] = None
    rss_bytes: Annotated[int | None, fact("resident memory", "/proc/self/statm")] = None


class Status(Record, kw_only=True):
    """How the agent is doing."""

    version: Annotated[str, fact("version of sysperf")]
    mode: Annotated[Mode, fact("observe: findings only; advise: plans too; apply: makes the changes that a site allowed")]
    started_at: Annotated[float, fact("when it started, in Unix time")]
    samples: Annotated[int, fact("samples taken")] = 0
    cost: Cost = Cost()
    clients: Annotated[int, fact("connections to its socket")] = 0
    store_problem: Annotated[str, fact("what is wrong with the history file; empty when nothing is")] = ""
    problems: Annotated[tuple[str, ...], fact("what else does not work, one sentence each")] = ()


class Board(Protocol):
    """The agent's state. Every call answers at once, from memory."""

    store: Shelf

    def snapshot(self) -> Snapshot | None:
        """The last snapshot; None before the first."""

    def findings(self) -> tuple[Held, ...]:
        """What rules found, most costly first; findings that went stay for a while as `gone`."""

    def processes(self) -> tuple[Any, ...]:
        """The PyTorch programs, each with its live meters."""

    def meters(self) -> Mapping[str, float]:
        """The latest value of each series."""

    def changes(self) -> tuple[Any, ...]:
        """What was changed on this machine, newest first."""

    def status(self) -> Status:
        """How the agent itself is doing."""
