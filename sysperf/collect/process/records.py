"""What is known of a running PyTorch program. The records of the area `process`.

Reads   /proc/[pid]/{stat,status,cmdline,maps,environ,schedstat,io,cgroup,limits,numa_maps}  /proc/[pid]/{fd,task}/*
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.collect.cgroup import Cgroup
from sysperf.collect.process import stuck as stuck_tasks
from sysperf.collect.process.parts import (
    CMDLINE,
    ENVIRON,
    FDINFO,
    GPU_PROCESSES,
    SCHEDSTAT,
    STAT,
    STATUS,
    Affinity,
    Children,
    Compiling,
    Faults,
    JobPlace,
    Loaded,
    LoadedTorch,
    LoaderWorkers,
    MainThread,
    OpenFiles,
    ProgramMemory,
    ProgramReads,
    ProgramThreads,
    Variables,
)
from sysperf.collect.process.stuck import Stuck
from sysperf.collect.readers.kfd import KFD_PROCESSES
from sysperf.collect.readers.shell_environment import ENVIRON as SHELL
from sysperf.model.record import Record, fact
from sysperf.procfs.maps import MAPS


class Process(Record, kw_only=True):
    """One PyTorch program, with the helpers that it started."""

    pid: Annotated[int, fact("process number", STAT)]
    ppid: Annotated[int, fact("process number of its parent", STAT)]
    name: Annotated[str, fact("name of its main thread", STAT)]
    user: Annotated[int | None, fact("user number of its owner", STATUS)] = None
    command: Annotated[str | None, fact("command line without secrets, quoted for a shell", CMDLINE)] = None
    start_time: Annotated[
        int | None, fact("when it started, in clock ticks since boot: with its number, the name of this very process", STAT)
    ] = None
    age_s: Annotated[float | None, fact("seconds since it started", STAT, "/proc/uptime")] = None
    window_s: Annotated[
        float, fact("seconds between two readings, of which its shares and rates are then; 0 after one reading: they are of its life", STAT)
    ] = 0.0
    env: Annotated[dict[str, str] | None, fact("performance variables at its start", ENVIRON)] = None
    cgroup: Annotated[Cgroup | None, fact("the control group that limits it", "/proc/[0-9]*/cgroup")] = None
    cuda_used: Annotated[bool, fact("it has a device of CUDA or ROCm open, or the driver of an Intel GPU loaded", MAPS)] = False
    gpu_bus_ids: Annotated[
        tuple[str, ...] | None, fact("GPUs on which it has a context", GPU_PROCESSES, KFD_PROCESSES, FDINFO, "/proc/self/ns/pid")
    ] = None
    cpu_s: Annotated[float, fact("CPU seconds used", STAT)] = 0.0
    demand: Annotated[
        float | None,
        fact(
            "share of its life in which its main thread ran or was ready to, or of its CPUs' time that it used: the larger one",
            SCHEDSTAT,
            "/proc/uptime",
        ),
    ] = None
    nice: Annotated[int, fact("niceness", STAT)] = 0
    policy: Annotated[str, fact("scheduling policy: other, batch, idle, fifo, rr, deadline; empty when unknown", STAT)] = ""

    torch: LoadedTorch = LoadedTorch()
    loaded: Loaded = Loaded()
    variables: Variables = Variables()
    job: JobPlace = JobPlace()
    workers: LoaderWorkers = LoaderWorkers()
    children: Children = Children()
    compiling: Compiling = Compiling()
    threads: ProgramThreads = ProgramThreads()
    affinity: Affinity = Affinity()
    main: MainThread = MainThread()
    faults: Faults = Faults()
    reads: ProgramReads = ProgramReads()
    memory: ProgramMemory = ProgramMemory()
    files: OpenFiles = OpenFiles()


class Processes(Record, kw_only=True):
    """The PyTorch programs of this machine."""

    processes: Annotated[tuple[Process, ...], fact("running PyTorch programs, oldest first", MAPS)]
    scanned: Annotated[int, fact("processes whose size was read", "/proc/[0-9]*/statm")] = 0
    unreadable: Annotated[int, fact("large processes of other users that could not be examined: PyTorch or not, nobody knows", MAPS)] = 0
    hidden: Annotated[
        bool | None, fact("/proc hides processes of other users from us (mounted with hidepid=2)", "/proc/self/mountinfo")
    ] = None
    stuck: Annotated[
        tuple[Stuck, ...] | None, fact("processes that wait in the kernel and do not come back (--deep)", stuck_tasks.CALL)
    ] = None
    shell: Annotated[
        dict[str, str] | None, fact("performance variables of the shell that started sysperf, which its programs will have", SHELL)
    ] = None
    numactl: Annotated[bool | None, fact("the numactl program is installed", "/usr/bin/numactl")] = None
