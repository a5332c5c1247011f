"""How many CPUs a program wants, whether or not it gets them, and what keeps its threads from running.

A thread wants a CPU while it runs and while it is ready to: both are counted in its schedstat, from its start. So a program
that starves shows at once, while its CPU time hardly grows.

Reads   /proc/[pid]/task/[tid]/{schedstat,syscall}  /proc/[pid]/{schedstat,io}
Kernel  https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat
        https://docs.kernel.org/filesystems/proc.html#proc-pid-io-display-the-io-accounting-fields
"""

from collections.abc import Iterable
from typing import NamedTuple

from sysperf.collect.process.process_tree import GONE
from sysperf.host import Host
from sysperf.procfs import schedstat
from sysperf.procfs.numbers import whole
from sysperf.procfs.stat import TICKS_PER_S, Stat

MAX_THREADS = 512
MAX_WORKERS = 64
MIN_LIFE_S = 1.0
"""A thread younger than this says nothing yet."""
SHARED_LOCK_CPUS = 1.3
"""Threads that take turns under one lock want little more than one CPU together."""
MIN_SHARED_LOCK_CPUS = 0.6
"""Less than this, and they have little to do: a server's team that sleeps most of the time is no such case."""
FUTEX_CALLS = ("202", "98")
"""The number of futex(2): x86-64, and the architectures with the generic table."""


class Wanted(NamedTuple):
    """CPUs' worth of time on average since the start."""

    cpus: float
    """Wanted: running or ready."""
    used: float
    """Received."""
    run_s: float = 0.0
    """Seconds of running since the start."""
    wait_s: float = 0.0
    """Seconds of being ready without a CPU."""


def of_threads(host: Host, pid: int, stats: Iterable[Stat], uptime_s: float | None) -> dict[int, Wanted] | None:
    """What each of these threads of a process wanted and received; None where they are too many or the uptime is unknown."""
    listed = list(stats)
    if uptime_s is None or len(listed) > MAX_THREADS:
        return None
    return _of_each(host, [(f"/proc/{pid}/task/{stat.pid}/schedstat", stat) for stat in listed], uptime_s)


def of_processes(host: Host, stats: Iterable[Stat], uptime_s: float | None) -> Wanted | None:
    """What the main threads of these processes wanted and received, together."""
    if uptime_s is None:
        return None
    return together(_of_each(host, [(f"/proc/{stat.pid}/schedstat", stat) for stat in list(stats)[:MAX_WORKERS]], uptime_s).values())


def together(shares: Iterable[Wanted]) -> Wanted | None:
    """The sum; None of nothing, where the kernel does not say it."""
    listed = list(shares)
    return Wanted(*map(sum, zip(*listed, strict=True))) if listed else None


def _of_each(host: Host, files: list[tuple[str, Stat]], uptime_s: float) -> dict[int, Wanted]:
    shares: dict[int, Wanted] = {}
    for path, stat in files:
        life_s = uptime_s - stat.start_ticks / TICKS_PER_S
        spent = schedstat.parse(_text(host, path)) if life_s >= MIN_LIFE_S else None
        if spent is not None:
            run_s, wait_s = spent.run_s, spent.wait_s
            shares[stat.pid] = Wanted(min(1.0, (run_s + wait_s) / life_s), min(1.0, run_s / life_s), run_s, wait_s)
    return shares


def lock_waiters(host: Host, pid: int, tids: Iterable[int]) -> int | None:
    """How many of these threads wait for a lock with a time limit now, as Python threads do for the interpreter's lock.

    An idle OpenMP thread waits without a limit. None for who may not look.
    """
    calls = [text.split() for tid in tids if (text := _text(host, f"/proc/{pid}/task/{tid}/syscall"))]
    return sum(1 for words in calls if len(words) > 4 and words[0] in FUTEX_CALLS and words[4] != "0x0") if calls else None


def share_a_lock(threads: int, team: Wanted | None, waiters: int | None) -> bool:
    """Whether so many busy threads take turns: they received about one CPU together, and many of them wait with a time limit.

    Who may not look at what they wait for goes by what they wanted; on a busy machine that is more, as each wakes up to ask for its turn.
    """
    if threads <= 2 or team is None or team.used > SHARED_LOCK_CPUS:
        return False
    if waiters is not None:
        return waiters >= max(2, threads / 3)
    return team.used >= MIN_SHARED_LOCK_CPUS and team.cpus <= SHARED_LOCK_CPUS


class Reads(NamedTuple):
    """Calls of read(2) and its like since the start, and what they gave."""

    calls: int
    bytes: int


def reads(host: Host, pids: Iterable[int]) -> Reads | None:
    """The reads of these processes together; None for who may not look at the first."""
    calls = size = 0
    for index, pid in enumerate(pids):
        pairs = host.pairs(f"/proc/{pid}/io") or {}
        own_calls, own_bytes = whole(pairs.get("syscr")), whole(pairs.get("rchar"))
        if own_calls is None or own_bytes is None:
            if index == 0:
                return None
            continue
        calls, size = calls + own_calls, size + own_bytes
    return Reads(calls, size)


def _text(host: Host, path: str) -> str | None:
    """A file of a thread, which may end at any time."""
    mark = len(host.sources)
    text = host.text(path, 4096)
    if text is None and any(source.error in GONE for source in host.sources[mark:]):
        del host.sources[mark:]
    return text
