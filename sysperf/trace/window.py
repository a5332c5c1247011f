"""Which part of a trace is judged: its steady steps, else its loader's iterations, else all that the device did."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import NamedTuple

from sysperf.startup import lazy
from sysperf.trace.intervals import Interval
from sysperf.trace.timeline import Timeline

MIN_LOADER_CALLS = 4
MIN_STEPS_TO_DROP_ONE = 3
STEP_MARKS = "ProfilerStep", "Optimizer.step#", "enumerate(DataLoader)#"
"""How the names of ranges start of which a program has one in each step."""
_BACKWARD = lazy(r"autograd::engine::|\w+Backward\d*$")
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

    @property
    def is_extent(self) -> bool:
        """Whether it is all that the file has, start-up included."""
        return self.rule.endswith("extent")


class LoaderCalls(NamedTuple):
    """The times that the program asked its loader for a batch."""

    spans: list[Interval]
    worker_class: str
    threads: tuple[int, ...] = ()


def steps(timeline: Timeline) -> list[Interval]:
    """The profiler's own steps on the host, in order."""
    return sorted(timeline.ranges.spans_of(timeline.ranges_named(lambda name: name.startswith("ProfilerStep"))))


def loader_calls(timeline: Timeline) -> LoaderCalls:
    """The ranges in which PyTorch's DataLoader made or waited for a batch, in order."""
    rows, texts = timeline.ranges, timeline.names.texts
    chosen = timeline.ranges_named(_LOADER.match)
    classes = {loader[1] for name in {rows.name[index] for index in chosen} if (loader := _LOADER.match(texts[name]))}
    threads = tuple(sorted({rows.thread[index] for index in chosen}))
    return LoaderCalls(sorted(rows.spans_of(chosen)), classes.pop() if len(classes) == 1 else "", threads)


def optimizer_steps(timeline: Timeline) -> list[Interval]:
    """The times that optimizers themselves take, in order: of a step with a closure, what follows the closure's last backward pass."""
    spans = sorted(timeline.ranges.spans_of(timeline.ranges_named(lambda name: name.startswith("Optimizer.step#"))))
    done = sorted(timeline.ranges.end[index] for index in timeline.ranges_named(_BACKWARD.match)) if spans else []
    latest = [done[place - 1] if (place := bisect_right(done, end)) else start for start, end in spans]
    return [(max(start, backward), end) for (start, end), backward in zip(spans, latest, strict=True)]


def primary(timeline: Timeline) -> Window | None:
    """The window that figures are about; None where there is nothing with a duration."""
    marked, loads = _kept(steps(timeline), timeline.cut), _kept(loader_calls(timeline).spans, timeline.cut)
    return _of_steps(marked) or _of_loader(loads) or extent(timeline)


def _kept(steps_in_order: list[Interval], cut: int | None) -> list[Interval]:
    """Those of which the timeline has all events. The device may do the last one's work after the cut."""
    return steps_in_order if cut is None else [step for step in steps_in_order if step[1] <= cut][:-1]


def _of_steps(iterations: list[Interval]) -> Window | None:
    if not iterations:
        return None
    kept = iterations[1:] if len(iterations) >= MIN_STEPS_TO_DROP_ONE else iterations
    start, end = kept[0][0], max(end for _, end in kept)
    return Window("steady", start, end, len(kept), tuple(kept)) if end > start else None


def _of_loader(spans: list[Interval]) -> Window | None:
    if len(spans) < MIN_LOADER_CALLS or spans[-1][0] <= spans[1][0]:
        return None
    starts = [start for start, _ in spans[1:]]
    return Window("loader", starts[0], starts[-1], len(spans) - 2, tuple(itertools.pairwise(starts)))


def extent(timeline: Timeline) -> Window | None:
    """From the first to the last operation of the device; of the host where no device did anything."""
    for rule, rows in (("gpu_extent", timeline.operations), ("accelerator_extent", timeline.accelerator), ("host_extent", timeline.ranges)):
        spans = [(start, end) for start, end in rows.spans() if end >= start]
        if spans:
            start, end = min(start for start, _ in spans), max(end for _, end in spans)
            return Window(rule, start, end) if end > start else None
    return None


def all_steps(timeline: Timeline) -> Window | None:
    """The window of all steps, the first included."""
    whole = _kept(steps(timeline), timeline.cut)
    return Window("all_steps", whole[0][0], max(end for _, end in whole), len(whole), tuple(whole)) if whole else None
