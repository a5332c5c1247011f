"""The helpers that a program started: DataLoader workers, forked copies, compile workers.

Reads   /proc/[pid]/{stat,status,cmdline,schedstat}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process import demand
from sysperf.collect.process.process_tree import Family, forget_if_gone, read_argv
from sysperf.collect.process.subject import Subject
from sysperf.collect.process.threads import cpus_of
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Fields
from sysperf.procfs.stat import TICKS_PER_S, Stat
from sysperf.procfs.status import Status


def children(subject: Subject) -> Fields:
    """How many helpers of each kind the program has, and what its workers used."""
    workers, family = subject.workers, subject.family
    statuses = [_worker_status(subject.host, stat.pid) for stat in workers]
    masks = [
        cpus for stat, status in zip(workers, statuses, strict=True) if (cpus := cpus_of(subject.host, f"/proc/{stat.pid}/status", status))
    ]
    sizes = [size for status in statuses if (size := status.size_bytes("VmRSS")) is not None]
    return {
        "workers": len(workers),
        "worker_start": _start_method(subject.host, family, workers),
        "worker_cpus": CpuSet.union(masks) if masks or not workers else None,
        "worker_threads": max((stat.threads for stat in workers), default=0),
        "worker_busy_share": _busy_share(workers, subject.machine.uptime_s),
        **_worker_demand(subject),
        "worker_rss_bytes": sum(sizes) if sizes or not workers else None,
        "ended_children_cpu_s": subject.stat.ended_children_ticks / TICKS_PER_S,
        "forks": len(family.forks),
        "compile_workers": len(family.compilers) - len({stat.ppid for stat in family.compilers} & {stat.pid for stat in family.compilers}),
        "compile_cpu_s": sum(stat.cpu_ticks + stat.ended_children_ticks for stat in family.compilers) / TICKS_PER_S,
    }


def _worker_demand(subject: Subject) -> Fields:
    workers, uptime_s = subject.workers, subject.machine.uptime_s
    if not workers:
        return {"worker_wanted_share": 0.0, "worker_age_s": 0.0, "workers_run_s": 0.0, "workers_wait_s": 0.0}
    wanted = demand.of_processes(subject.host, workers, uptime_s)
    oldest_s = None if uptime_s is None else uptime_s - min(stat.start_ticks for stat in workers) / TICKS_PER_S
    return {
        "worker_wanted_share": None if wanted is None else round(wanted.cpus / min(len(workers), demand.MAX_WORKERS), 3),
        "worker_age_s": None if oldest_s is None else round(max(0.0, oldest_s), 1),
        "workers_run_s": None if wanted is None else round(wanted.run_s, 3),
        "workers_wait_s": None if wanted is None else round(wanted.wait_s, 3),
    }


def _busy_share(workers: list[Stat], uptime_s: float | None) -> float | None:
    """The CPU time of the workers by their age; what was started just now says nothing yet."""
    if not workers:
        return 0.0
    lived_s = 0.0 if uptime_s is None else sum(max(0.0, uptime_s - stat.start_ticks / TICKS_PER_S) for stat in workers)
    return None if lived_s < 1.0 else round(min(1.0, sum(stat.cpu_s for stat in workers) / lived_s), 3)


def _worker_status(host: Host, pid: int) -> Status:
    mark = len(host.sources)
    text = host.text(f"/proc/{pid}/status")
    if text is None:
        forget_if_gone(host, pid, mark)  # workers end with every epoch
    return Status(text or "")


def _start_method(host: Host, family: Family, workers: list[Stat]) -> str:
    if not workers:
        return ""
    argv = read_argv(host, workers[0].pid)
    if argv is None:
        return ""
    if argv == family.argv:
        return "fork"
    command = " ".join(argv[:8])
    return "forkserver" if "multiprocessing.forkserver" in command else "spawn" if "multiprocessing.spawn" in command else "fork"
