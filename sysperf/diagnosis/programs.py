"""The programs of a job as facts: what the audit knows of each, and what the window counted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from sysperf.diagnosis import neighbours, rates
from sysperf.diagnosis.counters import PAGE_BYTES, Io, content
from sysperf.diagnosis.facts import Machine, Program, Ranks, Share, Stacks, Workers
from sysperf.diagnosis.window import CALLS, COMPILERS, Watched, Window
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Fields
from sysperf.model.snapshot import Facts
from sysperf.procfs.stat import TICKS_PER_S, parse

FAULT_S = 2e-6
"""CPU time of a minor fault (rules/allocator.toml has the measurement)."""
BUSY_THREAD = 0.05
"""A thread that wanted less than this share of the busiest one's time is no member of the team."""
MIN_OTHERS = 0.25
"""CPUs that others use: of less, a neighbour is not steady."""
MEMBER = 0.3
"""A thread of a worker that ran for less than this share of the busiest one's time does not compute beside it."""
HELPER = 0.1
"""A thread of a program that ran for less than this share of its main thread's time only helps it."""
MIN_GROWTH = 3 << 20
"""Bytes a second below which memory counts as steady."""
MADE_AGAIN = 2
"""Processes that a program started within a window, from which they are no programs of the job, but what it does."""
MIN_LOOKS = 30
MIN_TICKS, MIN_WANTED = 6, 0.01
"""CPU time below which its shares are unknown: clock ticks, and CPUs that were wanted over the window."""
IDLE_CPUS = 0.02
MIN_STEP = 0.1
"""Share of its samples in the parts of a step, from which a program that uses no CPU waits for data and not for work."""
ONLY_WAITS = 0.95
"""Share of its samples at a debugger's prompt, a socket or a pipe, from which it is in no step, wherever that stands."""
CLEAR_GAP = 0.15
"""Ranks that differ by less in how long they wait are equal."""
WORKER = "pt_data_worker"
TORCH_BYTES = 500 << 20
"""What a program with PyTorch takes before it has computed anything."""

_ON = ("1", "true", "yes", "on", "detail", "info", "trace")
_DEBUG = {
    "CUDA_LAUNCH_BLOCKING": _ON, "TORCH_DISTRIBUTED_DEBUG": ("detail",), "TORCHDYNAMO_DISABLE": _ON,
    "TORCH_SHOW_CPP_STACKTRACES": (),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _ON,
    "PYTHONDEVMODE": _ON, "PYTHONMALLOC": ("debug", "malloc_debug", "pymalloc_debug"),
    "MALLOC_CHECK_": ("1", "2", "3"), "NCCL_DEBUG": ("trace",), "TORCH_CUDNN_V8_API_DISABLED": _ON,
    "ATEN_CPU_CAPABILITY": ("default",), "DNNL_VERBOSE": ("1", "2", "all", "profile"), "ONEDNN_VERBOSE": ("1", "2", "all", "profile"),
    "MKL_VERBOSE": ("1", "2"), "ONEDNN_MAX_CPU_ISA": ("sse41", "avx"), "DNNL_MAX_CPU_ISA": ("sse41", "avx"), "PYTHONTRACEMALLOC": (),
    "MKL_ENABLE_INSTRUCTIONS": ("sse4_2", "avx"), "PYTORCH_JIT": ("0",), "HIP_LAUNCH_BLOCKING": _ON,
    "AMD_SERIALIZE_KERNEL": ("1", "2", "3"),
}  # fmt: skip
"""Variables that are for finding faults, with the values that switch them on; no value: any number above 0."""


class Known(NamedTuple):
    """What was read of a program before the window."""

    process: Facts
    """A `sysperf.collect.process.Process`."""
    limit_bytes: int | None
    judged: tuple[str, ...] = ()


def programs(window: Window, known: Sequence[Known]) -> tuple[Program, ...]:
    """The facts of each program of the job that is still there or was seen."""
    described = [_program(window, candidate) for candidate in known if candidate.process.pid in window.processes]
    makers = {program.pid for program in described if program.children_started >= MADE_AGAIN}
    described = [program for program in described if window.parents.get(program.pid) not in makers]
    parents = {window.parents.get(program.pid) for program in described}
    return tuple(_with_role(program, is_parent=program.pid in parents) for program in described)


def with_role_by_stacks(program: Program) -> Program:
    """A program that uses no CPU and is in a step all the same: it waits for data, and does not wait for work.

    Of a rank only the loader counts: one that is in a forward or backward pass without computing waits for other ranks.
    """
    taken = program.stacks
    if program.role != "idle" or taken is None:
        return program
    in_step = taken.loader_wait + taken.inline_fetch
    trains = taken.backward + taken.optimizer > 0 and not is_rank(program)
    if taken.serving < ONLY_WAITS and not is_rank(program):
        in_step += taken.forward + taken.backward + taken.optimizer
    return msgspec.structs.replace(program, role="computes") if trains or in_step >= MIN_STEP else program


def evaluates_and_trains(taken: Stacks) -> bool:
    """Whether samples show both, each more than by chance."""
    return taken.evaluation >= MIN_STEP and taken.backward + taken.optimizer >= MIN_STEP / 5


def _with_role(program: Program, *, is_parent: bool) -> Program:
    used = program.used_cpus
    if program.children_started >= MADE_AGAIN:  # it makes processes anew and waits for each, as no launcher does
        return program
    if used is None or used + (program.main_waited or 0) >= IDLE_CPUS or (program.workers.ran or 0) * program.workers.count > IDLE_CPUS:
        return program
    if (program.main_blocked or 0) > 0.2 or (program.main_syncing or 0) > 0.2:
        return program
    return msgspec.structs.replace(program, role="waits" if is_parent else "idle")


def _program(window: Window, known: Known) -> Program:
    process, watched = known.process, window.processes[known.process.pid]
    group = process.cgroup
    return Program(
        pid=process.pid, name=process.name, command=process.command or "", rank=process.rank, world_size=process.world_size,
        age_s=process.age_s, window_s=round(window.seconds, 2), **_scheduling(watched), **_moved(watched),
        **_memory(watched, process), limit_bytes=known.limit_bytes, allowed=process.allowed_at_start or process.allowed,
        quota=None if group is None else group.cpu_quota, children_started=_children_started(window, process.pid),
        compilers=window.compilers[process.pid],
        idle_compilers_bytes=_idle_compilers_bytes(window, process.pid),
        clock=sum(watched.clocks) / len(watched.clocks) if watched.clocks else None, workers=_workers(window, process.pid),
        env=process.env, debug=None if process.env is None else debug(process.env, process.command or ""),
        openmp=tuple(sorted(path.rpartition("/")[2] for path in {library.path for library in process.openmp})), allocator=process.allocator,
        binds_threads=process.openmp_bound, uses_gpu=process.cuda_used, judged=known.judged,
    )  # fmt: skip


def debug(env: dict[str, str], command: str) -> tuple[str, ...]:
    """The variables and options for finding faults that are on."""
    switches = []
    for name, values in _DEBUG.items():
        value = env.get(name, "").lower()
        if value and (value in values or (not values and value not in ("0", "false", "off", "no"))):
            switches.append(f"{name}={value}")
    return (*switches, *(["-X dev"] if " -X dev" in command or " -Xdev" in command else []))


# ---------------------------------------------------------------------- threads


class _Thread(NamedTuple):
    tid: int
    name: str
    ran: float
    waited: float


def _threads(watched: Watched, seconds: float) -> list[_Thread]:
    """Each thread's shares of the window; of one that began within it, from zero."""
    threads = []
    for tid, last in watched.last.threads.items():
        first = watched.first.threads.get(tid)
        run, wait = (last.run_ns - first.run_ns, last.wait_ns - first.wait_ns) if first else (last.run_ns, last.wait_ns)
        threads.append(_Thread(tid, watched.last.names.get(tid, ""), max(0.0, run / 1e9 / seconds), max(0.0, wait / 1e9 / seconds)))
    return threads


def _scheduling(watched: Watched) -> Fields:
    seconds = max(1e-3, watched.last.at - watched.first.at)
    threads = _threads(watched, seconds)
    main = next((thread for thread in threads if thread.tid == watched.pid), None)
    if main is None or watched.last is watched.first:
        return {}
    seen = watched.seen()
    ran, waited = sum(thread.ran for thread in threads), sum(thread.waited for thread in threads)
    most = max(thread.ran + thread.waited for thread in threads)
    named_so = [thread for thread in threads if thread.name == main.name and thread.ran + thread.waited >= max(0.02, BUSY_THREAD * most)]
    team = [thread for thread in named_so if thread is main or _is_member(thread, named_so, main)]
    turns = [thread for thread in threads if watched.lock_waits[thread.tid] >= 0.1 * max(1, seen.looks) and thread.ran >= 0.03]
    return {
        "main_ran": min(1.0, main.ran), "main_waited": min(1.0, main.waited), "main_slept": max(0.0, 1 - main.ran - main.waited),
        "used_cpus": ran, "waited_share": waited / (ran + waited) if ran + waited >= MIN_WANTED else None, "team": max(1, len(team)),
        "python_threads": len(turns) if seen.asked else None, "system": _system_share(watched),
        "main_blocked": seen.blocked / seen.looks if seen.looks else None,
        "main_suspended": (watched.looks["T"] + watched.looks["t"]) / seen.looks if seen.looks else None,
        **{f"main_{call}": getattr(seen, call) / seen.asked if seen.asked else None for call in CALLS},
    }  # fmt: skip


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


def _moved(watched: Watched) -> Fields:
    first, last, seconds = watched.first, watched.last, max(1e-3, watched.last.at - watched.first.at)
    if last is first:
        return {}
    spent_s = (last.stat.cpu_ticks - first.stat.cpu_ticks) / TICKS_PER_S
    faults = last.stat.minor_faults - first.stat.minor_faults
    rates_by_name: Fields = {
        "faults_per_s": faults / seconds,
        "fault_share": min(1.0, faults * FAULT_S / spent_s) if spent_s >= MIN_TICKS / TICKS_PER_S else None,
        "major_faults_per_s": _major_faults(watched),
    }
    if (rates := _io_rates([watched])) is not None:
        names = (f"{name}_per_s" for name in Io._fields)
        rates_by_name |= dict(zip(names, rates, strict=True))
    return rates_by_name


def _io_rates(several: Iterable[Watched]) -> list[float] | None:
    sums = [0.0] * len(Io._fields)
    any_known = False
    for watched in several:
        first, last = watched.first.io, watched.last.io
        if first is None or last is None:
            continue
        any_known = True
        seconds = max(1e-3, watched.last.at - watched.first.at)
        sums = [total + (after - before) / seconds for total, before, after in zip(sums, first, last, strict=True)]
    return sums if any_known else None


def _memory(watched: Watched, process: Facts) -> Fields:
    looks = watched.memory
    if not looks:
        return {}
    now, age = looks[-1][1], process.age_s or 0.0
    return {
        "memory_bytes": now,
        "growth_bytes_per_s": growth(looks),
        "growth_since_start": (now - TORCH_BYTES) / age if age > 1 and now > TORCH_BYTES else None,
    }


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


def _workers(window: Window, pid: int) -> Workers:
    mine = [worker for worker in window.processes.values() if worker.first.stat.comm == WORKER and _program_of(window, worker.pid) == pid]
    if not mine:
        return Workers()
    kept = [worker for worker in mine if worker.last is not worker.first]
    threads = {worker.pid: _threads(worker, max(1e-3, worker.last.at - worker.first.at)) for worker in kept}
    count = len(kept) or len([worker for worker in mine if worker.from_start])
    ran = sum(thread.ran for each in threads.values() for thread in each)
    waited = sum(thread.waited for each in threads.values() for thread in each)
    io = _io_rates(kept)
    looks = sum(worker.looks["looks"] for worker in kept)
    systems = [share for worker in kept if (share := _system_share(worker)) is not None]
    return Workers(
        count=count, started=sum(not worker.from_start for worker in mine),
        ran=ran / count if kept else None, waited=waited / count if kept else None,
        blocked=sum(worker.looks["D"] for worker in kept) / looks if looks else None,
        system=sum(systems) / len(systems) if systems else None, major_faults_per_s=sum(map(_major_faults, kept)) if kept else None,
        threads=max((_computing(each) for each in threads.values()), default=None),
        cpus=_cpus(worker.pid for worker in kept), read_calls_per_s=io[0] if io else None, read_bytes_per_s=io[1] if io else None,
        disk_bytes_per_s=io[4] if io else None,
    )  # fmt: skip


def _major_faults(watched: Watched) -> float:
    """Page faults with I/O a second."""
    first, last = watched.first, watched.last
    return (last.stat.major_faults - first.stat.major_faults) / max(1e-3, last.at - first.at)


def _computing(threads: Sequence[_Thread]) -> int:
    """The threads of a worker that compute. The one that sends its batches runs less than those, and waits as long where CPUs are few."""
    most = max((thread.ran for thread in threads), default=0.0)
    return sum(thread.ran + thread.waited >= BUSY_THREAD and thread.ran >= MEMBER * most for thread in threads)


def _children_started(window: Window, pid: int) -> int:
    """The processes that a program started within the window, but its loader's workers and compilers."""
    young = [process for process in window.processes.values() if not process.from_start and window.parents.get(process.pid) == pid]
    return sum(not child.compiles and child.first.stat.comm not in (WORKER, *COMPILERS) for child in young)


def _idle_compilers_bytes(window: Window, pid: int) -> int:
    """Resident memory of the compile workers of a program, if none of them compiled within the window."""
    below = [compiler for compiler in window.processes.values() if compiler.compiles and _is_below(window, compiler.pid, pid)]
    ticks = sum(compiler.last.stat.cpu_ticks - compiler.first.stat.cpu_ticks for compiler in below)
    return 0 if ticks >= MIN_TICKS else sum(compiler.last.stat.rss_pages for compiler in below) * PAGE_BYTES


def _is_below(window: Window, pid: int, program: int) -> bool:
    """Whether a process is below a program; a pool's parent may stand between."""
    parent = window.parents.get(pid)
    return program in (parent, window.parents.get(parent or 0))


def _program_of(window: Window, pid: int) -> int | None:
    """The program above a worker; a fork server may stand between."""
    parent = window.parents.get(pid)
    if parent in window.processes and window.processes[parent].first.stat.comm.startswith("python") and parent != window.root:
        above = window.parents.get(parent)
        if above is not None and len(window.processes[parent].first.threads) == 1:
            return above
    return parent


def _cpus(pids: Iterable[int]) -> CpuSet | None:
    from sysperf.procfs.status import Status  # noqa: PLC0415 - where there are workers

    masks = [cpus for pid in pids if (cpus := Status(content(f"/proc/{pid}/status", 16_384).decode("utf-8", "replace")).cpus) is not None]
    return CpuSet.union(masks) if masks else None


# ---------------------------------------------------------------------- around the programs


def machine(
    window: Window, cpus: CpuSet | None, *, torch: Sequence[int], other_programs: int, governor: str | None, shares: tuple[Share, ...] = ()
) -> Machine:
    """What was left of the machine, and what others took; `torch` are the PyTorch programs outside of the job."""
    busy, idle = rates.busy_cpus(window, cpus), rates.idle_cpus(window, cpus)
    others = neighbours.by_kind(window, rates.outside(window, cpus), torch, cpus)
    accounted = rates.used_cpus(window) + rates.own_cpus(window) + others.kernel_cpus + others.helper_cpus + others.trial_cpus
    return Machine(
        cpus=len(cpus) if cpus is not None else None, idle_cpus=idle,
        others_cpus=None if busy is None else max(0.0, busy - accounted - others.torch_cpus), others=neighbours.named(others.programs),
        torch_cpus=others.torch_cpus, torch_others=neighbours.named(others.torch),
        trials_cpus=others.trial_cpus, trials=neighbours.named(others.trials),
        others_steady=rates.others_steady(window, cpus, MIN_OTHERS), other_programs=other_programs, shares=shares,
        cpu_pressure=rates.pressure(window, "cpu"), io_pressure=rates.pressure(window, "io"),
        memory_pressure=rates.pressure(window, "memory"), swapped_per_s=rates.swapped_per_s(window),
        refaulted_per_s=rates.refaulted_per_s(window), governor=governor,
        available_growth_bytes_per_s=rates.available_growth_per_s(window), remote_pages=rates.remote_share(window),
    )  # fmt: skip


def is_rank(program: Program) -> bool:
    """Whether it is one of several ranks, and known which."""
    return program.rank is not None and program.rank >= 0 and (program.world_size or 1) > 1


def ranks(described: Sequence[Program]) -> Ranks:
    """The ranks of a job beside each other, by what each wanted of the CPUs."""
    several = [rank for rank in described if is_rank(rank) and rank.used_cpus is not None and rank.role == "computes"]
    if len(several) < 2:
        return Ranks(count=len(several))
    wanted = {rank.pid: (rank.used_cpus or 0.0) / max(0.05, 1 - (rank.waited_share or 0.0)) for rank in several}
    waits = {rank.pid: rank.stacks.collective + rank.stacks.backward for rank in several if rank.stacks is not None}
    gap = max(waits.values()) - min(waits.values()) if len(waits) > 1 else None
    slowest = min(waits, key=waits.__getitem__) if gap is not None and gap >= CLEAR_GAP else max(wanted, key=wanted.__getitem__)
    return Ranks(
        count=len(several), wanted_ratio=max(wanted.values()) / max(0.01, min(wanted.values())),
        slowest=next(rank.rank for rank in several if rank.pid == slowest), waiting_gap=gap,
    )  # fmt: skip
