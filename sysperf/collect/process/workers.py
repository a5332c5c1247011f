"""workers: the DataLoader workers of one program, each by itself. No area of its own: it is read when somebody looks.

Reads   /proc/[pid]/task/[pid]/children  /proc/[pid]/{stat,status,io}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import os
import time
from collections.abc import Iterator
from typing import Annotated

from sysperf.collect.process import process_tree
from sysperf.collect.process.process_tree import TICKS_PER_S, WORKER
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact

MOST = 256
STAT, STATUS, IO = "/proc/*/stat", "/proc/*/status", "/proc/*/io"
_CPU_FIELD = 36


class Worker(Record):
    """One DataLoader worker."""

    pid: Annotated[int, fact("its number", STAT)]
    state: Annotated[str, fact("the kernel's letter: R runs or is ready, S waits, D waits for a disk or a driver", STAT)]
    cpu_s: Annotated[float, fact("CPU seconds since it started", STAT)]
    last_cpu: Annotated[int | None, fact("the CPU that it ran on last", STAT)] = None
    rss_bytes: Annotated[int | None, fact("resident memory, shared pages included", STAT)] = None
    allowed: Annotated[CpuSet | None, fact("CPUs that it may use", STATUS)] = None
    read_bytes: Annotated[int | None, fact("bytes that it had read from storage since it started", IO)] = None


class Workers(Record):
    """The DataLoader workers of a program at one moment: two of these give what each of them does in between."""

    pid: Annotated[int, fact("the program")]
    at: Annotated[float, fact("seconds on a clock that never jumps; 0 in a captured machine")]
    workers: Annotated[tuple[Worker, ...] | None, fact("the workers, oldest first; none when it has none", STAT)] = None


def read(host: Host, pid: int) -> Workers:
    """The workers of this program as they are now; None where nobody can tell which processes they are."""
    at = time.monotonic() if host.live else 0.0
    found = _children(host, pid)
    stats = _of_children(host, found) if found is not None else _of_family(host, pid)
    return Workers(pid, at, None if stats is None else tuple(sorted((_worker(host, *one) for one in stats), key=lambda one: one.pid)))


def _children(host: Host, pid: int) -> list[str] | None:
    text = host.text(f"/proc/{pid}/task/{pid}/children", 64 << 10)
    return None if text is None else [word for word in text.split() if word.isdigit()][:MOST]


def _of_children(host: Host, children: list[str]) -> list[tuple[str, list[str]]]:
    """Workers are children, or children of a fork server, which is a Python with a name of its own."""
    found: list[tuple[str, list[str]]] = []
    for child in children:
        comm, rest = _stat(host, child)
        if comm == WORKER:
            found.append((child, rest))
        elif comm.startswith("python"):
            found += [(pid, rest) for pid, (comm, rest) in _stats(host, _children(host, int(child)) or []) if comm == WORKER]
    return found[:MOST]


def _of_family(host: Host, pid: int) -> list[tuple[str, list[str]]] | None:
    """The same by every process's parent: for captures, and for kernels that do not list children."""
    try:
        known = process_tree.find(host).families.get(pid)
    except Missing:
        return None
    if known is None:
        return None
    return [(number, rest) for number, (comm, rest) in _stats(host, [str(one.pid) for one in known.workers[:MOST]]) if comm]


def _stats(host: Host, pids: list[str]) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    return ((pid, _stat(host, pid)) for pid in pids)


def _stat(host: Host, pid: str) -> tuple[str, list[str]]:
    """(its name, the fields behind it); an empty name for what ended or cannot be read."""
    head, found, tail = (host.text(f"/proc/{pid}/stat", 4096) or "").rpartition(")")
    rest = tail.split()
    whole = bool(found) and len(rest) > 21 and all(rest[place].isdecimal() for place in (11, 12, 21))
    return (head.partition(" (")[2], rest) if whole else ("", [])


def _worker(host: Host, pid: str, rest: list[str]) -> Worker:
    page_bytes = int(host.call("page_size", lambda: os.sysconf("SC_PAGESIZE")) or 4096)
    last = rest[_CPU_FIELD] if len(rest) > _CPU_FIELD else ""
    return Worker(
        int(pid),
        rest[0][:1],
        (int(rest[11]) + int(rest[12])) / TICKS_PER_S,
        int(last) if last.isdecimal() and len(last) < 7 else None,
        int(rest[21]) * page_bytes,
        _allowed(host, pid),
        _read_bytes(host, pid),
    )


def _allowed(host: Host, pid: str) -> CpuSet | None:
    _, found, rest = (host.text(f"/proc/{pid}/status", 8192) or "").partition("\nCpus_allowed_list:")
    try:
        return CpuSet.parse(rest.split("\n", 1)[0].strip()) if found else None
    except ValueError:
        return None


def _read_bytes(host: Host, pid: str) -> int | None:
    _, found, rest = (host.text(f"/proc/{pid}/io", 4096) or "").partition("\nread_bytes: ")
    number = rest.split("\n", 1)[0].strip()
    return int(number) if found and number.isdecimal() and len(number) < 25 else None
