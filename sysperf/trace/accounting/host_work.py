"""What the host's threads did, and how far they ran ahead of the device."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from sysperf.startup import lazy
from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.exposed import STARVED, DeviceTime, Gap
from sysperf.trace.accounting.host_time import COMPILED, HostTime
from sysperf.trace.accounting.passes import is_step
from sysperf.trace.accounting.window import LONG_GAP_NS, Window, optimizer_steps
from sysperf.trace.host_facts import HostWork
from sysperf.trace.intervals import Interval, Intervals, intersect, length, median, overlap, union
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import ANNOTATION, OPERATOR, PYTHON, Calls, Timeline

ALL_PCT = 95.0
"""A range that covers more is the program's main loop, and says nothing of where its time goes."""
SLOW_LAUNCH_NS = 10_000_000
"""A launch that the device waits for so long loads the kernel's code."""
OPERATOR_NS, PYTHON_NS, CALL_NS = 1_000, 400, 1_000
"""About what recording one event costs the host. An estimate, so what follows from it says "about"."""
_REGIONS = {
    "evaluation_pct": lazy(r"(?i)\b(?:eval(?:uate|uation)?|valid(?:ate|ation)?|visuali[sz]e)\b"),
    "checkpoint_pct": lazy(r"(?i)torch/serialization\.py\(\d+\): save|\b(?:save_checkpoint|checkpoint_save|torch\.save)\b"),
    "gil_wait_pct": lazy(r"Waiting for GIL"),
    "zero_grad_pct": lazy(r"Optimizer\.zero_grad#"),
}
_NO_COMPUTING = lazy(
    r"aten::(?:empty|to$|_to_copy|copy_|item|_local_scalar_dense|is_nonzero|_?pin_memory|is_pinned|resize_|set_)|c10d|nccl"
)
"""Operators in which a program also waits, or starts its device, without a call that is recorded."""
_TRAINING = lazy(r"autograd::engine::|\w+Backward\d*$|Optimizer\.step#")
_REGION = lazy(r"Torch-Compiled Region: (\d+)/")
_PARALLEL = ("Scatter", "Broadcast", "Gather")
_OWN = lazy(
    r"(?:ProfilerStep|Optimizer\.|enumerate\(|nccl:|gloo:|DistributedDataParallel|Torch-Compiled|## "
    r"|PyTorch Profiler|\[(?:pytorch|param)\||\[pl\])"
)


def describe(host: HostTime, times: list[DeviceTime]) -> HostWork:
    """The host's regions, and how far it runs ahead of the device."""
    timeline, window, main = host.timeline, host.window, host.main
    shares = {name: host.share(host.named(pattern)) for name, pattern in _REGIONS.items()} if timeline.ranges else dict.fromkeys(_REGIONS)
    region, region_pct = _largest_region(timeline, window)
    cost = _recording_cost(timeline, window, main)
    first = times[0] if times else None
    delay, depth, deepest = _queue(first) if first else (None, None, None)
    operator, operator_pct = _largest_operator(timeline, window, main)
    system_call, system_call_pct = _largest_system_call(timeline, window, main)
    start_up, start_up_pct = _start_up(first) if first else ("", None)
    worked, times_worked = _work_after_wait(first, len(host.iterations[1])) if first else (None, None)
    return HostWork(
        gc_pct=host.share(host.collecting) if timeline.ranges else None,
        evaluation_pct=shares["evaluation_pct"],
        checkpoint_pct=shares["checkpoint_pct"],
        gil_wait_pct=shares["gil_wait_pct"],
        optimizer_pct=host.share(host.optimizing) if timeline.ranges else None,
        zero_grad_pct=shares["zero_grad_pct"],
        launch_delay_us=delay,
        queue_depth=depth,
        queue_max=deepest,
        system_call=system_call,
        system_call_pct=system_call_pct,
        operator=operator,
        operator_pct=operator_pct,
        capture_pct=host.share(_capturing(timeline, window)) if len(timeline.calls) else None,
        start_up=start_up,
        start_up_pct=start_up_pct,
        launch_us=_launch_us(timeline, window),
        region=region,
        region_pct=region_pct,
        module_load_pct=host.share(first.calls.module) if first else None,
        recompiles=sum(host.settled <= start < window.end for start, _ in host.compilations),
        first_compile_pct=host.share(host.compiling) - host.share(host.compiling_again) if timeline.ranges else None,
        compiled_regions=_count(timeline, window, COMPILED),
        graph_breaks=_frames(timeline, window),
        data_parallel=_is_data_parallel(timeline, times),
        refill_pct=sum(_refill(time) for time in times) / len(times) if times else None,
        refill_short_pct=sum(_refill(time, LONG_GAP_NS) for time in times) / len(times) if times else None,
        work_after_wait_pct=worked,
        works_after_wait=times_worked,
        trains=bool(timeline.marks(lambda name: bool(_TRAINING.match(name)))) if timeline.ranges else None,
        runnable_wait_pct=host.share(window.covered(timeline.scheduling.get(main, [])))
        if timeline.scheduling and main is not None
        else None,
        overhead_pct=host.share(window.covered(timeline.overhead)) if timeline.overhead else None,
        inflation=1 / (1 - min(0.8, cost / window.duration)) if cost else None,
    )


def _count(timeline: Timeline, window: Window, pattern: re.Pattern[str]) -> int:
    starts, (low, high) = timeline.ranges.start, window.span
    return sum(low <= starts[index] < high for index in timeline.ranges_named(pattern.match, python=True))


def _frames(timeline: Timeline, window: Window) -> int | None:
    """How many frames of Python torch.compile compiled each for itself, of those that run; None where the file does not number them.

    Where a graph breaks, Python goes on in a new frame. An optimizer's is compiled for itself and is no break, nor is one frame that runs
    again, as for each layer.
    """
    rows, texts, (low, high) = timeline.ranges, timeline.names.texts, window.span
    optimizing = union(optimizer_steps(timeline))
    numbers = {
        number[1]
        for index in timeline.ranges_named(_REGION.match)
        if low <= rows.start[index] < high and not overlap(optimizing, (rows.start[index], rows.start[index] + 1))
        if (number := _REGION.match(texts[rows.name[index]]))
    }
    return len(numbers) or None


def _largest_region(timeline: Timeline, window: Window) -> tuple[str, float | None]:
    """The user's own range that covers most of the window. PyTorch's own do not count, nor do steps and what encloses all of it."""
    rows, texts, kinds = timeline.ranges, timeline.names.texts, timeline.ranges.kind
    best, share = "", 0.0
    for name, named in timeline.ranges_by_name.items():
        annotations = [index for index in named if kinds[index] == ANNOTATION]
        if annotations and not _OWN.match(texts[name]) and not is_step(texts[name]):
            covered = 100 * length(window.covered(rows.spans_of(annotations))) / window.duration
            if share < covered < ALL_PCT:
                best, share = texts[name], covered
    return best[:120], share if best else None


def _largest_operator(timeline: Timeline, window: Window, main: int | None) -> tuple[str, float | None]:
    """The operator of the launching thread that takes most without a call to a device in it, so that the CPU computes it, and its share."""
    if main is None or not len(timeline.calls):
        return "", None
    rows, calls, (low, high) = timeline.ranges, timeline.calls, window.span
    called = sorted(start for start, thread in zip(calls.start, calls.thread, strict=True) if thread == main)
    took, last = Counter[int](), low
    aside = ByName(timeline.names, lambda name: bool(_NO_COMPUTING.match(name)))
    ours = [index for index, kind in enumerate(rows.kind) if kind == OPERATOR and rows.thread[index] == main and rows.start[index] < high]
    for index in sorted(ours, key=lambda index: (rows.start[index], -rows.end[index])):
        start, end = rows.span(index)
        if start >= last and bisect_left(called, start) == bisect_left(called, end):
            took[rows.name[index]] += 0 if aside(rows.name[index]) else max(0, min(end, high) - max(start, low))
            last = end
    name, ns = max(took.items(), key=lambda item: item[1], default=(-1, 0))
    return (timeline.names.texts[name][:160], 100 * ns / window.duration) if ns else ("", 0.0)


def _largest_system_call(timeline: Timeline, window: Window, main: int | None) -> tuple[str, float | None]:
    """(the call of the operating system's libraries that a thread spends most of the window in, its share); "" and None: nobody knows."""
    rows, took = timeline.system_calls, Counter[int]()
    for start, end, name in clipped(rows, window.span, main) if main is not None else ():
        took[name] += end - start
    if not len(rows):
        return "", None
    name, ns = max(took.items(), key=lambda item: item[1], default=(-1, 0))
    return timeline.names.texts[name][:80] if ns else "", 100 * ns / window.duration


def clipped(rows: Calls, span: Interval, thread: int) -> Iterator[tuple[int, int, int]]:
    """(start, end, name) of a thread's calls, as far as they lie in this time."""
    low, high = span
    for start, end, name, where in zip(rows.start, rows.end, rows.name, rows.thread, strict=True):
        if where == thread and start < high and end > low:
            yield max(start, low), min(end, high), name


def _capturing(timeline: Timeline, window: Window) -> Intervals:
    """Return when graphs are captured and made ready, on any thread."""
    calls, texts = timeline.calls, timeline.names.texts
    asked = {"begin": by_name.begins_capture, "end": by_name.ends_capture, "ready": by_name.is_instantiation}
    kinds = {name: kind for name in set(calls.name) for kind, is_so in asked.items() if is_so(texts[name])}
    spans, begun = list[Interval](), dict[int, int]()
    for start, end, name, thread in sorted(zip(calls.start, calls.end, calls.name, calls.thread, strict=True)) if kinds else ():
        match kinds.get(name):
            case "begin":
                begun.setdefault(thread, start)
            case "end":
                spans.append((begun.pop(thread, window.start), end))
            case "ready":
                spans.append((start, end))
    spans += [(start, window.end) for start in begun.values()]
    return window.covered(spans)


def _start_up(time: DeviceTime) -> tuple[str, float]:
    """(the call of a start-up that the device waits for most, the share of the window in which it waits for any)."""
    calls, texts = time.timeline.calls, time.timeline.names.texts
    starting = ByName(time.timeline.names, by_name.is_start_up)
    launching = ByName(time.timeline.names, by_name.is_launch_call)
    lost, spans = Counter[int](), list[Interval]()
    for start, end, name in zip(calls.start, calls.end, calls.name, strict=True):
        if starting(name) or (end - start >= SLOW_LAUNCH_NS and launching(name)):
            ns = overlap(time.idle, (start, end))
            if starting(name) or ns >= SLOW_LAUNCH_NS:
                lost[name] += ns
                spans.append((start, end))
    name, ns = max(lost.items(), key=lambda item: item[1], default=(-1, 0))
    return texts[name][:80] if ns else "", 100 * length(intersect(time.idle, union(spans))) / time.window.duration


def _launch_us(timeline: Timeline, window: Window) -> float | None:
    """How long a call that launches a kernel takes, the median."""
    calls, launching, (low, high) = timeline.calls, ByName(timeline.names, by_name.is_launch_call), window.span
    took = [
        end - start for start, end, name in zip(calls.start, calls.end, calls.name, strict=True) if low <= start < high and launching(name)
    ]
    return median(took) / 1e3 if took else None


def _recording_cost(timeline: Timeline, window: Window, thread: int | None) -> float:
    """Nanoseconds that the profiler took to write down the events of the launching thread, by their number."""
    if thread is None or timeline.form != "kineto":
        return 0.0
    low, high = window.span
    rows, calls = timeline.ranges, timeline.calls
    prices = {OPERATOR: OPERATOR_NS, ANNOTATION: OPERATOR_NS, PYTHON: PYTHON_NS}
    kinds = Counter(
        kind for kind, start, on in zip(rows.kind, rows.start, rows.thread, strict=True) if on == thread and low <= start < high
    )
    if kinds[PYTHON]:
        kinds[PYTHON] += timeline.short_functions * kinds[PYTHON] // rows.kind.count(PYTHON)
    counted = sum(on == thread and low <= start < high for start, on in zip(calls.start, calls.thread, strict=True))
    return CALL_NS * counted + sum(prices[kind] * count for kind, count in kinds.items())


def _is_data_parallel(timeline: Timeline, times: list[DeviceTime]) -> bool | None:
    """nn.DataParallel scatters inputs, broadcasts parameters and gathers outputs, in one process with several devices."""
    texts = set(timeline.names.texts)
    if any("DataParallel.forward" in text and "Distributed" not in text for text in texts) or "data_parallel.py" in " ".join(
        text for text in texts if "data_parallel.py(" in text
    ):
        return True
    named = all(any(text == word or text.startswith(f"{word}Backward") for text in texts) for word in _PARALLEL)
    return named and len(times) > 1 if timeline.ranges else None


def _refill(time: DeviceTime, below_ns: float = math.inf) -> float:
    """Starved idle from a blocking call's return to the next launch's arrival, in percent of the window; in gaps below this length."""
    return time.share([(back, gap.end) for gap, back in _refills(time) if gap.end - gap.start < below_ns])


def _refills(time: DeviceTime) -> Iterator[tuple[Gap, int]]:
    """(a starved gap, when the last blocking call in it returned); the call that ends the gap, maybe a copy, is none of them."""
    ends = sorted(end for _, end in (*time.calls.sync, *time.calls.copy))
    for gap in time.gaps:
        launched = time.launches.at(gap.ended_by) if gap.kind == STARVED else None
        position = bisect_right(ends, launched) - 1 if launched is not None else -1
        if position >= 0 and ends[position] > gap.start:
            yield gap, ends[position]


def _work_after_wait(time: DeviceTime, iterations: int) -> tuple[float, float | None]:
    """(percent of the window that the host works after a blocking call, in long gaps and outside the loader; how often in an iteration)."""
    spans = [(back, gap.end) for gap, back in _refills(time) if gap.is_long]
    ours = [part for span in spans if length(part := intersect(time.host_exposed, [span])) >= LONG_GAP_NS]
    return time.share(union(itertools.chain(*ours))), len(ours) / iterations if iterations else None


def _queue(time: DeviceTime) -> tuple[float | None, float | None, int | None]:
    """(median delay of a launch in µs, median and largest number of operations that wait)."""
    rows, (low, high) = time.timeline.operations, time.window.span
    pairs = [(at, rows.start[index]) for index in time.operations if (at := time.launches.times[index]) is not None]
    inside = [(at, start) for at, start in pairs if low <= at < high]
    if not inside:
        return None, None, None
    starts = [start for _, start in pairs]  # in order, as the operations are
    launched = sorted([at for at, _ in pairs])
    waiting = [bisect_right(launched, at) - 1 - bisect_right(starts, at) for at, _ in inside]
    depths = [max(0, depth) for depth in waiting]
    return median([start - at for at, start in inside]) / 1e3, float(median(depths)), max(depths)
