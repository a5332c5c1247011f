"""What each fix would gain: how it changes a replay, what it assumes, and the bounds of its prediction.

Each prediction is made with and without the delays that nothing in the file explains, at a cautious and at a full strength: the
lowest and the highest of these are its interval. No gain is more than the exposed time that its cause takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from sysperf.model.finding import Gain
from sysperf.trace.accounting.exposed import STARVED, DeviceTime, Launches
from sysperf.trace.accounting.window import Window
from sysperf.trace.device_facts import KERNEL_KINDS, Figures, Work
from sysperf.trace.facts import INTERRUPTIONS, Held, Prediction, Replay, Skew
from sysperf.trace.host_facts import Cpu, Hole, HostWork
from sysperf.trace.intervals import union
from sysperf.trace.replay import UNCHANGED, Edit, Prepared
from sysperf.trace.replay import graph as nodes
from sysperf.trace.replay.graph import Builder, part_of, processes
from sysperf.trace.timeline import Timeline

MAX_ERROR_PCT = 5.0
MIN_COST_PCT = 1.0
"""A cause that costs less is not worth a replay."""
TENSOR_SPEED = (1.5, 4.0)
MEASURED = 0.8
"""The part of a predicted gain that real programs had at least: of pairs of sick and cured ones on the CPU
(`benchmarks/trace_gain.py`) the errors were 1 to 29 %, and on a GPU a loader with workers gained 28 of 32 % (ResNet-50)."""


class Costs(NamedTuple):
    """What is known of a window, as far as it says what a fix can give back."""

    figures: Figures
    host: HostWork
    work: Work
    hole: Hole


class Fix(NamedTuple):
    """A cause that can be taken away: how, at which strength, and what that assumes."""

    name: str
    cautious: Edit
    full: Edit
    assumes: str
    cost: Callable[[Costs], float]
    """The exposed time that it could at most give back, in percent."""
    sure: float = 1.0
    """The part of the cautious gain that is counted on."""


def _of_kind(field: str, flag: int) -> Fix:
    """The fix that makes kernels of one kind faster, by the field of `Work` that declares it."""
    kind = KERNEL_KINDS[field]
    cautious, full = (Edit(speed=((flag, left),)) for left in kind.left)
    return Fix(kind.fix, cautious, full, kind.assumes, lambda at: getattr(at.work, field) or 0.0)


def _host(figures: Figures) -> float:
    """The time that devices wait for launches, also where each arrives as soon as it is there."""
    return (figures.host_starved_pct or 0.0) + (figures.host_late_pct or 0.0)


_COPYING = frozenset((nodes.COPYING, nodes.FILLING))
_WAITS = _COPYING | {nodes.SYNC}
_AHEAD = Edit(beside=nodes.H2D, no_waits=frozenset((nodes.FILLING,)))
FIXES = (
    Fix(
        "loader", Edit(loader="worker"), Edit(loader="gone"),
        "low: one worker prepares batches beside the step, which takes them over in 3.5 ms each, less a fifth for what a trace does not "
        "show; high: enough workers that no step waits",
        lambda at: at.figures.dataloader_exposed_pct or 0.0, MEASURED,
    ),
    Fix(
        "sync", Edit(no_waits=_WAITS), Edit(no_waits=_WAITS),
        "high: the host goes on without waiting, and launches as before; the step then takes what host or device need, whichever is "
        "longer; low: half of that, because some waits stay, as where a loss is shown",
        lambda at: (at.figures.blocked_pct or 0.0) + (at.host.refill_pct or 0.0), 0.5,
    ),
    Fix(
        "pageable", Edit(no_waits=_COPYING), Edit(no_waits=_COPYING, beside=nodes.H2D),
        "low: copies from pinned memory that the host does not wait for; high: on a stream of their own, one step ahead",
        lambda at: (at.figures.pageable_h2d_wait_pct or 0.0) + (at.host.refill_pct or 0.0),
    ),
    Fix(
        "h2d", _AHEAD, _AHEAD,
        "high: copies run on a stream of their own, one step ahead, and neither kernels nor the host wait for them; low: half of that",
        lambda at: at.figures.h2d_exposed_pct or 0.0, 0.5,
    ),
    Fix(
        "launch", Edit(short_host=0.5), Edit(short_host=0.1),
        "low: half as much host time between launches (compile, fused operators); high: a tenth (CUDA graphs)",
        lambda at: _host(at.figures),
    ),
    Fix(
        "between-graphs", Edit(short_host=0.5), Edit(short_host=0.1),
        "low: half as much work of the host between graphs; high: a tenth, where the next step is prepared beside the device",
        lambda at: _host(at.figures),
    ),
    Fix(
        "optimizer", Edit(short_host=0.5, region=nodes.OPTIMIZER), Edit(short_host=0.1, region=nodes.OPTIMIZER),
        "low: half as much host time in the optimizer (foreach); high: a tenth (fused)",
        lambda at: min(_host(at.figures), at.host.optimizer_pct or 0.0),
    ),
    Fix(
        "zero-grad", Edit(short_host=0.5, region=nodes.ZERO_GRAD), Edit(short_host=0.1, region=nodes.ZERO_GRAD),
        "low: half as much host time in zero_grad; high: a tenth (set_to_none)",
        lambda at: min(_host(at.figures), at.host.zero_grad_pct or 0.0),
    ),
    Fix(
        "hole", Edit(long_host=0.5), Edit(long_host=0.0),
        "high: what the host does in the long times without a launch is done beside the step, by threads or processes with CPUs of "
        "their own; low: half of it",
        lambda at: at.hole.pct or 0.0,
    ),
    Fix(
        "allocation", Edit(no_allocation=True), Edit(no_allocation=True),
        "high: the allocator serves every request from memory that it has; low: half of that, because sizes that are new stay new",
        lambda at: at.figures.alloc_api_exposed_pct or 0.0, 0.5,
    ),
    Fix(
        "communication", Edit(beside=nodes.NCCL), Edit(beside=nodes.NCCL),
        "high: collectives run beside computation that does not need them; low: half of that",
        lambda at: at.figures.nccl_exposed_pct or 0.0, 0.5,
    ),
    Fix(
        "tensor-cores", Edit(speed=((nodes.PLAIN_MATMUL, 1 / TENSOR_SPEED[0]),)), Edit(speed=((nodes.PLAIN_MATMUL, 1 / TENSOR_SPEED[1]),)),
        f"matrix products become {TENSOR_SPEED[0]:g} to {TENSOR_SPEED[1]:g} times as fast on tensor cores",
        lambda at: at.work.plain_matmul_pct or 0.0,
    ),
    *(_of_kind(name, flag) for name, flag in nodes.OF_KINDS.items()),
)  # fmt: skip
GONE = {
    "input-bound": Edit(loader="gone"),
    "host-bound": Edit(short_host=0.1, long_host=0.0),
    "sync-bound": Edit(no_waits=_WAITS),
    "comm-bound": Edit(speed=((nodes.NCCL, 0.0),)),
    "copy-bound": Edit(no_waits=_COPYING, speed=((nodes.H2D, 0.0), (nodes.D2H, 0.0))),
}
"""By the verdict, what is taken away to see whether it bounds a program: it takes no time, and nothing waits for it."""
BY_NAME = {fix.name: fix for fix in FIXES}


class Replayer:
    """The graphs of a trace's processes, and replays of all of them."""

    def __init__(self, timeline: Timeline, window: Window | None, times: list[DeviceTime], launches: Launches) -> None:
        graphs = []
        if window is not None and times:
            part = part_of(window, timeline)
            gaps = union((gap.start, gap.end) for time in times for gap in time.gaps if gap.is_long and gap.kind == STARVED)
            graphs = [Builder(timeline, part, launches, process, gaps).build() for process in processes(times, timeline)]
        self.graphs = [graph for graph in graphs if graph.items]
        self._prepared = [Prepared(graph) for graph in self.graphs]

    def error_pct(self) -> float | None:
        """How far the unchanged replay is from the measured time, without the delays that nothing explains."""
        measured = max((graph.measured for graph in self.graphs), default=0)
        return 100 * abs(self.time(UNCHANGED, keep=False) - measured) / measured if measured else None

    def time(self, edit: Edit, *, keep: bool) -> int:
        """The slowest process's time."""
        return max((prepared.time(edit, keep_unexplained=keep) for prepared in self._prepared), default=0)

    def gain(self, edits: Iterable[tuple[Edit, Edit]]) -> tuple[float, float]:
        """(lowest, highest) gain in percent of these pairs of edits, each replayed with and without unexplained delays."""
        gains = []
        for keep in (True, False):
            base = self.time(UNCHANGED, keep=keep) or 1
            gains += [100 * (base - self.time(edit, keep=keep)) / base for pair in edits for edit in dict.fromkeys(pair)]
        return max(0.0, min(gains)), max(0.0, *gains)


def together(fixes: list[Fix]) -> tuple[Edit, Edit]:
    """Several fixes as one pair of edits."""

    def merged(edits: list[Edit]) -> Edit:
        return Edit(
            loader=next((edit.loader for edit in edits if edit.loader != "keep"), "keep"),
            no_waits=frozenset(kind for edit in edits for kind in edit.no_waits),
            short_host=min(edit.short_host for edit in edits),
            region=0 if any(edit.short_host < 1 and not edit.region for edit in edits) else max(edit.region for edit in edits),
            long_host=min(edit.long_host for edit in edits),
            no_allocation=any(edit.no_allocation for edit in edits),
            beside=_either(edit.beside for edit in edits),
            speed=tuple(pair for edit in edits for pair in edit.speed),
        )

    return merged([fix.cautious for fix in fixes]), merged([fix.full for fix in fixes])


def _either(flags: Iterable[int]) -> int:
    union = 0
    for flag in flags:
        union |= flag
    return union


def predict(replayer: Replayer, costs: Costs, wanted: Collection[str] = BY_NAME) -> Replay:
    """The gain of each of these fixes whose cause costs something."""
    error = replayer.error_pct()
    if error is None:
        return Replay(why="no launches in the window: nothing to replay")
    if error > MAX_ERROR_PCT:
        return Replay(error_pct=error, why=f"the unchanged replay is {error:.0f} % off: something that the file does not show decides here")
    predictions = []
    for fix in FIXES:
        cost = fix.cost(costs)
        if cost >= MIN_COST_PCT and fix.name in wanted:
            low, high = replayer.gain([(fix.cautious, fix.full)])
            predictions.append(Prediction(fix=fix.name, low=fix.sure * min(low, cost), high=min(high, cost), assumes=fix.assumes))
    return Replay(error_pct=error, usable=True, predictions=tuple(predictions))


def without(replayer: Replayer, verdicts: Iterable[str]) -> tuple[Held, ...]:
    """What a replay gains at most without each of the things that these verdicts blame."""
    return tuple(Held(verdict=word, gain=replayer.gain([(GONE[word], GONE[word])])[1]) for word in verdicts)


STRAGGLER, COMMUNICATION = "straggler", "communication"


def of_straggler(skew: Skew) -> Prediction | None:
    """What a rank gains the others that is no longer late; None where nobody knows."""
    if skew.lost_pct is None or skew.gain_pct is None:
        return None
    is_interrupted, most = skew.cause == INTERRUPTIONS, skew.lost_pct if skew.most_pct is None else skew.most_pct
    least = "others use the CPUs all the same" if is_interrupted else "the late rank is no later than the last of the others"
    return Prediction(
        fix=STRAGGLER, low=0.0 if is_interrupted else min(skew.gain_pct, most), high=most,
        assumes=f"low: {least}; high: the late rank is never waited for",
    )  # fmt: skip


HAND_OVER_MS = 1.1
"""What it costs the main thread to take a batch of two tensors over from a worker that has had time to make it, by PyTorch 2.13.

`benchmarks/trace_gain.py --hand-over` measures it. On two shared CPUs of an EPYC: sockets and shared memory took 1.1 ms of CPU time while
nothing else ran, and 1.5 to 1.7 ms (medians of four runs) at a load average of 4."""
CPU_WORDS = {
    "loader": "low: the computing threads use all CPUs, and workers gain nothing beside them; high: so many, with CPUs of their own, that "
    "no step waits",
    "hole": "what is done in the long times between operators is done elsewhere, or not at all; low: what most iterations have, without "
    "waiting for other threads, less a fifth for what a trace does not show; high: all of it",
    "compile": "low: half as many compilations; high: none within steps",
    "gc": "low: half as many collections of garbage; high: none within steps",
    "launch": "low: a quarter of the short times between operators goes; high: all (torch.compile, larger batches)",
    "readbacks": "low: half of what such loops take, since what they do with the values stays; high: nearly all (one tolist(), or "
    "operations on whole tensors)",
    "cast": "low: the copies and conversions go that the program itself asks for, less a fifth for what a trace does not show; high: those "
    "within other operators, too",
    "optimizer": "low: a tenth of the optimizer's time goes; high: nine tenths (foreach or fused instead of a loop)",
    "fallback": "low: kernels of oneDNN take 0.8 of the time; high: 0.3",
    "communication": "low: no CPU is free for collectives beside the step, or other ranks are late; high: they run beside computation, "
    "or not in each step",
}
MORE_WORKERS = "low: no CPU is free for more workers; high: so many, with CPUs of their own, that no step waits"


_SAME_TIME = ("cast", "optimizer", "fallback"), ("launch", "readbacks")
"""Gains of one group may be of the same time."""


class Batches(NamedTuple):
    """How a program on the CPU gets its data."""

    workers: str | None = None
    """`0` or `>0`; None: no loader was seen."""
    step_ms: float = 0.0
    """The window's time for each batch; 0: unknown."""


def predict_cpu(cpu: Cpu, hole: Hole, batches: Batches) -> Replay:
    """The gain on the CPU, where one thread does one thing after the other: what is removed is won.

    A file does not say how many CPUs are free: what a loader computes needs one wherever it runs.
    """
    pause = hole.recurring_pct or 0.0
    dispatch = 0.0 if hole.recurring_pct is None else max(0.0, cpu.python_recurring_pct - pause)
    parts = {
        "loader": _of_loader(cpu, batches),
        "hole": (MEASURED * (pause if hole.recurring_least_pct is None else hole.recurring_least_pct), pause),
        "compile": (cpu.compile_recurring_pct / 2, cpu.compile_recurring_pct),
        "gc": (cpu.gc_pct / 2, cpu.gc_pct),
        "launch": (dispatch / 4, dispatch),
        "readbacks": (0.5 * cpu.readback_pct, 0.95 * cpu.readback_pct),
        "cast": (MEASURED * min(cpu.own_copy_pct, cpu.copy_pct), cpu.copy_pct),
        "optimizer": (0.1 * cpu.optimizer_pct, 0.9 * cpu.optimizer_pct),
        "fallback": (0.2 * cpu.fallback_pct, 0.7 * cpu.fallback_pct),
        "communication": (0.0, cpu.communication_pct),
    }
    words = CPU_WORDS if batches.workers != ">0" else {**CPU_WORDS, "loader": MORE_WORKERS}
    predictions = [
        Prediction(fix=name, low=low, high=high, assumes=words[name]) for name, (low, high) in parts.items() if high >= MIN_COST_PCT
    ]
    return Replay(usable=True, predictions=tuple(predictions))


def together_cpu(gains: Mapping[str, Gain]) -> Prediction:
    """Several gains on the CPU at once, by fix: those of different times add up, those within operators may be of the same time."""
    low = _together({fix: gain.low or 0.0 for fix, gain in gains.items()})
    high = _together({fix: gain.high or 0.0 for fix, gain in gains.items()})
    return Prediction(fix="together", low=low, high=high, assumes=f"all of these at once: {', '.join(sorted(gains))}")


def _together(bounds: Mapping[str, float]) -> float:
    shared = {fix for fixes in _SAME_TIME for fix in fixes}
    apart = sum(bound for fix, bound in bounds.items() if fix not in shared)
    return min(100.0, apart + sum(max(bounds.get(fix, 0.0) for fix in fixes) for fixes in _SAME_TIME))


def _of_loader(cpu: Cpu, batches: Batches) -> tuple[float, float]:
    """What workers gain: nothing where no CPU is free for them, else what is the loader's, less what taking a batch over costs."""
    is_new = batches.workers != ">0" and batches.step_ms
    return 0.0, max(0.0, cpu.loader_pct - (100 * HAND_OVER_MS / batches.step_ms if is_new else 0.0))
