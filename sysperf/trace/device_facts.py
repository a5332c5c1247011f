"""What a trace tells of devices: the parts of `Rank` that are about what ran on them, and when they did nothing."""

from typing import Annotated

from sysperf.model.record import Record, declared, fact
from sysperf.trace import kernels as by_name
from sysperf.trace.declared import EVERY_KERNEL, GAPS, IDLE, LAUNCHES, PAGEABLE, Kind, any_of, kernels, needs
from sysperf.trace.timeline import CALL_NAMES, CALLS, COPIES, DIRECTIONS, GRAPHS, KERNEL_NAMES


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
    busy_pct: Annotated[float | None, needs(*IDLE)] = None
    kernel_busy_pct: float | None = None
    idle_ms: Annotated[float | None, needs(*IDLE)] = None
    gaps: Annotated[int | None, fact("maximal idle intervals in the window"), needs(*IDLE)] = None
    starved_gaps: Annotated[int | None, fact("gaps that the host's next launch ended"), needs(*GAPS)] = None
    queued_gaps: Annotated[int | None, fact("gaps before which the next operation was launched already"), needs(*GAPS)] = None
    longest_gaps: Annotated[tuple[GapFacts, ...], fact("the longest of them, longest first, at most 50"), needs(*IDLE)] = ()
    capability: Annotated[float | None, fact("NVIDIA compute capability")] = None


class Figures(Record, kw_only=True):
    """Shares of the window in percent; means over the devices. docs/analyze.md defines each.

    Memsets are too short to matter for idle time.
    """

    gpu_busy_pct_mean: Annotated[float | None, needs(*IDLE)] = None
    kernel_busy_pct: float | None = None
    dataloader_pct: float | None = None
    dataloader_exposed_pct: Annotated[float | None, needs(*IDLE)] = None
    pageable_h2d_per_step: Annotated[float | None, needs(*PAGEABLE)] = None
    pageable_d2h_per_step: Annotated[float | None, needs(*PAGEABLE)] = None
    pageable_wait_pct: Annotated[float | None, needs(*PAGEABLE, CALLS, LAUNCHES)] = None
    h2d_exposed_pct: Annotated[float | None, needs(COPIES, GRAPHS, DIRECTIONS)] = None
    h2d_pinned_exposed_pct: Annotated[float | None, needs(*PAGEABLE)] = None
    d2h_exposed_pct: Annotated[float | None, needs(COPIES, GRAPHS, DIRECTIONS)] = None
    pageable_h2d_wait_pct: Annotated[float | None, needs(*PAGEABLE, CALLS, LAUNCHES)] = None
    copy_exposed_pct: Annotated[float | None, needs(COPIES, GRAPHS)] = None
    sync_api_ms_per_step: Annotated[float | None, needs(CALLS, CALL_NAMES)] = None
    sync_api_pct: Annotated[float | None, needs(CALLS, CALL_NAMES)] = None
    sync_exposed_pct: Annotated[float | None, needs(*IDLE, CALLS, CALL_NAMES)] = None
    copy_api_pct: Annotated[float | None, needs(CALLS, CALL_NAMES)] = None
    copy_api_exposed_pct: Annotated[float | None, needs(*IDLE, CALLS, CALL_NAMES)] = None
    blocked_pct: Annotated[
        float | None,
        fact("both, without waits during which the next operation is queued already, which do not hold the device up"),
        needs(*IDLE, CALLS, CALL_NAMES),
    ] = None
    launch_api_pct: Annotated[float | None, needs(CALLS, CALL_NAMES)] = None
    alloc_api_exposed_pct: Annotated[float | None, needs(*IDLE, CALLS, CALL_NAMES)] = None
    host_exposed_pct: Annotated[float | None, needs(*IDLE, CALLS, CALL_NAMES)] = None
    host_starved_pct: Annotated[float | None, needs(*GAPS)] = None
    dispatch_idle_pct: Annotated[float | None, needs(*GAPS)] = None
    idle_queued_pct: Annotated[float | None, needs(*IDLE, CALLS, LAUNCHES)] = None
    host_late_pct: Annotated[
        float | None,
        fact("host time in queued gaps whose operation began as soon as its launch was over: the host was no step ahead"),
        needs(*IDLE, CALLS, LAUNCHES),
    ] = None
    idle_between_pct: Annotated[
        float | None,
        fact("queued gaps of 5 µs at most, in which a device goes on from one operation to the next"),
        needs(*IDLE, CALLS, LAUNCHES),
    ] = None
    idle_long_gaps_pct: Annotated[float | None, needs(*IDLE)] = None
    longest_gap_ms: Annotated[float | None, needs(*IDLE)] = None
    kernels: Annotated[float | None, needs(*EVERY_KERNEL)] = None
    kernels_per_step: Annotated[float | None, needs(*EVERY_KERNEL)] = None
    tiny_kernel_share: Annotated[float | None, needs(*EVERY_KERNEL)] = None
    matmul_time_share: Annotated[float | None, needs(*EVERY_KERNEL, KERNEL_NAMES)] = None
    tensor_core_share: Annotated[float | None, needs(*EVERY_KERNEL, KERNEL_NAMES)] = None
    nccl_pct: Annotated[float | None, needs(*EVERY_KERNEL, KERNEL_NAMES)] = None
    nccl_exposed_pct: Annotated[float | None, needs(*EVERY_KERNEL, KERNEL_NAMES)] = None
    nccl_kernels_per_step: Annotated[float | None, needs(*EVERY_KERNEL, KERNEL_NAMES)] = None
    pageable_h2d: Annotated[float | None, needs(*PAGEABLE)] = None
    pageable_d2h: Annotated[float | None, needs(*PAGEABLE)] = None
    mtia_busy_pct: float | None = None


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
    tflops: Annotated[
        float | None, fact("operations of products, convolutions and attention by shapes, in 1e12 per second of the window; null: untold")
    ] = None
    mfu_pct: Annotated[float | None, fact("the same as a share of the device's dense 16-bit peak")] = None


KERNEL_KINDS: dict[str, Kind] = declared(Work, "kernels")
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


class CollectiveFacts(Record, kw_only=True):
    """Collective operations of one rank."""

    per_step: float | None = None
    small_share: Annotated[float | None, fact("collectives of less than 1 MB, in percent of their number")] = None
    slow_pct: Annotated[float | None, fact("time lost where collectives took more than 1.25 times the median of their kind and size")] = (
        None
    )
    sent_pct: Annotated[
        float | None,
        fact("time in what it sends to one other rank or receives from it, as stages of a pipeline do, without any other kernel"),
    ] = None
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


class Memory(Record, kw_only=True):
    """Memory of the device, as the profiler recorded it."""

    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    total_bytes: int | None = None
