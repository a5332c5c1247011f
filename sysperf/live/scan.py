"""Which processes run PyTorch: found early, without looking at all others again and again.

Reads   /proc/[pid]/{statm,stat,maps}
Kernel  https://docs.kernel.org/filesystems/proc.html

A process is looked at when it is new, then ever less often. Its map of files is read only when it is large enough for
libtorch, and again only when it grew by as much: PyTorch may be imported hours after the start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sysperf.collect.process.process_tree import MAX_MAPS_BYTES, MIN_BYTES, WORKER
from sysperf.host.live import Live
from sysperf.live.system import PAGE_BYTES
from sysperf.procfs.maps import torch_mapped
from sysperf.procfs.stat import parse as parse_stat

NEVER = float("inf")
FIRST_DELAY_S = 10.0
"""A new process is examined in each scan at first."""
YOUNG_UNTIL_S = 60.0
MAX_DELAY_S = 60.0
"""The longest time between two examinations of a process where there are few."""
MAX_EXAMINED_PER_S = 16.0
"""With more processes than this allows, each is examined less often: one examination costs some 10 µs."""
RETRY_S = 600.0
GROWN_PAGES = (200 << 20) // PAGE_BYTES
MIN_PAGES = MIN_BYTES // PAGE_BYTES
MAX_PIDS = 65_536
MAX_DEPTH = 32


class Change(NamedTuple):
    """What a scan found."""

    started: tuple[int, ...]
    """Processes with PyTorch that nobody knew and that are no helpers of known ones."""
    ended: tuple[int, ...]


class _Examined:
    """What we remember of one process."""

    __slots__ = ("delay_s", "due", "first", "mapped_pages", "parent", "torch")

    def __init__(self, now: float) -> None:
        self.first = now
        self.due = now
        self.delay_s = FIRST_DELAY_S
        self.mapped_pages = 0
        self.parent = 0
        self.torch = False


class Scanner:
    """The processes of this machine that map libtorch, and their helpers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._examined: dict[int, _Examined] = {}
        self.torch: set[int] = set()
        self.workers: set[int] = set()
        """Those of them that are DataLoader workers."""
        self.unreadable: set[int] = set()
        self.problem = ""

    @property
    def count(self) -> int:
        """Processes on this machine."""
        return len(self._examined)

    def hidden(self) -> str:
        """What a missing privilege hides, in a sentence; empty when every large program could be examined."""
        if not self.unreadable:
            return ""
        many = "1 large program" if len(self.unreadable) == 1 else f"{len(self.unreadable)} large programs"
        return f"{many} of other users could not be examined: whether PyTorch runs there is unknown (docs/service.md: see-all-users)"

    def scan(self) -> Change:
        """Examine the processes that are new or due."""
        pids = self._pids()
        if pids is None:
            return Change((), ())
        now = self._clock()
        ended = [pid for pid in self._examined if pid not in pids]
        lost = tuple(pid for pid in ended if pid in self.torch)
        for pid in ended:
            self.forget(pid)
        started: list[int] = []
        for pid in sorted(pids):
            process = self._examined.get(pid)
            if process is None:
                process = self._examined[pid] = _Examined(now)
            if process.due <= now and self._examine(pid, process, now):
                started.append(pid)
        return Change(tuple(started), lost)

    def forget(self, pid: int) -> None:
        """The process ended."""
        self._examined.pop(pid, None)
        self.torch.discard(pid)
        self.workers.discard(pid)
        self.unreadable.discard(pid)

    def families(self) -> list[list[int]]:
        """The processes with PyTorch, each with all below it: apart from its program a helper looks like one itself."""
        families: dict[int, list[int]] = {}
        for pid in sorted(self.torch):
            families.setdefault(self._root(pid), []).append(pid)
        return [*families.values()]

    def tree(self, pids: Iterable[int]) -> Live:
        """Return this machine for the collector of processes: only these are listed."""
        return _Narrow(sorted(pids))

    # ------------------------------------------------------------------ inside

    def _root(self, pid: int) -> int:
        for _ in range(MAX_DEPTH):
            if (parent := self._examined[pid].parent) not in self.torch:
                break
            pid = parent
        return pid

    def _pids(self) -> set[int] | None:
        try:
            pids = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        except OSError as error:
            self.problem = f"/proc: {error.strerror}"
            return None
        self.problem = "" if len(pids) <= MAX_PIDS else f"more than {MAX_PIDS} processes: not all are examined"
        return pids if len(pids) <= MAX_PIDS else set(sorted(pids)[:MAX_PIDS])

    def _examine(self, pid: int, process: _Examined, now: float) -> bool:
        """Whether it runs PyTorch, is new to us, and is nobody's helper."""
        pages = _pages(pid)
        if pages == 0:
            process.due = now + RETRY_S  # a kernel thread, or it ended
            return False
        self._put_off(pid, process, now)
        if pages is None or pages < MIN_PAGES or pages < process.mapped_pages + (GROWN_PAGES if process.mapped_pages else 0):
            return False
        process.mapped_pages = pages
        comm, parent = _name_and_parent(pid)
        is_helper = parent in self.torch or comm == WORKER
        if process.torch or not (is_helper or self._maps_torch(pid, process, now)):
            return False
        if comm == WORKER and parent not in self.torch:
            parent = _name_and_parent(parent)[1]  # of a fork server, which is a Python without PyTorch
        process.torch, process.due, process.parent = True, NEVER, parent
        self.torch.add(pid)
        if comm == WORKER:
            self.workers.add(pid)
        return comm != WORKER

    def _put_off(self, pid: int, process: _Examined, now: float) -> None:
        """Young ones soon, old ones late; the number decides a little, so that not all are due at once."""
        latest_s = max(MAX_DELAY_S, len(self._examined) / MAX_EXAMINED_PER_S)
        if now - process.first > YOUNG_UNTIL_S:
            process.delay_s = min(latest_s, process.delay_s * 2)
        process.due = now + process.delay_s * (0.75 + 0.5 * (pid * 40_503 % 256) / 256)

    def _maps_torch(self, pid: int, process: _Examined, now: float) -> bool:
        raw = _maps(pid)
        if raw is None:
            if os.access(f"/proc/{pid}", os.F_OK):
                self.unreadable.add(pid)
                process.due = now + RETRY_S
            return False
        self.unreadable.discard(pid)
        return torch_mapped(raw) is not None


class _Narrow(Live):
    """A host of this machine whose /proc lists only these processes."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__()
        self._pids = [str(pid) for pid in pids]

    def names(self, path: str, limit: int) -> list[str]:
        return [*self._pids, "self"] if path == "/proc" else super().names(path, limit)


def _pages(pid: int) -> int | None:
    """Pages of address space; 0 for a kernel thread and for a process that ended; None when nobody says."""
    try:
        handle = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        return None
    try:
        word = os.read(handle, 64).partition(b" ")[0]
        return int(word) if word.isdigit() else 0
    except OSError:
        return 0
    finally:
        os.close(handle)


def _name_and_parent(pid: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = parse_stat(file.read(1024))
    except OSError:
        return "", 0
    return ("", 0) if stat is None else (stat.comm, stat.ppid)


def _maps(pid: int) -> bytes | None:
    try:
        with open(f"/proc/{pid}/maps", "rb", buffering=0) as file:
            parts: list[bytes] = []
            size = 0
            while size < MAX_MAPS_BYTES and (part := file.read(1 << 16)):
                parts.append(part)
                size += len(part)
        return b"".join(parts)
    except OSError:
        return None
