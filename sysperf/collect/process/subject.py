"""One PyTorch program while it is described, and what all programs share.

Reads   /proc/[pid]/{stat,status,task}  /proc/uptime
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.collect.cgroup import Groups
from sysperf.collect.process import loaded_torch
from sysperf.collect.process.environment import environment
from sysperf.collect.process.gpu_contexts import gpus_by_process
from sysperf.collect.process.process_tree import Family, ProcessSearch
from sysperf.collect.process.threads import cpus_of, read_threads
from sysperf.host import Host
from sysperf.model.version import Version
from sysperf.procfs.numbers import decimal
from sysperf.procfs.stat import TICKS_PER_S
from sysperf.procfs.status import Status

NODES = "/sys/devices/system/node/node[0-9]*"


class Machine:
    """What all processes share, read once, and only when there is a process that needs it."""

    def __init__(self, host: Host, search: ProcessSearch) -> None:
        self.host = host
        self.families = search.families
        self.groups = Groups(host)
        self.software = loaded_torch.Software(host)
        self.uptime_s = decimal((host.text("/proc/uptime") or "").partition(" ")[0]) if search.families else None
        self.has_nodes = bool(search.families) and len(host.glob(NODES)) > 1
        on_xpus = {pid for pid, family in search.families.items() if family.mapped.xpu}
        on_gpus = on_xpus | {pid for pid, family in search.families.items() if family.mapped.cuda}
        self.gpus = gpus_by_process(host, on_gpus, on_xpus) if on_gpus else {}


class Subject:
    """One process while it is described."""

    def __init__(self, machine: Machine, family: Family) -> None:
        host, self.stat, self.mapped = machine.host, family.stat, family.mapped
        self.host, self.machine, self.family, self.pid = host, machine, family, family.stat.pid
        self.status_path = f"/proc/{self.pid}/status"
        self.status = Status(host.text(self.status_path) or "")
        self.env = environment(host, self.pid, family.argv)
        self.threads = read_threads(host, self.pid)
        self.root = loaded_torch.root_of(host, self.pid)
        self.version = machine.software.version(self.mapped.torch, self.root)
        uptime_s = machine.uptime_s
        self.age_s = None if uptime_s is None else round(max(0.0, uptime_s - self.stat.start_ticks / TICKS_PER_S), 1)
        self.allowed = cpus_of(host, self.status_path, self.status)
        self.workers = family.workers
        if self.is_older("2.5") and not self.workers:
            self.workers, family.forks = family.forks, []  # before 2.5 workers have no name of their own

    def is_older(self, version: str) -> bool:
        """Whether its PyTorch is known and older than this."""
        try:
            return self.version is not None and Version(self.version) < Version(version)
        except ValueError:
            return False

    def has_thread(self, *names: str, since: str) -> bool | None:
        """Whether it has a thread of these names; None where its PyTorch did not name threads yet."""
        runs = self.threads is not None and self.threads.any(*names)
        return True if runs else None if self.threads is None or self.version is None or self.is_older(since) else False
