"""What a window counted of each process: its threads, I/O, page faults, memory, and the loader workers of a program."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sysperf.diagnosis import counters
from sysperf.diagnosis.counters import PAGE_BYTES, content
from sysperf.diagnosis.facts import Faults, Io, MainThread, Memory, Threads, Workers
from sysperf.diagnosis.window import Watched, Window
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.stat import TICKS_PER_S, parse

FAULT_S = 2e-6
"""CPU time of a minor fault (rules/allocator.toml has the measurement)."""
BUSY_THREAD = 0.05
"""A thread that wanted less than this share of the busiest one's time is no member of the team."""
MEMBER, WORKER_MEMBER = 0.3, 0.5
"""A thread that wanted, in a worker ran for, less than this share of the busiest one's time does not compute beside it."""
SENDERS = 2
"""Threads of a worker that send its batches: multiprocessing's feeder of a queue, and its server of file descriptors."""
HELPER = 0.1
"""A thread of a program that ran for less than this share of its main thread's time only helps it."""
MIN_GROWTH = 3 << 20
"""Bytes a second below which memory counts as steady."""
MIN_LOOKS = 30
MIN_TICKS, MIN_WANTED = 6, 0.01
"""CPU time below which its shares are unknown: clock ticks, and CPUs that were wanted over the window."""
WORKER = "pt_data_worker"
TORCH_BYTES = 500 << 20
"""What a program with PyTorch takes before it has computed anything."""


# ---------------------------------------------------------------------- threads


class _Thread(NamedTuple):
    tid: int
    name: str
    ran: float
    waited: float


def _threads(watched: Watched) -> list[_Thread]:
    """Each thread's shares of the window; of one that began within it, from zero."""
    seconds, threads = _seconds(watched), []
    for tid, last in watched.last.threads.items():
        first = watched.first.threads.get(tid)
        run, wait = (last.run_ns - first.run_ns, last.wait_ns - first.wait_ns) if first else (last.run_ns, last.wait_ns)
        threads.append(_Thread(tid, watched.last.names.get(tid, ""), max(0.0, run / 1e9 / seconds), max(0.0, wait / 1e9 / seconds)))
    return threads


def _seconds(watched: Watched) -> float:
    return max(1e-3, watched.last.at - watched.first.at)


def scheduling(watched: Watched) -> tuple[MainThread, Threads]:
    """How its main thread spent the time, and what all of its threads used."""
    threads = _threads(watched)
    main = next((thread for thread in threads if thread.tid == watched.pid), None)
    if main is None or watched.last is watched.first:
        return MainThread(), Threads()
    return _main_thread(watched, main), _all_threads(watched, threads, main)


def _main_thread(watched: Watched, main: _Thread) -> MainThread:
    looks = watched.looks
    return MainThread(
        ran=min(1.0, main.ran), waited=min(1.0, main.waited), slept=max(0.0, 1 - main.ran - main.waited),
        blocked=_seen(looks, "looks", "D"), suspended=_seen(looks, "looks", "T", "t"), syncing=_seen(looks, "asked", "syncing"),
        locked=_seen(looks, "asked", "locked"), sleeping=_seen(looks, "asked", "sleeping"), futex=_seen(looks, "asked", "futex"),
        polling=_seen(looks, "asked", "polling"), reading=_seen(looks, "asked", "reading"), timed=_seen(looks, "asked", "timed"),
    )  # fmt: skip


def _seen(looks: Counter[str], of: str, *states: str) -> float | None:
    """The share of looks at which a thread was in one of these states; None without any look."""
    return sum(looks[state] for state in states) / looks[of] if looks[of] else None


def _all_threads(watched: Watched, threads: Sequence[_Thread], main: _Thread) -> Threads:
    ran, waited = sum(thread.ran for thread in threads), sum(thread.waited for thread in threads)
    most = max(thread.ran + thread.waited for thread in threads)
    named_so = [thread for thread in threads if thread.name == main.name and thread.ran + thread.waited >= max(0.02, BUSY_THREAD * most)]
    team = [thread for thread in named_so if thread is main or _is_member(thread, named_so, main)]
    looks = watched.looks["looks"]
    turns = [thread for thread in threads if watched.lock_waits[thread.tid] >= 0.1 * max(1, looks) and thread.ran >= 0.03]
    return Threads(
        used_cpus=ran, waited_share=waited / (ran + waited) if ran + waited >= MIN_WANTED else None, team=max(1, len(team)),
        python=len(turns) if watched.looks["asked"] else None, system=_system_share(watched),
    )  # fmt: skip


def _is_member(thread: _Thread, named_so: Sequence[_Thread], main: _Thread) -> bool:
    """Whether a thread computes beside the main one; one that hands batches over waits as long where CPUs are few, and runs much less."""
    return thread.ran >= HELPER * main.ran and thread.ran + thread.waited >= MEMBER * _busiest(named_so, main)


def _busiest(threads: Sequence[_Thread], main: _Thread) -> float:
    """What the busiest of the others wanted: members of a team want about as much as each other, a helper's thread less."""
    return max((thread.ran + thread.waited for thread in threads if thread is not main), default=0.0)


def _system_share(watched: Watched) -> float | None:
    if watched.system_first is None or watched.system_last is None:
        return None
    ticks = watched.last.stat.cpu_ticks - watched.first.stat.cpu_ticks
    return (watched.system_last - watched.system_first) / ticks if ticks >= MIN_TICKS else None


# ---------------------------------------------------------------------- what was moved and touched


def faults(several: Sequence[Watched]) -> Faults:
    """Rates of the page faults of several processes together."""
    kept = [watched for watched in several if watched.last is not watched.first]
    if not kept:
        return Faults()
    spent_s = sum(watched.last.stat.cpu_ticks - watched.first.stat.cpu_ticks for watched in kept) / TICKS_PER_S
    minor = sum(watched.last.stat.minor_faults - watched.first.stat.minor_faults for watched in kept)
    return Faults(
        per_s=sum((watched.last.stat.minor_faults - watched.first.stat.minor_faults) / _seconds(watched) for watched in kept),
        share=min(1.0, minor * FAULT_S / spent_s) if spent_s >= MIN_TICKS / TICKS_PER_S else None,
        major_per_s=sum((watched.last.stat.major_faults - watched.first.stat.major_faults) / _seconds(watched) for watched in kept),
    )


def io(several: Iterable[Watched]) -> Io:
    """The reads and writes of several processes together; of those that tell them."""
    sums = [0.0] * len(counters.Io._fields)
    any_known = False
    for watched in several:
        first, last = watched.first.io, watched.last.io
        if first is None or last is None or watched.last is watched.first:
            continue
        any_known = True
        sums = [total + (after - before) / _seconds(watched) for total, before, after in zip(sums, first, last, strict=True)]
    return Io(*sums) if any_known else Io()


def memory(watched: Watched, age_s: float | None, limit_bytes: int | None) -> Memory:
    """Resident memory, and how it grows."""
    looks = watched.memory
    if not looks:
        return Memory(limit_bytes=limit_bytes)
    now, age = looks[-1][1], age_s or 0.0
    since_start = (now - TORCH_BYTES) / age if age > 1 and now > TORCH_BYTES else None
    return Memory(bytes=now, growth_bytes_per_s=growth(looks), growth_since_start=since_start, limit_bytes=limit_bytes)


def growth_later(window: Window, pid: int) -> float | None:
    """Bytes a second by which a program's memory has grown since the window; None where it has ended."""
    watched, stat = window.processes.get(pid), parse(content(f"/proc/{pid}/stat"))
    if watched is None or not watched.memory or stat is None or stat.start_ticks != watched.first.stat.start_ticks:
        return None
    at, size = watched.memory[-1]
    return (stat.rss_pages * PAGE_BYTES - size) / max(0.1, time.monotonic() - at)


def growth(looks: Sequence[tuple[float, int]]) -> float | None:
    """Bytes a second by which memory grows, where each quarter of the looks begins higher than the one before; else 0."""
    if len(looks) < MIN_LOOKS:
        return None
    quarter = len(looks) // 4
    lows = [min(size for _, size in looks[start : start + quarter]) for start in range(0, quarter * 4, quarter)]
    rate = (lows[-1] - lows[0]) / max(1e-3, looks[3 * quarter][0] - looks[0][0])
    return rate if rate >= MIN_GROWTH and all(after > before for before, after in itertools.pairwise(lows)) else 0.0


# ---------------------------------------------------------------------- workers


def workers(window: Window, pid: int) -> Workers:
    """The loader workers of a program."""
    mine = [worker for worker in window.processes.values() if worker.comm == WORKER and _program_of(window, worker.pid) == pid]
    if not mine:
        return Workers()
    kept = [worker for worker in mine if worker.last is not worker.first]
    threads = [_threads(worker) for worker in kept]
    count = len(kept) or len([worker for worker in mine if worker.from_start])
    looks = sum((worker.looks for worker in kept), Counter[str]())
    systems = [share for worker in kept if (share := _system_share(worker)) is not None]
    return Workers(
        count=count, started=sum(not worker.from_start for worker in mine),
        ran=sum(thread.ran for each in threads for thread in each) / count if kept else None,
        waited=sum(thread.waited for each in threads for thread in each) / count if kept else None,
        blocked=_seen(looks, "looks", "D"), reading=_seen(looks, "asked", "reading"),
        system=sum(systems) / len(systems) if systems else None, faults=faults(kept),
        threads=max(map(_computing, threads), default=None), cpus=_cpus(worker.pid for worker in kept), io=io(kept),
    )  # fmt: skip


def _computing(threads: Sequence[_Thread]) -> int:
    """The threads of a worker that compute. The two that send its batches run up to half as long, and wait as long where CPUs are few."""
    most = max((thread.ran for thread in threads), default=0.0)
    busy = [thread.ran for thread in threads if thread.ran + thread.waited >= BUSY_THREAD]
    several = sum(ran >= MEMBER * most for ran in busy)
    return several if several > 1 + SENDERS else sum(ran >= WORKER_MEMBER * most for ran in busy)


def _program_of(window: Window, pid: int) -> int | None:
    """The program above a worker; a fork server may stand between."""
    parent = window.parents.get(pid)
    if parent in window.processes and window.processes[parent].comm.startswith("python") and parent != window.root:
        above = window.parents.get(parent)
        if above is not None and len(window.processes[parent].first.threads) == 1:
            return above
    return parent


def _cpus(pids: Iterable[int]) -> CpuSet | None:
    from sysperf.procfs.status import Status  # noqa: PLC0415 - where there are workers

    masks = [cpus for pid in pids if (cpus := Status(content(f"/proc/{pid}/status", 16_384).decode("utf-8", "replace")).cpus) is not None]
    return CpuSet.union(masks) if masks else None
