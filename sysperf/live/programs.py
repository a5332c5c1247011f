"""What each PyTorch process does right now: its CPU time, waits, faults and reads, from descriptors that stay open.

Reads   /proc/[pid]/{stat,schedstat,io}  /proc/[pid]/task/[pid]/children  /proc/[pid]/task/*/{schedstat,comm}
        and the stat of DataLoader workers
Kernel  https://docs.kernel.org/filesystems/proc.html  https://docs.kernel.org/scheduler/sched-stats.html
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from functools import partial

from sysperf.collect.process.process_tree import WORKER
from sysperf.live.metric import BYTES, BYTES_PER_S, COUNT, PER_S, SHARE, Metric
from sysperf.live.open_file import OpenFile
from sysperf.live.system import PAGE_BYTES, Rates
from sysperf.procfs import schedstat
from sysperf.procfs.children import parse as parse_children
from sysperf.procfs.stat import parse as parse_stat

_metric = partial(Metric, "process", per_item=True)
METRICS = (
    _metric("cpu", COUNT, "CPUs that the process used: 1.5 is one and a half", prometheus="process_cpus"),
    _metric("main_run", SHARE, "share of the time in which its main thread ran"),
    _metric("main_wait", SHARE, "share of the time in which its main thread was ready and had no CPU"),
    _metric(
        "data_wait",
        SHARE,
        "largest share of the time in which its main thread can have waited for its DataLoader workers",
    ),
    _metric("wait", SHARE, "share of its threads' ready time in which they had no CPU"),
    _metric("threads", COUNT, "threads"),
    _metric("rss_bytes", BYTES, "resident memory"),
    _metric("minor_faults_per_s", PER_S, "page faults without I/O each second"),
    _metric("major_faults_per_s", PER_S, "page faults with I/O each second"),
    _metric("read_bytes_per_s", BYTES_PER_S, "bytes each second that it had read from storage"),
    _metric("blocked", SHARE, "share of the samples in which its main thread waited for a disk or a driver (state D)"),
    _metric("workers", COUNT, "DataLoader workers"),
    _metric("workers_cpu", COUNT, "CPUs that its DataLoader workers used", prometheus="process_worker_cpus"),
    _metric("gpu_memory_bytes", BYTES, "GPU memory that it holds"),
    _metric("gpu_utilization", SHARE, "share of the time in which a kernel of it ran, summed over GPUs"),
)

SLOW_S = 15.0
"""Threads and workers are many: they are looked at this often."""
BUDGET_S = 0.0008
"""CPU time of one sample of all programs, and as much again of their threads and workers: where that is not enough, they take turns."""
MAX_PROGRAMS = 128
MAX_THREADS = 32
MAX_CHILDREN = 256
MAX_NAMED = 1_024
MAX_ENGINES = 16
ENGINE = b"pt_autograd_"
"""How PyTorch names the threads that run backward on a GPU, one for each device."""
NS = 1e-9


class Programs:
    """Meters of all known PyTorch processes."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, root: str = "", cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._root = root
        self._cpu_clock = cpu_clock
        self._programs: dict[int, _Program] = {}
        """Those that were sampled longest ago come first."""

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(self._programs)

    @property
    def problems(self) -> dict[str, str]:
        """What cannot be read, once for all processes of which it cannot."""
        failed = [
            (kept.path.rpartition("/")[2], kept.problem) for program in self._programs.values() for kept in program.kept if kept.problem
        ]
        return {f"/proc/[pid]/{name}": f"{problem} ({failed.count((name, problem))} processes)" for name, problem in failed}

    def watch(self, pids: Iterable[int]) -> None:
        """Watch these and no others, the first ones where there are very many."""
        wanted = list(dict.fromkeys(pids))[:MAX_PROGRAMS]
        for pid in self._programs.keys() - set(wanted):
            self.forget(pid)
        for pid in wanted:
            if pid not in self._programs:
                self._programs[pid] = _Program(pid, self._clock, self._root)

    def forget(self, pid: int) -> None:
        program = self._programs.pop(pid, None)
        if program is not None:
            program.close()

    def sample(self) -> tuple[dict[str, float], list[int]]:
        """(the meters of those whose turn it is, the processes of these that ended)."""
        out: dict[str, float] = {}
        gone: list[int] = []
        spent_s = slow_s = 0.0
        then = self._cpu_clock()
        for pid in self.pids:
            program = self._programs[pid]
            if program.sample(out):
                self._programs[pid] = self._programs.pop(pid)
            else:
                gone.append(pid)
            now = self._cpu_clock()
            spent_s += now - then
            if slow_s < BUDGET_S and pid not in gone and program.sample_slowly(out):
                then, now = now, self._cpu_clock()
                slow_s += now - then
            then = now
            if spent_s >= BUDGET_S:
                break
        for pid in gone:
            self.forget(pid)
        return out, gone

    def close(self) -> None:
        self.watch(())


class _Program:
    """Meters of one process."""

    __slots__ = (
        "_base",
        "_clock",
        "_comms",
        "_engines",
        "_io",
        "_known_workers",
        "_names",
        "_prefix",
        "_proc",
        "_rates",
        "_schedstat",
        "_slow_at",
        "_stat",
        "_threads",
        "_worker_rates",
        "kept",
        "pid",
    )

    def __init__(self, pid: int, clock: Callable[[], float], root: str) -> None:
        self.pid = pid
        self._clock = clock
        self._proc = f"{root}/proc"
        self._base = f"{self._proc}/{pid}"
        self._prefix = f"process.{pid}."
        self._rates, self._worker_rates = Rates(), Rates()
        self._stat, self._schedstat, self._io = self.kept = tuple(
            OpenFile(f"{self._base}/{name}", clock) for name in ("stat", "schedstat", "io")
        )
        self._slow_at = -math.inf
        self._threads: dict[str, tuple[int, int]] = {}
        self._names: dict[str, str] = {}
        self._comms: dict[str, bytes] = {}
        self._engines: dict[str, OpenFile] = {}
        self._known_workers = 0

    def sample(self, out: dict[str, float]) -> bool:
        """Add the meters; False when the process ended."""
        data = self._stat.read()
        stat = parse_stat(data)
        if stat is None:
            return not self._stat.gone
        if stat.has_ended:
            return False
        at, prefix = self._clock(), self._prefix
        out[f"{prefix}threads"] = stat.threads
        out[f"{prefix}rss_bytes"] = stat.rss_pages * PAGE_BYTES
        out[f"{prefix}blocked"] = float(stat.state == "D")
        self._rate(out, "cpu", at, stat.cpu_s)
        self._rate(out, "minor_faults_per_s", at, stat.minor_faults)
        self._rate(out, "major_faults_per_s", at, stat.major_faults)
        main = schedstat.parse(self._schedstat.read())
        if main is not None:
            ran = self._rate(out, "main_run", at, main.run_s, most=1.0)
            waited = self._rate(out, "main_wait", at, main.wait_s, most=1.0)
            self._data(out, at, ran, waited)
        _, label, rest = (self._io.read() or b"").partition(b"read_bytes: ")
        if label and (read := rest.split(b"\n", 1)[0]).isdigit():
            self._rate(out, "read_bytes_per_s", at, int(read))
        return True

    def sample_slowly(self, out: dict[str, float]) -> bool:
        """Add the meters of threads and workers; False when they are not due."""
        at = self._clock()
        if at - self._slow_at < SLOW_S:
            return False
        self._slow_at = at if self._slow_at > 0 else at - self.pid % 8  # the first look is at once, later ones not all in the same second
        tids = _names(f"{self._base}/task")
        self._wait(out, tids)
        self._workers(out, at, tids)
        self._find_engines(tids if self._known_workers else [])
        return True

    def close(self) -> None:
        for kept in (*self.kept, *self._engines.values()):
            kept.close()

    def _rate(self, out: dict[str, float], name: str, at: float, count: float, most: float = 1e18) -> float | None:
        rate = self._rates.per_s(name, at, count)
        if rate is not None:
            rate = out[self._prefix + name] = min(most, rate)
        return rate

    def _data(self, out: dict[str, float], at: float, ran: float | None, waited: float | None) -> None:
        """The most that the main thread can have waited for its DataLoader workers: it slept, and no backward ran on its behalf.

        An inline loader runs in the main thread, and cannot be told from other work. /proc/[pid]/wchan would tell a wait
        for a pipe from others, but takes 0.2 ms (measured), as much as everything else about ten processes.
        """
        engines = [self._engine(tid, kept, at) for tid, kept in self._engines.items()]
        if self._known_workers and ran is not None and waited is not None and None not in engines:
            out[f"{self._prefix}data_wait"] = max(0.0, 1.0 - ran - waited - sum(engine or 0.0 for engine in engines))

    def _engine(self, tid: str, kept: OpenFile, at: float) -> float | None:
        """The share of the time in which a thread of the autograd engine ran or was ready; 0 when it ended."""
        engine = schedstat.parse(kept.read())
        if engine is None:
            return 0.0 if kept.gone else None
        return self._rates.per_s(f"engine {tid}", at, engine.run_s + engine.wait_s)

    def _find_engines(self, tids: list[str]) -> None:
        """The threads that run backward on GPUs. A thread's name is read once."""
        folder, known = f"{self._base}/task", self._comms
        self._comms = {tid: known[tid] if tid in known else _read(f"{folder}/{tid}/comm") for tid in tids[:MAX_NAMED]}
        engines = [tid for tid, comm in self._comms.items() if comm.startswith(ENGINE)][:MAX_ENGINES]
        for tid in self._engines.keys() - set(engines):
            self._engines.pop(tid).close()
        for tid in engines:
            if tid not in self._engines:
                self._engines[tid] = OpenFile(f"{folder}/{tid}/schedstat", self._clock)

    def _wait(self, out: dict[str, float], tids: list[str]) -> None:
        """Ready threads without a CPU: the sum over the first threads, as those of an OpenMP team wait for each other."""
        before, self._threads = self._threads, {}
        ran = waited = 0
        for tid in tids[:MAX_THREADS]:
            now = schedstat.parse(_read(f"{self._base}/task/{tid}/schedstat"))
            if now is None:
                continue
            self._threads[tid] = now
            if tid in before:
                ran += max(0, now[0] - before[tid][0])
                waited += max(0, now[1] - before[tid][1])
        if ran + waited:
            out[f"{self._prefix}wait"] = waited / (ran + waited)

    def _workers(self, out: dict[str, float], at: float, tids: list[str]) -> None:
        """DataLoader workers: children of the main thread, else of another one that iterates the loader."""
        used, complete = 0.0, True
        seen: list[str] = []
        main = str(self.pid)
        children = self._children(main)
        if children is None:
            return
        before, self._names = self._names, {}
        for pid in self._named(children, before) or self._named(self._of_threads(tids, main), before):
            stat = parse_stat(_read(f"{self._proc}/{pid}/stat"))
            if stat is None:
                continue
            rate = self._worker_rates.per_s(pid, at, stat.cpu_s)
            seen.append(pid)
            complete = complete and rate is not None
            used += rate or 0.0
        self._worker_rates.keep(seen)  # each epoch may have others
        out[f"{self._prefix}workers"] = self._known_workers = len(seen)
        if complete and seen:
            out[f"{self._prefix}workers_cpu"] = used

    def _of_threads(self, tids: list[str], main: str) -> list[str]:
        """The children of the other threads: the kernel lists each thread's own."""
        return [child for tid in tids[:MAX_NAMED] if tid != main for child in self._children(main, tid) or []]

    def _named(self, children: list[str], before: dict[str, str]) -> list[str]:
        """The workers among these, and among the children of a fork server."""
        comms = {child: self._comm(child, before) for child in children}
        return [pid for child, comm in comms.items() for pid in ((child,) if comm == WORKER else self._served(child, comm, before))]

    def _served(self, pid: str, comm: str, before: dict[str, str]) -> list[str]:
        """The workers below a fork server, which is a Python without PyTorch's name."""
        if not comm.startswith("python"):
            return []
        return [child for child in self._children(pid) or [] if self._comm(child, before) == WORKER]

    def _children(self, pid: str, tid: str = "") -> list[str] | None:
        raw = _read(f"{self._proc}/{pid}/task/{tid or pid}/children", absent=b"?")
        return None if raw == b"?" else [str(child) for child in parse_children(raw)[:MAX_CHILDREN]]

    def _comm(self, pid: str, before: dict[str, str]) -> str:
        """The name of a child. A worker gets its name a moment after its start, so only that name is taken as final."""
        comm = before.get(pid, "")
        if comm != WORKER:
            stat = parse_stat(_read(f"{self._proc}/{pid}/stat"))
            comm = stat.comm if stat else ""
        self._names[pid] = comm
        return comm


def _read(path: str, absent: bytes = b"") -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return absent
    try:
        return os.read(handle, 4096)
    except OSError:
        return absent
    finally:
        os.close(handle)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
