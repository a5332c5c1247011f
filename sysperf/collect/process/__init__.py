"""process: every running PyTorch program, found by the libraries it maps. Nothing is attached to, stopped or imported.

A process is PyTorch's when it maps libtorch or libc10. Its DataLoader workers, forked pools and compile workers are
told by name, command line and ancestry, and counted with it. Processes that may not be looked at are counted as
`unreadable`: they are unknown, not absent.

Reads   /proc/[pid]/{statm,stat,status,cmdline,maps,environ,schedstat,io,cgroup,limits,numa_maps}  /proc/[pid]/{fd,task}/*
        version.py beside the mapped libtorch; NVML's list of compute processes where a process uses CUDA
        --deep looks twice, some seconds apart: shares are of that time then, and not of a whole life
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import msgspec

from sysperf.collect.process import stuck as stuck_tasks
from sysperf.collect.process.process_tree import ProcessSearch, find, in_time
from sysperf.collect.process.records import Process, Processes
from sysperf.collect.readers.mounts import mount_of
from sysperf.collect.readers.shell_environment import shell_variables
from sysperf.host import Host

_HIDING = frozenset(("hidepid=2", "hidepid=invisible", "hidepid=4", "hidepid=ptraceable"))


def collect(host: Host) -> Processes:
    """Find the programs and describe each. Raises Missing when no process is listed."""
    search = find(host)
    return Processes(
        processes=with_leaders(_described(host, search)) if search.families else (),
        scanned=search.scanned,
        unreadable=len(search.unreadable),
        hidden=_hides(host),
        stuck=stuck_tasks.stuck(host),
        shell=shell_variables(host, ("",)),
        numactl=host.exists("/usr/bin/numactl"),
    )


def _described(host: Host, search: ProcessSearch) -> list[Process]:
    from sysperf.collect.process import second_look  # noqa: PLC0415 - a dozen modules, and many audited machines run no PyTorch
    from sysperf.collect.process.describe import describe  # noqa: PLC0415 - as above
    from sysperf.collect.process.subject import Machine  # noqa: PLC0415 - as above

    machine = Machine(host, search)
    described = (describe(machine, family) for family in in_time(host, search.families.values()))
    found = [process for process in described if process is not None]
    return second_look.of_programs(host, found, lambda: collect(Host("/")).processes)


def _hides(host: Host) -> bool | None:
    """Whether /proc shows no other user's process, process 1 among them; hidepid=1 shows them without their contents."""
    proc = mount_of(host, "/proc")
    if proc is None:
        return None
    return not _HIDING.isdisjoint(proc.options) and "1" not in (host.names("/proc") or ())


def with_leaders(processes: list[Process]) -> tuple[Process, ...]:
    """The same with the first computing process of each job marked."""
    leaders: dict[int, int] = {}
    for process in processes:
        if not process.job.launcher:
            leaders.setdefault(process.job.id, process.pid)
    return tuple(_with_place(process, leads=leaders.get(process.job.id) == process.pid) for process in processes)


def _with_place(process: Process, *, leads: bool) -> Process:
    return msgspec.structs.replace(process, job=msgspec.structs.replace(process.job, leads=leads))
