"""Counters of the machine at one moment, which a window takes at its beginning and its end.

Reads   /proc/{meminfo,stat,vmstat}  /proc/pressure/{cpu,io,memory}  what sysperf/diagnosis/counters.py reads
Kernel  https://docs.kernel.org/filesystems/proc.html  https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sysperf.diagnosis import counters
from sysperf.diagnosis.counters import Spent
from sysperf.procfs import cpu_ticks, meminfo, psi, vmstat

_SWAPPED = ("pswpin", "pswpout")
_REFAULTED = ("workingset_refault_anon", "workingset_refault_file")


class MachineReading(NamedTuple):
    """Counters of the machine."""

    idle_ticks: dict[int, int]
    all_ticks: dict[int, int]
    """Without what the hypervisor took."""
    pressure_us: dict[str, int | None]
    swapped: int | None
    """Pages, in and out."""
    refaulted: int | None = None
    """Pages that were read or swapped in again soon after they had been evicted."""
    available_bytes: int | None = None
    remote_pages: tuple[int, int] | None = None
    """Pages that were taken from the node of the CPU that asked, and from another one."""
    spent: dict[int, Spent] = {}
    own_s: float = 0.0
    """CPU time of this process."""


class Part(NamedTuple):
    """CPU time until a moment within the window: of each CPU, and of the job."""

    idle_ticks: dict[int, int]
    all_ticks: dict[int, int]
    job_ticks: int


def ticks_by_cpu() -> tuple[dict[int, int], dict[int, int]]:
    """(idle, all) clock ticks of each CPU, without those that the hypervisor took."""
    cpus = cpu_ticks.of_each(counters.content("/proc/stat", 1 << 20))
    return {cpu: ticks.unused for cpu, ticks in cpus.items()}, {cpu: ticks.unused + ticks.worked for cpu, ticks in cpus.items()}


class Paging(NamedTuple):
    """Pages since the start of the machine; None: this kernel does not count them."""

    swapped: int | None
    refaulted: int | None
    remote: tuple[int, int] | None


def paging(text: bytes) -> Paging:
    """What /proc/vmstat says about pages."""
    counts = vmstat.counts(text, (*_SWAPPED, *_REFAULTED, "numa_local", "numa_other"))
    local, remote = counts["numa_local"], counts["numa_other"]
    return Paging(_sum(counts, _SWAPPED), _sum(counts, _REFAULTED), None if local is None or remote is None else (local, remote))


def machine_reading() -> MachineReading:
    """The machine's counters."""
    idle, every = ticks_by_cpu()
    pressure = {name: _total(name) for name in ("cpu", "io", "memory")}
    pages = paging(counters.content("/proc/vmstat", 65_536))
    return MachineReading(
        idle, every, pressure, pages.swapped, refaulted=pages.refaulted,
        available_bytes=meminfo.sizes(counters.content("/proc/meminfo", 16_384).decode("utf-8", "replace")).get("MemAvailable"),
        remote_pages=pages.remote, spent=counters.everybody(), own_s=time.process_time(),
    )  # fmt: skip


def _sum(counts: Mapping[str, int | None], names: Sequence[str]) -> int | None:
    """The sum of some counters; None where the kernel has not all of them."""
    known = [count for name in names if (count := counts[name]) is not None]
    return sum(known) if len(known) == len(names) else None


def _total(name: str) -> int | None:
    pressure = psi.parse(counters.content(f"/proc/pressure/{name}", 512)).some
    return pressure.total_us if pressure else None
