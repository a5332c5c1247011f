"""The helpers that a program started: DataLoader workers, forked copies, compile workers.

Reads   /proc/[pid]/{stat,status,cmdline,schedstat}
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.process import demand
from sysperf.collect.process.parts import Children, Compiling, LoaderWorkers
from sysperf.collect.process.process_tree import Family, forget_if_gone, read_argv
from sysperf.collect.process.subject import Subject
from sysperf.collect.process.threads import cpus_of
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.stat import TICKS_PER_S, Stat
from sysperf.procfs.status import Status


def workers(subject: Subject) -> LoaderWorkers:
    """How many DataLoader workers the program has, and what they used."""
    host, workers, uptime_s = subject.host, subject.workers, subject.machine.uptime_s
    if not workers:
        return LoaderWorkers(cpus=CpuSet(), threads=0, busy_share=0.0, wanted_share=0.0, age_s=0.0, rss_bytes=0, run_s=0.0, wait_s=0.0)
    statuses = [_worker_status(host, stat.pid) for stat in workers]
    masks = [cpus for stat, status in zip(workers, statuses, strict=True) if (cpus := cpus_of(host, f"/proc/{stat.pid}/status", status))]
    sizes = [size for status in statuses if (size := status.size_bytes("VmRSS")) is not None]
    wanted = demand.of_processes(host, workers, uptime_s)
    oldest_s = None if uptime_s is None else uptime_s - min(stat.start_ticks for stat in workers) / TICKS_PER_S
    return LoaderWorkers(
        count=len(workers),
        start=_start_method(host, subject.family, workers),
        cpus=CpuSet.union(masks) if masks else None,
        threads=max(stat.threads for stat in workers),
        busy_share=_busy_share(workers, uptime_s),
        wanted_share=None if wanted is None else round(wanted.cpus / min(len(workers), demand.MAX_WORKERS), 3),
        age_s=None if oldest_s is None else round(max(0.0, oldest_s), 1),
        rss_bytes=sum(sizes) if sizes else None,
        run_s=None if wanted is None else round(wanted.run_s, 3),
        wait_s=None if wanted is None else round(wanted.wait_s, 3),
    )


def children(subject: Subject) -> Children:
    """The other forked copies of the program, and what its children used that ended."""
    return Children(ended_cpu_s=subject.stat.ended_children_ticks / TICKS_PER_S, forks=len(subject.family.forks))


def compiling(subject: Subject) -> Compiling:
    """The compile workers of the program, and the kernels that it maps."""
    compilers = subject.family.compilers
    return Compiling(
        workers=len(compilers) - len({stat.ppid for stat in compilers} & {stat.pid for stat in compilers}),
        kernels=subject.mapped.compiled,
        cpu_s=sum(stat.cpu_ticks + stat.ended_children_ticks for stat in compilers) / TICKS_PER_S,
    )


def _busy_share(workers: list[Stat], uptime_s: float | None) -> float | None:
    """The CPU time of the workers by their age; what was started just now says nothing yet."""
    lived_s = 0.0 if uptime_s is None else sum(max(0.0, uptime_s - stat.start_ticks / TICKS_PER_S) for stat in workers)
    return None if lived_s < 1.0 else round(min(1.0, sum(stat.cpu_s for stat in workers) / lived_s), 3)


def _worker_status(host: Host, pid: int) -> Status:
    mark = len(host.sources)
    text = host.text(f"/proc/{pid}/status")
    if text is None:
        forget_if_gone(host, pid, mark)  # workers end with every epoch
    return Status(text or "")


def _start_method(host: Host, family: Family, workers: list[Stat]) -> str:
    argv = read_argv(host, workers[0].pid)
    if argv is None:
        return ""
    if argv == family.argv:
        return "fork"
    command = " ".join(argv[:8])
    return "forkserver" if "multiprocessing.forkserver" in command else "spawn" if "multiprocessing.spawn" in command else "fork"
