"""What a trace tells of the host: the parts of `Rank` that are about its threads, its iterations, and places in the program."""

from typing import Annotated

from sysperf.model.finding import Place
from sysperf.model.record import Record, fact
from sysperf.trace.declared import GAPS, needs
from sysperf.trace.timeline import CALL_NAMES, CALLS


class Site(Record, kw_only=True):
    """A place in the program, and the exposed time that it costs."""

    what: str
    where: Annotated[Place | None, fact("source line, where the file has stacks")] = None
    exposed_pct: float = 0.0
    count: int = 0


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
    unseen_pct: Annotated[
        float,
        fact("of a file without a loader, the part that shows nothing: one or two gaps an iteration, or before copies to the device"),
    ] = 0.0
    cause: Annotated[str, fact("what the launching thread did meanwhile, by the innermost range or function that covers most")] = ""
    feeds_device: Annotated[bool, fact("copies to the device ended most of it, in half of the steps, and its place says data")] = False


class HostWork(Record, kw_only=True):
    """What the host's threads did, in percent of the window."""

    optimizer_pct: float | None = None
    zero_grad_pct: float | None = None
    module_load_pct: Annotated[float | None, needs(CALLS, CALL_NAMES)] = None
    gc_pct: float | None = None
    evaluation_pct: float | None = None
    checkpoint_pct: float | None = None
    recompiles: Annotated[
        int | None, fact("compilations within the window, without a start that is in it; those within another one are part of it")
    ] = None
    first_compile_pct: Annotated[
        float | None, fact("compilation by torch.compile before the second iteration of a file that has the start")
    ] = None
    compiled_regions: int | None = None
    graph_breaks: Annotated[int | None, fact("frames of Python, but optimizers, that were compiled each for itself")] = None
    data_parallel: Annotated[bool | None, fact("nn.DataParallel scatters, replicates and gathers")] = None
    region: Annotated[str, fact("the user's own range that takes most")] = ""
    region_pct: float | None = None
    launch_delay_us: Annotated[float | None, fact("median time from a launch to its start on the device")] = None
    queue_depth: Annotated[float | None, fact("median number of operations that wait when one is launched")] = None
    queue_max: int | None = None
    refill_pct: Annotated[
        float | None, fact("starved idle from a blocking call's return until an operation is queued again"), needs(*GAPS)
    ] = None
    refill_short_pct: Annotated[float | None, fact("the same in gaps below 1 ms"), needs(*GAPS)] = None
    work_after_wait_pct: Annotated[
        float | None, fact("the host's own part of it in gaps of 1 ms and more: it works with what it waited for"), needs(*GAPS)
    ] = None
    works_after_wait: Annotated[float | None, fact("how often it does so in an iteration, on average; null: unknown"), needs(*GAPS)] = None
    trains: Annotated[bool | None, fact("whether the window has backward passes or steps of an optimizer; null: no operators")] = None
    runnable_wait_pct: Annotated[float | None, fact("time that the launching thread could run and had no CPU")] = None
    gil_wait_pct: float | None = None
    operator: Annotated[str, fact("of the launching thread, the operator that takes most without a call to a device in it")] = ""
    operator_pct: float | None = None
    system_call: Annotated[str, fact("of the main thread's calls of the operating system, the one that takes most; of Nsight Systems")] = ""
    system_call_pct: float | None = None
    capture_pct: Annotated[float | None, fact("time in which a graph is captured: what is launched then does not run")] = None
    start_up: Annotated[str, fact("of the calls that start-ups have, the one that the device waits for most; empty: none")] = ""
    start_up_pct: Annotated[
        float | None, fact("how long the device waits for these calls, and for launches of 10 ms and more"), needs(*GAPS)
    ] = None
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
    compile_recurring_pct: Annotated[float, fact("the same behind the start of a program, of the time that follows it")] = 0.0
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
    readback_pct: Annotated[float, fact("loops that read values of tensors one by one, outside loader and optimizers")] = 0.0
    readbacks_per_step: Annotated[float | None, fact("values that such loops read in an iteration, on average; null: unknown")] = None
    readback_sites: tuple[Site, ...] = ()
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
