"""The load of each CPU and the processes that use most, read while somebody looks at them.

Reads   /proc/stat  /proc/[pid]/stat
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import os
import threading
import time

from sysperf.live.system import System
from sysperf.procfs.stat import Stat, parse
from sysperf.tui.source import Load, Neighbour, Publish

INTERVAL_S = 1.0
WALK_S, SHARE = 5.0, 0.004
"""Processes are walked through so often, at 20 µs each; more seldom where that would take a larger share of a CPU."""
MAX_PROCESSES = 4_096
TOLD = 16
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuLoad:
    """A thread while it is on."""

    def __init__(self) -> None:
        self._stop: threading.Event | None = None

    def watch(self, publish: Publish, *, on: bool) -> None:
        """Begin or end."""
        if on and self._stop is None:
            self._stop = threading.Event()
            threading.Thread(target=_read, args=(publish, self._stop), name="sysperf-load", daemon=True).start()
        elif not on and self._stop is not None:
            self._stop.set()
            self._stop = None


class Busiest:
    """Which processes used the CPUs between two readings."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._at = self._due = 0.0

    def read(self) -> tuple[Neighbour, ...] | None:
        """Return those that used most, the busiest first; None where it is not yet time, and in the first reading."""
        at, before, since = time.monotonic(), self._last, self._at
        if at < self._due:
            return None
        stats = {stat.pid: stat for stat in map(_stat, _pids()) if stat is not None}
        self._last, self._at = {pid: stat.cpu_ticks for pid, stat in stats.items()}, at
        self._due = at + (max(WALK_S, (time.monotonic() - at) / SHARE) if before else INTERVAL_S)
        if not before:
            return None
        used = {pid: (ticks - before[pid]) / TICKS_PER_S / (at - since) for pid, ticks in self._last.items() if pid in before}
        first = sorted(used, key=lambda pid: -used[pid])[:TOLD]
        return tuple(Neighbour(pid, stats[pid].ppid, stats[pid].comm, used[pid], _owner(pid)) for pid in first if used[pid] > 0)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()][:MAX_PROCESSES]
    except OSError:
        return []


def _stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return parse(file.read(1024))
    except OSError:
        return None


def _owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def _read(publish: Publish, stop: threading.Event) -> None:
    system, busiest = System(), Busiest()
    while not stop.is_set():
        busy, neighbours = system.per_cpu(), busiest.read()
        if busy:
            publish(Load(busy, neighbours))
        stop.wait(INTERVAL_S)
    system.close()
