"""The area `trace`: what a trace tells, as facts that rules judge. None means that the file does not tell."""

from typing import Annotated

from sysperf.model.finding import Place, percent_interval
from sysperf.model.record import Record, fact
from sysperf.trace import kernels as by_name
from sysperf.trace.kinds import any_of, declared, kernels

MAX_PATH = 120
"""Characters of a subject's name."""


class GapFacts(Record, kw_only=True):
    """One time in which a device did nothing."""

    start_us: float
    ms: float
    kind: Annotated[str, fact("starved: the host launched what ended it later; queued: it was launched before; unknown: nobody knows")]
    cause: Annotated[str, fact("loader, synchronisation, copy calls, allocator, host or idle although queued: what most of it was")]


class DeviceFacts(Record, kw_only=True):
    """One device of one rank."""

    id: int
    name: str | None = None
    busy_pct: float | None = None
    kernel_busy_pct: float | None = None
    idle_ms: float | None = None
    gaps: Annotated[int | None, fact("maximal idle intervals in the window")] = None
    starved_gaps: Annotated[int | None, fact("gaps that the host's next launch ended")] = None
    queued_gaps: Annotated[int | None, fact("gaps before which the next operation was launched already")] = None
    longest_gaps: Annotated[tuple[GapFacts, ...], fact("the longest of them, longest first, at most 50")] = ()
    capability: Annotated[float | None, fact("NVIDIA compute capability")] = None


class Figures(Record, kw_only=True):
    """Shares of the window in percent; means over the devices. docs/analyze.md defines each."""

    gpu_busy_pct_mean: float | None = None
    kernel_busy_pct: float | None = None
    dataloader_pct: float | None = None
    dataloader_exposed_pct: float | None = None
    pageable_h2d_per_step: float | None = None
    pageable_d2h_per_step: float | None = None
    pageable_wait_pct: float | None = None
    h2d_exposed_pct: float | None = None
    h2d_pinned_exposed_pct: float | None = None
    d2h_exposed_pct: float | None = None
    pageable_h2d_wait_pct: float | None = None
    copy_exposed_pct: float | None = None
    sync_api_ms_per_step: float | None = None
    sync_api_pct: float | None = None
    sync_exposed_pct: float | None = None
    copy_api_pct: float | None = None
    copy_api_exposed_pct: float | None = None
    launch_api_pct: float | None = None
    alloc_api_exposed_pct: float | None = None
    host_exposed_pct: float | None = None
    host_starved_pct: float | None = None
    dispatch_idle_pct: float | None = None
    idle_queued_pct: float | None = None
    host_late_pct: Annotated[
        float | None, fact("host time in queued gaps whose operation began as soon as its launch was over: the host was no step ahead")
    ] = None
    idle_long_gaps_pct: float | None = None
    longest_gap_ms: float | None = None
    kernels: float | None = None
    kernels_per_step: float | None = None
    tiny_kernel_share: float | None = None
    matmul_time_share: float | None = None
    tensor_core_share: float | None = None
    nccl_pct: float | None = None
    nccl_exposed_pct: float | None = None
    nccl_kernels_per_step: float | None = None
    pageable_h2d: float | None = None
    pageable_d2h: float | None = None
    mtia_busy_pct: float | None = None


class Trust(Record, kw_only=True):
    """Whether the file can be believed: counts over the whole of it."""

    gpu_ops: int = 0
    gpu_before_launch: Annotated[int, fact("operations that start before they were launched")] = 0
    same_stream_overlaps: Annotated[int, fact("operations that start before the one before them on their stream has ended")] = 0
    dependent_overlaps: Annotated[int, fact("those of them that dependent launches of compute capability 9 and above explain")] = 0
    bad_durations: Annotated[int, fact("operations of negative length or more than 10 minutes; they are left out")] = 0
    uncorrelated_gpu_ops: Annotated[int, fact("operations whose launch is not in the file")] = 0
    uncorrelated_pct: float = 0.0
    damaged_events: Annotated[int, fact("events that could not be read; they are left out")] = 0
    dropped_events: Annotated[int, fact("events that the profiler says it lost")] = 0
    truncated: Annotated[str, fact("why the file ends early; empty: it does not")] = ""
    device_missing: Annotated[bool, fact("the program used a device, and nothing that it did is in the file, or nobody knows what")] = False
    mixed_programs: Annotated[
        bool, fact("another program in the file has the same numbers of calls, so that whose operations these are is unknown")
    ] = False
    calls_recorded: Annotated[bool, fact("the program's calls of the device's runtime are in the file")] = False
    device_use: Annotated[str, fact("the call or operator that tells so; empty: the file lacks the tables that would tell")] = ""
    reasons: Annotated[tuple[str, ...], fact("why something may be missing, in the profiler's own words")] = ()
    unrecorded: Annotated[tuple[str, ...], fact("what the program did, or may have done, and the file does not hold")] = ()


class Hole(Record, kw_only=True):
    """The host's share of long gaps outside loader, synchronisation and copies."""

    pct: Annotated[float | None, fact("percent of the window; null: the file does not tell")] = 0.0
    recurring_pct: Annotated[
        float | None,
        fact("on a CPU, what comes back at the same place of iterations, by the median one; null: unknown"),
    ] = None
    recurring_least_pct: Annotated[
        float | None, fact("on a CPU, the share that three quarters of the iterations have at least, without waiting for other threads")
    ] = None
    scattered_pct: Annotated[float | None, fact("on a CPU, pauses at another place in each iteration: nothing that the program does")] = (
        None
    )
    periodic_pct: Annotated[float | None, fact("on a CPU, the part of it that only every so many iterations have; null: as above")] = None
    returns: Annotated[str, fact("on a CPU, how often they come back; empty: nobody knows")] = ""
    longest_ms: float = 0.0
    cause: Annotated[str, fact("what the launching thread did meanwhile, by the innermost range or function that covers most")] = ""
    feeds_device: Annotated[bool, fact("copies to the device ended most of it, in half of the steps, and its place says data")] = False


class Site(Record, kw_only=True):
    """A place in the program, and the exposed time that it costs."""

    what: str
    where: Annotated[Place | None, fact("source line, where the file has stacks")] = None
    exposed_pct: float = 0.0
    count: int = 0


class Work(Record, kw_only=True):
    """What kernels do: shares of the window (of kernel time where named so), in percent."""

    elementwise_pct: Annotated[
        float | None,
        kernels(
            "kernels that work element by element, or normalise", by_name.is_pointwise,
            fix="fusion", left=(0.7, 0.4), assumes="fused, elementwise kernels take 40% to 70% of their time",
        ),
    ] = None  # fmt: skip
    layout_pct: Annotated[
        float | None,
        kernels(
            "kernels that change the layout of a tensor, and nothing else",
            any_of("nchwtonhwc", "nhwctonchw", "nchw2nhwc", "nhwc2nchw", "cudnn::ops::nhwc", "cudnn::ops::nchw"),
            fix="layout", left=(0.5, 0.0), assumes="low: half of the layout conversions go; high: all",
        ),
    ] = None  # fmt: skip
    cast_pct: Annotated[
        float | None,
        kernels(
            "kernels that copy or convert elements", by_name.is_copy,
            fix="cast", left=(0.5, 0.0), assumes="low: half of the copies and conversions of elements go; high: all",
        ),
    ] = None  # fmt: skip
    optimizer_pct: float | None = None
    optimizer_kernels_per_step: float | None = None
    launches_per_step: Annotated[float | None, fact("calls that launch kernels; one launches all kernels of a CUDA graph")] = None
    optimizer_launches_per_step: float | None = None
    zero_grad_launches_per_step: float | None = None
    zero_grad_kernels_per_step: float | None = None
    zero_grad_pct: float | None = None
    softmax_pct: Annotated[float | None, fact("softmax kernels of attention, not those of a loss")] = None
    unfused_attention_pct: Annotated[float | None, fact("kernels of the operators softmax and bmm, where both are used")] = None
    efficient_attention_pct: float | None = None
    flash_attention_pct: float | None = None
    plain_matmul_pct: Annotated[float | None, fact("matmul kernels for 32-bit floats without tensor cores, by their names")] = None
    plain_matmul_share: Annotated[float | None, fact("their part of the matmuls' time; null: names that do not tell could decide it")] = (
        None
    )
    small_wave_pct: Annotated[float | None, fact("kernels, but collectives, with less than half a thread block per multiprocessor")] = None
    small_wave_kernels: Annotated[tuple[str, ...], fact("those of them that take most")] = ()
    misaligned_pct: Annotated[float | None, fact("the kernels' time in 16-bit products with a dimension that is no multiple of 8")] = None
    misaligned: Annotated[tuple[str, ...], fact("those of them that take most")] = ()
    graph_share: Annotated[float | None, fact("kernels that a CUDA graph launched")] = None
    tflops: Annotated[float | None, fact("floating-point operations of matmuls by their shapes, per second of the window, in 1e12")] = None
    mfu_pct: Annotated[float | None, fact("the same as a share of the device's dense 16-bit peak")] = None


KERNEL_KINDS = declared(Work)
"""The kinds of kernels by the fields of `Work` that say what they take."""


class BusyRow(Record, kw_only=True):
    """What one operator, with inputs of one shape, takes of the kernels' time; a kernel without an operator stands for itself."""

    operator: str
    shapes: Annotated[str, fact("of its inputs, where the file has them")] = ""
    kernel: Annotated[str, fact("the kernel that takes most of it")] = ""
    count: int = 0
    share_pct: Annotated[float, fact("of the kernels' time in the window")] = 0.0
    ms: float = 0.0
    tflops: Annotated[float | None, fact("of products, by their shapes")] = None
    peak_pct: Annotated[float | None, fact("the same as a share of the device's dense 16-bit peak, of 16-bit products")] = None
    gb_per_s: Annotated[float | None, fact("what it reads and writes at least")] = None
    bound: Annotated[str, fact("compute or memory, by the roofline; exchange: a collective; launch: below 10 µs; empty: unknown")] = ""


class ModuleRow(Record, kw_only=True):
    """Modules of one class in one place of the model's tree."""

    name: str
    depth: int = 0
    calls: int = 0
    share_pct: Annotated[
        float, fact("of the kernels' time, on a CPU of the operators', with what it calls; the backward pass is outside")
    ] = 0.0


class ExchangeRow(Record, kw_only=True):
    """Collectives of one kind and size."""

    name: str
    bytes: int | None = None
    count: int = 0
    median_ms: float = 0.0
    shortest_ms: Annotated[float, fact("the shortest of them, which waits least for other ranks; of several files, over all ranks")] = 0.0
    bus_gb_per_s: Annotated[float | None, fact("bandwidth of the links by the shortest, as nccl-tests counts it")] = None
    share_pct: Annotated[float, fact("of the window")] = 0.0


class HostWork(Record, kw_only=True):
    """What the host's threads did, in percent of the window."""

    optimizer_pct: float | None = None
    zero_grad_pct: float | None = None
    module_load_pct: float | None = None
    gc_pct: float | None = None
    evaluation_pct: float | None = None
    checkpoint_pct: float | None = None
    recompiles: Annotated[int | None, fact("compilations within the window; those within another one are part of it")] = None
    compiled_regions: int | None = None
    graph_breaks: Annotated[int | None, fact("frames of Python, but optimizers, that were compiled each for itself")] = None
    data_parallel: Annotated[bool | None, fact("nn.DataParallel scatters, replicates and gathers")] = None
    region: Annotated[str, fact("the user's own range that takes most")] = ""
    region_pct: float | None = None
    launch_delay_us: Annotated[float | None, fact("median time from a launch to its start on the device")] = None
    queue_depth: Annotated[float | None, fact("median number of operations that wait when one is launched")] = None
    queue_max: int | None = None
    refill_pct: Annotated[float | None, fact("starved idle from a blocking call's return until an operation is queued again")] = None
    refill_short_pct: Annotated[float | None, fact("the same in gaps below 1 ms")] = None
    runnable_wait_pct: Annotated[float | None, fact("time that the launching thread could run and had no CPU")] = None
    gil_wait_pct: float | None = None
    operator: Annotated[str, fact("of the launching thread, the operator that takes most without a call to a device in it")] = ""
    operator_pct: float | None = None
    system_call: Annotated[str, fact("of the main thread's calls of the operating system, the one that takes most; of Nsight Systems")] = ""
    system_call_pct: float | None = None
    capture_pct: Annotated[float | None, fact("time in which a graph is captured: what is launched then does not run")] = None
    start_up: Annotated[str, fact("of the calls that start-ups have, the one that the device waits for most; empty: none")] = ""
    start_up_pct: Annotated[float | None, fact("how long the device waits for these calls, and for launches of 10 ms and more")] = None
    launch_us: Annotated[float | None, fact("the median duration of calls that launch kernels")] = None
    overhead_pct: Annotated[float | None, fact("time that the profiler says it took itself")] = None
    inflation: Annotated[float | None, fact("by how much the profiler stretches the host's time, estimated from the events it wrote")] = (
        None
    )


class Cpu(Record, kw_only=True):
    """Training on the CPU: where the main thread's time goes, in percent of the window."""

    operators: int = 0
    operator_pct: Annotated[float, fact("time in operators, on any thread, outside the loader and torch.compile's compiler")] = 0.0
    interrupted_pct: Annotated[
        float, fact("the part of operator_pct by which operators take longer now and then than in other iterations, as without a CPU")
    ] = 0.0
    compile_pct: Annotated[float, fact("time in which torch.compile compiles")] = 0.0
    loader_pct: float = 0.0
    loader_operator_pct: Annotated[float, fact("the part of loader_pct that is in operators: it needs a CPU wherever it runs")] = 0.0
    communication_pct: float = 0.0
    python_pct: Annotated[float, fact("time in neither operators nor loader nor communication nor the compiler")] = 0.0
    python_recurring_pct: Annotated[
        float, fact("the same in the median iteration, without gc_pct; where there are too few iterations, of the whole window")
    ] = 0.0
    between_sites: Annotated[tuple[Site, ...], fact("with stacks, where the main thread is in the longest times that are no pauses")] = ()
    gc_pct: Annotated[float, fact("the part of python_pct in which Python collected garbage, as far as the file shows it")] = 0.0
    gc_sites: Annotated[tuple[Site, ...], fact("what the main thread does then, and the lines that asked for it")] = ()
    matmul_pct: float = 0.0
    fallback_pct: Annotated[float, fact("matmuls and convolutions outside oneDNN and BLAS")] = 0.0
    copy_pct: Annotated[float, fact("copies and conversions of tensors, outside the loader")] = 0.0
    own_copy_pct: Annotated[float, fact("those that the program asks for itself, not other operators, the loader or the optimizer")] = 0.0
    optimizer_pct: float = 0.0
    tiny_operator_share: Annotated[float, fact("operators that take less than 20 µs each")] = 0.0
    operators_per_step: float | None = None
    threads: Annotated[int, fact("threads that run operators; threads of OpenMP inside them are not in a trace")] = 0
    top: Annotated[tuple[Site, ...], fact("operators by exclusive time, each with the line that its longest calls come from")] = ()


class Steps(Record, kw_only=True):
    """The iterations of the program, and what was used to find them."""

    by: Annotated[
        str, fact("ProfilerStep, optimizer, loader, NVTX, modules, kernels, operations, operators, pauses or passes; empty: none found")
    ] = ""
    count: int = 0
    median_ms: float | None = None
    longest_ms: float | None = None
    outlier: Annotated[bool | None, fact("the longest is beyond median + 3 deviations, and 1.2 times the median")] = None
    outlier_excess_pct: float | None = None
    outlier_cause: str = ""
    steady: Annotated[bool, fact("the window is a steady state, without start-up; where there are no iterations, one pass of it")] = False


class Memory(Record, kw_only=True):
    """Memory of the device, as the profiler recorded it."""

    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    total_bytes: int | None = None


class CollectiveFacts(Record, kw_only=True):
    """Collective operations of one rank."""

    per_step: float | None = None
    small_share: Annotated[float | None, fact("collectives of less than 1 MB, in percent of their number")] = None
    slow_pct: Annotated[float | None, fact("time lost where collectives took more than 1.25 times the median of their kind and size")] = (
        None
    )
    kinds: Annotated[tuple[ExchangeRow, ...], fact("by kind and size, those that take most first")] = ()
    waiting_pct: Annotated[float | None, fact("time in collectives that the rank waits for later ones; null: ranks were not compared")] = (
        None
    )
    own_pct: Annotated[
        float | None,
        fact(
            "time in collectives without any other kernel, less what the rank waits in them for later ones; null: ranks were not compared"
        ),
    ] = None


class Prediction(Record, kw_only=True):
    """What removing a cause would gain, by replaying the step without it; percent of the step."""

    fix: str
    low: float
    high: float
    assumes: str

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def text(self) -> str:
        """The interval for people: ``8 to 12 %``, ``5 %`` or ``below 1 %``."""
        return percent_interval(self.low, self.high)


class Replay(Record, kw_only=True):
    """How well the step can be replayed, and what replays without a cause give."""

    error_pct: Annotated[float | None, fact("difference of the unchanged replay from the measured time")] = None
    usable: bool = False
    why: Annotated[str, fact("why no prediction is made")] = ""
    predictions: tuple[Prediction, ...] = ()


class Rank(Record, kw_only=True):
    """One trace: one process, or one rank of a job."""

    file: str
    form: str
    rank: int | None = None
    world_size: int | None = None
    has_device: bool = False
    gpu: str | None = None
    capability: float | None = None
    window_rule: str = ""
    window_ms: float | None = None
    window_start_us: float | None = None
    kept_until_us: Annotated[float | None, fact("of a large file, only events that start until then were examined; null: all were")] = None
    other_programs: Annotated[int, fact("other processes with steps of their own in the same file; they were left out")] = 0
    step_count: Annotated[int | None, fact("steps that the profiler marked")] = None
    step_ms: tuple[float, ...] | None = None
    step_ms_median: float | None = None
    dataloader_workers: Annotated[str | None, fact("0 or >0")] = None
    dataloader_calls: int = 0
    figures: Figures = Figures()
    devices: tuple[DeviceFacts, ...] = ()
    trust: Trust = Trust()
    steps: Steps = Steps()
    hole: Hole = Hole()
    sync_sites: tuple[Site, ...] = ()
    hole_sites: tuple[Site, ...] = ()
    loader_recurring_pct: Annotated[
        float | None,
        fact("the exposed share of the loader (on a CPU its share); of two or three iterations what each has; null: a first step alone"),
    ] = None
    loader_sites: Annotated[tuple[Site, ...], fact("where the program makes batches or waits for them, as far as that is exposed")] = ()
    work: Work = Work()
    busy: Annotated[tuple[BusyRow, ...], fact("where the kernels' time goes, the first device's, most first")] = ()
    modules: Annotated[tuple[ModuleRow, ...], fact("the tree of nn.Module calls, where the file has them")] = ()
    host: HostWork = HostWork()
    cpu: Cpu | None = None
    memory: Memory = Memory()
    collectives: CollectiveFacts = CollectiveFacts()
    sm_active_pct: Annotated[float | None, fact("multiprocessors with work, by the device's own counters")] = None
    tensor_active_pct: Annotated[float | None, fact("tensor pipes with work, by the device's own counters")] = None
    page_faults: int | None = None
    replay: Replay = Replay()
    verdict: str = "cannot-tell"
    why: Annotated[str, fact("what the verdict rests on")] = ""
    with_stacks: bool = False
    with_shapes: bool = False

    @property
    def path(self) -> str:
        """What findings call it: a long path without its middle, so that those of two ranks differ."""
        file = self.file
        return f"{file[:40]}…{file[41 - MAX_PATH :]}" if file and len(file) > MAX_PATH else file  # a rule's test may have none


INTERRUPTIONS = "time in interruptions"
"""Operators and pauses that take long now and then, at other places each time: what has the CPU meanwhile is another program, mostly."""


class Skew(Record, kw_only=True):
    """What ranks of one job show beside each other."""

    ranks: int = 0
    matched: Annotated[int, fact("collectives that all ranks have")] = 0
    late: Annotated[
        tuple[int, ...],
        fact("the rank that causes more than half of the waiting, or several that cause nearly all of it together; empty: there is none"),
    ] = ()
    late_share: Annotated[float | None, fact("of the time by which ranks came later than the median one, their part in percent")] = None
    lost_pct: Annotated[
        float | None, fact("time that the other ranks wait for these, or all for each other, mean percent of their windows")
    ] = None
    gain_pct: Annotated[float | None, fact("the part of it that is left to win where they come no later than the last of the others")] = (
        None
    )
    rotates: Annotated[bool | None, fact("one rank is late and then another, and none is named")] = None
    cause: Annotated[str, fact("what the late ranks have more time in; empty: nothing that the files show")] = ""
    slow_kernels: Annotated[float | None, fact("speed of the slowest rank's kernels against the median rank's, same names")] = None
    slow_rank: int | None = None

    @property
    def who(self) -> str:
        """The late ranks for people: ``rank 1``, ``ranks 1, 2 and 5``."""
        *others, last = map(str, self.late)
        return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


class Trace(Record, kw_only=True):
    """One or more traces of one job."""

    ranks: tuple[Rank, ...] = ()
    skew: Skew = Skew()
    verdict: str = "cannot-tell"
    why: str = ""
