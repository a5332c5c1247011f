"""What a Chrome trace says besides its events: devices, rank, and what the profiler recorded."""

from __future__ import annotations

import contextlib
import re

import msgspec

from sysperf.model.record import Json, JsonObject, from_json
from sysperf.startup import lazy
from sysperf.trace.timeline import Device, Timeline

_RANK = lazy(r"rank[-_]?(\d{1,6})", re.IGNORECASE)
_OTHER_VENDOR = lazy(r"AMD|Radeon|Instinct|gfx\d|Intel|ARTEMIS|MTIA|Gaudi|Ascend|MUSA", re.IGNORECASE)
_DROPPED = lazy(r"(\d{1,9}) (?:records|events|activities) (?:were |have been )?dropped|[Dd]ropped (\d{1,9}) (?:records|events|activit)")


class _Metadata(msgspec.Struct):
    """`Json`: lists and objects here are written as such, or as text that holds JSON or Python."""

    devices: Json = msgspec.field(default=None, name="deviceProperties")
    distributed: Json = msgspec.field(default=None, name="distributedInfo")
    stacks: Json = msgspec.field(default=None, name="with_stack")
    shapes: Json = msgspec.field(default=None, name="record_shapes")
    memory: Json = msgspec.field(default=None, name="profile_memory")
    warnings: Json = msgspec.field(default=None, name="WARNING")
    errors: Json = msgspec.field(default=None, name="ERROR")


def describe(timeline: Timeline, head: bytes, rest: bytes) -> None:
    """Add what stands before and behind the events."""
    for text in (head + b'"traceEvents":[]}' if head else b"{}", b'{"traceEvents":[' + rest if rest else b"{}"):
        with contextlib.suppress(ValueError):
            _describe(timeline, from_json(text, _Metadata))
    described = set(timeline.devices.values())
    if len(described) == 1:  # some writers describe one device, under a number of its own
        timeline.devices = dict.fromkeys({*timeline.devices, *timeline.operations.device}, described.pop())
    if timeline.rank is None and (rank := _RANK.search(timeline.file.rpartition("/")[2])):
        timeline.rank = int(rank[1])


def _describe(timeline: Timeline, metadata: _Metadata) -> None:
    for properties in _listed(metadata.devices):
        if isinstance(properties, dict) and isinstance(properties.get("id"), int):
            timeline.devices[properties["id"]] = _device(properties)
    info = metadata.distributed if isinstance(metadata.distributed, dict) else {}
    timeline.rank = _whole(info.get("rank"), timeline.rank)
    timeline.world_size = _whole(info.get("world_size"), timeline.world_size)
    timeline.backend = info["backend"][:40] if isinstance(info.get("backend"), str) else timeline.backend
    timeline.with_stacks |= bool(metadata.stacks)
    timeline.with_shapes |= bool(metadata.shapes)
    timeline.with_memory |= bool(metadata.memory)
    for text in (*_texts(metadata.warnings), *_texts(metadata.errors)):
        if match := _DROPPED.search(text):
            timeline.damage.dropped += int(match[1] or match[2])


def _device(properties: JsonObject) -> Device:
    major, minor = _whole(properties.get("computeMajor"), None), _whole(properties.get("computeMinor"), 0)
    name = properties["name"][:80] if isinstance(properties.get("name"), str) else None
    # A capability is NVIDIA's: AMD's numbers say gfx9 or gfx11, which have other units, and others have none.
    nvidia = name is None or not _OTHER_VENDOR.search(name)
    return Device(
        name,
        _whole(properties.get("totalGlobalMem"), None),
        major + (minor or 0) / 10 if major is not None and nvidia else None,
        _whole(properties.get("numSms"), None),
    )


def _listed(value: Json) -> list[Json]:
    if isinstance(value, str):
        try:
            value = from_json(value.replace("'", '"'), Json)
        except ValueError:
            return []
    return value[:1_000] if isinstance(value, list) else []


def _texts(value: Json) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text[:2_000] for text in values[:1_000] if isinstance(text, str)]


def _whole(value: Json, otherwise: int | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else otherwise
