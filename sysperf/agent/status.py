"""How the agent itself is doing, as it tells on its socket."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Record, fact

Mode = Literal["observe", "advise", "apply"]


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
