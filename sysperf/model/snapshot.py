"""What was read from a machine: facts by area, each with where it came from."""

from __future__ import annotations

from typing import Annotated

from sysperf.model.record import Record, fact


class Source(Record):
    """One thing that was read: a path, a command (``run:``) or a library call (``nvml:``)."""

    path: str
    text: str | None = None
    error: str | None = None


class Area(Record):
    """The facts of one area, or why there are none."""

    facts: Annotated[object, fact("the area's record; None when it could not be collected")] = None
    problem: str | None = None
    failures: Annotated[tuple[Source, ...], fact("what could not be read, with the reason")] = ()
    took_ms: float = 0.0


class Snapshot(Record, kw_only=True):
    """A machine at one moment."""

    schema: int = 1
    taken_at: str
    root: Annotated[str, fact("'/' for this machine, else the capture it was read from")] = "/"
    deep: bool = False
    areas: dict[str, Area]
