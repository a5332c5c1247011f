"""What the kernel counts of a process and its threads, read once: two readings give what happened in between.

Reads   /proc/[pid]/{stat,statm,io}  /proc/[pid]/task/[tid]/{stat,schedstat,syscall}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import os
from typing import NamedTuple

from sysperf.procfs import schedstat
from sysperf.procfs.numbers import whole
from sysperf.procfs.schedstat import SchedStat
from sysperf.procfs.stat import Stat, parse

MAX_THREADS = 2_048
MAX_CHILDREN = 4_096
PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class Io(NamedTuple):
    """Since the start: calls, bytes that they moved, and bytes of storage."""

    read_calls: int
    read_bytes: int
    write_calls: int
    disk_read_bytes: int
    disk_write_bytes: int


class Reading(NamedTuple):
    """One process at one moment."""

    stat: Stat
    at: float
    threads: dict[int, SchedStat]
    names: dict[int, str]
    io: Io | None


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
    found: list[int] = []
    for tid in tids(pid)[:64]:
        for word in content(f"/proc/{pid}/task/{tid}/children", 65_536).split():
            number = whole(word)
            if number is not None:
                found.append(number)
    return found[:MAX_CHILDREN]


def resident_bytes(pid: int) -> int | None:
    """Its resident memory."""
    words = content(f"/proc/{pid}/statm", 256).split()
    pages = whole(words[1]) if len(words) > 1 else None
    return None if pages is None else pages * PAGE_BYTES


def system_ticks(text: bytes) -> int | None:
    """CPU time in the kernel, field 15 of proc_pid_stat(5)."""
    words = text.rpartition(b")")[2].split()
    return whole(words[12]) if len(words) > 12 else None


def _io(pid: int) -> Io | None:
    fields = dict(line.partition(b": ")[::2] for line in content(f"/proc/{pid}/io", 1_024).splitlines())
    values = [whole(fields.get(name)) for name in (b"syscr", b"rchar", b"syscw", b"read_bytes", b"write_bytes")]
    return None if None in values else Io(*(value or 0 for value in values))
