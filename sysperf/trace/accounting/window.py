"""Which part of a trace is judged: its steady steps, else its loader's iterations, else all that the device did."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sysperf.startup import lazy
from sysperf.trace import kernels as by_name
from sysperf.trace.accounting import losses
from sysperf.trace.intervals import Interval, Intervals, clip, median, overlap, union
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import GRAPH, KERNEL, OPERATOR, Timeline

DEVICE_STEPS = "device_steps"
GPU_EXTENT = "gpu_extent"
LONG_GAP_NS = 1_000_000
MIN_ITERATIONS = 2
"""From one call of the loader to the next, without the first."""
MIN_STEPS_TO_DROP_ONE = 3
STEP_MARKS = "ProfilerStep", "Optimizer.step#", "enumerate(DataLoader)#"
"""How the names of ranges start of which a program has one in each step."""
MIN_TAIL = 0.05
"""Of a median step; a shorter time behind the last thing that a program does is left in its last step."""
MAX_COMPARED = 8
_ENDING = lazy(r"torch/(?:autograd/)?profiler|_disable_profiler|PyTorch Profiler|(?i:synchronize)")
"""What stops a recording: its own functions, and waiting for the devices."""
BACKWARD = lazy(r"autograd::engine::|\w+Backward\d*$")
_NUMBER = lazy(r"#(\d+)$")
_LOADER = lazy(r"enumerate\(DataLoader\)#(\w+)\.__next__")


class Window(NamedTuple):
    """A time, and the steps that it holds."""

    rule: str
    start: int
    end: int
    iterations: int | None = None
    """How many steps it holds; None: nobody knows, and figures per step are unknown."""
    steps: tuple[Interval, ...] = ()

    @property
    def span(self) -> Interval:
        return self.start, self.end

    @property
    def duration(self) -> int:
        return self.end - self.start

    def covered(self, spans: Iterable[Interval]) -> Intervals:
        """The time of the window that any of these spans covers."""
        return union(clip(spans, self.span))

    @property
    def is_extent(self) -> bool:
        """Whether it is all that the file has, start-up included."""
        return self.rule.endswith("extent")

    @property
    def is_of_device(self) -> bool:
        """Whether its steps are those of the devices: operations belong to it that run in it, whenever they were launched."""
        return self.rule == DEVICE_STEPS


class LoaderCalls(NamedTuple):
    """The times that the program asked its loader for a batch."""

    spans: list[Interval]
    worker_class: str
    threads: tuple[int, ...] = ()


def steps(timeline: Timeline) -> list[Interval]:
    """The profiler's own steps on the host, in order."""
    return sorted(timeline.ranges.spans_of(timeline.marks(lambda name: name.startswith("ProfilerStep"))))


def _recorded_steps(timeline: Timeline) -> list[Interval]:
    """Return the most of these steps between which the profiler did not stop, of equally many the later ones.

    Where it stopped, their numbers leap, and nothing of the time in between is in the file.
    """
    rows, texts = timeline.ranges, timeline.names.texts
    marked = sorted(timeline.marks(lambda name: name.startswith("ProfilerStep")), key=rows.span)
    usual = median(rows.end[index] - rows.start[index] for index in marked) if marked else 0.0
    runs, last = [list[Interval]()], -1
    for index in marked:
        span, numbered = rows.span(index), _NUMBER.search(texts[rows.name[index]])
        number = int(numbered[1]) if numbered else last
        if runs[-1] and number not in (last, last + 1) and span[0] - runs[-1][-1][1] > usual:
            runs.append([])
        runs[-1].append(span)
        last = number
    return max(reversed(runs), key=len)


def is_first_step(timeline: Timeline) -> bool:
    """Whether the profiler recorded a program's first step, or its own: it counts them from 0."""
    return bool(timeline.marks(lambda name: name == "ProfilerStep#0"))


def loader_calls(timeline: Timeline, processes: Collection[int] = ()) -> LoaderCalls:
    """The ranges in which PyTorch's DataLoader made or waited for a batch, in order; of these processes, as `Timeline.marks`."""
    rows, texts = timeline.ranges, timeline.names.texts
    chosen = timeline.marks(is_loader, processes)
    classes = {loader[1] for name in {rows.name[index] for index in chosen} if (loader := _LOADER.match(texts[name]))}
    threads = tuple(sorted({rows.thread[index] for index in chosen}))
    return LoaderCalls(sorted(rows.spans_of(chosen)), classes.pop() if len(classes) == 1 else "", threads)


def is_loader(name: str) -> bool:
    """Whether a range is one in which the DataLoader makes or waits for a batch."""
    return bool(_LOADER.match(name))


def optimizer_steps(timeline: Timeline, processes: Collection[int] = ()) -> list[Interval]:
    """The times that optimizers themselves take, in order: of a step with a closure, what follows the closure's last backward pass."""
    spans = sorted(timeline.ranges.spans_of(timeline.marks(lambda name: name.startswith("Optimizer.step#"), processes)))
    done = sorted(timeline.ranges.end[index] for index in timeline.marks(BACKWARD.match, processes)) if spans else []
    latest = [done[place - 1] if (place := bisect_right(done, end)) else start for start, end in spans]
    return [(max(start, backward), end) for (start, end), backward in zip(spans, latest, strict=True)]


def primary(timeline: Timeline) -> Window | None:
    """The window that figures are about; None where there is nothing with a duration."""
    marked, loads = (_kept(spans, timeline.cut) for spans in (_recorded_steps(timeline), loader_calls(timeline).spans))
    window = _of_steps(_without_first(losses.whole(timeline, marked), marked))
    asked = list(itertools.pairwise(start for start, _ in loads))
    if window is not None:  # behind other steps there is no end of the recording, whether or not the file has their operations
        return window if marked[-1][0] >= window.end else _without_tail(window, timeline)
    return _of_loader(losses.whole(timeline, asked[1:])) or extent(timeline)


def on_device(window: Window, timeline: Timeline, launched: Sequence[int | None]) -> Window:
    """The window of the same steps as the devices do them, where the host is far ahead; else the window as it is."""
    spans = device_steps(window.steps, timeline, launched)
    return Window(DEVICE_STEPS, spans[0][0], spans[-1][1], len(spans), tuple(spans)) if spans else window


def device_steps(spans: Sequence[Interval], timeline: Timeline, launched: Sequence[int | None]) -> list[Interval]:
    """Return when devices do what the host launches in these steps; empty where they do most of it while the steps last.

    A host that waits for nothing is done with all its steps while the device is at the first one: then the host's marks
    say nothing of the device's time. A step of the devices lasts from its first operation to that of the next one, on the stream that
    computes most: copies on a stream of their own run when the host asks for them. A single step, of which there is no next one, lasts
    from the host's start until the devices are done.
    """
    if not spans:
        return []
    rows, (low, high) = timeline.operations, (spans[0][0], spans[-1][1])
    if not any(at is not None and low <= at < high < end for at, end in zip(launched, rows.end, strict=True)):
        return []
    starts, leading = [start for start, _ in spans], _leading_stream(timeline)
    first, last, behind, within = dict[int, int](), high, 0, 0
    for at, start, end, stream in zip(launched, rows.start, rows.end, zip(rows.device, rows.stream, strict=True), strict=True):
        if at is not None and low <= at < high and end >= start:
            last = max(last, end)
            if leading not in (None, stream):
                continue
            place = bisect_right(starts, at) - 1
            first[place] = min(start, first.get(place, start))
            behind += end - max(start, min(end, high))
            within += min(end, high) - min(start, high)
    begun = [first[place] for place in sorted(first)]
    if behind <= within or begun != sorted(begun):
        return []
    return list(itertools.pairwise(begun)) or [(low, last)]


def _leading_stream(timeline: Timeline) -> tuple[int, int] | None:
    """The device and stream whose kernels compute most; None where no kernel computes."""
    rows, took = timeline.operations, Counter[tuple[int, int]]()
    exchanging = ByName(timeline.names, by_name.is_collective, lower=True)
    for start, end, kind, name, device, stream in zip(rows.start, rows.end, rows.kind, rows.name, rows.device, rows.stream, strict=True):
        if kind in (KERNEL, GRAPH) and end > start and not exchanging(name):
            took[device, stream] += end - start
    return max(took, key=took.__getitem__, default=None)


def _kept(steps_in_order: list[Interval], cut: int | None) -> list[Interval]:
    """Return those of which the timeline has all events. The device may do the last one's work after the cut."""
    return steps_in_order if cut is None else [step for step in steps_in_order if step[1] <= cut][:-1]


def _without_first(whole: list[Interval], marked: list[Interval]) -> list[Interval]:
    """Return these without the first of all marked ones where there are enough of those: it is seldom like the others."""
    return whole[1:] if len(marked) >= MIN_STEPS_TO_DROP_ONE and whole[:1] == marked[:1] else whole


def _of_steps(kept: list[Interval]) -> Window | None:
    if not kept:
        return None
    start, end = kept[0][0], max(end for _, end in kept)
    return Window("steady", start, end, len(kept), tuple(kept)) if end > start else None


def _without_tail(window: Window, timeline: Timeline) -> Window:
    """The window without time at its end in which nothing happens but a last synchronisation, and that other steps do not have.

    There the profiler stops. On a CPU, a step may end with Python that no event shows.
    """
    *others, (start, end) = window.steps
    active = _last_activity(timeline, end) if timeline.operations else end
    least = MIN_TAIL * median(after - before for before, after in window.steps)
    if not start < active < end - least:
        return window
    usual = [max(0, stop - _last_activity(timeline, stop)) for _, stop in others[-MAX_COMPARED:]]
    if usual and end - active < least + 2 * median(usual):
        return window
    return window._replace(end=max([active, *(last for _, last in others)]), steps=(*others, (start, active)))


def _last_activity(timeline: Timeline, end: int) -> int:
    """Return when the last thing ends that begins before this time: work of a device, a call that does not wait, an operator, or what
    begins behind these. A range or function around all of them says nothing.
    """
    operations, calls, ranges = timeline.operations, timeline.calls, timeline.ranges
    waits = ByName(timeline.names, lambda name: by_name.is_sync_call(name) or by_name.is_call_without_effect(name))
    worked = [stop for start, stop in operations.spans() if start < end]
    called = [stop for start, stop, name in zip(calls.start, calls.end, calls.name, strict=True) if start < end and not waits(name)]
    rows = list(zip(ranges.start, ranges.end, ranges.kind, ranges.name, strict=True))
    computed = [stop for start, stop, kind, _ in rows if kind == OPERATOR and start < end]
    latest = max([*worked, *called, *computed], default=end)
    ending = ByName(timeline.names, lambda name: bool(_ENDING.search(name)))
    begun = [(start, stop, name) for start, stop, _, name in rows if latest < start < end]
    aside = union((start, stop) for start, stop, name in begun if ending(name))
    return max([latest, *(stop for start, stop, _ in begun if not overlap(aside, (start, start + 1)))])


def _of_loader(iterations: list[Interval]) -> Window | None:
    if len(iterations) < MIN_ITERATIONS or iterations[-1][1] <= iterations[0][0]:
        return None
    return Window("loader", iterations[0][0], iterations[-1][1], len(iterations), tuple(iterations))


def extent(timeline: Timeline) -> Window | None:
    """Return the time from the first to the last operation of the device; of the host where no device did anything. A cut ends it."""
    kinds = (
        (GPU_EXTENT, timeline.operations),
        ("accelerator_extent", timeline.accelerator),
        ("host_extent", timeline.ranges),
        ("host_extent", timeline.system_calls),
    )
    for rule, rows in kinds:
        spans = [(start, end) for start, end in rows.spans() if end >= start]
        if spans:
            start, end = min(start for start, _ in spans), max(end for _, end in spans)
            end = end if timeline.cut is None else min(end, timeline.cut)
            return Window(rule, start, end) if end > start else None
    return None


def all_steps(timeline: Timeline) -> Window | None:
    """The window of all steps, the first included."""
    whole = _kept(_recorded_steps(timeline), timeline.cut)
    return Window("all_steps", whole[0][0], max(end for _, end in whole), len(whole), tuple(whole)) if whole else None


def launching_thread(timeline: Timeline, window: Window) -> int | None:
    """The thread that the profiler's steps are on, else the one that has most to do in the window."""
    rows = timeline.ranges
    low, high = window.span
    marked = timeline.ranges_named(lambda name: name.startswith("ProfilerStep"), python=True)
    if marked:
        return Counter(rows.thread[index] for index in sorted(marked)).most_common(1)[0][0]
    busy = Counter(timeline.calls.thread[i] for i, start in enumerate(timeline.calls.start) if low <= start < high)
    if not busy:
        busy = Counter(rows.thread[i] for i, start in enumerate(rows.start) if low <= start < high and rows.kind[i] == OPERATOR)
    if not busy:
        main = {number for number, (process, thread) in enumerate(timeline.threads) if process == thread}
        seen = zip((*timeline.system_calls.start, *rows.start), (*timeline.system_calls.thread, *rows.thread), strict=True)
        busy = Counter(thread for start, thread in seen if low <= start < high and thread in main)
    return busy.most_common(1)[0][0] if busy else None
