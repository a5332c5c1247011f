"""The area `trace`: what a trace tells, as facts that rules judge. None means that the file does not tell."""

from typing import Annotated

from sysperf.model.finding import percent_interval
from sysperf.model.record import Record, fact
from sysperf.trace.declared import EVERY_KERNEL, GAPS, IDLE, needs
from sysperf.trace.device_facts import BusyRow, CollectiveFacts, DeviceFacts, Figures, Memory, ModuleRow, Work
from sysperf.trace.host_facts import Cpu, Hole, HostWork, Site, Steps
from sysperf.trace.timeline import CALL_NAMES, CALLS, KERNEL_NAMES

MAX_PATH = 120
"""Characters of a subject's name."""


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


class Held(Record, kw_only=True):
    """What a replay gains at most without all that one verdict blames. Files do not say which streams wait for each other."""

    verdict: str
    gain: Annotated[float, fact("percent of the step")]


class Replay(Record, kw_only=True):
    """How well the step can be replayed, and what replays without a cause give."""

    error_pct: Annotated[float | None, fact("difference of the unchanged replay from the measured time")] = None
    usable: bool = False
    why: Annotated[str, fact("why no prediction is made")] = ""
    predictions: tuple[Prediction, ...] = ()
    held: Annotated[
        tuple[Held, ...],
        fact("where copies or collectives that run alone seem to bound the program: what it gains without them, and without other causes"),
    ] = ()


class Rank(Record, kw_only=True):
    """One trace: one process, or one rank of a job."""

    file: str
    form: str
    rank: int | None = None
    world_size: int | None = None
    has_device: bool = False
    gpu: str | None = None
    runtime: Annotated[str | None, fact("cuda, hip or xpu, by the host's calls; null: they are not in the file")] = None
    capability: float | None = None
    window_rule: str = ""
    window_ms: float | None = None
    window_start_us: float | None = None
    kept_until_us: Annotated[float | None, fact("of a large file, only events that start until then were examined; null: all were")] = None
    other_programs: Annotated[int, fact("other processes in the same file with steps or launches of their own; they were left out")] = 0
    step_count: Annotated[int | None, fact("steps that the profiler marked")] = None
    step_ms: tuple[float, ...] | None = None
    step_ms_median: float | None = None
    dataloader_workers: Annotated[str | None, fact("0 or >0")] = None
    dataloader_calls: int = 0
    figures: Figures = Figures()
    devices: tuple[DeviceFacts, ...] = ()
    in_turn_pct: Annotated[
        float | None, fact("of several devices, time in which only one of them works; null: one device"), needs(*IDLE)
    ] = None
    trust: Trust = Trust()
    steps: Steps = Steps()
    hole: Hole = Hole()
    sync_sites: Annotated[tuple[Site, ...], needs(*IDLE, CALLS, CALL_NAMES)] = ()
    hole_sites: Annotated[tuple[Site, ...], needs(*GAPS)] = ()
    loader_recurring_pct: Annotated[
        float | None,
        fact("the exposed share of the loader (on a CPU its share); of two or three iterations what each has; null: a first step alone"),
        needs(*IDLE),
    ] = None
    loader_sites: Annotated[tuple[Site, ...], fact("where the program makes batches or waits for them, as far as that is exposed")] = ()
    work: Annotated[Work, needs(*EVERY_KERNEL, KERNEL_NAMES)] = Work()
    busy: Annotated[
        tuple[BusyRow, ...], fact("where the kernels' time goes, the first device's, most first"), needs(*EVERY_KERNEL, KERNEL_NAMES)
    ] = ()
    modules: Annotated[tuple[ModuleRow, ...], fact("the tree of nn.Module calls, where the file has them")] = ()
    host: HostWork = HostWork()
    cpu: Cpu | None = None
    memory: Memory = Memory()
    collectives: Annotated[CollectiveFacts, needs(*EVERY_KERNEL, KERNEL_NAMES)] = CollectiveFacts()
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
    doubles: Annotated[
        tuple[int, ...], fact("numbers of ranks that several files have, as of two runs: these are no ranks of one job, and not compared")
    ] = ()
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
    most_pct: Annotated[
        float | None,
        fact("the part of it that is won where they are never waited for: hosts of others may be as slow"),
    ] = None
    rotates: Annotated[bool | None, fact("one rank is late and then another, and none is named")] = None
    once: Annotated[bool | None, fact("nearly all waiting is in one of several steps, and none is named")] = None
    cause: Annotated[str, fact("what the late ranks have more time in; empty: nothing that the files show")] = ""
    stages_pct: Annotated[
        float | None,
        fact(
            "of stages of a pipeline, what the one that waits least exchanges or waits without computation, in percent; null: they are none"
        ),
    ] = None
    slow_kernels: Annotated[float | None, fact("speed of the slowest rank's kernels against the median rank's, same names")] = None
    slow_names_pct: Annotated[
        float | None,
        fact("of these kernels, by name, those that take 1.1 times as long there: all where a device is slow"),
    ] = None
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
