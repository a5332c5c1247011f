"""The area `diagnosis`: what a running job showed while it was looked at. None: nobody looked, or nobody could.

Shares are of the time of the thread that is named, from 0 to 1.
"""

from typing import Annotated

from sysperf.diagnosis.activities import Stacks
from sysperf.model.cpuset import CpuSet
from sysperf.model.finding import Place
from sysperf.model.record import Record, fact

STAT, THREADS, SCHEDSTAT = "/proc/[0-9]*/stat", "/proc/[0-9]*/task", "/proc/[0-9]*/task/*/schedstat"
SYSCALL, IO, STATM = "/proc/[0-9]*/task/*/syscall", "/proc/[0-9]*/io", "/proc/[0-9]*/statm"


class Hit(Record, kw_only=True):
    """A rule of `sysperf lint` that fired in a function which the program runs."""

    rule: str
    place: Place
    fixable: Annotated[bool, fact("`sysperf lint --fix` can change it, where its name leads to the same file as for the program")] = False


class Native(Record, kw_only=True):
    """What the main thread's CPU time went to, by samples of its machine code."""

    samples: int = 0
    python: Annotated[float, fact("the interpreter")] = 0.0
    extensions: Annotated[float, fact("libraries that are neither PyTorch's nor the system's: what Python code calls")] = 0.0
    torch: Annotated[float, fact("PyTorch's libraries")] = 0.0
    openmp: Annotated[float, fact("an OpenMP runtime: mostly waiting for its team")] = 0.0
    kernel: Annotated[float, fact("the kernel")] = 0.0
    faults: Annotated[float, fact("the kernel's page faults and clearing of pages")] = 0.0
    files: Annotated[float, fact("the kernel's files: opening, reading, looking names up")] = 0.0
    collection: Annotated[float, fact("Python's garbage collector")] = 0.0
    double: Annotated[float | None, fact("kernels for float64, of the time in kernels that tell their type")] = None
    math: Annotated[float, fact("matrix products, convolutions and vectorised kernels")] = 0.0
    reference: Annotated[float, fact("convolutions by PyTorch's own kernels and NNPACK's, where oneDNN's are not used")] = 0.0


class Traced(Record, kw_only=True):
    """What a trace of some steps showed, in shares of its window."""

    verdict: str = ""
    operators: float | None = None
    loader: float | None = None
    communication: float | None = None
    python: float | None = None
    copies: float | None = None
    optimizer: float | None = None
    tiny: Annotated[float | None, fact("operators of less than 20 µs, of their number")] = None
    operators_per_step: float | None = None
    operator_us: Annotated[float | None, fact("mean time of an operator")] = None
    matmul: float | None = None
    readbacks_per_step: Annotated[float | None, fact("values read from tensors into Python, a step")] = None
    double: Annotated[float | None, fact("time of operators on float64, of those that compute on floats")] = None
    half: Annotated[float | None, fact("the same for float16")] = None
    zero_gradients: Annotated[float | None, fact("time that fills gradients of embeddings next to none of whose rows was looked up")] = None
    unused_graph: Annotated[float | None, fact("operators that were recorded for a backward pass that never came")] = None
    reductions_per_step: Annotated[float | None, fact("all-reductions of gradients in which a wrapper's forward pass ended, a step")] = None
    backwards_per_step: Annotated[float | None, fact("backward passes for each step of the optimizer")] = None
    gpu_busy: float | None = None
    sync: float | None = None
    findings: Annotated[tuple[str, ...], fact("rules of `sysperf analyze` that fired")] = ()


class Gpu(Record, kw_only=True):
    """The GPUs that the program uses, over the window. Meters count all programs on them."""

    utilization: float | None = None
    lowest: Annotated[float | None, fact("5th percentile of the utilisation")] = None
    highest: Annotated[float | None, fact("95th percentile of the utilisation")] = None
    period_s: Annotated[float | None, fact("period of its ups and downs, where they have one")] = None
    valleys: Annotated[str | None, fact("what the main thread did while the utilisation was below a tenth")] = None
    sm_active: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    throttled: Annotated[float | None, fact("samples in which power, heat or hardware held the clocks down")] = None
    memory_share: Annotated[float | None, fact("memory in use, of what there is")] = None
    received_bytes_per_s: float | None = None
    link_used: Annotated[float | None, fact("of what its PCI Express link can carry to it")] = None
    others: Annotated[int | None, fact("processes outside of the job that have a context on them")] = None
    others_used: Annotated[float | None, fact("share of the time in which kernels of processes outside of the job ran")] = None
    own_used: Annotated[float | None, fact("the same of the job's processes")] = None


class MainThread(Record, kw_only=True):
    """The main thread of a program, over the window."""

    ran: Annotated[float | None, fact("share in which the main thread ran", SCHEDSTAT)] = None
    waited: Annotated[float | None, fact("share in which it was ready and had no CPU", SCHEDSTAT)] = None
    slept: Annotated[float | None, fact("share in which it slept", SCHEDSTAT)] = None
    blocked: Annotated[float | None, fact("samples in which it waited for a disk or a server", STAT)] = None
    suspended: Annotated[float | None, fact("samples in which a signal or a debugger had stopped it", STAT)] = None
    syncing: Annotated[float | None, fact("samples in which it was in fsync or its like", SYSCALL)] = None
    locked: Annotated[float | None, fact("samples in which it waited for a lock with a time limit, as for the interpreter's", SYSCALL)] = (
        None
    )
    sleeping: Annotated[float | None, fact("samples in which it was in a call that sleeps for a time", SYSCALL)] = None
    futex: Annotated[float | None, fact("samples in which it waited for a lock, a queue or a thread of its program", SYSCALL)] = None
    polling: Annotated[float | None, fact("samples in which it waited for sockets or pipes", SYSCALL)] = None
    reading: Annotated[float | None, fact("samples in which it waited for a file to be opened or read, asleep or not", SYSCALL)] = None
    timed: Annotated[
        float | None, fact("of those for sockets or pipes, in an event loop that wakes within a tenth of a second", SYSCALL)
    ] = None


class Threads(Record, kw_only=True):
    """All threads of a program, over the window."""

    used_cpus: Annotated[float | None, fact("CPUs that its threads used", SCHEDSTAT)] = None
    waited_share: Annotated[
        float | None, fact("of the time its threads wanted a CPU, how much they had none; null where they wanted none", SCHEDSTAT)
    ] = None
    team: Annotated[int | None, fact("threads of the main thread's name that computed: an OpenMP team", SCHEDSTAT)] = None
    python: Annotated[int | None, fact("threads that used CPU and waited for a lock with a time limit, by turns", SYSCALL)] = None
    system: Annotated[float | None, fact("share of its CPU time in the kernel", STAT)] = None


class Faults(Record, kw_only=True):
    """Page faults, over the window."""

    share: Annotated[float | None, fact("share of its CPU time for page faults without I/O, at 2 µs each", STAT)] = None
    per_s: Annotated[float | None, fact("page faults without I/O", STAT)] = None
    major_per_s: Annotated[float | None, fact("page faults with I/O", STAT)] = None


class Io(Record):
    """Reads and writes of processes, over the window."""

    read_calls_per_s: Annotated[float | None, fact("calls of read(2)", IO)] = None
    read_bytes_per_s: Annotated[float | None, fact("bytes that they gave", IO)] = None
    write_calls_per_s: Annotated[float | None, fact("calls of write(2)", IO)] = None
    write_bytes_per_s: Annotated[float | None, fact("bytes that they took", IO)] = None
    disk_read_bytes_per_s: Annotated[float | None, fact("bytes from storage", IO)] = None
    disk_write_bytes_per_s: Annotated[float | None, fact("bytes to storage", IO)] = None


class Memory(Record, kw_only=True):
    """The resident memory of a program."""

    bytes: Annotated[int | None, fact("resident memory", STATM)] = None
    growth_bytes_per_s: Annotated[float | None, fact("growth of its resident memory, where it is steady; 0: it is not", STATM)] = None
    growth_since_start: Annotated[
        float | None, fact("the same over its life, from what torch itself takes; null where it takes no more than that", STAT)
    ] = None
    growth_later_bytes_per_s: Annotated[float | None, fact("the same while stacks were sampled, after the window", STAT)] = None
    limit_bytes: Annotated[int | None, fact("memory that it may use: its group's limit, or the machine's")] = None


class Workers(Record, kw_only=True):
    """The DataLoader workers of a program, over the window."""

    count: Annotated[int, fact("most at one time", STAT)] = 0
    started: Annotated[int, fact("started within the window", STAT)] = 0
    ran: Annotated[float | None, fact("share of the window in which a worker ran, mean", SCHEDSTAT)] = None
    waited: Annotated[float | None, fact("share of the window in which a worker was ready and had no CPU, mean", SCHEDSTAT)] = None
    blocked: Annotated[float | None, fact("samples in which a worker waited for a disk, mean", STAT)] = None
    reading: Annotated[float | None, fact("samples in which a worker waited for a file to be opened or read, mean", SYSCALL)] = None
    system: Annotated[float | None, fact("share of their CPU time in the kernel", STAT)] = None
    faults: Annotated[Faults, fact("page faults of all workers")] = Faults()
    threads: Annotated[int | None, fact("most threads of one worker that computed", SCHEDSTAT)] = None
    cpus: Annotated[CpuSet | None, fact("CPUs that any of them may use", "/proc/[0-9]*/status")] = None
    io: Annotated[Io, fact("reads and writes of all workers")] = Io()


class LoaderPlan(Record, kw_only=True):
    """Loader workers and computing threads for the CPUs that a program can have, by the CPU time that each of both takes."""

    workers: Annotated[int, fact("DataLoader workers")] = 0
    threads: Annotated[int, fact("computing threads beside them")] = 1
    saves: Annotated[
        float | None, fact("share of the step that they save, by CPUs that are idle now; null: what is advised instead may save any part")
    ] = None
    saves_least: Annotated[
        float | None, fact("the same if what others use grows with the job's pace, as of a service that answers its workers")
    ] = None
    advice: Annotated[str, fact("the same as a change of the source")] = ""


class Program(Record, kw_only=True):
    """One program or rank of the job."""

    pid: Annotated[int, fact("its number", STAT)]
    name: str = ""
    command: str = ""
    started: Annotated[str, fact("the line that starts its job, a rank's launcher; empty where it is not known or cannot be pasted")] = ""
    folder: Annotated[str, fact("the working folder of that, where it is not sysperf's")] = ""
    rank: Annotated[int | None, fact("-1: started as none", "/proc/[0-9]*/environ")] = None
    world_size: int | None = None
    age_s: float | None = None
    window_s: Annotated[float, fact("for how long it was observed")] = 0.0
    role: Annotated[str, fact("computes, waits (a launcher or parent), idle")] = "computes"

    allowed: Annotated[CpuSet | None, fact("CPUs that it may use", "/proc/[0-9]*/status")] = None
    quota: Annotated[float | None, fact("CPUs' worth of time that its group may use; 0: no quota")] = None
    throttled: Annotated[float | None, fact("share of the quota's periods in which the group was stopped")] = None
    memory_high_per_s: Annotated[
        float | None, fact("how often a second its group was slowed down for memory.high", "/sys/fs/cgroup/*/memory.events")
    ] = None
    pinned_from: Annotated[
        CpuSet | None, fact("CPUs that a program may use whose computing threads are all bound to one of them; null: they are not")
    ] = None
    alternates: Annotated[
        bool | None, fact("whether evaluation and training were both seen again some seconds later; null: not looked for")
    ] = None
    children_started: Annotated[int, fact("processes that it started within the window, but loader workers and compilers", STAT)] = 0
    compilers: Annotated[int, fact("compilers and compile workers seen at work below it", STAT)] = 0
    idle_compilers_bytes: Annotated[int, fact("resident memory of its compile workers, if none of them compiled", STAT)] = 0
    clock: Annotated[
        float | None, fact("clock of the CPU on which its main thread ran, of that CPU's highest", "/sys/devices/system/cpu/cpu*/cpufreq/*")
    ] = None
    main: MainThread = MainThread()
    threads: Threads = Threads()
    faults: Faults = Faults()
    io: Io = Io()
    memory: Memory = Memory()
    workers: Workers = Workers()
    env: Annotated[dict[str, str] | None, fact("performance variables at its start", "/proc/[0-9]*/environ")] = None
    debug: Annotated[tuple[str, ...] | None, fact("variables for debugging that are on")] = None
    tracer: Annotated[str, fact("the program that traces it by ptrace; empty: none", "/proc/[0-9]*/status")] = ""
    sampled_by: Annotated[
        str, fact("a profiler outside of the job that stops it for each sample, with its number; empty: none", "/proc/[0-9]*/cmdline")
    ] = ""
    openmp: Annotated[tuple[str, ...], fact("libraries of OpenMP runtimes that it maps, copies too")] = ()
    allocator: str = ""
    binds_threads: Annotated[bool | None, fact("OpenMP bound its main thread")] = None
    uses_gpu: bool = False
    hits: Annotated[tuple[str, ...], fact("rules of `sysperf lint` that fired in the functions that it runs, as hypotheses")] = ()
    places: Annotated[tuple[Hit, ...], fact("where they did")] = ()
    judged: Annotated[tuple[str, ...], fact("rules of the audit that found something in it, its GPUs or its machine")] = ()
    stacks: Annotated[Stacks | None, fact("samples of its main thread's stack")] = None
    loader: Annotated[LoaderPlan | None, fact("workers and threads by which it would gain most")] = None
    batch_s: Annotated[float | None, fact("seconds in which its main thread makes a batch, at most")] = None
    worker_stacks: Annotated[Stacks | None, fact("samples of one of its workers")] = None
    native: Annotated[Native | None, fact("samples of its main thread's machine code")] = None
    traced: Annotated[Traced | None, fact("a trace of some of its steps")] = None
    gpu: Annotated[Gpu | None, fact("its GPUs")] = None


class Share(Record, kw_only=True):
    """A program that computes on CPUs which others want, too."""

    pid: int
    command: str = ""
    folder: Annotated[str, fact("the working folder of that, where it is not sysperf's")] = ""
    cpus: Annotated[CpuSet, fact("a part of the CPUs for it: whole cores that lie together, as many as the others get")]


class Machine(Record, kw_only=True):
    """The machine around the job."""

    cpus: Annotated[int | None, fact("CPUs that the job may use")] = None
    idle_cpus: Annotated[float | None, fact("of those, how many were idle", "/proc/stat")] = None
    others_cpus: Annotated[
        float | None,
        fact("of those, how many programs without PyTorch used; the job's helpers, the kernel and sysperf left out", "/proc/stat", STAT),
    ] = None
    others: Annotated[str | None, fact("who they are, with the CPUs that each used; null where they are not seen from here", STAT)] = None
    torch_cpus: Annotated[float | None, fact("of those, how many other PyTorch programs used, with all below them", STAT)] = None
    torch_others: Annotated[str | None, fact("who they are, with the CPUs that each used", STAT)] = None
    trials_cpus: Annotated[float | None, fact("of those, how many runs of sysperf itself used, as of `sysperf verify`", STAT)] = None
    trials: Annotated[str | None, fact("which ones", STAT)] = None
    helpers_cpus: Annotated[
        float | None, fact("of those, how many the job's own helpers used, as at the other end of its pipe", STAT, "/proc/[pid]/fd")
    ] = None
    helpers: Annotated[str | None, fact("who they are", STAT)] = None
    others_steady: Annotated[
        float | None, fact("share of the window's half seconds in which others used a quarter of a CPU", "/proc/stat")
    ] = None
    others_ready: Annotated[
        float | None, fact("programs outside of the job that ran or waited for a CPU, at the window's beginning and end", STAT)
    ] = None
    left_share: Annotated[
        float | None, fact("share of the CPUs that is left to the job: others have what they use, and a CPU each that is ready")
    ] = None
    other_programs: Annotated[int, fact("other PyTorch programs that computed on these CPUs at the same time")] = 0
    shares: Annotated[tuple[Share, ...], fact("the job and those programs; none where there are fewer cores than programs")] = ()
    cpu_pressure: Annotated[float | None, fact("share in which some task waited for a CPU", "/proc/pressure/cpu")] = None
    io_pressure: Annotated[float | None, fact("share in which some task waited for I/O", "/proc/pressure/io")] = None
    memory_pressure: Annotated[float | None, fact("share in which some task waited for memory", "/proc/pressure/memory")] = None
    swapped_per_s: Annotated[float | None, fact("pages swapped in and out", "/proc/vmstat")] = None
    refaulted_per_s: Annotated[float | None, fact("pages needed again soon after they had been evicted", "/proc/vmstat")] = None
    available_growth_bytes_per_s: Annotated[float | None, fact("by how much the memory left to all grew", "/proc/meminfo")] = None
    remote_pages: Annotated[float | None, fact("of the pages taken, those on another node than the CPU", "/proc/vmstat")] = None
    governor: str | None = None
    float16: Annotated[bool | None, fact("whether its CPUs have instructions for float16; null: not known", "/proc/cpuinfo")] = None


class Ranks(Record, kw_only=True):
    """The ranks of the job beside each other."""

    count: int = 0
    wanted_ratio: Annotated[float | None, fact("CPU time that the busiest rank wanted, of that of the least busy one")] = None
    slowest: Annotated[
        int | None, fact("the rank that is waited for: it waits least itself, or where that is unknown wants most CPU time")
    ] = None
    waiting_gap: Annotated[
        float | None, fact("how much longer another rank waits: difference of the shares in collectives and backward passes")
    ] = None
    excess_cpus: Annotated[float | None, fact("CPUs that the slowest rank used beyond the mean of the others")] = None


class Diagnosis(Record, kw_only=True):
    """A running job, over a window."""

    programs: tuple[Program, ...] = ()
    machine: Machine = Machine()
    ranks: Ranks = Ranks()
