"""Which programs use a GPU through a graphics driver, and how much: what the driver counts for each of their open files.

Reads   /proc/[pid]/fd  /proc/[pid]/fdinfo/[fd] of files below /dev/dri
Kernel  https://docs.kernel.org/gpu/drm-usage-stats.html

To find them, the open files of all processes are listed, some processes with each sample: there is no list by GPU that others than root
may read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import NamedTuple

from sysperf.live.open_file import OpenFile
from sysperf.live.system import Rates
from sysperf.procfs.fdinfo import NODES, DrmClient, parse
from sysperf.procfs.numbers import whole

SEARCH_S = 15.0
"""Time between two searches."""
AT_ONCE = 32
"""Processes that are looked through with one sample."""
MAX_FDS = 4_096
MAX_FILES = 512
COMPUTE = ("rcs", "ccs", "render", "compute")
"""The engines that run kernels, as xe and i915 call them; others copy, or decode video."""
SEARCHING = "the programs that use it are being looked for"
DENIED = "programs of others may use it: only root sees all"
OUTSIDE = "programs outside of this container may use it"
TOO_MANY = f"programs hold more than {MAX_FILES} files of GPUs open"


class Used(NamedTuple):
    """What one program does on one GPU."""

    pid: int
    bus_id: str
    engines: dict[str, float] | None
    """Shares of the time since the last sample, by engine that computes; None on the first."""
    counts: bool
    """Whether the driver counts time of engines."""
    held_bytes: int | None


class Clients:
    """The programs that hold GPUs open."""

    def __init__(self, clock: Callable[[], float], root: str, *, sees_all: bool) -> None:
        """`sees_all`: the processes of this container are those of the machine."""
        self._clock = clock
        self._root = root
        self._files: dict[tuple[int, str], OpenFile] = {}
        self._rates = Rates()
        self._queue: list[int] = []
        self._search_at = -SEARCH_S
        self._sees_all = sees_all
        self._problem = ""
        self.unseen = SEARCHING
        """Why there may be programs that are not seen; empty when all are."""

    def sample(self, bus_ids: Collection[str]) -> list[Used]:
        """What the programs that are known do on these GPUs; a client that several processes share is the oldest one's."""
        self._search()
        at, used, seen = self._clock(), [], set()
        clients: set[tuple[str, int]] = set()
        for key, file in sorted(self._files.items()):
            client = parse(file.read())
            if client is None:
                del self._files[key]
            elif client.bus_id in bus_ids and (client.bus_id, client.number) not in clients:
                clients.add((client.bus_id, client.number))
                engines, names = self._shares(client, at)
                seen |= names
                counts = bool(client.cycles or client.busy_ns)
                used.append(Used(key[0], client.bus_id, engines, counts, client.held_bytes()))
        self._rates.keep(seen)
        return used

    # ------------------------------------------------------------------ inside

    def _shares(self, client: DrmClient, at: float) -> tuple[dict[str, float] | None, set[str]]:
        """(shares, the counters that they are from) of the engines that compute."""
        counted = {engine: (float(total), float(cycles)) for engine, (cycles, total) in client.cycles.items()}
        counted |= {engine: (at, spent / 1e9) for engine, spent in client.busy_ns.items() if engine not in counted}
        named = {f"{client.bus_id} {client.number} {engine}": (engine, *pair) for engine, pair in counted.items() if engine in COMPUTE}
        rates = {engine: self._rates.per_s(name, now, count) for name, (engine, now, count) in named.items()}
        known = {engine: rate for engine, rate in rates.items() if rate is not None}
        return known if len(known) == len(rates) else None, set(named)

    def _search(self) -> None:
        if not self._queue:
            if self._clock() - self._search_at < SEARCH_S:
                return
            self._queue = sorted((pid for name in _names(f"{self._root}/proc") or () if (pid := whole(name))), reverse=True)
            self._search_at, self._problem = self._clock(), "" if 1 in self._queue else DENIED
        for pid in [self._queue.pop() for _ in range(min(AT_ONCE, len(self._queue)))]:
            self._look(pid)
        if not self._queue:
            self.unseen = self._problem if self._sees_all else OUTSIDE

    def _look(self, pid: int) -> None:
        """Keep the files of a process that are of a graphics driver."""
        folder = f"{self._root}/proc/{pid}"
        names = _names(f"{folder}/fd")
        if names is None:
            self._problem = DENIED if os.path.lexists(folder) else self._problem
            return
        for name in names[:MAX_FDS]:
            if (pid, name) not in self._files and _target(f"{folder}/fd/{name}").startswith(NODES):
                if len(self._files) >= MAX_FILES:
                    self._problem = TOO_MANY
                    return
                self._files[pid, name] = OpenFile(f"{folder}/fdinfo/{name}", self._clock)


def _names(folder: str) -> list[str] | None:
    try:
        return os.listdir(folder)
    except OSError:
        return None


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
