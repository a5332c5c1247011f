"""gpu_metrics: what amdgpu's firmware says of why a GPU is slow.

Reads   /sys/class/drm/card*/device/gpu_metrics, in binary
Kernel  https://docs.kernel.org/gpu/amdgpu/thermal.html#gpu-metrics
        drivers/gpu/drm/amd/include/kgd_pp_interface.h (layouts), drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h (bits)
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MAX_BYTES = 16_384
_HEADER = struct.Struct("<HBB")
_INDEPENDENT = {(1, 3): 112}
"""Where the throttle status that means the same on every chip lies, by format and content revision. Others have one of their chip."""
_EVENTS = (
    ("sw-power-cap", (*range(8), *range(16, 24))),  # limits of power and current
    ("sw-thermal", (*range(32, 36), *range(37, 44))),  # temperatures of core, memory and regulators
    ("hw-thermal", (44, 45)),  # regulators too hot (VRHOT)
    ("hw-power-brake", (46, 47)),  # held from outside (PROCHOT)
)
"""Bit 36, the hotspot, says nothing: Navi 31 and 48 set it at rest, too. The sensor of the junction tells that heat."""
_ACCUMULATED = {(1, 6): 32, (1, 7): 40, (1, 8): 40}
"""Where the firmware of MI300 and newer counts: its cycles, then those in which each of the following held the clocks."""
_COUNTS = struct.Struct("<6I")
_HOLDERS = ("hw-power-brake", "sw-power-cap", "hw-thermal", "hw-thermal", "hw-thermal")  # PROCHOT, PPT, socket, regulators, memory
_UNFILLED = 0xFFFF_FFFF


class Held(NamedTuple):
    """Cycles of the firmware so far, and those of them in which each of `_HOLDERS` held the clocks."""

    cycles: int
    counts: tuple[int, ...]


def throttled_by(raw: bytes) -> tuple[str, ...] | None:
    """Why the clocks are not at their highest, in the words of `gpu.clocks.events`; None where this layout does not tell."""
    at = _place(raw, _INDEPENDENT, 8)
    if at is None:
        return None
    bits = int.from_bytes(raw[at : at + 8], "little")
    if bits == (1 << 64) - 1:
        return None  # the firmware did not fill it
    return tuple(event for event, places in _EVENTS if any(bits >> bit & 1 for bit in places))


def held(raw: bytes) -> Held | None:
    """What has held the clocks since the driver was loaded; None where this layout does not count it."""
    at = _place(raw, _ACCUMULATED, _COUNTS.size)
    if at is None:
        return None
    cycles, *counts = _COUNTS.unpack_from(raw, at)
    return None if _UNFILLED in (cycles, *counts) else Held(cycles, tuple(counts))


def throttled_between(before: Held, after: Held) -> tuple[str, ...] | None:
    """Why the clocks were not at their highest between two readings; None where the counters began anew or stand still."""
    cycles = after.cycles - before.cycles
    grown = [count - earlier for earlier, count in zip(before.counts, after.counts, strict=True)]
    if cycles <= 0 or not all(0 <= count <= cycles for count in grown):
        return None
    return tuple(dict.fromkeys(event for event, count in zip(_HOLDERS, grown, strict=True) if count))


def _place(raw: bytes, places: dict[tuple[int, int], int], size: int) -> int | None:
    """Offset of so many bytes in this layout; None of one that does not have them."""
    if len(raw) < _HEADER.size:
        return None
    whole, format_revision, content_revision = _HEADER.unpack_from(raw)
    at = places.get((format_revision, content_revision))
    return None if at is None or min(whole, len(raw)) < at + size else at
