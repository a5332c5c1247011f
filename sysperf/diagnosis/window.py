"""A window of the kernel's accounting: what the processes of a job did in between two readings, and where they waited.

Nothing is attached and nothing is stopped: every figure is a difference of counters, or counts how often a thread was seen
in a state. Main threads, and up to eleven more of each process, are looked at 20 times a second, on the CPU time of this process.

Reads   what sysperf/diagnosis/counters.py reads  /proc/[pid]/task/[tid]/syscall
        /proc/{meminfo,stat,vmstat}  /proc/pressure/{cpu,io,memory}
Kernel  https://docs.kernel.org/filesystems/proc.html  https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sysperf.diagnosis import counters
from sysperf.diagnosis.counters import Reading, Spent
from sysperf.diagnosis.jobtime import JobTime
from sysperf.model.cpuset import CpuSet
from sysperf.procfs import meminfo, psi
from sysperf.procfs.numbers import whole
from sysperf.procfs.stat import TICKS_PER_S, parse

RATE_HZ = 20
MAX_WATCHED = 64
"""Processes whose state is sampled: more than these are counted by their readings only."""
TREE_EVERY = 10
"""Looks between two searches for new processes."""
MAX_PROCESSES = 4_096
MIN_PAGES = 1_000
"""Pages taken within the window: of fewer, nothing is said."""
_COMPILERS = ("cc1plus", "g++", "clang", "ptxas", "nvcc", "ld", "collect2", "as")

# Numbers of system calls: x86-64, and the table that newer architectures share.
FUTEX = frozenset((202, 98))
_X86 = os.uname().machine == "x86_64"
SYNCING = frozenset((74, 75, 26, 162, 277, 306) if _X86 else (81, 82, 83, 84, 227, 267))
SLEEPING = frozenset((35, 230) if _X86 else (101, 115))
SELECT = frozenset((23, 270) if _X86 else (72,))
"""Of no file: how Python up to 3.10 sleeps."""
POLLING = frozenset((0, 7, 23, 45, 47, 232, 270, 271, 281, 441) if _X86 else (22, 63, 72, 73, 207, 212, 441))


class Seen(NamedTuple):
    """In which state a thread was seen, and in which calls it waited."""

    looks: int
    asked: int
    """Looks at which the kernel told its call: it does so for those who may trace it only."""
    blocked: int
    syncing: int
    locked: int
    polling: int
    sleeping: int
    futex: int


class Watched:
    """One process over the window."""

    def __init__(self, first: Reading, from_start: bool) -> None:
        self.first = self.last = first
        self.from_start = from_start
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

    def seen(self) -> Seen:
        """The counts of its main thread."""
        return Seen(*(self.looks[name] for name in ("looks", "asked", "D", *CALLS)))


CALLS = ("syncing", "locked", "polling", "sleeping", "futex")


class MachineReading(NamedTuple):
    """Counters of the machine."""

    idle_ticks: dict[int, int]
    all_ticks: dict[int, int]
    """Without what the hypervisor took."""
    pressure_us: dict[str, int | None]
    swapped: int | None
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
        looks = 0
        while (passed := self._clock() - start) < seconds:
            self._sleep(min(1 / RATE_HZ, seconds - passed))
            looks += 1
            if not self._look():
                break
            if looks % TREE_EVERY == 0:
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
        now = self._clock()
        pending, number, children = [self.root], 0, counters.children_finder()
        while pending and number < MAX_PROCESSES:
            pid = pending.pop()
            number += 1
            if pid not in self.processes and (reading := counters.process(pid, now)) is not None:
                self.processes[pid] = Watched(reading, from_start)
                self.job.begin(reading.stat, from_start=from_start)
                if reading.stat.comm in _COMPILERS:
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
            self.parts.append(Part(*cpu_ticks(), self.job.ticks))

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
        """In which call a thread waits now. It says nothing for who may not look."""
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
            looks["polling"] += number in POLLING
            looks["sleeping"] += number in SLEEPING or (number in SELECT and words[1] == b"0x0")
            looks["futex"] += number in FUTEX


MAX_CALLS = 12
MAX_IN_PARTS, MIN_PARTS = 512, 4


_DOING = {"syncing": "waits for the disk", "polling": "waits for a pipe or socket", "futex": "waits for a thread", "sleeping": "sleeps"}


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


def cpu_ticks() -> tuple[dict[int, int], dict[int, int]]:
    """(idle, all) clock ticks of each CPU, without those that the hypervisor took."""
    idle, every = {}, {}
    for line in counters.content("/proc/stat", 1 << 20).splitlines():
        name, *words = line.split()
        if name.startswith(b"cpu") and name != b"cpu" and (cpu := whole(name[3:])) is not None:
            ticks = [whole(word) or 0 for word in words[:7]]
            idle[cpu], every[cpu] = ticks[3] + ticks[4], sum(ticks)
    return idle, every


def machine_reading() -> MachineReading:
    """The machine's counters."""
    idle, every = cpu_ticks()
    pressure = {name: _total(name) for name in ("cpu", "io", "memory")}
    fields = dict(line.split()[:2] for line in counters.content("/proc/vmstat", 65_536).splitlines() if len(line.split()) == 2)
    swaps = [whole(fields.get(name)) for name in (b"pswpin", b"pswpout")]
    local, remote = (whole(fields.get(name)) for name in (b"numa_local", b"numa_other"))
    return MachineReading(
        idle, every, pressure, None if None in swaps else sum(swap or 0 for swap in swaps),
        available_bytes=meminfo.sizes(counters.content("/proc/meminfo", 16_384).decode("utf-8", "replace")).get("MemAvailable"),
        remote_pages=None if local is None or remote is None else (local, remote),
        spent=counters.everybody(), own_s=time.process_time(),
    )  # fmt: skip


def _total(name: str) -> int | None:
    pressure = psi.parse(counters.content(f"/proc/pressure/{name}", 512)).some
    return pressure.total_us if pressure else None


def idle_cpus(window: Window, cpus: CpuSet | None) -> float | None:
    """How many of these CPUs were idle, on average."""
    idle, every = _ticks(window, cpus)
    return idle / every * len(_listed(window, cpus)) if every else None


def busy_cpus(window: Window, cpus: CpuSet | None) -> float | None:
    """How many of these CPUs were at work, for anybody."""
    idle, every = _ticks(window, cpus)
    return (every - idle) / every * len(_listed(window, cpus)) if every else None


def _listed(window: Window, cpus: CpuSet | None) -> list[int]:
    """Those that were there all the time: one that came meanwhile counts since it was last online."""
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
    before, after = window.machine_first.swapped, window.machine_last.swapped
    return None if before is None or after is None else (after - before) / window.seconds


def available_growth_per_s(window: Window) -> float | None:
    """Bytes a second by which the machine's free memory grew; below 0: something takes it."""
    before, after = window.machine_first.available_bytes, window.machine_last.available_bytes
    return None if before is None or after is None else (after - before) / window.seconds


def remote_share(window: Window) -> float | None:
    """Of the pages that were taken within the window, how many were on another node than the CPU; None of too few."""
    before, after = window.machine_first.remote_pages, window.machine_last.remote_pages
    if before is None or after is None:
        return None
    local, remote = after[0] - before[0], after[1] - before[1]
    return remote / (local + remote) if local + remote >= MIN_PAGES else None


def others_steady(window: Window, cpus: CpuSet | None, at_least: float) -> float | None:
    """In which share of the window's parts others used so many of these CPUs; None of too few parts."""
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
    """The CPU time of processes outside of the job and of this one; of the kernel's threads, their part on these CPUs."""
    first, last, ours = window.machine_first.spent, window.machine_last.spent, {*window.processes, os.getpid()}
    spent = {
        pid: (process.ticks - (first[pid].ticks if pid in first else 0)) / TICKS_PER_S / window.seconds for pid, process in last.items()
    }
    programs = sorted(((last[pid].name, pid, cpus) for pid, cpus in spent.items() if not last[pid].kernel and pid not in ours), key=_cpus)
    return Outside(sum(used * share_on(pid, cpus) for pid, used in spent.items() if last[pid].kernel and used > 0), tuple(programs))


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
