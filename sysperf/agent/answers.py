"""What the agent answers on its socket, as records, and how an answer is read: fields that this version does not know are left out."""

from __future__ import annotations

import typing
from typing import Annotated, Any, TypeVar

import msgspec

from sysperf.agent.status import Status
from sysperf.collect.process.workers import Workers
from sysperf.live.hysteresis import TrackedFinding
from sysperf.model.record import Record, convert, fact

__all__ = ["AllSeries", "AllWorkers", "Changes", "Event", "Findings", "History", "Index", "Meters", "Point", "Programs", "Series"]
__all__ += ["Status", "read"]

T = TypeVar("T")


class Point(Record, array_like=True):
    """Some samples of one series: ``[at, mean, low, high]``."""

    at: float
    mean: float
    low: float
    high: float


class Event(Record):
    """Something that happened: a finding came or went, a change was made, the agent started."""

    id: Annotated[int, fact("grows with every event; ask for what came since")]
    at: Annotated[float, fact("Unix time")]
    kind: str
    subject: str
    text: str
    data: Any = None


class Index(Record):
    """What there is to ask."""

    sysperf: str
    routes: Annotated[dict[str, str], fact("path to what it answers")]


class Findings(Record):
    """What rules found, most costly first."""

    findings: tuple[TrackedFinding, ...]


class Programs(Record):
    """The running PyTorch programs."""

    processes: tuple[Any, ...]


class AllWorkers(Record):
    """The DataLoader workers of programs. Two answers give what each worker did in between."""

    programs: tuple[Workers, ...]


class Meters(Record):
    """The latest value of each series."""

    at: Annotated[float, fact("Unix time of this answer")]
    meters: dict[str, float]


class Series(Record):
    """A series of which there is a history."""

    name: str
    doc: Annotated[str, fact("what it says; empty for one that nobody documented")] = ""


class AllSeries(Record):
    """The answer without `series`."""

    series: tuple[Series, ...]


class History(Record):
    """Points of series between two times, oldest first: ``[at, mean, low, high]``."""

    since: float
    until: float
    history: dict[str, tuple[Point, ...]]


class Changes(Record):
    """What was changed on this machine, newest first."""

    changes: tuple[Any, ...]


def read(raw: Any, as_type: type[T]) -> T | None:
    """An answer, or a part of one; None when it is of no shape that this version knows."""
    try:
        found: T = convert(_known(raw, as_type), as_type)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
        return None
    return found


def _known(raw: Any, as_type: Any) -> Any:
    """The data without fields that its record does not have."""
    if isinstance(as_type, type) and issubclass(as_type, msgspec.Struct):
        if not isinstance(raw, dict):
            return raw
        types = _hints(as_type)
        return {name: _known(value, types[name]) for name, value in raw.items() if name in types}
    parts = typing.get_args(as_type)
    if isinstance(raw, list):
        return [_known(one, parts[0]) for one in raw] if parts else raw
    if isinstance(raw, dict) and typing.get_origin(as_type) is dict:
        return {name: _known(value, parts[1]) for name, value in raw.items()}
    record = next((part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)), None)
    return _known(raw, record) if record else raw


_seen: dict[type, dict[str, Any]] = {}


def _hints(record: type) -> dict[str, Any]:
    if record not in _seen:
        _seen[record] = typing.get_type_hints(record)
    return _seen[record]
