"""process: every running PyTorch program, found by the libraries it maps. Nothing is attached to, stopped or imported.

A process is PyTorch's when it maps libtorch or libc10. Its DataLoader workers, forked pools and compile workers are
told by name, command line and ancestry, and counted with it. Processes that may not be looked at are counted as
`unreadable`: they are unknown, not absent.

Reads   /proc/[pid]/{statm,stat,status,cmdline,maps,environ,schedstat,io,cgroup,limits,numa_maps}  /proc/[pid]/{fd,task}/*
        version.py beside the mapped libtorch; NVML's list of compute processes where a process uses CUDA
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import re
import shlex
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from sysperf.collect.cgroup import Cgroup, Groups
from sysperf.collect.process import demand, loaded_torch, ranks, unknown_variables
from sysperf.collect.process import stuck as stuck_tasks
from sysperf.collect.process.process_tree import Family, Found, find, forget_if_gone, in_time, read_argv
from sysperf.collect.process.stuck import Stuck
from sysperf.collect.process.threads import all_allowed, allowed_in, cpus_of, read_threads
from sysperf.collect.readers.mounts import mount_of
from sysperf.host import Host
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.model.version import Version
from sysperf.procfs import cpulist, environ, pci, schedstat
from sysperf.procfs.maps import MAPS, OPENMP, Library, holds_data
from sysperf.procfs.numa_maps import NumaMaps
from sysperf.procfs.numbers import decimal
from sysperf.procfs.schedstat import SchedStat
from sysperf.procfs.stat import TICKS_PER_S, Stat
from sysperf.procfs.status import Status
from sysperf.startup import lazy

STAT = "/proc/[0-9]*/stat"
STATUS = "/proc/[0-9]*/status"
ENVIRON = "/proc/[0-9]*/environ"
CMDLINE = "/proc/[0-9]*/cmdline"
TASKS = "/proc/[0-9]*/task"
SCHEDSTAT = "/proc/[0-9]*/schedstat"
THREAD_SCHEDSTAT = "/proc/[0-9]*/task/*/schedstat"
SYSCALL = "/proc/[0-9]*/task/*/syscall"
NUMA_MAPS = "/proc/[0-9]*/numa_maps"
NODES = "/sys/devices/system/node/node[0-9]*"
GPU_PROCESSES = "nvml:DeviceGetComputeRunningProcesses_v3"

MAX_VARIABLES = 512
MAX_FDS = 20_000
MAX_LINKS = 256
MAX_GPUS = 64
MAX_PACKAGES = 64
MAX_COMMAND = 800
MAX_NUMA_RSS_BYTES = 4 << 30
"""The kernel walks all pages to answer numa_maps, while the process cannot map memory: larger ones only with `--deep`."""
FAULT_S = 2e-6
"""CPU time of a minor fault: 1.7 to 2.3 µs, measured with glibc's malloc against one that keeps its pages."""

_OPEN_FILES = lazy(r"^Max open files\s+([0-9]{1,18}|unlimited)", re.MULTILINE)
_HIDING = frozenset(("hidepid=2", "hidepid=invisible", "hidepid=4", "hidepid=ptraceable"))
_BINDING = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")
_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline", 7: "ext"}
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of include/linux/proc_ns.h


class NodePages(Record):
    """Memory of a process on one NUMA node."""

    node: Annotated[int, fact("number of the node", NUMA_MAPS)]
    bytes: Annotated[int, fact("memory of the process there", NUMA_MAPS)]


class DataMount(Record):
    """A file system on which a process has data files open."""

    point: Annotated[str, fact("where it is mounted", "/proc/self/mountinfo")]
    fstype: Annotated[str, fact("its type: ext4, nfs4, overlay, fuse.gcsfuse", "/proc/self/mountinfo")]
    files: Annotated[int, fact("open or mapped files there, without programs and libraries", "/proc/[0-9]*/fd/*", MAPS)]


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

    torch_version: Annotated[str | None, fact("version of the PyTorch that it has loaded", "*/torch/version.py", "*/build-version")] = None
    torch_prefix: Annotated[str, fact("prefix of the Python environment of that PyTorch; empty for a C++ program", MAPS)] = ""
    torch_replaced: Annotated[bool, fact("the files of that PyTorch were replaced on disk since it started", MAPS)] = False
    cuda_used: Annotated[bool, fact("it has a CUDA device open", MAPS)] = False
    gpu_bus_ids: Annotated[tuple[str, ...] | None, fact("GPUs on which it has a context", GPU_PROCESSES, "/proc/self/ns/pid")] = None
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

    env: Annotated[dict[str, str] | None, fact("performance variables at its start", ENVIRON)] = None
    preload: Annotated[tuple[str, ...] | None, fact("entries of LD_PRELOAD", ENVIRON)] = None
    preload_missing: Annotated[
        tuple[str, ...] | None, fact("entries of LD_PRELOAD that were not loaded and are no file", ENVIRON, MAPS)
    ] = None
    variables_searched: Annotated[
        bool, fact("its NCCL and PyTorch variables were looked for in its libraries, which only --deep does", ENVIRON)
    ] = False
    unread_variables: Annotated[
        tuple[str, ...] | None, fact("NCCL and PyTorch variables whose names nothing in this PyTorch contains (only --deep)", "knobs:*")
    ] = None

    launcher: Annotated[
        str, fact("what it starts ranks as: torchrun, accelerate, deepspeed; empty for a program that computes", CMDLINE, TASKS)
    ] = ""
    rank: Annotated[int | None, fact("its rank; -1 when it was started as none", ENVIRON)] = None
    local_rank: Annotated[int | None, fact("its rank on this machine; -1 when it was started as none", ENVIRON)] = None
    world_size: Annotated[int | None, fact("number of ranks; 1 when it was started as none", ENVIRON)] = None
    job: Annotated[int, fact("process number of what started it and its sibling ranks; its own when it is alone", STAT)] = 0
    leads_job: Annotated[bool, fact("the first computing process of its job, for rules about a job as a whole", STAT)] = True

    workers: Annotated[int, fact("DataLoader workers", STAT)] = 0
    worker_start: Annotated[
        str, fact("how they are started: fork, spawn, forkserver; empty without workers or when they ended meanwhile", CMDLINE)
    ] = ""
    worker_cpus: Annotated[CpuSet | None, fact("CPUs that any worker may use", STATUS)] = None
    worker_threads: Annotated[int | None, fact("most threads in one worker", STAT)] = None
    worker_busy_share: Annotated[
        float | None, fact("share of their lives that the workers computed, all together", STAT, "/proc/uptime")
    ] = None
    worker_wanted_share: Annotated[
        float | None,
        fact("share of their lives that the workers ran or were ready to", SCHEDSTAT, "/proc/uptime"),
    ] = None
    worker_age_s: Annotated[float | None, fact("seconds since the oldest worker started; 0 without workers", STAT, "/proc/uptime")] = None
    worker_rss_bytes: Annotated[int | None, fact("resident memory of the workers, pages they share counted once a worker", STATUS)] = None
    ended_children_cpu_s: Annotated[float, fact("CPU seconds of its children that ended", STAT)] = 0.0
    forks: Annotated[int, fact("other forked copies of the program, as a multiprocessing pool makes them", STAT)] = 0
    compile_workers: Annotated[int, fact("compile workers of torch.compile", CMDLINE)] = 0

    threads: Annotated[int, fact("threads", STAT)] = 1
    compute_threads: Annotated[
        int | None,
        fact("threads with the main thread's name that used at least 1/20 of the busiest one's CPU time: the OpenMP team in use", TASKS),
    ] = None
    lock_sharing_threads: Annotated[
        int | None,
        fact("busy threads with the main thread's name that take turns: together they want one CPU; 0 when they are none", TASKS),
    ] = None
    lock_waiters: Annotated[
        int | None,
        fact("of those, how many waited for a lock with a time limit when looked at, as for Python's own", SYSCALL),
    ] = None
    wanted_cpus: Annotated[
        float | None,
        fact("CPUs that its threads wanted, running or ready, on average since each started", THREAD_SCHEDSTAT, "/proc/uptime"),
    ] = None
    used_cpus: Annotated[float | None, fact("CPUs that they received, on average since each started", THREAD_SCHEDSTAT, "/proc/uptime")] = (
        None
    )
    thread_names: Annotated[tuple[str, ...] | None, fact("names of the threads that PyTorch and CUDA named", TASKS)] = None
    pins_memory: Annotated[bool | None, fact("a DataLoader copies batches to pinned memory (torch 2.5 and later tell)", TASKS)] = None
    ran_backward: Annotated[bool | None, fact("autograd has threads for devices: it trains (torch 2.4 and later tell)", TASKS)] = None
    nccl_group: Annotated[bool | None, fact("it has an NCCL process group (torch 2.5 and later tell)", TASKS)] = None
    gloo_group: Annotated[bool | None, fact("it has a gloo process group (torch 2.11 and later tell)", TASKS)] = None

    allowed: Annotated[CpuSet | None, fact("CPUs that its main thread may use", STATUS)] = None
    allowed_at_start: Annotated[
        CpuSet | None,
        fact("CPUs before OpenMP bound threads: those of all its threads, and of its parent when variables ask for binding", STATUS),
    ] = None
    openmp_bound: Annotated[
        bool | None,
        fact("OpenMP bound its main thread: variables ask for it, or its CPUs are one core of those that its other threads have", STATUS),
    ] = None
    cpu_s: Annotated[float, fact("CPU seconds used", STAT)] = 0.0
    demand: Annotated[
        float | None,
        fact(
            "share of its life in which its main thread ran or was ready to, or of its CPUs' time that it used: the larger one",
            "/proc/[0-9]*/schedstat",
            "/proc/uptime",
        ),
    ] = None
    minor_faults: Annotated[int, fact("page faults without I/O since its start", STAT)] = 0
    major_faults: Annotated[int, fact("page faults with I/O since its start", STAT)] = 0
    refault_share: Annotated[
        float | None, fact("share of its CPU time spent on page faults beyond the first touch of its memory, at 2 µs a fault", STAT, STATUS)
    ] = None
    read_calls: Annotated[int | None, fact("reads of the program and its workers since they started", "/proc/[0-9]*/io")] = None
    read_call_bytes: Annotated[int | None, fact("bytes that these reads gave, page cache included", "/proc/[0-9]*/io")] = None
    rss_bytes: Annotated[int | None, fact("resident memory", STATUS)] = None
    peak_rss_bytes: Annotated[int | None, fact("most resident memory so far", STATUS)] = None
    swap_bytes: Annotated[int | None, fact("memory of it that is in swap", STATUS)] = None
    nice: Annotated[int, fact("niceness", STAT)] = 0
    policy: Annotated[str, fact("scheduling policy: other, batch, idle, fifo, rr, deadline; empty when unknown", STAT)] = ""
    main_run_s: Annotated[float | None, fact("seconds that its main thread ran", "/proc/[0-9]*/schedstat")] = None
    main_wait_s: Annotated[float | None, fact("seconds that its main thread was ready but had no CPU", "/proc/[0-9]*/schedstat")] = None

    cgroup: Annotated[Cgroup | None, fact("the control group that limits it", "/proc/[0-9]*/cgroup")] = None
    open_files: Annotated[int | None, fact("open files", "/proc/[0-9]*/fd")] = None
    open_files_limit: Annotated[int | None, fact("soft limit of open files; 0 is no limit", "/proc/[0-9]*/limits")] = None
    data_mounts: Annotated[
        tuple[DataMount, ...] | None, fact("file systems of its open data files", "/proc/[0-9]*/fd/*", "/proc/[0-9]*/ns/mnt")
    ] = None
    numa_policy: Annotated[str | None, fact("memory policy of most of its memory: default, bind:0, interleave:0-1", NUMA_MAPS)] = None
    numa_pages: Annotated[tuple[NodePages, ...] | None, fact("its memory by NUMA node", NUMA_MAPS)] = None


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
    orphan_workers: Annotated[int, fact("DataLoader workers whose program is gone", STAT)] = 0
    numactl: Annotated[bool | None, fact("the numactl program is installed", "/usr/bin/numactl")] = None


def collect(host: Host) -> Processes:
    """Find the programs and describe each. Raises Missing when no process is listed."""
    found = find(host)
    machine = _Machine(host, found)
    described = [one for family in in_time(host, found.families.values()) if (one := _describe(machine, family)) is not None]
    return Processes(
        processes=with_leaders(described),
        scanned=found.scanned,
        unreadable=len(found.unreadable),
        hidden=_hides(host),
        stuck=stuck_tasks.stuck(host),
        orphan_workers=len(found.orphans),
        numactl=host.exists("/usr/bin/numactl"),
    )


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
        if not process.launcher:
            leaders.setdefault(process.job, process.pid)
    return tuple(msgspec.structs.replace(process, leads_job=leaders.get(process.job) == process.pid) for process in processes)


class _Machine:
    """What all processes share, read once, and only when there is a process that needs it."""

    def __init__(self, host: Host, found: Found) -> None:
        self.host = host
        self.families = found.families
        self.groups = Groups(host)
        self.software = loaded_torch.Software(host)
        self.uptime_s = decimal((host.text("/proc/uptime") or "").partition(" ")[0]) if found.families else None
        self.has_nodes = bool(found.families) and len(host.glob(NODES)) > 1
        on_gpus = {pid for pid, family in found.families.items() if family.mapped.cuda}
        self.gpus = _gpus_by_process(host, on_gpus) if on_gpus else {}


class _Subject:
    """One process while it is described."""

    def __init__(self, machine: _Machine, family: Family) -> None:
        host, self.stat, self.mapped = machine.host, family.stat, family.mapped
        self.host, self.machine, self.family, self.pid = host, machine, family, family.stat.pid
        self.status_path = f"/proc/{self.pid}/status"
        self.status = Status(host.text(self.status_path) or "")
        self.env = _environment(host, self.pid, family.argv)
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
        found = self.threads is not None and self.threads.any(*names)
        return True if found else None if self.threads is None or self.version is None or self.is_older(since) else False


def _describe(machine: _Machine, family: Family) -> Process | None:
    """The facts of one process; None when it ended meanwhile."""
    mark = len(machine.host.sources)
    facts: dict[str, Any] = {}
    with machine.host.as_owner_of(family.stat.pid):  # its variables and maps name files: its user may not read all that we may
        subject = _Subject(machine, family)
        for part in (_identity, _software, _variables, _helpers, _threads, _cpus, _usage, _memory, _files):
            facts.update(part(subject))
    return None if forget_if_gone(machine.host, subject.pid, mark) else Process(**facts)


def _identity(subject: _Subject) -> dict[str, Any]:
    stat, argv = subject.stat, subject.family.argv
    return {
        "pid": stat.pid,
        "ppid": stat.ppid,
        "name": neutral(stat.comm, 40),
        "user": subject.status.user,
        "command": None if argv is None else neutral(_command(argv), MAX_COMMAND),
        "start_time": stat.start_ticks,
        "age_s": subject.age_s,
    }


def _command(argv: Sequence[str]) -> str:
    """The command line as one would type it; a program that gave itself a title has one word with blanks in it."""
    return argv[0] if len(argv) == 1 else " ".join(map(shlex.quote, argv))


def _software(subject: _Subject) -> dict[str, Any]:
    mapped, gpus = subject.mapped, subject.machine.gpus
    return {
        "torch_version": subject.version,
        "torch_prefix": loaded_torch.prefix_of(mapped.torch),
        "torch_replaced": mapped.stale,
        "cuda_used": mapped.cuda,
        "gpu_bus_ids": () if not mapped.cuda else None if gpus is None else tuple(gpus.get(subject.pid, ())),
        "libraries": tuple(mapped.libraries),
        "foreign_libraries": subject.machine.software.foreign(mapped, subject.root),
        "cudnn_folders": tuple(neutral(folder) for folder in mapped.cudnn),
        "openmp": mapped.named(*OPENMP),
        "allocator": mapped.allocators[0] if mapped.allocators else "glibc",
        "allocators": mapped.allocators,
        "sanitizers": tuple(dict.fromkeys(mapped.sanitizers)),
        "profilers": tuple(mapped.profilers),
        "packages": tuple(sorted(mapped.packages))[:MAX_PACKAGES],
        "maps_count": mapped.count,
    }


def _variables(subject: _Subject) -> dict[str, Any]:
    host, env, mapped, stat = subject.host, subject.env, subject.mapped, subject.stat
    launcher = ranks.launcher(subject.family.argv, subject.threads)
    given = ranks.given(host, env, stat.ppid)
    is_child = stat.ppid in subject.machine.families or (not launcher and (given["rank"] or 0) >= 0 and env is not None)
    preload = None if env is None else tuple(env.get("LD_PRELOAD", "").replace(":", " ").split())
    return {
        "env": env,
        "preload": preload,
        "preload_missing": None if preload is None else loaded_torch.not_loaded(host, preload, mapped, subject.root),
        "variables_searched": env is not None and host.deep,
        "unread_variables": unknown_variables.unread(host, env, mapped, subject.root) if env is not None and host.deep else None,
        "launcher": launcher,
        **given,
        "job": stat.ppid if is_child else stat.pid,
    }


def _helpers(subject: _Subject) -> dict[str, Any]:
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
    }


def _worker_demand(subject: _Subject) -> dict[str, Any]:
    workers, uptime_s = subject.workers, subject.machine.uptime_s
    if not workers:
        return {"worker_wanted_share": 0.0, "worker_age_s": 0.0}
    wanted = demand.of_processes(subject.host, workers, uptime_s)
    oldest_s = None if uptime_s is None else uptime_s - min(stat.start_ticks for stat in workers) / TICKS_PER_S
    return {
        "worker_wanted_share": None if wanted is None else round(wanted.cpus / min(len(workers), demand.MAX_WORKERS), 3),
        "worker_age_s": None if oldest_s is None else round(max(0.0, oldest_s), 1),
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


def _threads(subject: _Subject) -> dict[str, Any]:
    threads = subject.threads
    return {
        "threads": subject.stat.threads,
        **_thread_demand(subject),
        "thread_names": None if threads is None else tuple(neutral(name, 40) for name in threads.names),
        "pins_memory": subject.has_thread("pt_data_pin", since="2.5"),
        "ran_backward": subject.has_thread("pt_autograd", since="2.4"),
        "nccl_group": subject.has_thread("pt_nccl", since="2.5"),
        "gloo_group": subject.has_thread("pt_gloo", "gloo_", since="2.11"),
    }


def _thread_demand(subject: _Subject) -> dict[str, Any]:
    threads, host, pid, uptime_s = subject.threads, subject.host, subject.pid, subject.machine.uptime_s
    if threads is None:
        return {}
    shares = demand.of_threads(host, pid, threads.stats, uptime_s)
    wanted = None if shares is None else demand.together(shares.values())
    if shares is None and threads.compute > 2:  # too many for all of them, hardly for the team
        shares = demand.of_threads(host, pid, threads.team, uptime_s)
    team = demand.together(shares[stat.pid] for stat in threads.team if stat.pid in shares) if shares and threads.compute > 2 else None
    waiters = demand.lock_waiters(host, pid, [stat.pid for stat in threads.team]) if team else 0
    takes_turns = demand.share_a_lock(threads.compute, team, waiters)
    return {
        "compute_threads": 1 if takes_turns else threads.compute,
        "lock_sharing_threads": threads.compute if takes_turns else 0,
        "lock_waiters": waiters if takes_turns else 0,
        "wanted_cpus": None if wanted is None else round(wanted.cpus, 3),
        "used_cpus": None if wanted is None else round(wanted.used, 3),
    }


def _cpus(subject: _Subject) -> dict[str, Any]:
    now = subject.allowed
    asked = None if subject.env is None else any(subject.env.get(name) for name in _BINDING)
    if now is None:
        return {"allowed": None, "allowed_at_start": None, "openmp_bound": asked or None}
    before = _before_binding(subject, now) if asked or _may_be_bound(subject, now) else now
    found_bound = len(before) > len(now) and _is_one_core(subject.host, now)
    return {"allowed": now, "allowed_at_start": before, "openmp_bound": bool(asked) or found_bound}


def _may_be_bound(subject: _Subject, now: CpuSet) -> bool:
    """Whether its script may have asked OpenMP for a binding: the runtime is there, and its main thread has one core only."""
    return bool(subject.mapped.named(*OPENMP)) and _is_one_core(subject.host, now)


def _is_one_core(host: Host, cpus: CpuSet) -> bool:
    """Whether these are one CPU, or the threads of one core: the places that OpenMP binds to."""
    first = next(iter(cpus), None)
    return first is not None and (len(cpus) == 1 or set(cpus) == set(_threads_of_core(host, first) or (first,)))


def _threads_of_core(host: Host, cpu: int) -> CpuSet | None:
    return cpulist.parse(host.word(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"))


def _before_binding(subject: _Subject, now: CpuSet) -> CpuSet:
    """The CPUs of all its threads, its workers and its parent: taskset leaves a parent more, but no other thread of the program."""
    host = subject.host
    threads = all_allowed(host, subject.pid, subject.threads)
    workers = [allowed_in(host, f"/proc/{stat.pid}/status") or CpuSet() for stat in subject.workers]
    asked = subject.env is not None and any(subject.env.get(name) for name in _BINDING)
    if not asked and threads.issubset(now) and not subject.workers:
        return now  # one core for all its threads, and nobody inherits it: taskset or a cpuset, as far as anybody can tell
    parent = allowed_in(host, f"/proc/{subject.stat.ppid}/status") or CpuSet()
    group = subject.machine.groups.of(subject.pid)
    cpuset = group.cpuset if group else None
    return CpuSet.union((now, threads, *workers, parent if cpuset is None else parent & cpuset))


def _usage(subject: _Subject) -> dict[str, Any]:
    stat = subject.stat
    main = schedstat.parse(subject.host.word(f"/proc/{subject.pid}/schedstat"))
    return {
        "cpu_s": stat.cpu_s,
        "demand": _demand(subject, main),
        "minor_faults": stat.minor_faults,
        "major_faults": stat.major_faults,
        "refault_share": _refault_share(stat, subject.status.size_bytes("VmHWM")),
        "nice": stat.nice,
        "policy": _POLICIES.get(stat.policy, ""),
        **_reads(subject),
        "main_run_s": None if main is None else round(main.run_s, 3),
        "main_wait_s": None if main is None else round(main.wait_s, 3),
        "cgroup": subject.machine.groups.of(subject.pid),
    }


def _reads(subject: _Subject) -> dict[str, Any]:
    found = demand.reads(subject.host, (subject.pid, *(stat.pid for stat in subject.workers[: demand.MAX_WORKERS])))
    return {"read_calls": None, "read_call_bytes": None} if found is None else {"read_calls": found.calls, "read_call_bytes": found.bytes}


def _demand(subject: _Subject, main: SchedStat | None) -> float | None:
    """How much it wanted CPUs since it started: 0 for a server without work, 1 for a loop that computes, also if it gets no CPU."""
    if not subject.age_s or not subject.allowed or main is None:
        return None
    used_s = subject.stat.cpu_s / len(subject.allowed)
    return round(min(1.0, max(main.run_s + main.wait_s, used_s) / subject.age_s), 3)


def _refault_share(stat: Stat, peak_bytes: int | None) -> float | None:
    """Every page is touched a first time; what faults beyond that was given back to the kernel and fetched again."""
    if peak_bytes is None or not stat.cpu_ticks:
        return None
    again = max(0, stat.minor_faults - peak_bytes // 4096)
    return round(min(1.0, again * FAULT_S / stat.cpu_s), 4)


def _memory(subject: _Subject) -> dict[str, Any]:
    rss = subject.status.size_bytes("VmRSS")
    policy, pages = _numa_memory(subject, rss)
    return {
        "rss_bytes": rss,
        "peak_rss_bytes": subject.status.size_bytes("VmHWM"),
        "swap_bytes": subject.status.size_bytes("VmSwap"),
        "numa_policy": policy,
        "numa_pages": pages,
    }


def _numa_memory(subject: _Subject, rss_bytes: int | None) -> tuple[str | None, tuple[NodePages, ...] | None]:
    host, path = subject.host, f"/proc/{subject.pid}/numa_maps"
    if not subject.machine.has_nodes:
        return None, None
    if not host.deep and (rss_bytes or 0) > MAX_NUMA_RSS_BYTES:
        host.refuse(path, f"only read with --deep: it would stop a process of {rss_bytes} bytes for a while")
        return None, None
    text = host.text(path, 16 << 20)
    return (None, None) if text is None else numa_pages(text)


def numa_pages(text: str) -> tuple[str, tuple[NodePages, ...]]:
    """(the policy of most of the memory, bytes by node) out of the text of numa_maps."""
    maps = NumaMaps(text)
    return neutral(maps.policy, 80), tuple(NodePages(node, maps.by_node[node]) for node in sorted(maps.by_node))


def _files(subject: _Subject) -> dict[str, Any]:
    names = subject.host.names(f"/proc/{subject.pid}/fd", MAX_FDS)
    limits = _OPEN_FILES.search(subject.host.text(f"/proc/{subject.pid}/limits", 64 << 10) or "")
    return {
        "open_files": None if names is None else len(names),
        "open_files_limit": None if limits is None else 0 if limits[1] == "unlimited" else int(limits[1]),
        "data_mounts": None if names is None else _data_mounts(subject, names),
    }


def _data_mounts(subject: _Subject, names: tuple[str, ...]) -> tuple[DataMount, ...] | None:
    """Where data files of the program and of its first worker lie; None when its mounts are not ours."""
    if subject.root:
        subject.host.refuse(f"/proc/{subject.pid}/ns/mnt", "the process has mounts of its own (a container)")
        return None
    links = [f"/proc/{subject.pid}/fd/{name}" for name in names]
    for worker in subject.workers[:1]:
        links += [f"/proc/{worker.pid}/fd/{name}" for name in subject.host.names(f"/proc/{worker.pid}/fd", MAX_FDS) or ()]
    mark = len(subject.host.sources)
    targets = {target for link in links[-MAX_LINKS:] if (target := subject.host.link(link))}
    del subject.host.sources[mark:]  # a file may be closed at any time, and 256 links are no evidence anybody reads
    counts: dict[tuple[str, str], int] = {}
    for path in {*subject.mapped.data, *targets}:
        mount = mount_of(subject.host, path) if holds_data(path) else None
        if mount is not None:
            counts[mount.point, mount.fstype] = counts.get((mount.point, mount.fstype), 0) + 1
    return tuple(DataMount(neutral(point, 200), neutral(fstype, 40), files) for (point, fstype), files in sorted(counts.items()))


# ---------------------------------------------------------------------- values


def _environment(host: Host, pid: int, argv: tuple[str, ...] | None) -> dict[str, str] | None:
    """The performance variables at the start of the process; None when they cannot be read."""
    path = f"/proc/{pid}/environ"
    text = host.text(path, environ.MAX_BYTES)
    if text is None:
        return None
    found = {name: neutral(value, 2000) for name, value in environ.variables(text, MAX_VARIABLES).items()}
    if not found and argv is not None and len(argv) == 1 and not _names_program(host, pid, argv[0]):
        host.refuse(path, "the program wrote its title over it, as setproctitle does")
        return None
    return found


def _names_program(host: Host, pid: int, title: str) -> bool:
    """Whether a one-word command line is the program's, not a title that it gave itself."""
    program = (host.link(f"/proc/{pid}/exe") or "").removesuffix(" (deleted)").rpartition("/")[2]
    return not program or title.rpartition("/")[2].startswith(program[:6])


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


def _gpus_by_process(host: Host, on_gpus: set[int]) -> dict[int, list[str]] | None:
    """PCI addresses of the GPUs on which each process computes; None when the driver does not know our process numbers.

    Inside a container only newer drivers say its own numbers; then all that they list are programs that we see on a GPU.
    """
    found = _listed_by_driver(host)
    if found is None or host.link("/proc/self/ns/pid") == _INITIAL_PID_NAMESPACE or on_gpus.issuperset(found):
        return found
    host.refuse(GPU_PROCESSES, "the driver counts processes as the host does, not as this container does")
    return None


def _listed_by_driver(host: Host) -> dict[int, list[str]] | None:
    count = host.nvml("DeviceGetCount")
    if not isinstance(count, int):
        return None
    found: dict[int, list[str]] = {}
    for index in range(min(count, MAX_GPUS)):
        info, running = host.nvml("DeviceGetPciInfo", index), host.nvml("DeviceGetComputeRunningProcesses_v3", index)
        bus_id = pci.bus_id(str(info.get("busId", ""))) if isinstance(info, dict) else None
        if bus_id is None or not isinstance(running, list):
            return None
        for one in running[:MAX_VARIABLES]:
            if isinstance(one, dict) and isinstance(one.get("pid"), int) and one["pid"]:
                found.setdefault(one["pid"], []).append(bus_id)
    return found
