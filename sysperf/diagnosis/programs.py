"""The programs of a job as facts: what the audit knows of each, and what the window counted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import msgspec

from sysperf.diagnosis import measured, neighbours, rates
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.counters import PAGE_BYTES, content
from sysperf.diagnosis.facts import Machine, Program, Ranks, Share
from sysperf.diagnosis.measured import MIN_TICKS, WORKER
from sysperf.diagnosis.window import COMPILERS, Watched, Window
from sysperf.model.cpuset import CpuSet
from sysperf.model.text import neutral
from sysperf.procfs.status import Status
from sysperf.startup import lazy

MIN_OTHERS = 0.25
"""CPUs that others use: of less, a neighbour is not steady."""
MADE_AGAIN = 2
"""Processes that a program started within a window, some of which have ended: they are no programs of the job, but what it does."""
IDLE_CPUS = 0.02
MIN_STEP = 0.1
"""Share of its samples in the parts of a step, from which a program that uses no CPU waits for data and not for work."""
ONLY_WAITS = 0.95
"""Share of its samples at a debugger's prompt, a socket or a pipe, from which it is in no step, wherever that stands."""
CLEAR_GAP = 0.15
"""Ranks that differ by less in how long they wait are equal."""

_SPIES_ON = lazy(r"\0(?:-p|--pid)[\0=]?(\d+)(?:\0|$)")
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


def programs(window: Window, known: Sequence[Program]) -> tuple[Program, ...]:
    """The programs of the job that are still there or were seen, each with what the window counted."""
    described = [_program(window, program) for program in known if program.pid in window.processes]
    makers = {program.pid for program in described if program.children_started >= MADE_AGAIN and _some_ended(window, program.pid)}
    described = [program for program in described if window.parents.get(program.pid) not in makers]
    parents = {window.parents.get(program.pid) for program in described}
    return tuple(program if program.pid in makers else _with_role(program, is_parent=program.pid in parents) for program in described)


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
    used, main, workers = program.threads.used_cpus, program.main, program.workers
    if used is None or used + (main.waited or 0) >= IDLE_CPUS or (workers.ran or 0) * workers.count > IDLE_CPUS:
        return program
    if (main.blocked or 0) > 0.2 or (main.syncing or 0) > 0.2:
        return program
    return msgspec.structs.replace(program, role="waits" if is_parent else "idle")


def _program(window: Window, known: Program) -> Program:
    pid, watched = known.pid, window.processes[known.pid]
    main, threads = measured.scheduling(watched)
    return msgspec.structs.replace(
        known, window_s=round(window.seconds, 2), main=main, threads=threads, faults=measured.faults([watched]), io=measured.io([watched]),
        memory=measured.memory(watched, known.age_s, known.memory.limit_bytes), children_started=_children_started(window, pid),
        compilers=window.compilers[pid], idle_compilers_bytes=_idle_compilers_bytes(window, pid),
        clock=sum(watched.clocks) / len(watched.clocks) if watched.clocks else None, workers=measured.workers(window, pid),
        pinned_from=_pinned_from(watched, known.allowed), tracer=tracer(pid), sampled_by=sampled_by(window, pid),
    )  # fmt: skip


def tracer(pid: int) -> str:
    """Return the name of the program that traces this one by ptrace; empty without one."""
    number = Status(content(f"/proc/{pid}/status", 16_384).decode("utf-8", "replace")).get("TracerPid") or "0"
    return "" if number == "0" else neutral(content(f"/proc/{number}/comm", 64).decode("utf-8", "replace").strip(), 64)


def _pinned_from(watched: Watched, allowed: CpuSet | None) -> CpuSet | None:
    """The CPUs of the parent of a program that may use one only: something in between has bound it."""
    if allowed is None or len(allowed) != 1:
        return None
    parent = Status(content(f"/proc/{watched.first.stat.ppid}/status", 16_384).decode("utf-8", "replace")).cpus
    return parent if parent is not None and len(parent) > 1 else None


def sampled_by(window: Window, pid: int) -> str:
    """Return the profiler outside of the job that stops a program for each sample: py-spy without --nonblocking."""
    spent, above = window.machine_last.spent, _above(window, pid)
    for number in (process for process in spent if spent[process].name == "py-spy" and process in window.machine_first.spent):
        arguments = content(f"/proc/{number}/cmdline", 16_384).decode("utf-8", "replace")
        attached = _SPIES_ON.search(arguments)
        target, of_it = (int(attached[1]), above[:1]) if attached else (number, above[1:2])
        words = {*arguments.split("\0")}
        if target in (above if words & {"-s", "--subprocesses"} else of_it) and "--nonblocking" not in words and words & {"record", "top"}:
            return f"py-spy (pid {number})"
    return ""


def _above(window: Window, pid: int) -> tuple[int, ...]:
    """A program, and from there outwards what started it; the last one may be outside of the job."""
    line = [pid]
    while (parent := window.parents.get(line[-1])) is not None and parent not in line:
        line.append(parent)
    return (*line, window.processes[line[-1]].first.stat.ppid) if line[-1] in window.processes else tuple(line)


def debug(env: dict[str, str], command: str) -> tuple[str, ...]:
    """The variables and options for finding faults that are on."""
    switches = []
    for name, values in _DEBUG.items():
        value = env.get(name, "").lower()
        if value and (value in values or (not values and value not in ("0", "false", "off", "no"))):
            switches.append(f"{name}={value}")
    return (*switches, *(["-X dev"] if " -X dev" in command or " -Xdev" in command else []))


def _children_started(window: Window, pid: int) -> int:
    """The processes that a program started within the window, but its loader's workers and compilers."""
    return sum(not child.compiles and child.comm not in (WORKER, *COMPILERS) for child in _young(window, pid))


def _some_ended(window: Window, pid: int) -> bool:
    """Whether a process that a program started within the window has ended: a launcher starts ranks, and they stay."""
    return any(child.last is child.first for child in _young(window, pid))


def _young(window: Window, pid: int) -> list[Watched]:
    return [process for process in window.processes.values() if not process.from_start and window.parents.get(process.pid) == pid]


def _idle_compilers_bytes(window: Window, pid: int) -> int:
    """Resident memory of the compile workers of a program, if none of them compiled within the window."""
    below = [compiler for compiler in window.processes.values() if compiler.compiles and _is_below(window, compiler.pid, pid)]
    ticks = sum(compiler.last.stat.cpu_ticks - compiler.first.stat.cpu_ticks for compiler in below)
    return 0 if ticks >= MIN_TICKS else sum(compiler.last.stat.rss_pages for compiler in below) * PAGE_BYTES


def _is_below(window: Window, pid: int, program: int) -> bool:
    """Whether a process is below a program; a pool's parent may stand between."""
    parent = window.parents.get(pid)
    return program in (parent, window.parents.get(parent or 0))


def machine(
    window: Window,
    cpus: CpuSet | None,
    *,
    torch: Sequence[int],
    other_programs: int,
    governor: str | None,
    shares: tuple[Share, ...] = (),
    float16: bool | None = None,
) -> Machine:
    """What was left of the machine, and what others took; `torch` are the PyTorch programs outside of the job."""
    busy, idle = rates.busy_cpus(window, cpus), rates.idle_cpus(window, cpus)
    others = neighbours.by_kind(window, rates.outside(window, cpus), torch, cpus)
    accounted = rates.used_cpus(window) + rates.own_cpus(window) + others.kernel_cpus + others.helper_cpus + others.trial_cpus
    others_cpus = None if busy is None else max(0.0, busy - accounted - others.torch_cpus)
    ready = rates.others_ready(window, cpus)
    wanted = max((others_cpus or 0.0) + others.torch_cpus, ready)
    return Machine(
        cpus=len(cpus) if cpus is not None else None, idle_cpus=idle, others_cpus=others_cpus, others=neighbours.named(others.programs),
        torch_cpus=others.torch_cpus, torch_others=neighbours.named(others.torch),
        trials_cpus=others.trial_cpus, trials=neighbours.named(others.trials),
        helpers_cpus=others.helper_cpus, helpers=neighbours.named(others.helpers),
        others_ready=ready, left_share=max(0.0, 1 - wanted / len(cpus)) if cpus else None,
        others_steady=rates.others_steady(window, cpus, MIN_OTHERS),
        other_programs=other_programs, shares=shares,
        cpu_pressure=rates.pressure(window, "cpu"), io_pressure=rates.pressure(window, "io"),
        memory_pressure=rates.pressure(window, "memory"), swapped_per_s=rates.swapped_per_s(window),
        refaulted_per_s=rates.refaulted_per_s(window), governor=governor, float16=float16,
        available_growth_bytes_per_s=rates.available_growth_per_s(window), remote_pages=rates.remote_share(window),
    )  # fmt: skip


def is_rank(program: Program) -> bool:
    """Whether it is one of several ranks, and known which."""
    return program.rank is not None and program.rank >= 0 and (program.world_size or 1) > 1


def awake(program: Program) -> float:
    """Return the share of the time in which its main thread wants a CPU for which it has one."""
    ran, waited = program.main.ran or 0.0, program.main.waited or 0.0
    return ran / (ran + waited) if ran else 1.0


def ranks(described: Sequence[Program]) -> Ranks:
    """The ranks of a job beside each other, by what each wanted of the CPUs."""
    several = [rank for rank in described if is_rank(rank) and rank.threads.used_cpus is not None and rank.role == "computes"]
    if len(several) < 2:
        return Ranks(count=len(several))
    used = {rank.pid: rank.threads.used_cpus or 0.0 for rank in several}
    wanted = {rank.pid: used[rank.pid] / max(0.05, 1 - (rank.threads.waited_share or 0.0)) for rank in several}
    waits = {rank.pid: rank.stacks.collective + rank.stacks.backward for rank in several if rank.stacks is not None}
    gap = max(waits.values()) - min(waits.values()) if len(waits) > 1 else None
    slowest = min(waits, key=waits.__getitem__) if gap is not None and gap >= CLEAR_GAP else max(wanted, key=wanted.__getitem__)
    return Ranks(
        count=len(several), wanted_ratio=max(wanted.values()) / max(0.01, min(wanted.values())),
        slowest=next(rank.rank for rank in several if rank.pid == slowest), waiting_gap=gap,
        excess_cpus=used.pop(slowest) - fmean(used.values()),
    )  # fmt: skip
