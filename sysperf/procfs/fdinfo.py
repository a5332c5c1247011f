"""fdinfo: what a graphics driver counts for one of its open files.

Reads   /proc/[pid]/fdinfo/[fd] of a file below /dev/dri
Kernel  https://docs.kernel.org/gpu/drm-usage-stats.html  https://docs.kernel.org/gpu/xe/xe-drm-usage-stats.html
"""

from __future__ import annotations

from typing import NamedTuple

from sysperf.procfs.numbers import whole

MAX_KEYS = 256
NODES = "/dev/dri/"
OWN_MEMORY = ("vram", "local")
"""How names of a GPU's own memory begin, at amdgpu, xe and i915."""
_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class DrmClient(NamedTuple):
    """One client of a graphics driver. Descriptors that were duplicated or inherited are one client."""

    driver: str
    bus_id: str
    number: int
    """Tells the clients of a driver apart."""
    busy_ns: dict[str, int]
    """Time of work, by the kind of engine."""
    cycles: dict[str, tuple[int, int]]
    """The same in cycles, and the cycles that went by meanwhile."""
    resident: dict[str, int]
    """Bytes, by region of memory."""

    def held_bytes(self) -> int | None:
        """Return what it holds of the GPU's own memory; None where the driver does not count it."""
        amounts = [amount for region, amount in self.resident.items() if region.startswith(OWN_MEMORY)]
        return sum(amounts) if amounts else None


def parse(data: bytes | None) -> DrmClient | None:
    """None of a file that no graphics driver holds, and of one that is not as documented."""
    if not data or b"drm-driver:" not in data:
        return None
    pairs = (line.partition(":") for line in data.decode("utf-8", "replace").splitlines()[:MAX_KEYS] if line.startswith("drm-"))
    said = {name.removeprefix("drm-"): value.strip() for name, _, value in pairs}
    number, bus_id = whole(said.get("client-id")), said.get("pdev")
    if number is None or not bus_id:
        return None
    busy = _counted(said, "engine-", "engine-capacity-")
    cycles, total = _counted(said, "cycles-"), _counted(said, "total-cycles-")
    return DrmClient(
        said["driver"],
        bus_id.lower(),
        number,
        busy,
        {engine: (count, total[engine]) for engine, count in cycles.items() if engine in total},
        _counted(said, "memory-") | _counted(said, "resident-"),
    )


def _counted(said: dict[str, str], start: str, without: str = "\n") -> dict[str, int]:
    """Numbers with their units, by what follows this beginning of their keys."""
    found = {
        name.removeprefix(start): _number(value) for name, value in said.items() if name.startswith(start) and not name.startswith(without)
    }
    return {name: count for name, count in found.items() if count is not None}


def _number(value: str) -> int | None:
    count, _, unit = value.partition(" ")
    number = whole(count)
    return None if number is None else number * _UNITS.get(unit, 1)
