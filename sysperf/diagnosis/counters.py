"""What the kernel counts of a process and its threads, read once: two readings give what happened in between.

Reads   /proc/[pid]/{cmdline,io,stat}  /proc/[pid]/task/[tid]/{children,comm,schedstat}  /sys/devices/system/cpu/cpu*/cpufreq/*
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from sysperf.host import descendants
from sysperf.procfs import schedstat
from sysperf.procfs.numbers import whole
from sysperf.procfs.schedstat import SchedStat
from sysperf.procfs.stat import Stat, parse

MAX_THREADS = 2_048
MAX_CHILDREN = 4_096
KTHREADD = 2
"""Starts all other threads of the kernel; in a container's own numbering it may be anybody, who has no kernel's children then."""
PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class Io(NamedTuple):
    """Since the start: calls, bytes that they moved, and bytes of storage."""

    read_calls: int
    read_bytes: int
    write_calls: int
    write_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int


class Reading(NamedTuple):
    """One process at one moment."""

    stat: Stat
    at: float
    threads: dict[int, SchedStat]
    names: dict[int, str]
    io: Io | None


class Spent(NamedTuple):
    """CPU time of a process since its start."""

    name: str
    ticks: int
    kernel: bool
    """A thread of the kernel: it works for whoever reads, writes and allocates."""
    parent: int = 0
    group: int = 0
    """Its process group: what a shell started as one command."""
    ready: bool = False
    """Whether its main thread ran, or waited for a CPU."""
    ended_ticks: int = 0
    """CPU time of its children that ended and were waited for: they may have run for hours before."""


def everybody() -> dict[int, Spent]:
    """The CPU time of all processes that are seen from here, by their numbers."""
    stats = (parse(content(f"/proc/{name}/stat")) for name in os.listdir("/proc") if name.isdigit())
    return {
        stat.pid: Spent(
            stat.comm,
            stat.cpu_ticks,
            KTHREADD in (stat.pid, stat.ppid),
            parent=stat.ppid,
            group=stat.group,
            ready=stat.state == "R",
            ended_ticks=stat.ended_children_ticks,
        )
        for stat in stats
        if stat is not None
    }


def content(path: str, limit: int = 4_096) -> bytes:
    """A small file of /proc; empty where it cannot be read: its process may end at any time."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, limit)
    except OSError:
        return b""
    finally:
        os.close(handle)


def is_file(pid: int, descriptor: bytes) -> bool:
    """Whether a descriptor of a process, as the kernel writes it (``0x5``), is a file: no pipe, socket or device."""
    try:
        name = os.readlink(f"/proc/{pid}/fd/{int(descriptor, 16)}")
    except (OSError, ValueError):
        return False
    return name.startswith("/") and not name.startswith("/dev/")


def process(pid: int, at: float) -> Reading | None:
    """A process with all its threads; None when it has ended."""
    stat = parse(content(f"/proc/{pid}/stat"))
    if stat is None or stat.has_ended:
        return None
    threads: dict[int, SchedStat] = {}
    names: dict[int, str] = {}
    for tid in tids(pid):
        spent = schedstat.parse(content(f"/proc/{pid}/task/{tid}/schedstat", 128))
        if spent is not None:
            threads[tid] = spent
            names[tid] = content(f"/proc/{pid}/task/{tid}/comm", 64).decode("utf-8", "replace").strip()
    return Reading(stat, at, threads, names, _io(pid))


def tids(pid: int) -> list[int]:
    """The threads of a process, at most so many."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")[:MAX_THREADS]]
    except (OSError, ValueError):
        return []


def children(pid: int) -> list[int]:
    """The children that its threads started."""
    return children_finder()(pid)


def children_finder() -> Callable[[int], list[int]]:
    """How the children of many processes are found at one moment; of each, at most so many."""
    found = descendants.children_finder()
    return lambda pid: found(pid)[:MAX_CHILDREN]


def compiles(pid: int) -> bool:
    """Whether a process is a compile worker of PyTorch's Inductor."""
    return b"torch/_inductor/compile_worker/" in content(f"/proc/{pid}/cmdline")


def clock_share(cpu: int) -> float | None:
    """The clock of a CPU now, as a share of its highest; None where the kernel does not govern it, as in most virtual machines."""
    folder = f"/sys/devices/system/cpu/cpu{cpu}/cpufreq"
    now, highest = (whole(content(f"{folder}/{name}", 32).strip()) for name in ("scaling_cur_freq", "cpuinfo_max_freq"))
    return now / highest if now and highest else None


def system_ticks(text: bytes) -> int | None:
    """CPU time in the kernel, field 15 of proc_pid_stat(5)."""
    words = text.rpartition(b")")[2].split()
    return whole(words[12]) if len(words) > 12 else None


def _io(pid: int) -> Io | None:
    fields = dict(line.partition(b": ")[::2] for line in content(f"/proc/{pid}/io", 1_024).splitlines())
    values = [whole(fields.get(name)) for name in (b"syscr", b"rchar", b"syscw", b"wchar", b"read_bytes", b"write_bytes")]
    return None if None in values else Io(*(value or 0 for value in values))
