"""The facts of one PyTorch program, gathered part by part.

Reads   /proc/[pid]/{stat,status,cmdline,maps}  version.py beside the mapped libtorch
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import shlex
from collections.abc import Sequence

from sysperf.collect.process import children, loaded_torch, usage, variables
from sysperf.collect.process.affinity import affinity
from sysperf.collect.process.memory import memory
from sysperf.collect.process.open_files import open_files
from sysperf.collect.process.parts import Loaded, LoadedTorch
from sysperf.collect.process.process_tree import Family, forget_if_gone
from sysperf.collect.process.records import Process
from sysperf.collect.process.subject import Machine, Subject
from sysperf.collect.process.thread_demand import threads
from sysperf.model.text import neutral
from sysperf.procfs.maps import OPENMP

MAX_PACKAGES = 64
MAX_COMMAND = 800


def describe(machine: Machine, family: Family) -> Process | None:
    """The facts of one process; None when it ended meanwhile."""
    mark = len(machine.host.sources)
    with machine.host.as_owner_of(family.stat.pid):  # its variables and maps name files: its user may not read all that we may
        process = _described(Subject(machine, family))
    return None if forget_if_gone(machine.host, process.pid, mark) else process


def _described(subject: Subject) -> Process:
    stat, argv, main = subject.stat, subject.family.argv, usage.main_thread(subject)
    return Process(
        pid=stat.pid,
        ppid=stat.ppid,
        name=neutral(stat.comm, 40),
        user=subject.status.user,
        command=None if argv is None else neutral(_command(argv), MAX_COMMAND),
        start_time=stat.start_ticks,
        age_s=subject.age_s,
        cuda_used=subject.mapped.cuda or subject.mapped.xpu,
        gpu_bus_ids=_gpu_bus_ids(subject),
        env=subject.env,
        cgroup=subject.machine.groups.of(subject.pid),
        cpu_s=stat.cpu_s,
        demand=usage.demand(subject, main),
        nice=stat.nice,
        policy=usage.policy(subject),
        torch=LoadedTorch(version=subject.version, prefix=loaded_torch.prefix_of(subject.mapped.torch)),
        loaded=_loaded(subject),
        variables=variables.variables(subject),
        job=variables.job(subject),
        workers=children.workers(subject),
        children=children.children(subject),
        compiling=children.compiling(subject),
        threads=threads(subject),
        main=main,
        affinity=affinity(subject),
        faults=usage.faults(subject),
        reads=usage.reads(subject),
        memory=memory(subject),
        files=open_files(subject),
    )


def _command(argv: Sequence[str]) -> str:
    """The command line as one would type it; a program that gave itself a title has one word with blanks in it."""
    return argv[0] if len(argv) == 1 else " ".join(map(shlex.quote, argv))


def _gpu_bus_ids(subject: Subject) -> tuple[str, ...] | None:
    if not (subject.mapped.cuda or subject.mapped.xpu):
        return ()
    gpus = subject.machine.gpus
    return None if gpus is None else tuple(gpus.get(subject.pid, ()))


def _loaded(subject: Subject) -> Loaded:
    mapped = subject.mapped
    return Loaded(
        libraries=tuple(mapped.libraries),
        foreign_libraries=subject.machine.software.foreign(mapped, subject.root),
        cudnn_folders=tuple(neutral(folder) for folder in mapped.cudnn),
        openmp=mapped.named(*OPENMP),
        allocator=mapped.allocators[0] if mapped.allocators else "glibc",
        allocators=mapped.allocators,
        sanitizers=tuple(dict.fromkeys(mapped.sanitizers)),
        profilers=tuple(mapped.profilers),
        packages=tuple(sorted(mapped.packages))[:MAX_PACKAGES],
        maps_count=mapped.count,
    )
