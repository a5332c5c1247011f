"""A window of the kernel's accounting: what the processes of a job did in between two readings, and where they waited.

Nothing is attached and nothing is stopped: every figure is a difference of counters, or counts how often a thread was seen
in a state. Main threads, and up to eleven more of each process, are looked at 20 times a second, on the CPU time of this process.

Reads   what sysperf/diagnosis/{counters,machine}.py read  /proc/[pid]/task/[tid]/syscall
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

from sysperf.diagnosis import counters
from sysperf.diagnosis.counters import Reading
from sysperf.diagnosis.jobtime import JobTime
from sysperf.diagnosis.machine import Part, machine_reading, ticks_by_cpu
from sysperf.procfs.numbers import whole
from sysperf.procfs.stat import parse

RATE_HZ = 20
MAX_WATCHED = 64
"""Processes whose state is sampled: more than these are counted by their readings only."""
SEARCH_S = 0.5
"""Between two searches for new processes, however late looks come on a busy machine."""
MAX_PROCESSES = 4_096
MAX_CALLS = 12
MAX_IN_PARTS = 512
COMPILERS = ("cc1plus", "g++", "clang", "ptxas", "nvcc", "ld", "collect2", "as")

# Numbers of system calls: x86-64, and the table that newer architectures share.
FUTEX = frozenset((202, 98))
_X86 = os.uname().machine == "x86_64"
SYNCING = frozenset((74, 75, 26, 162, 277, 306) if _X86 else (81, 82, 83, 84, 227, 267))
SLEEPING = frozenset((35, 230) if _X86 else (101, 115))
SELECT = frozenset((23, 270) if _X86 else (72,))
"""Of no file: how Python up to 3.10 sleeps."""
POLLING = frozenset((0, 7, 23, 45, 47, 232, 270, 271, 281, 441) if _X86 else (22, 63, 72, 73, 207, 212, 441))

READ = frozenset((0, 17, 19, 295) if _X86 else (63, 65, 67, 69))
OPEN = frozenset((2, 4, 5, 6, 21, 257, 262, 269, 332, 437, 439, 78, 217) if _X86 else (48, 56, 61, 79, 80, 291, 437, 439))
"""Opening of files, and asking for what they and their folders are."""
EPOLL = frozenset((232, 281) if _X86 else (22,))
MAX_TIMER_MS = 100
"""An event loop that wakes that soon waits for a timer, such as asyncio.sleep, and not only for what others send."""


class Watched:
    """One process over the window."""

    def __init__(self, first: Reading, from_start: bool) -> None:
        self.first = self.last = first
        self.from_start = from_start
        self.comm = first.stat.comm
        """Its name at the last look: a worker names itself some milliseconds after its start."""
        self.looks: Counter[str] = Counter()
        self.lock_waits: Counter[int] = Counter()
        """Looks at which a thread waited for a lock with a time limit."""
        self.memory: list[tuple[float, int]] = []
        self.timeline: list[tuple[float, str]] = []
        """What its main thread did at each look."""
        self.clocks: list[float] = []
        """Clocks of the CPU on which its main thread ran, as shares of the highest."""
        self.compiles = counters.compiles(first.stat.pid)
        self.system_first = counters.system_ticks(counters.content(f"/proc/{first.stat.pid}/stat"))
        self.system_last = self.system_first

    @property
    def pid(self) -> int:
        return self.first.stat.pid


class Window:
    """What was seen from outside. `run` takes the time; everything else reads what is there."""

    def __init__(self, root: int, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self.root = root
        self._clock, self._sleep = clock, sleep
        self.processes: dict[int, Watched] = {}
        self.parents: dict[int, int] = {}
        self.compilers: Counter[int] = Counter()
        """Children that compile, by the process below which they were seen."""
        self.job = JobTime()
        self.parts: list[Part] = []
        """Taken every half second; none of a job with very many processes."""
        self._searched = 0.0
        self.began = self.ended = clock()
        self.machine_first = self.machine_last = machine_reading()

    @property
    def seconds(self) -> float:
        return max(1e-3, self.ended - self.began)

    def alive(self) -> bool:
        """Whether the program is still there."""
        watched, stat = self.processes.get(self.root), parse(counters.content(f"/proc/{self.root}/stat"))
        return watched is not None and stat is not None and not stat.has_ended and stat.start_ticks == watched.first.stat.start_ticks

    def run(self, seconds: float, progress: Callable[[float], None] = lambda _: None) -> None:
        """Look for so long; again to go on. Ends early with the program."""
        start = self._clock()
        if not self.processes:
            self.began = start
            self._search(from_start=True)
            self.machine_first = machine_reading()
        while (passed := self._clock() - start) < seconds:
            self._sleep(min(1 / RATE_HZ, seconds - passed))
            if not self._look():
                break
            if self._clock() - self._searched >= SEARCH_S:
                self._search(from_start=False)
                self._look_at_clocks()
                self._take_part()
                progress(passed / seconds)
        self._finish()

    def _finish(self) -> None:
        self.ended = self._clock()
        self.machine_last = machine_reading()
        self._count()
        for watched in self.processes.values():
            last = counters.process(watched.pid, self.ended)
            if last is not None and last.stat.start_ticks == watched.first.stat.start_ticks:
                watched.last = last
                watched.system_last = counters.system_ticks(counters.content(f"/proc/{watched.pid}/stat"))

    def _search(self, *, from_start: bool) -> None:
        """Find the tree, and take first readings of what is new in it."""
        now = self._searched = self._clock()
        pending, number, children = [self.root], 0, counters.children_finder()
        while pending and number < MAX_PROCESSES:
            pid = pending.pop()
            number += 1
            if pid not in self.processes and (reading := counters.process(pid, now)) is not None:
                self.processes[pid] = Watched(reading, from_start)
                self.job.begin(reading.stat, from_start=from_start)
                if reading.stat.comm in COMPILERS:
                    self.compilers[self.parents.get(pid, self.root)] += 1
            below = children(pid)
            self.parents.update((child, pid) for child in below if child != self.root)
            pending += below

    def _look(self) -> bool:
        now = self._clock()
        for watched in list(self.processes.values())[:MAX_WATCHED]:
            self._look_at(watched, now)
        stat = parse(counters.content(f"/proc/{self.root}/stat"))
        return self.root in self.processes and stat is not None and not stat.has_ended

    def _look_at(self, watched: Watched, now: float) -> None:
        stat = parse(counters.content(f"/proc/{watched.pid}/stat"))
        if stat is None or stat.start_ticks != watched.first.stat.start_ticks:
            return
        watched.comm = stat.comm
        looks = watched.looks
        looks["looks"] += 1
        looks[stat.state] += 1
        if stat.comm != "pt_data_worker":
            watched.memory.append((now, stat.rss_pages * counters.PAGE_BYTES))
            before = Counter(looks)
            for tid in _busy_tids(watched):
                self._call(watched, tid)
            watched.timeline.append((now, _doing(stat.state, looks - before)))

    def _take_part(self) -> None:
        if len(self.processes) <= MAX_IN_PARTS:
            self._count()
            self.parts.append(Part(*ticks_by_cpu(), self.job.ticks))

    def _count(self) -> None:
        stats = {pid: parse(counters.content(f"/proc/{pid}/stat")) for pid in self.processes}
        same = {pid: stat for pid, stat in stats.items() if stat and stat.start_ticks == self.processes[pid].first.stat.start_ticks}
        self.job.update(same, self.parents)

    def _look_at_clocks(self) -> None:
        for watched in list(self.processes.values())[:MAX_WATCHED]:
            stat = parse(counters.content(f"/proc/{watched.pid}/stat"))
            if stat is not None and stat.state == "R" and (clock := counters.clock_share(stat.last_cpu)) is not None:
                watched.clocks.append(clock)

    @staticmethod
    def _call(watched: Watched, tid: int) -> None:
        """Return the call in which a thread waits now. It says nothing for who may not look."""
        words = counters.content(f"/proc/{watched.pid}/task/{tid}/syscall", 256).split()
        if not words:
            return
        looks = watched.looks
        looks["asked"] += tid == watched.pid
        number = whole(words[0])
        if number is None or len(words) < 5:
            return
        with_limit = number in FUTEX and words[4] != b"0x0"
        watched.lock_waits[tid] += with_limit
        if tid == watched.pid:
            looks["syncing"] += number in SYNCING
            looks["locked"] += with_limit
            sleeps = number in SLEEPING or (number in SELECT and words[1] == b"0x0")  # of no file: how Python 3.10 sleeps
            reads = number in OPEN or (number in READ and counters.is_file(watched.pid, words[1]))
            looks["reading"] += reads
            looks["polling"] += number in POLLING and not sleeps and not reads
            looks["sleeping"] += sleeps
            looks["timed"] += number in EPOLL and 0 < int(words[4], 16) <= MAX_TIMER_MS
            looks["futex"] += number in FUTEX


_DOING = {
    "syncing": "waits for the disk",
    "reading": "waits for a file",
    "polling": "waits for a pipe or socket",
    "futex": "waits for a thread",
    "sleeping": "sleeps",
}


def _doing(state: str, calls: Counter[str]) -> str:
    """What a main thread does, by its state and the call that it waits in."""
    if state in "RD":
        return "runs" if state == "R" else "waits for the disk"
    return next((text for call, text in _DOING.items() if calls[call]), "waits")


def _busy_tids(watched: Watched) -> list[int]:
    """The main thread, and the others with its name as far as that is cheap: who waits for the interpreter's lock is among them."""
    main = watched.pid
    name = watched.first.names.get(main)
    others = [tid for tid, other in watched.first.names.items() if tid != main and (other == name or other.startswith("Thread"))]
    return [main, *others[: MAX_CALLS - 1]]
