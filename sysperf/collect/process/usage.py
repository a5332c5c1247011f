"""What a program used and wanted since it started: CPU time, page faults, reads.

Reads   /proc/[pid]/{stat,schedstat,io,cgroup}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process.demand import MAX_WORKERS
from sysperf.collect.process.demand import reads as read_calls
from sysperf.collect.process.parts import Faults, MainThread, ProgramReads
from sysperf.collect.process.subject import Subject
from sysperf.collect.process.window import FAULT_S, PAGE_BYTES
from sysperf.procfs import schedstat
from sysperf.procfs.stat import Stat

_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}


def policy(subject: Subject) -> str:
    """The name of its scheduling policy; empty when unknown."""
    return _POLICIES.get(subject.stat.policy, "")


def main_thread(subject: Subject) -> MainThread:
    """How long its main thread ran, and was ready without a CPU."""
    main = schedstat.parse(subject.host.word(f"/proc/{subject.pid}/schedstat"))
    if main is None:
        return MainThread()
    waited_share = round(main.wait_ns / (main.run_ns + main.wait_ns), 3) if main.run_ns else None
    return MainThread(run_s=round(main.run_s, 3), wait_s=round(main.wait_s, 3), waited_share=waited_share)


def demand(subject: Subject, main: MainThread) -> float | None:
    """How much it wanted CPUs since it started: 0 for a server without work, 1 for a loop that computes, also if it gets no CPU."""
    if not subject.age_s or not subject.allowed or main.run_s is None or main.wait_s is None:
        return None
    used_s = subject.stat.cpu_s / len(subject.allowed)
    return round(min(1.0, max(main.run_s + main.wait_s, used_s) / subject.age_s), 3)


def faults(subject: Subject) -> Faults:
    """Count its page faults."""
    stat = subject.stat
    return Faults(
        minor=stat.minor_faults,
        major=stat.major_faults,
        major_per_s=_per_s(stat.major_faults, subject.age_s),
        refault_share=_refault_share(stat, subject.status.size_bytes("VmHWM")),
    )


def reads(subject: Subject) -> ProgramReads:
    """The reads of the program and its workers."""
    reads = read_calls(subject.host, (subject.pid, *(stat.pid for stat in subject.workers[:MAX_WORKERS])))
    if reads is None:
        return ProgramReads()
    size_bytes = round(reads.bytes / reads.calls, 1) if reads.calls else 0.0
    return ProgramReads(calls=reads.calls, bytes=reads.bytes, per_s=_per_s(reads.calls, subject.age_s), size_bytes=size_bytes)


def _per_s(count: int, seconds: float | None) -> float | None:
    return None if not seconds else round(count / seconds, 3)


def _refault_share(stat: Stat, peak_bytes: int | None) -> float | None:
    """Every page is touched a first time; what faults beyond that was given back to the kernel and fetched again."""
    if peak_bytes is None or not stat.cpu_ticks:
        return None
    again = max(0, stat.minor_faults - peak_bytes // PAGE_BYTES)
    return round(min(1.0, again * FAULT_S / stat.cpu_s), 4)
