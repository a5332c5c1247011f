"""The parts of what is known of a running PyTorch program, each as the one that reads it returns it.

Reads   /proc/[pid]/{stat,status,cmdline,maps,environ,schedstat,io,limits,numa_maps}  /proc/[pid]/{fd,task}/*
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from __future__ import annotations

from typing import Annotated

from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact
from sysperf.procfs.maps import MAPS, Library

STAT = "/proc/[0-9]*/stat"
STATUS = "/proc/[0-9]*/status"
ENVIRON = "/proc/[0-9]*/environ"
CMDLINE = "/proc/[0-9]*/cmdline"
TASKS = "/proc/[0-9]*/task"
SCHEDSTAT = "/proc/[0-9]*/schedstat"
THREAD_SCHEDSTAT = "/proc/[0-9]*/task/*/schedstat"
SYSCALL = "/proc/[0-9]*/task/*/syscall"
NUMA_MAPS = "/proc/[0-9]*/numa_maps"
ROCM = "/opt/rocm*/.info/version"
IMEX = "/dev/nvidia-caps-imex-channels"
GPU_PROCESSES = "nvml:DeviceGetComputeRunningProcesses_v3"
FDINFO = "/proc/[0-9]*/fdinfo"


class NodePages(Record):
    """Memory of a process on one NUMA node."""

    node: Annotated[int, fact("number of the node", NUMA_MAPS)]
    bytes: Annotated[int, fact("memory of the process there", NUMA_MAPS)]


class DataMount(Record):
    """A file system on which a process has data files open."""

    point: Annotated[str, fact("where it is mounted", "/proc/self/mountinfo")]
    fstype: Annotated[str, fact("its type: ext4, nfs4, overlay, fuse.gcsfuse", "/proc/self/mountinfo")]
    files: Annotated[int, fact("open or mapped files there, without programs and libraries", "/proc/[0-9]*/fd/*", MAPS)]


class LoadedTorch(Record, kw_only=True):
    """The PyTorch that a program has loaded."""

    version: Annotated[str | None, fact("version of the PyTorch that it has loaded", "*/torch/version.py", "*/build-version")] = None
    prefix: Annotated[str, fact("prefix of the Python environment of that PyTorch; empty for a C++ program", MAPS)] = ""


class Loaded(Record, kw_only=True):
    """Libraries that a program maps."""

    libraries: Annotated[tuple[Library, ...], fact("CUDA, OpenMP and allocator libraries that it maps", MAPS)] = ()
    foreign_libraries: Annotated[tuple[str, ...], fact("CUDA libraries from elsewhere although the environment has its own", MAPS)] = ()
    cudnn_folders: Annotated[tuple[str, ...], fact("folders from which cuDNN is mapped", MAPS)] = ()
    openmp: Annotated[tuple[Library, ...], fact("OpenMP runtimes that it maps", MAPS)] = ()
    allocator: Annotated[str, fact("what serves malloc: glibc, jemalloc, tcmalloc or mimalloc", MAPS)] = "glibc"
    allocators: Annotated[tuple[str, ...], fact("replacement allocators that it maps", MAPS)] = ()
    sanitizers: Annotated[tuple[str, ...], fact("memory checkers that it maps: asan, tsan, valgrind", MAPS)] = ()
    profilers: Annotated[tuple[str, ...], fact("libraries of an injected profiler", MAPS)] = ()
    packages: Annotated[tuple[str, ...], fact("Python packages with compiled code that it has loaded", MAPS)] = ()
    maps_count: Annotated[int, fact("mapped regions, limited by vm.max_map_count", MAPS)] = 0


class Variables(Record, kw_only=True):
    """What its variables ask for that did not happen."""

    preload: Annotated[tuple[str, ...] | None, fact("entries of LD_PRELOAD", ENVIRON)] = None
    preload_missing: Annotated[
        tuple[str, ...] | None, fact("entries of LD_PRELOAD that were not loaded and are no file", ENVIRON, MAPS)
    ] = None
    mps_control: Annotated[
        bool | None, fact("whether the folder of the multi-process service that it is told of has a way to the daemon", ENVIRON)
    ] = None
    imex_channels: Annotated[
        int | None, fact("channels of NVIDIA's IMEX in its /dev, by which GPUs of several machines share memory", IMEX)
    ] = None
    rocm_searched: Annotated[
        str | None, fact("version of the ROCm whose libraries LD_LIBRARY_PATH puts first; '' where it names none", ENVIRON, ROCM)
    ] = None
    searched: Annotated[bool, fact("its NCCL and PyTorch variables were looked for in its libraries, which only --deep does", ENVIRON)] = (
        False
    )
    unread: Annotated[
        tuple[str, ...] | None, fact("NCCL and PyTorch variables whose names nothing in this PyTorch contains (only --deep)", "knobs:*")
    ] = None


class JobPlace(Record, kw_only=True):
    """The place of a program in a job."""

    launcher: Annotated[
        str, fact("what it starts ranks as: torchrun, accelerate, deepspeed; empty for a program that computes", CMDLINE, TASKS)
    ] = ""
    rank: Annotated[int | None, fact("its rank; -1 when it was started as none", ENVIRON)] = None
    local_rank: Annotated[int | None, fact("its rank on this machine; -1 when it was started as none", ENVIRON)] = None
    world_size: Annotated[int | None, fact("number of ranks; 1 when it was started as none", ENVIRON)] = None
    id: Annotated[int, fact("process number of what started it and its sibling ranks; its own when it is alone", STAT)] = 0
    leads: Annotated[bool, fact("the first computing process of its job, for rules about a job as a whole", STAT)] = True


class LoaderWorkers(Record, kw_only=True):
    """The DataLoader workers of a program, all together."""

    count: Annotated[int, fact("DataLoader workers", STAT)] = 0
    start: Annotated[
        str, fact("how they are started: fork, spawn, forkserver; empty without workers or when they ended meanwhile", CMDLINE)
    ] = ""
    cpus: Annotated[CpuSet | None, fact("CPUs that any worker may use", STATUS)] = None
    threads: Annotated[int | None, fact("most threads in one worker", STAT)] = None
    busy_share: Annotated[float | None, fact("share of their lives that the workers computed, all together", STAT, "/proc/uptime")] = None
    wanted_share: Annotated[
        float | None,
        fact("share of their lives that the workers ran or were ready to", SCHEDSTAT, "/proc/uptime"),
    ] = None
    age_s: Annotated[float | None, fact("seconds since the oldest worker started; 0 without workers", STAT, "/proc/uptime")] = None
    rss_bytes: Annotated[int | None, fact("resident memory of the workers, pages they share counted once a worker", STATUS)] = None
    run_s: Annotated[float | None, fact("seconds that its workers ran, together", SCHEDSTAT)] = None
    wait_s: Annotated[float | None, fact("seconds that its workers were ready but had no CPU, together", SCHEDSTAT)] = None


class Children(Record, kw_only=True):
    """Other processes that a program started."""

    ended_cpu_s: Annotated[float, fact("CPU seconds of its children that ended", STAT)] = 0.0
    ended_cpus: Annotated[float | None, fact("CPUs that its children used which ended between two readings; unknown after one", STAT)] = (
        None
    )
    started: Annotated[int | None, fact("processes that it started between two readings (--deep)", "second-look")] = None
    forks: Annotated[int, fact("other forked copies of the program, as a multiprocessing pool makes them", STAT)] = 0


class Compiling(Record, kw_only=True):
    """What torch.compile did for a program."""

    workers: Annotated[int, fact("compile workers of torch.compile", CMDLINE)] = 0
    kernels: Annotated[int, fact("kernels of torch.compile that it maps", MAPS)] = 0
    new_kernels: Annotated[int | None, fact("of these, how many are new since the reading before; unknown after one", MAPS)] = None
    share: Annotated[
        float | None, fact("share of samples in which a compiler ran that the program itself had started (--deep)", "second-look")
    ] = None
    cpu_s: Annotated[float, fact("CPU seconds of its compile workers and of compilers that they started", STAT)] = 0.0
    cpus: Annotated[float | None, fact("CPUs that these used between two readings; unknown after one", STAT)] = None


class ProgramThreads(Record, kw_only=True):
    """The threads of a program."""

    count: Annotated[int, fact("threads", STAT)] = 1
    computing: Annotated[
        int | None,
        fact("threads with the main thread's name that used at least 1/20 of the busiest one's CPU time: the OpenMP team in use", TASKS),
    ] = None
    sharing_lock: Annotated[
        int | None,
        fact("busy threads with the main thread's name that take turns: together they want one CPU; 0 when they are none", TASKS),
    ] = None
    lock_waiters: Annotated[
        int | None,
        fact("of those, how many waited for a lock with a time limit at that moment, as for Python's own", SYSCALL),
    ] = None
    wanted_cpus: Annotated[
        float | None,
        fact("CPUs that its threads wanted, running or ready, on average since each started", THREAD_SCHEDSTAT, "/proc/uptime"),
    ] = None
    used_cpus: Annotated[float | None, fact("CPUs that they received, on average since each started", THREAD_SCHEDSTAT, "/proc/uptime")] = (
        None
    )
    wait_s: Annotated[float | None, fact("seconds that its threads were ready but had no CPU, together", THREAD_SCHEDSTAT)] = None
    names: Annotated[tuple[str, ...] | None, fact("names of the threads that PyTorch and CUDA named", TASKS)] = None
    pins_memory: Annotated[bool | None, fact("a DataLoader copies batches to pinned memory (torch 2.5 and later tell)", TASKS)] = None
    ran_backward: Annotated[bool | None, fact("autograd has threads for devices: it trains (torch 2.4 and later tell)", TASKS)] = None
    nccl_group: Annotated[bool | None, fact("it has an NCCL process group (torch 2.5 and later tell)", TASKS)] = None
    gloo_group: Annotated[bool | None, fact("it has a gloo process group (torch 2.11 and later tell)", TASKS)] = None


class Affinity(Record, kw_only=True):
    """The CPUs that a program may use."""

    now: Annotated[CpuSet | None, fact("CPUs that its main thread may use", STATUS)] = None
    at_start: Annotated[
        CpuSet | None,
        fact("CPUs before OpenMP bound threads: those of all its threads, and of its parent when variables ask for binding", STATUS),
    ] = None
    openmp_bound: Annotated[
        bool | None,
        fact("OpenMP bound its main thread: variables ask for it, or its CPUs are one core of those that its other threads have", STATUS),
    ] = None


class MainThread(Record, kw_only=True):
    """The main thread of a program."""

    run_s: Annotated[float | None, fact("seconds that its main thread ran", SCHEDSTAT)] = None
    wait_s: Annotated[float | None, fact("seconds that its main thread was ready but had no CPU", SCHEDSTAT)] = None
    waited_share: Annotated[float | None, fact("of the time that its main thread ran or was ready, the share without a CPU", SCHEDSTAT)] = (
        None
    )
    sync_share: Annotated[
        float | None, fact("share of samples in which its main thread waited in fsync or the like (--deep)", "second-look")
    ] = None


class Faults(Record, kw_only=True):
    """The page faults of a program."""

    minor: Annotated[int, fact("page faults without I/O since its start", STAT)] = 0
    major: Annotated[int, fact("page faults with I/O since its start", STAT)] = 0
    major_per_s: Annotated[float | None, fact("page faults with I/O a second", STAT, "/proc/uptime")] = None
    refault_share: Annotated[
        float | None, fact("share of its CPU time spent on page faults beyond the first touch of its memory, at 2 µs a fault", STAT, STATUS)
    ] = None


class ProgramReads(Record, kw_only=True):
    """The reads of a program and of its workers."""

    calls: Annotated[int | None, fact("reads of the program and its workers since they started", "/proc/[0-9]*/io")] = None
    bytes: Annotated[int | None, fact("bytes that these reads gave, page cache included", "/proc/[0-9]*/io")] = None
    per_s: Annotated[float | None, fact("reads of the program and its workers a second", "/proc/[0-9]*/io", "/proc/uptime")] = None
    size_bytes: Annotated[float | None, fact("bytes that a read gave, on average", "/proc/[0-9]*/io")] = None
    loaded_bytes_per_s: Annotated[
        float | None, fact("what it read and mapped of files a second, between two readings; unknown after one", STATUS, "/proc/[0-9]*/io")
    ] = None


class ProgramMemory(Record, kw_only=True):
    """The memory of a program."""

    rss_bytes: Annotated[int | None, fact("resident memory", STATUS)] = None
    peak_bytes: Annotated[int | None, fact("most resident memory so far", STATUS)] = None
    anonymous_bytes: Annotated[int | None, fact("resident memory that is of no file", STATUS)] = None
    file_bytes: Annotated[int | None, fact("resident memory that is of mapped files", STATUS)] = None
    swap_bytes: Annotated[int | None, fact("memory of it that is in swap", STATUS)] = None
    growth_bytes_per_s: Annotated[
        float | None, fact("how fast its memory that is of no file grew beyond all before, between two readings; unknown after one", STATUS)
    ] = None
    policy: Annotated[str | None, fact("memory policy of most of its memory: default, bind:0, interleave:0-1", NUMA_MAPS)] = None
    nodes: Annotated[tuple[NodePages, ...] | None, fact("its memory by NUMA node", NUMA_MAPS)] = None


class OpenFiles(Record, kw_only=True):
    """The open files of a program."""

    open: Annotated[int | None, fact("open files", "/proc/[0-9]*/fd")] = None
    limit: Annotated[int | None, fact("soft limit of open files; 0 is no limit", "/proc/[0-9]*/limits")] = None
    mounts: Annotated[
        tuple[DataMount, ...] | None, fact("file systems of its open data files", "/proc/[0-9]*/fd/*", "/proc/[0-9]*/ns/mnt")
    ] = None
