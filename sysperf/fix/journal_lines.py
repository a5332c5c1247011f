"""The lines of a journal: what each says, its checksum, and how version 1 wrote it.

A line is eight hexadecimal digits (CRC-32 of the rest), a space, and a JSON object. Lines of version 1 had no checksum and
other words; they begin with the brace. A flipped bit cannot turn one form into the other.
"""

from __future__ import annotations

import zlib
from typing import Literal

import msgspec

from sysperf.model.change import Change, Keeper, Lease, StepState
from sysperf.model.record import Json, JsonObject, Record, convert, from_json, to_json

VERSION = 2
_CHECKSUM_BYTES = 8


class DamagedLine(Exception):
    """Nobody wrote this line as it is: it was cut short, or changed on the disk."""


class NewerVersion(DamagedLine):
    """A newer sysperf wrote this file."""


class Begin(Record, tag="begin", tag_field="line", kw_only=True):
    """The first line."""

    version: int
    number: int
    taken_at: str
    boot: str
    by: str
    why: str = ""
    leased: bool = False
    """Whether a lease belongs to it: when that line is damaged, it has ended."""
    steps: int = 0
    """How many steps it is to have, so that one whose line is damaged is missed; 0 when that is not known."""


class StepStarted(Record, tag="step-started", tag_field="line"):
    """The begin of a step."""

    step: int
    change: Change


class StepResult(Record, tag="step-result", tag_field="line"):
    """What became of a step."""

    step: int
    state: StepState
    read: str = ""
    reason: str = ""


class BeforeRewritten(Record, tag="before-rewritten", tag_field="line"):
    """A step of an earlier transaction about the same was undone: what there was before it is now the `before` of this step."""

    step: int
    before: str
    number: int
    earlier: int


class LeaseSet(Record, tag="lease-set", tag_field="line"):
    """The end of a lease; a later line replaces an earlier one."""

    lease: Lease


class KeeperStarted(Record, tag="keeper-started", tag_field="line"):
    """The process that undoes it when the lease ends."""

    keeper: Keeper


class End(Record, tag="end", tag_field="line"):
    """All steps are done, or were undone because one failed."""

    state: Literal["applied", "rolled-back"]
    steps: int = 0
    """How many of them began; 0 when that is not known."""


Line = Begin | StepStarted | StepResult | BeforeRewritten | LeaseSet | KeeperStarted | End


class _Head(msgspec.Struct):
    """What the first line of every version has."""

    version: int


def encode(line: Line) -> bytes:
    """A line with its checksum, and what ends it."""
    body = to_json(line)
    return b"%08x %s\n" % (zlib.crc32(body), body)


def is_checked(raw: bytes) -> bool:
    """Whether a line has the form with a checksum; the others have nothing that shows damage."""
    return not raw.startswith(b"{")


def decode(raw: bytes) -> Line:
    """A line without what ends it. Raises DamagedLine, and NewerVersion for the first line of a newer format."""
    if not is_checked(raw):
        return _decode_1(raw)
    body = raw[_CHECKSUM_BYTES + 1 :]
    if raw[: _CHECKSUM_BYTES + 1] != b"%08x " % zlib.crc32(body):
        raise DamagedLine
    try:
        line: Line = from_json(body, Line)
    except ValueError as error:
        raise NewerVersion if _is_newer(body) else DamagedLine from error
    if isinstance(line, Begin) and line.version > VERSION:
        raise NewerVersion
    return line


def _is_newer(body: bytes) -> bool:
    try:
        return from_json(body, _Head).version > VERSION
    except ValueError:
        return False


def fold(lines: list[Line]) -> list[Line]:
    """The same transaction in as few lines as it needs: the last lease, and the last result of each step."""
    folded: dict[object, Line] = {}
    for index, line in enumerate(lines):
        key: object = index
        if isinstance(line, LeaseSet):
            key = LeaseSet
        elif isinstance(line, StepResult):
            key = (StepResult, line.step)
            earlier = folded.get(key)
            if isinstance(earlier, StepResult) and not line.read:
                line = msgspec.structs.replace(line, read=earlier.read)  # noqa: PLW2901 - the same line with what was read
        elif isinstance(line, Begin):
            line = msgspec.structs.replace(line, version=VERSION)  # noqa: PLW2901 - the same line in this version
        folded.pop(key, None)
        folded[key] = line
    return [*folded.values()]


# ---------------------------------------------------------------------- version 1

_TAGS_1 = {
    "open": "begin",
    "intend": "step-started",
    "told": "step-result",
    "moved": "before-rewritten",
    "lease": "lease-set",
    "keeper": "keeper-started",
    "close": "end",
}


def _decode_1(raw: bytes) -> Line:
    """A line of version 1 in today's words."""
    try:
        words = from_json(raw, Json)
        if words.get("version", 1) != 1:
            raise NewerVersion
        words["line"] = _TAGS_1[words["line"]]
        if words.get("state") == "kept":
            words["state"] = "foreign"
        for name in ("change", "keeper"):
            if name in words:
                words[name] = _renamed(words[name])
        line: Line = convert(words, Line)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedLine from error
    return line


def _renamed(record: JsonObject) -> JsonObject:
    """A change or a keeper: the start time of a process was called `born`."""
    return {"start_time" if name == "born" else name: value for name, value in record.items()}
