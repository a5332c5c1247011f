"""How busy Intel's GPUs are, and what Intel's own tool tells beyond the files.

Reads   /sys/class/drm/card*/device/tile*/gt*/gtidle/idle_residency_ms  /sys/class/drm/card*/gt/gt*/rc6_residency_ms of the older driver
        xpu-smi under --deep
Kernel  https://docs.kernel.org/gpu/xe/index.html (xe_gt_idle.c)
Intel   https://intel.github.io/xpumanager/2.0/xpu-smi/dump.html
"""

from collections.abc import Iterable, Mapping, Sequence

from sysperf.collect.readers.growth import growth
from sysperf.host import Host
from sysperf.model.record import Json, Record, from_json
from sysperf.procfs import pci

AWAKE = "gpu:awake"
LOOK_S = 0.1
MIB = 1 << 20
MAX_GPUS = 128
_USED = ("GPU Memory Used (MiB)", "memory.used (MiB)")
_CORRECTED = (
    "Cache Errors Correctable",
    "GPU Memory Errors Correctable",
    "ras.cache.errors.correctable",
    "ras.non_compute.errors.correctable",
)
_UNCORRECTED = (
    "Cache Errors Uncorrectable",
    "GPU Memory Errors Uncorrectable",
    "ras.cache.errors.uncorrectable",
    "ras.non_compute.errors.uncorrectable",
)
"""Columns of 1.x and of the first 2.x; that of 2026 takes the same numbers and has the names in small letters."""


class Told(Record):
    """What the tool says of one GPU."""

    memory_used_bytes: int | None = None
    corrected: int | None = None
    uncorrected: int | None = None


def idle_files(host: Host, folder: str) -> list[str]:
    """Counters of the milliseconds that each part of a GPU slept, of the newer driver `xe` or of `i915`."""
    newer, older = (f"{folder}/tile[0-9]*/gt[0-9]*/gtidle/idle_residency_ms", f"{folder.rpartition('/')[0]}/gt/gt[0-9]*/rc6_residency_ms")
    return host.glob(newer) or host.glob(older)


def awake(host: Host, files: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The percentage of a tenth of a second in which the busiest part of each GPU was awake: a little more than it computed."""
    told: dict[str, int] | None = host.call(AWAKE, lambda: look_twice(files), dict[str, int]) if any(files.values()) else {}
    return {name: percent for name, percent in (told or {}).items() if percent in range(101)}


def look_twice(files: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """What the counters of the machine say of the next moment."""
    slept_ms, seconds = growth([path for paths in files.values() for path in paths], LOOK_S)
    least = {name: min((slept_ms[path] for path in paths if path in slept_ms), default=None) for name, paths in files.items()}
    return {name: round(100 * (1 - min(1.0, ms / 1000 / seconds))) for name, ms in least.items() if ms is not None}


def told(host: Host) -> dict[str, Told]:
    """What xpu-smi says, by PCI address; empty where it is absent or says nothing."""
    places = {str(entry.get("device_id")): pci.bus_id(str(entry.get("pci_bdf_address", ""))) for entry in _listed(host)}
    text = host.run("xpu-smi-dump") or host.run("xpu-smi-dump-2") or ""  # of 1.x, and of 2.x
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    header = next((line for line in lines if "DeviceId" in line), [])
    rows = [dict(zip(header, line, strict=False)) for line in lines if line != header and len(line) == len(header)]
    found = {places.get(row["DeviceId"]): row for row in rows[:MAX_GPUS]} if header else {}
    return {place: _told(row) for place, row in found.items() if place}


def _told(row: Mapping[str, str]) -> Told:
    used = _sum(row, _USED)
    return Told(_whole(used, MIB), _whole(_sum(row, _CORRECTED)), _whole(_sum(row, _UNCORRECTED)))


def _whole(value: float | None, unit: int = 1) -> int | None:
    return None if value is None else int(value * unit)


def _sum(row: Mapping[str, str], names: Sequence[str]) -> float | None:
    """What is counted in these columns; None where in none of them."""
    counts = [count for name in names if (count := _number(row, name)) is not None]
    return sum(counts) if counts else None


def _number(row: Mapping[str, str], name: str) -> float | None:
    """The number in a column; `N/A`, or nothing, is none."""
    try:
        value = float(row.get(name, ""))
    except ValueError:
        return None
    return value if 0 <= value < 1 << 53 else None


def _listed(host: Host) -> Iterable[dict[str, Json]]:
    text = host.run("xpu-smi-list")
    try:
        answer: Json = from_json(text, Json) if text else None
    except ValueError as error:
        host.refuse("run:xpu-smi-list", str(error)[:200])
        return ()
    entries = answer.get("device_list") if isinstance(answer, dict) else None
    return [entry for entry in entries[:MAX_GPUS] if isinstance(entry, dict)] if isinstance(entries, list) else ()
