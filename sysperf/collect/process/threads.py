"""What the threads of a PyTorch process are for, told by their names.

Reads   /proc/[pid]/task/[tid]/{stat,status}
Kernel  https://docs.kernel.org/filesystems/proc.html
PyTorch https://github.com/pytorch/pytorch/pull/128448 (loader, elastic, NCCL: 2.5)
        https://github.com/pytorch/pytorch/pull/121170 (autograd: 2.4)
        https://github.com/pytorch/pytorch/pull/169979 (gloo: 2.11)
"""

from sysperf.collect.process.process_tree import GONE, read_stat
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.procfs.stat import Stat
from sysperf.procfs.status import CPUS, Status

MAX_THREADS = 2048
BUSY_SHARE = 0.05
"""A thread that used less than this share of the busiest one's CPU time is no member of the compute team."""


class Threads:
    """The threads of one process, by name."""

    __slots__ = ("compute", "names", "stats", "team", "tids")

    def __init__(self, stats: list[Stat]) -> None:
        self.stats = stats
        self.tids = [stat.pid for stat in stats]
        self.names = sorted({stat.comm for stat in stats if stat.comm.startswith(("pt_", "cuda-", "gloo_"))})
        main = stats[0].comm if stats else ""
        named_alike = [stat for stat in stats if stat.comm == main]
        least_ticks = max(1, BUSY_SHARE * max((stat.cpu_ticks for stat in named_alike), default=0))
        self.team = [stat for stat in named_alike if stat.cpu_ticks >= least_ticks]
        """The busy threads with the main thread's name: an OpenMP team, or a program's own threads."""
        self.compute = max(1, len(self.team))

    def any(self, *prefixes: str) -> bool:
        """Whether a thread's name begins so."""
        return any(name.startswith(prefixes) for name in self.names)


def read_threads(host: Host, pid: int) -> Threads | None:
    """The threads, the main one first; None when they cannot be listed or there are too many."""
    folder = f"/proc/{pid}/task"
    tids = host.names(folder)
    if tids is None:
        return None
    if len(tids) > MAX_THREADS:
        host.refuse(folder, f"{len(tids)} threads: more than {MAX_THREADS} are not examined")
        return None
    stats = [stat for tid in sorted(tids, key=str(pid).__ne__) if (stat := _stat(host, pid, tid))]
    return Threads(stats) if stats else None


def all_allowed(host: Host, pid: int, threads: Threads | None) -> CpuSet:
    """The CPUs that any of the threads may use."""
    masks = [cpus for tid in (threads.tids if threads else ()) if (cpus := allowed_in(host, f"/proc/{pid}/task/{tid}/status"))]
    return CpuSet.union(masks)


def allowed_in(host: Host, path: str) -> CpuSet | None:
    """The CPUs that a status file allows; None when it cannot be read."""
    mark = len(host.sources)
    cpus = cpus_of(host, path, Status(host.text(path) or ""))
    if cpus is None and any(source.error in GONE for source in host.sources[mark:]):
        del host.sources[mark:]
    return cpus


def cpus_of(host: Host, path: str, status: Status) -> CpuSet | None:
    """The CPUs in a status that was read already."""
    cpus, text = status.cpus, status.get(CPUS)
    if cpus is None and text:
        host.refuse(path, f"no list of CPUs: {text[:60]!r}")
    return cpus


def _stat(host: Host, pid: int, tid: str) -> Stat | None:
    mark = len(host.sources)
    stat = read_stat(host, pid, f"/proc/{pid}/task/{tid}/stat")
    if stat is None and any(source.error in GONE for source in host.sources[mark:]):
        del host.sources[mark:]  # a thread may end at any time
    return stat
