"""What a program did between two readings, in the place of what it did on average since its start.

The means since its start hide what has been wrong for a minute only.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from sysperf.collect.process.parts import LoaderWorkers
from sysperf.collect.process.records import Process
from sysperf.model.record import Record

MIN_S = 3.0
"""Two looks that are closer say little: CPU time is counted in hundredths of a second, and steps take longer than that."""
SAME_AGE_S = 1.0
"""Workers that grew older by what lies between the looks, up to this, are the same ones."""
FAULT_S = 2e-6
"""CPU time of a minor fault: 1.7 to 2.3 µs, measured with glibc's malloc against one that keeps its pages."""
PAGE_BYTES = 4096
MIN_CPU_SHARE = 0.02
"""Of a program that used less of a CPU nobody asks what it spent that on."""

R = TypeVar("R", bound=Record)


class Window(Record, kw_only=True):
    """What a program did between two readings, and what it was seen doing meanwhile. None: unknown, so what is known of its life stays."""

    window_s: float = 0.0
    demand: float | None = None
    main_waited_share: float | None = None
    sync_share: float | None = None
    used_cpus: float | None = None
    wanted_cpus: float | None = None
    workers_wanted_share: float | None = None
    workers_busy_share: float | None = None
    growth_bytes_per_s: float | None = None
    refault_share: float | None = None
    major_faults_per_s: float | None = None
    reads_per_s: float | None = None
    read_size_bytes: float | None = None
    loaded_bytes_per_s: float | None = None
    started_children: int | None = None
    ended_children_cpus: float | None = None
    compiling_share: float | None = None
    compile_cpus: float | None = None
    new_kernels: int | None = None


def between(before: Process, after: Process) -> Process:
    """The later look, with shares and rates of the time in between; as it is where they are not of one process, or too close."""
    window = measure(before, after)
    return after if window is None else over(after, window)


def measure(before: Process, after: Process) -> Window | None:
    """What the program did between two looks; None where they are not of one process, or too close."""
    if before.age_s is None or after.age_s is None or before.start_time != after.start_time:
        return None
    seconds = after.age_s - before.age_s
    if seconds < MIN_S:
        return None
    demand, main_waited_share = _of_main_thread(before, after, seconds)
    used_cpus, wanted_cpus = _of_threads(before, after, seconds)
    workers_wanted_share, workers_busy_share = _of_workers(before, after, seconds)
    growth_bytes_per_s, refault_share = _of_memory(before, after, seconds)
    reads_per_s, read_size_bytes, loaded_bytes_per_s = _of_reads(before, after, seconds)
    return Window(
        window_s=round(seconds, 1),
        demand=demand,
        main_waited_share=main_waited_share,
        used_cpus=used_cpus,
        wanted_cpus=wanted_cpus,
        workers_wanted_share=workers_wanted_share,
        workers_busy_share=workers_busy_share,
        growth_bytes_per_s=growth_bytes_per_s,
        refault_share=refault_share,
        major_faults_per_s=_rate(before.faults.major, after.faults.major, seconds),
        reads_per_s=reads_per_s,
        read_size_bytes=read_size_bytes,
        loaded_bytes_per_s=loaded_bytes_per_s,
        ended_children_cpus=_rate(before.children.ended_cpu_s, after.children.ended_cpu_s, seconds),
        compile_cpus=_rate(before.compiling.cpu_s, after.compiling.cpu_s, seconds),
        new_kernels=max(0, after.compiling.kernels - before.compiling.kernels),
    )


def over(process: Process, window: Window) -> Process:
    """The program with what is known of a window in the place of what is known of its life."""
    return _known(
        msgspec.structs.replace(process, window_s=window.window_s),
        demand=window.demand,
        main=_known(process.main, waited_share=window.main_waited_share, sync_share=window.sync_share),
        threads=_known(process.threads, used_cpus=window.used_cpus, wanted_cpus=window.wanted_cpus),
        workers=_known(process.workers, wanted_share=window.workers_wanted_share, busy_share=window.workers_busy_share),
        memory=_known(process.memory, growth_bytes_per_s=window.growth_bytes_per_s),
        faults=_known(process.faults, refault_share=window.refault_share, major_per_s=window.major_faults_per_s),
        reads=_known(
            process.reads, per_s=window.reads_per_s, size_bytes=window.read_size_bytes, loaded_bytes_per_s=window.loaded_bytes_per_s
        ),
        children=_known(process.children, started=window.started_children, ended_cpus=window.ended_children_cpus),
        compiling=_known(process.compiling, share=window.compiling_share, cpus=window.compile_cpus, new_kernels=window.new_kernels),
    )


def _known(part: R, **values: float | Record | None) -> R:
    known = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items() if value is not None}
    return msgspec.structs.replace(part, **known)


def _of_main_thread(before: Process, after: Process, seconds: float) -> tuple[float | None, float | None]:
    """(demand, the share in which its main thread waited for a CPU)."""
    ran, waited = _grown(before.main.run_s, after.main.run_s), _grown(before.main.wait_s, after.main.wait_s)
    if ran is None or waited is None:
        return None, None
    cpus = after.affinity.now
    used = (after.cpu_s - before.cpu_s) / len(cpus) if cpus else 0.0
    wanted = ran + waited
    return min(1.0, max(wanted, used) / seconds), waited / wanted if wanted > MIN_CPU_SHARE * seconds else 0.0


def _of_threads(before: Process, after: Process, seconds: float) -> tuple[float | None, float | None]:
    """(CPUs that its threads used, and that they wanted). The CPU time is of threads that ended meanwhile, too."""
    used, waited = after.cpu_s - before.cpu_s, _grown(before.threads.wait_s, after.threads.wait_s)
    return (None, None) if waited is None else (used / seconds, (used + waited) / seconds)


def _of_workers(before: Process, after: Process, seconds: float) -> tuple[float | None, float | None]:
    """(the share in which a worker wanted a CPU, and in which it ran)."""
    earlier, later = before.workers, after.workers
    ran, waited = _grown(earlier.run_s, later.run_s), _grown(earlier.wait_s, later.wait_s)
    if ran is None or waited is None or not later.count or not _are_the_same(earlier, later, seconds):
        return None, None
    return min(1.0, (ran + waited) / seconds / later.count), min(1.0, ran / seconds / later.count)


def _are_the_same(earlier: LoaderWorkers, later: LoaderWorkers, seconds: float) -> bool:
    if earlier.age_s is None or later.age_s is None or earlier.count != later.count:
        return False
    return abs(later.age_s - earlier.age_s - seconds) < SAME_AGE_S


def _of_memory(before: Process, after: Process, seconds: float) -> tuple[float | None, float | None]:
    """(growth of its memory beyond its peak, the CPU share of faults of memory that was given back and fetched again)."""
    grown = _difference(before.memory.anonymous_bytes, after.memory.anonymous_bytes)
    new_peak = _difference(before.memory.peak_bytes, after.memory.peak_bytes)
    if grown is None or new_peak is None:
        return None, None
    used = after.cpu_s - before.cpu_s
    again = max(0, after.faults.minor - before.faults.minor - new_peak // PAGE_BYTES)
    return max(0, min(grown, new_peak)) / seconds, min(1.0, again * FAULT_S / used) if used > MIN_CPU_SHARE * seconds else 0.0


def _of_reads(before: Process, after: Process, seconds: float) -> tuple[float | None, float | None, float | None]:
    """(reads a second, the bytes of a read, bytes a second that it read and mapped)."""
    calls, size = _grown(before.reads.calls, after.reads.calls), _grown(before.reads.bytes, after.reads.bytes)
    if calls is None or size is None:
        return None, None, None
    mapped = max(0, _difference(before.memory.file_bytes, after.memory.file_bytes) or 0)
    return calls / seconds, size / calls if calls else 0.0, (size + mapped) / seconds


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _grown(before: float | None, after: float | None) -> float | None:
    """How much a counter grew; None where it fell, as a sum over threads does when some end."""
    return None if before is None or after is None or after < before else after - before


def _rate(before: float, after: float, seconds: float) -> float:
    return max(0.0, after - before) / seconds
