"""An agent's answers as records. A newer agent may add fields: those that this version does not know are left out."""

from __future__ import annotations

import typing
from typing import Any

import msgspec

from sysperf.collect.process.workers import Workers
from sysperf.model.outcome import Outcome
from sysperf.model.record import convert
from sysperf.model.snapshot import Snapshot


def outcome(raw: Any) -> Outcome | None:
    """One finding; None when it is of no shape that this version can show."""
    found: Outcome | None = _record(raw, Outcome)
    if found is not None and not found.key:  # an older agent's: its subjects are unique, its fingerprints are not
        return msgspec.structs.replace(found, key=f"{found.rule}@{found.subject}")
    return found


def snapshot(raw: Any) -> Snapshot | None:
    """The facts. Those of the areas stay plain data, which reports can show too."""
    if not isinstance(raw, dict) or not isinstance(raw.get("areas"), dict):
        return None
    return _record(raw, Snapshot)  # type: ignore[no-any-return]  # what it is asked for


def workers(raw: Any) -> Workers | None:
    """The DataLoader workers of a program."""
    return _record(raw, Workers)  # type: ignore[no-any-return]  # what it is asked for


def _record(raw: Any, as_type: Any) -> Any:
    try:
        return convert(_known(raw, as_type), as_type)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError):
        return None


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
