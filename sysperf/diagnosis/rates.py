"""What a window shows of the machine, and of those who use it beside the job: differences of its readings, a second."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from sysperf.diagnosis.counters import Spent
from sysperf.diagnosis.machine import Part
from sysperf.diagnosis.window import Window
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.stat import TICKS_PER_S

MIN_PAGES = 1_000
"""Pages taken within the window; with fewer, the share is unknown."""
MIN_PARTS = 4
MAX_ABOVE = 32
"""Processes above one that has ended."""
_NEW = Spent("", 0, kernel=False)
"""Before its start."""


def idle_cpus(window: Window, cpus: CpuSet | None) -> float | None:
    """How many of these CPUs were idle, on average."""
    idle, every = _ticks(window, cpus)
    return idle / every * len(_listed(window, cpus)) if every else None


def busy_cpus(window: Window, cpus: CpuSet | None) -> float | None:
    """How many of these CPUs were at work, for anybody."""
    idle, every = _ticks(window, cpus)
    return (every - idle) / every * len(_listed(window, cpus)) if every else None


def _listed(window: Window, cpus: CpuSet | None) -> list[int]:
    """Return those that were there all the time: one that came meanwhile counts since it was last online."""
    return [cpu for cpu in window.machine_last.all_ticks if cpu in window.machine_first.all_ticks and (cpus is None or cpu in cpus)]


def _ticks(window: Window, cpus: CpuSet | None) -> tuple[int, int]:
    first, last, listed = window.machine_first, window.machine_last, _listed(window, cpus)
    idle = sum(last.idle_ticks[cpu] - first.idle_ticks[cpu] for cpu in listed)
    return idle, sum(last.all_ticks[cpu] - first.all_ticks[cpu] for cpu in listed)


def pressure(window: Window, name: str) -> float | None:
    """The share of the window in which some task waited for a resource."""
    before, after = window.machine_first.pressure_us.get(name), window.machine_last.pressure_us.get(name)
    return None if before is None or after is None else min(1.0, (after - before) / 1e6 / window.seconds)


def swapped_per_s(window: Window) -> float | None:
    """Pages swapped in and out, a second."""
    return _per_s(window, window.machine_first.swapped, window.machine_last.swapped)


def refaulted_per_s(window: Window) -> float | None:
    """Pages a second that were needed again soon after they had been evicted."""
    return _per_s(window, window.machine_first.refaulted, window.machine_last.refaulted)


def available_growth_per_s(window: Window) -> float | None:
    """Bytes a second by which the machine's free memory grew; below 0: something takes it."""
    return _per_s(window, window.machine_first.available_bytes, window.machine_last.available_bytes)


def _per_s(window: Window, before: int | None, after: int | None) -> float | None:
    return None if before is None or after is None else (after - before) / window.seconds


def remote_share(window: Window) -> float | None:
    """Return the share of the pages taken within the window that were on another node than the CPU; None of too few."""
    before, after = window.machine_first.remote_pages, window.machine_last.remote_pages
    if before is None or after is None:
        return None
    local, remote = after[0] - before[0], after[1] - before[1]
    return remote / (local + remote) if local + remote >= MIN_PAGES else None


def others_steady(window: Window, cpus: CpuSet | None, at_least: float) -> float | None:
    """Return the share of the window's parts in which others used so many of these CPUs; None of too few parts."""
    busy = [_others(first, last, cpus) >= at_least for first, last in itertools.pairwise(window.parts)]
    return sum(busy) / len(busy) if len(busy) >= MIN_PARTS else None


def _others(first: Part, last: Part, cpus: CpuSet | None) -> float:
    """How many of these CPUs were used by others between two parts."""
    listed = [cpu for cpu in last.all_ticks if cpu in first.all_ticks and (cpus is None or cpu in cpus)]
    every = sum(last.all_ticks[cpu] - first.all_ticks[cpu] for cpu in listed)
    busy = every - sum(last.idle_ticks[cpu] - first.idle_ticks[cpu] for cpu in listed)
    return (busy - (last.job_ticks - first.job_ticks)) / every * len(listed) if every > 0 else 0.0


class Outside(NamedTuple):
    """What processes outside of the job spent within the window."""

    kernel_cpus: float
    programs: tuple[tuple[str, int, float], ...]
    """(name, number, CPUs) of those that are seen from here, most first."""


def outside(window: Window, cpus: CpuSet | None = None) -> Outside:
    """The CPU time of processes outside of the job and of this one, with what they waited for; of the kernel's threads, their part here."""
    last, ours = window.machine_last.spent, {*window.processes, os.getpid()}
    most = (os.cpu_count() or 1) * window.seconds * TICKS_PER_S
    spent = {pid: ticks / TICKS_PER_S / window.seconds for pid, ticks in _spent_ticks(window.machine_first.spent, last, most).items()}
    programs = sorted(((last[pid].name, pid, cpus) for pid, cpus in spent.items() if not last[pid].kernel and pid not in ours), key=_cpus)
    return Outside(sum(used * share_on(pid, cpus) for pid, used in spent.items() if last[pid].kernel and used > 0), tuple(programs))


def _spent_ticks(first: Mapping[int, Spent], last: Mapping[int, Spent], most: float) -> dict[int, int]:
    """CPU time of each process between two readings, with the commands that it started and that have ended since.

    What such a command had used before is known where it was there. Init takes over others' children, and is not asked; so may any other,
    with hours of theirs, which are more than all CPUs give in that time.
    """
    before: Counter[int] = Counter()
    for pid in first.keys() - last.keys():
        before[_waits_for(pid, first, last)] += first[pid].ticks + first[pid].ended_ticks
    ended = {pid: process.ended_ticks - first.get(pid, _NEW).ended_ticks - before[pid] for pid, process in last.items() if pid != 1}
    return {
        pid: process.ticks - first.get(pid, _NEW).ticks + (ended[pid] if 0 < ended.get(pid, 0) <= most else 0)
        for pid, process in last.items()
    }


def _waits_for(pid: int, first: Mapping[int, Spent], last: Mapping[int, Spent]) -> int:
    """Return who stands above a process that has ended; numbers that are used again may go round in a circle."""
    above = first[pid].parent
    for _ in range(MAX_ABOVE):
        if above not in first or above in last:
            break
        above = first[above].parent
    return above


def others_ready(window: Window, cpus: CpuSet | None) -> float:
    """How many programs outside of the job ran or waited for one of these CPUs, in the mean of the window's first and last moment."""
    ours = {*window.processes, os.getpid()}
    several = [reading.spent.items() for reading in (window.machine_first, window.machine_last)]
    ready = (pid for spent in several for pid, process in spent if process.ready and not process.kernel and pid not in ours)
    return sum(share_on(pid, cpus) for pid in ready) / len(several)


def share_on(pid: int, cpus: CpuSet | None) -> float:
    """How much of the CPUs that a process may use is among these; all where nobody knows, as of one that has ended."""
    try:
        allowed = os.sched_getaffinity(pid)
    except OSError:
        return 1.0
    return 1.0 if cpus is None else sum(cpu in cpus for cpu in allowed) / len(allowed)


def _cpus(program: tuple[str, int, float]) -> float:
    return -program[2]


def own_cpus(window: Window) -> float:
    """The CPUs that this process itself used."""
    return (window.machine_last.own_s - window.machine_first.own_s) / window.seconds


def used_cpus(window: Window) -> float:
    """The CPUs that the job used, with what its processes did that began or ended within the window."""
    return window.job.ticks / TICKS_PER_S / window.seconds
