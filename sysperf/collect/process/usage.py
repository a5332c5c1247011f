"""What a program used and wanted since it started: CPU time, page faults, reads.

Reads   /proc/[pid]/{stat,schedstat,io,cgroup}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process import demand
from sysperf.collect.process.subject import Subject
from sysperf.collect.process.window import FAULT_S, PAGE_BYTES
from sysperf.model.record import Fields
from sysperf.procfs import schedstat
from sysperf.procfs.schedstat import SchedStat
from sysperf.procfs.stat import Stat

_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}


def usage(subject: Subject) -> Fields:
    """CPU time, faults, reads, scheduling and control group of the program."""
    stat = subject.stat
    main = schedstat.parse(subject.host.word(f"/proc/{subject.pid}/schedstat"))
    return {
        "cpu_s": stat.cpu_s,
        "demand": _demand(subject, main),
        "minor_faults": stat.minor_faults,
        "major_faults": stat.major_faults,
        "major_faults_per_s": _per_s(stat.major_faults, subject.age_s),
        "refault_share": _refault_share(stat, subject.status.size_bytes("VmHWM")),
        "nice": stat.nice,
        "policy": _POLICIES.get(stat.policy, ""),
        **_reads(subject),
        "main_run_s": None if main is None else round(main.run_s, 3),
        "main_wait_s": None if main is None else round(main.wait_s, 3),
        "main_waited_share": None if main is None or not main.run_ns else round(main.wait_ns / (main.run_ns + main.wait_ns), 3),
        "cgroup": subject.machine.groups.of(subject.pid),
    }


def _reads(subject: Subject) -> Fields:
    reads = demand.reads(subject.host, (subject.pid, *(stat.pid for stat in subject.workers[: demand.MAX_WORKERS])))
    if reads is None:
        return {}
    return {
        "read_calls": reads.calls,
        "read_call_bytes": reads.bytes,
        "reads_per_s": _per_s(reads.calls, subject.age_s),
        "read_size_bytes": round(reads.bytes / reads.calls, 1) if reads.calls else 0.0,
    }


def _per_s(count: int, seconds: float | None) -> float | None:
    return None if not seconds else round(count / seconds, 3)


def _demand(subject: Subject, main: SchedStat | None) -> float | None:
    """How much it wanted CPUs since it started: 0 for a server without work, 1 for a loop that computes, also if it gets no CPU."""
    if not subject.age_s or not subject.allowed or main is None:
        return None
    used_s = subject.stat.cpu_s / len(subject.allowed)
    return round(min(1.0, max(main.run_s + main.wait_s, used_s) / subject.age_s), 3)


def _refault_share(stat: Stat, peak_bytes: int | None) -> float | None:
    """Every page is touched a first time; what faults beyond that was given back to the kernel and fetched again."""
    if peak_bytes is None or not stat.cpu_ticks:
        return None
    again = max(0, stat.minor_faults - peak_bytes // PAGE_BYTES)
    return round(min(1.0, again * FAULT_S / stat.cpu_s), 4)
