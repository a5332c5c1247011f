"""gpu_metrics: what amdgpu's firmware says of why a GPU is slow.

Reads   /sys/class/drm/card*/device/gpu_metrics, in binary
Kernel  https://docs.kernel.org/gpu/amdgpu/thermal.html#gpu-metrics
        drivers/gpu/drm/amd/include/kgd_pp_interface.h (layouts), drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h (bits)
"""

import struct

MAX_BYTES = 16_384
_HEADER = struct.Struct("<HBB")
_INDEPENDENT = {(1, 3): 112}
"""Where the throttle status that means the same on every chip lies, by format and content revision. Others have one of their chip."""
_EVENTS = (
    ("sw-power-cap", (*range(8), *range(16, 24))),  # limits of power and current
    ("sw-thermal", range(32, 44)),  # temperatures of core, memory and regulators
    ("hw-thermal", (44, 45)),  # regulators too hot (VRHOT)
    ("hw-power-brake", (46, 47)),  # held from outside (PROCHOT)
)


def throttled_by(raw: bytes) -> tuple[str, ...] | None:
    """Why the clocks are not at their highest, in the words of `gpu.clocks.events`; None where this layout does not tell."""
    if len(raw) < _HEADER.size:
        return None
    size, format_revision, content_revision = _HEADER.unpack_from(raw)
    place = _INDEPENDENT.get((format_revision, content_revision))
    if place is None or min(size, len(raw)) < place + 8:
        return None
    bits = int.from_bytes(raw[place : place + 8], "little")
    if bits == (1 << 64) - 1:
        return None  # the firmware did not fill it
    return tuple(event for event, places in _EVENTS if any(bits >> bit & 1 for bit in places))
