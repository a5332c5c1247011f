"""What a program did between two readings, in the place of what it did on average since its start.

The means since its start hide what has been wrong for a minute only.
"""

from __future__ import annotations

import msgspec

from sysperf.collect.process.records import Process
from sysperf.model.record import Fields

MIN_S = 3.0
"""Two looks that are closer say little: CPU time is counted in hundredths of a second, and steps take longer than that."""
SAME_AGE_S = 1.0
"""Workers that grew older by what lies between the looks, up to this, are the same ones."""
FAULT_S = 2e-6
"""CPU time of a minor fault: 1.7 to 2.3 µs, measured with glibc's malloc against one that keeps its pages."""
PAGE_BYTES = 4096
MIN_CPU_SHARE = 0.02
"""Of a program that used less of a CPU nobody asks what it spent that on."""


def between(before: Process, after: Process) -> Process:
    """The later look, with shares and rates of the time in between; as it is where they are not of one process, or too close."""
    if before.age_s is None or after.age_s is None or before.start_time != after.start_time:
        return after
    seconds = after.age_s - before.age_s
    if seconds < MIN_S:
        return after
    shares = {
        **_of_main_thread(before, after, seconds),
        **_of_threads(before, after, seconds),
        **_of_workers(before, after, seconds),
        **_of_memory(before, after, seconds),
        **_of_reads(before, after, seconds),
        "ended_children_cpus": _rate(before.ended_children_cpu_s, after.ended_children_cpu_s, seconds),
        "compile_cpus": _rate(before.compile_cpu_s, after.compile_cpu_s, seconds),
        "major_faults_per_s": _rate(before.major_faults, after.major_faults, seconds),
    }
    known = {name: round(value, 3) for name, value in shares.items() if value is not None}
    new_kernels = max(0, after.compiled_kernels - before.compiled_kernels)
    return msgspec.structs.replace(after, window_s=round(seconds, 1), new_kernels=new_kernels, **known)


def _of_main_thread(before: Process, after: Process, seconds: float) -> dict[str, float | None]:
    ran, waited = _grown(before.main_run_s, after.main_run_s), _grown(before.main_wait_s, after.main_wait_s)
    if ran is None or waited is None:
        return {}
    used = (after.cpu_s - before.cpu_s) / len(after.allowed) if after.allowed else 0.0
    wanted = ran + waited
    return {
        "demand": min(1.0, max(wanted, used) / seconds),
        "main_waited_share": waited / wanted if wanted > MIN_CPU_SHARE * seconds else 0.0,
    }


def _of_threads(before: Process, after: Process, seconds: float) -> dict[str, float | None]:
    """The CPU time is of threads that ended meanwhile, too."""
    used, waited = after.cpu_s - before.cpu_s, _grown(before.threads_wait_s, after.threads_wait_s)
    return {} if waited is None else {"used_cpus": used / seconds, "wanted_cpus": (used + waited) / seconds}


def _of_workers(before: Process, after: Process, seconds: float) -> dict[str, float | None]:
    ran, waited = _grown(before.workers_run_s, after.workers_run_s), _grown(before.workers_wait_s, after.workers_wait_s)
    if ran is None or waited is None or not after.workers or not _has_same_workers(before, after, seconds):
        return {}
    return {
        "worker_wanted_share": min(1.0, (ran + waited) / seconds / after.workers),
        "worker_busy_share": min(1.0, ran / seconds / after.workers),
    }


def _has_same_workers(before: Process, after: Process, seconds: float) -> bool:
    if before.worker_age_s is None or after.worker_age_s is None or before.workers != after.workers:
        return False
    return abs(after.worker_age_s - before.worker_age_s - seconds) < SAME_AGE_S


def _of_memory(before: Process, after: Process, seconds: float) -> dict[str, float | None]:
    """Memory that grows beyond its peak, and the faults of memory that was given back and fetched again."""
    grown, new_peak = _difference(before.anonymous_bytes, after.anonymous_bytes), _difference(before.peak_rss_bytes, after.peak_rss_bytes)
    if grown is None or new_peak is None:
        return {}
    used = after.cpu_s - before.cpu_s
    again = max(0, after.minor_faults - before.minor_faults - new_peak // PAGE_BYTES)
    return {
        "growth_bytes_per_s": max(0, min(grown, new_peak)) / seconds,
        "refault_share": min(1.0, again * FAULT_S / used) if used > MIN_CPU_SHARE * seconds else 0.0,
    }


def _of_reads(before: Process, after: Process, seconds: float) -> dict[str, float | None]:
    calls, size = _grown(before.read_calls, after.read_calls), _grown(before.read_call_bytes, after.read_call_bytes)
    if calls is None or size is None:
        return {}
    mapped = max(0, _difference(before.file_bytes, after.file_bytes) or 0)
    return {
        "reads_per_s": calls / seconds,
        "read_size_bytes": size / calls if calls else 0.0,
        "loaded_bytes_per_s": (size + mapped) / seconds,
    }


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _grown(before: float | None, after: float | None) -> float | None:
    """How much a counter grew; None where it fell, as a sum over threads does when some end."""
    return None if before is None or after is None or after < before else after - before


def _rate(before: float, after: float, seconds: float) -> float:
    return max(0.0, after - before) / seconds


def fields_of(process: Process) -> Fields:
    """The facts that a second look changes, as data."""
    return {name: getattr(process, name) for name in FIELDS}


FIELDS = (
    "window_s",
    "demand",
    "main_waited_share",
    "used_cpus",
    "wanted_cpus",
    "worker_wanted_share",
    "worker_busy_share",
    "growth_bytes_per_s",
    "loaded_bytes_per_s",
    "refault_share",
    "reads_per_s",
    "read_size_bytes",
    "ended_children_cpus",
    "compile_cpus",
    "new_kernels",
    "major_faults_per_s",
)
