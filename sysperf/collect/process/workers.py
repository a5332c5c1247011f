"""The DataLoader workers of one program, each by itself: read when somebody looks.

Reads   /proc/[pid]/task/[pid]/children  /proc/[pid]/{stat,status,io}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Annotated

from sysperf.collect.process import process_tree
from sysperf.collect.process.process_tree import WORKER
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import Missing
from sysperf.model.record import Record, fact
from sysperf.procfs.children import parse as parse_children
from sysperf.procfs.numbers import whole
from sysperf.procfs.stat import Stat
from sysperf.procfs.status import Status

MAX_WORKERS = 256
STAT, STATUS, IO = "/proc/*/stat", "/proc/*/status", "/proc/*/io"


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
    children = _children(host, pid)
    stats = _of_children(host, children) if children is not None else _of_tree(host, pid)
    if stats is None:
        return Workers(pid, at, None)
    return Workers(pid, at, tuple(_worker(host, stat) for stat in sorted(stats, key=lambda stat: stat.pid)))


def _children(host: Host, pid: int) -> list[int] | None:
    """Return the children of all threads: the kernel lists each thread's own, and any may iterate a loader."""
    texts = [host.text(f"/proc/{pid}/task/{tid}/children", 64 << 10) for tid in host.names(f"/proc/{pid}/task") or (pid,)]
    known = [parse_children(text) for text in texts if text is not None]
    return [child for children in known for child in children][:MAX_WORKERS] if known else None


def _of_children(host: Host, children: list[int]) -> list[Stat]:
    """Workers are children, or children of a fork server, which is a Python with a name of its own."""
    workers: list[Stat] = []
    for child in _stats(host, children):
        if child.comm == WORKER:
            workers.append(child)
        elif child.comm.startswith("python"):
            workers += [served for served in _stats(host, _children(host, child.pid) or []) if served.comm == WORKER]
    return workers[:MAX_WORKERS]


def _of_tree(host: Host, pid: int) -> list[Stat] | None:
    """The same by every process's parent: for captures, and for kernels that do not list children."""
    try:
        family = process_tree.find(host).families.get(pid)
    except Missing:
        return None
    return None if family is None else family.workers[:MAX_WORKERS]


def _stats(host: Host, pids: list[int]) -> Iterator[Stat]:
    """Yield those that did not end meanwhile."""
    return (stat for pid in pids if (stat := process_tree.read_stat(host, pid)) is not None)


def _worker(host: Host, stat: Stat) -> Worker:
    page_bytes = int(host.call("page_size", lambda: os.sysconf("SC_PAGESIZE")) or 4096)
    return Worker(
        stat.pid,
        stat.state,
        stat.cpu_s,
        stat.last_cpu if stat.last_cpu >= 0 else None,
        stat.rss_pages * page_bytes,
        Status(host.text(f"/proc/{stat.pid}/status", 8192) or "").cpus,
        whole((host.pairs(f"/proc/{stat.pid}/io") or {}).get("read_bytes")),
    )
