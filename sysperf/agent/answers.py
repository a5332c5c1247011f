"""What the agent answers on its socket, as records, and how an answer is read: fields that this version does not know are left out."""

from __future__ import annotations

import functools
import types
import typing
from typing import Annotated, TypeVar

import msgspec

from sysperf.agent.status import Status
from sysperf.collect.process.workers import Workers
from sysperf.live.tracked_finding import TrackedFinding
from sysperf.model.finding import Finding, Tally
from sysperf.model.record import Json, JsonObject, Record, TypeForm, convert, fact, origin_of

__all__ = ["AllSeries", "AllWorkers", "Changes", "Event", "Findings", "History", "Index", "Meters", "Point", "Programs", "Series"]
__all__ += ["Status", "read", "read_or_raise"]

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
    data: Json = None


class Index(Record):
    """What there is to ask."""

    sysperf: str
    routes: Annotated[dict[str, str], fact("path to what it answers")]


class Findings(Record):
    """What rules found, most costly first."""

    findings: tuple[TrackedFinding, ...]
    tally: Annotated[Tally | None, fact("how often each answer was given last; of a finding, each time that its condition held")] = None
    unknown: Annotated[tuple[Finding, ...], fact("what could not be judged, the first few of each rule; `tally` counts all")] = ()


class Programs(Record):
    """The running PyTorch programs."""

    processes: tuple[Json, ...]


class AllWorkers(Record):
    """The DataLoader workers of programs. Two answers give what each worker did in between."""

    programs: tuple[Workers, ...]


class Meters(Record):
    """The latest value of each series."""

    at: Annotated[float, fact("Unix time of this answer")]
    meters: dict[str, float]
    unknown: Annotated[dict[str, str], fact("why series of GPUs have no value, by their names; a star stands for all programs")] = (
        msgspec.field(default_factory=dict)
    )


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

    changes: tuple[Json, ...]


def read(raw: object, as_type: type[T]) -> T | None:
    """An answer, or a part of one; None when it is of no shape that this version knows."""
    try:
        return read_or_raise(raw, as_type)
    except (ValueError, TypeError, RecursionError):
        return None


def read_or_raise(raw: object, as_type: type[T]) -> T:
    """An answer, or a part of one. Raises ValueError, TypeError or RecursionError with what is wrong."""
    decoded: T = convert(_in_this_version(raw, as_type), as_type)
    return decoded


def _in_this_version(raw: Json, as_type: TypeForm) -> Json:
    """The data without fields that its record does not have, and with None for those that an older agent does not know."""
    as_type = _without_none(as_type)
    if isinstance(as_type, type(msgspec.Struct)):
        return _fields(raw, as_type) if isinstance(raw, dict) else raw
    origin, parts = origin_of(as_type), typing.get_args(as_type)
    if isinstance(raw, list) and origin in (tuple, list):
        return [_in_this_version(item, parts[0]) for item in raw]
    if isinstance(raw, dict) and origin is dict:
        return {name: _in_this_version(value, parts[1]) for name, value in raw.items()}
    return raw


def _fields(raw: JsonObject, record: type) -> JsonObject:
    hints, optional = _layout(record)
    return {**optional, **{name: _in_this_version(value, hints[name]) for name, value in raw.items() if name in hints}}


def _without_none(as_type: TypeForm) -> TypeForm:
    """``X`` of ``X | None``; all else as it is."""
    if origin_of(as_type) not in (types.UnionType, typing.Union):
        return as_type
    parts = [part for part in typing.get_args(as_type) if part is not type(None)]
    return parts[0] if len(parts) == 1 else as_type


@functools.cache
def _layout(record: type) -> tuple[dict[str, TypeForm], dict[str, None]]:
    """(the type of each field, None for each field that has no default and may be unknown)."""
    hints = typing.get_type_hints(record)
    required = [field.name for field in msgspec.structs.fields(record) if field.required]
    return hints, {name: None for name in required if type(None) in typing.get_args(hints[name])}
