"""An agent's answers as the records that the dashboard draws.

An agent of another version is readable: fields and areas that this version does not know are left out, fields that the agent
does not know are unknown, and an area of another shape is unknown as a whole, with the reason.
"""

from __future__ import annotations

import msgspec

from sysperf.agent.answers import read, read_or_raise
from sysperf.collect import AREAS, record_types
from sysperf.model.change import Transaction
from sysperf.model.finding import Finding
from sysperf.model.record import Json, from_json
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral

OTHER_SHAPE = "the agent's answer is of a shape that this version does not know"
MAX_REASON = 200


class _SnapshotAnswer(msgspec.Struct):
    """A snapshot whose areas are still JSON text, each of which may be of another shape."""

    taken_at: str
    areas: dict[str, msgspec.Raw]
    schema: int = 1
    root: str = "/"
    deep: bool = False


class SnapshotDecoder:
    """Decodes one snapshot after the other. An area whose text is that of the snapshot before is not decoded again."""

    def __init__(self) -> None:
        self._areas: dict[str, tuple[int, Area]] = {}
        """With the hash of its text."""

    def decode(self, answer: bytes) -> Snapshot | None:
        """The facts; None when the answer is no snapshot."""
        try:
            raw = from_json(answer, _SnapshotAnswer)
        except ValueError:
            return None
        self._areas = {area: self._area(area, bytes(raw.areas[area])) for area in AREAS if area in raw.areas}
        areas = {area: decoded for area, (_, decoded) in self._areas.items()}
        return Snapshot(schema=raw.schema, taken_at=raw.taken_at, root=raw.root, deep=raw.deep, areas=areas)

    def _area(self, name: str, text: bytes) -> tuple[int, Area]:
        known, now = self._areas.get(name), hash(text)
        return known if known is not None and known[0] == now else (now, _from_text(name, text))


def _from_text(name: str, text: bytes) -> Area:
    try:
        return area(name, from_json(text, Json))
    except ValueError as error:
        return _unreadable(error)


def area(name: str, raw: object) -> Area:
    """One area with its record; unknown, with the reason, when it is of another shape."""
    try:
        decoded = read_or_raise(raw, Area)
        facts = None if decoded.facts is None else read_or_raise(decoded.facts, record_types((name,))[name])
    except (ValueError, TypeError, RecursionError) as error:
        return _unreadable(error)
    return msgspec.structs.replace(decoded, facts=facts)


def _unreadable(error: Exception) -> Area:
    return Area(None, neutral(f"{OTHER_SHAPE}: {error}", MAX_REASON))


def outcome(raw: object) -> Finding | None:
    """One finding; None when it is of no shape that this version can show."""
    decoded = read(raw, Finding)
    if decoded is not None and not decoded.key:  # an older agent's: its subjects are unique, its fingerprints are not
        return msgspec.structs.replace(decoded, key=f"{decoded.rule}@{decoded.subject.identity}")
    return decoded


def changes(raw: object) -> tuple[Transaction, ...]:
    """What was changed, newest first; a transaction of another shape is left out."""
    listed = raw.get("changes") if isinstance(raw, dict) else None
    decoded = [read(transaction, Transaction) for transaction in listed] if isinstance(listed, list) else []
    return tuple(transaction for transaction in decoded if transaction is not None)
