"""The time of the host's threads within a window, as sets of intervals."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cached_property

from sysperf.startup import lazy
from sysperf.trace.accounting.iterations import find
from sysperf.trace.accounting.window import LONG_GAP_NS, Window, launching_thread, loader_calls, optimizer_steps
from sysperf.trace.intervals import Interval, Intervals, clip, length, subtract, union
from sysperf.trace.timeline import OPERATOR, Timeline

COLLECTION = lazy(r"(?i)(?:^|[^a-z0-9])gc(?:[^a-z0-9]|$)|garbage|^<built-in function collect>$")
_COLLECTIVE = lazy(r"(?:gloo|nccl|mpi|ccl|ucc):")
COMMUNICATION = lazy(r"(?:gloo|nccl|mpi|ccl|ucc):|c10d::")
COMPILED = lazy(r"Torch-Compiled Region|CompiledFunction$|## Call CompiledFxGraph")
_COMPILING = lazy(
    r"(?:_compile(?:\.compile_inner)?|CompileFxGraph|compile_fx|dynamo_timed|OutputGraph\.call_user_compiler|entire_frame_compile) ?"
)
_FUNCTION = lazy(r"\.py\(\d+\): ")
_FILE = lazy(r"^(?!torch/).*\.py\(\d+\): ")
_ENGINE = lazy(r"autograd::engine::evaluate_function: |torch::autograd::AccumulateGrad$")


class HostTime:
    """The time of the host within a window, as sets of intervals. Each is computed once, when it is first asked for."""

    def __init__(self, timeline: Timeline, window: Window) -> None:
        self.timeline, self.window = timeline, window

    def share(self, part: Intervals) -> float:
        """The share of the window in percent."""
        return 100 * length(part) / self.window.duration

    def named(self, pattern: re.Pattern[str]) -> Intervals:
        """Return when ranges say in words that the host does this; the name of compiled code has a hash, in which any letters may stand,
        and of a function in a file the file's name says nothing of what it does.
        """
        ranges = self.timeline.ranges_named(lambda name: not COMPILED.match(name) and pattern.search(_FILE.sub("", name)), python=True)
        return self.window.covered(self.timeline.ranges.spans_of(ranges))

    @cached_property
    def main(self) -> int | None:
        """The thread that launches what devices do, or computes."""
        return launching_thread(self.timeline, self.window)

    @cached_property
    def iterations(self) -> tuple[str, list[Interval]]:
        """(what was used to find them, the iterations of the program)."""
        return find(self.timeline, self.window)

    @cached_property
    def loader(self) -> Intervals:
        """Return when the program waits for a batch, or makes one."""
        return self.window.covered(loader_calls(self.timeline).spans)

    @cached_property
    def optimizing(self) -> Intervals:
        """Return when optimizers work."""
        return self.window.covered(optimizer_steps(self.timeline))

    @cached_property
    def compilations(self) -> Intervals:
        """Return when torch.compile compiled, in the whole file; a compilation consists of ranges within each other."""
        return union(self.timeline.ranges.spans_of(self.timeline.ranges_named(_COMPILING.match, python=True)))

    @cached_property
    def compiling(self) -> Intervals:
        """The same within the window, outside the loader."""
        return subtract(clip(self.compilations, self.window.span), self.loader)

    @cached_property
    def compiling_again(self) -> Intervals:
        """The same behind the start of a program."""
        return clip(self.compiling, (self.settled, self.window.end))

    @cached_property
    def settled(self) -> int:
        """Return when a start is over that the file has: what is compiled first, until the next iteration begins."""
        if not self.window.is_extent or not self.compilations:
            return self.window.start
        iterations = self.iterations[1]
        if not iterations:
            return self.window.start
        (start, end), (first, _) = iterations[0], self.compilations[0]
        return start if first < start else end

    @cached_property
    def collecting(self) -> Intervals:
        """Return when Python collects garbage, as far as ranges or stacks show it: of functions, the collector's own.

        One that has it in its name (`step_and_gc`) does more than that.
        """
        ranges = self.timeline.ranges_named(
            lambda name: not COMPILED.match(name) and not _FUNCTION.search(name) and COLLECTION.search(name), python=True
        )
        return self.window.covered(self.timeline.ranges.spans_of(ranges))

    @cached_property
    def operators(self) -> list[int]:
        """The operators of which a part is in the window, by index."""
        rows, (low, high) = self.timeline.ranges, self.window.span
        return [i for i, kind in enumerate(rows.kind) if kind == OPERATOR and rows.start[i] < high and rows.end[i] > low]

    @cached_property
    def within_operators(self) -> Intervals:
        """Return when an operator runs on any thread, or a long pause is within its range."""
        return self.window.covered(self.timeline.ranges.spans_of(self.operators))

    @cached_property
    def running(self) -> Intervals:
        """Return when an operator runs on any thread."""
        return subtract(self.within_operators, self.engine_pauses)

    @cached_property
    def computing(self) -> Intervals:
        """The same outside the loader and the compiler."""
        return subtract(subtract(self.running, self.loader), self.compiling)

    @cached_property
    def engine(self) -> frozenset[int]:
        """The ranges of autograd's engine, by index, that have operators in them.

        One without is taken for an operator, as what it did is not in the file.
        """
        rows = self.timeline.ranges
        named = {index for index in self.timeline.ranges_named(_ENGINE.match) if rows.kind[index] == OPERATOR}
        others = (index for index, kind in enumerate(rows.kind) if kind == OPERATOR and index not in named) if named else ()
        starts = sorted(map(rows.start.__getitem__, others))
        return frozenset(index for index in named if bisect_left(starts, rows.start[index]) < bisect_left(starts, rows.end[index]))

    @cached_property
    def engine_pauses(self) -> Intervals:
        """Long times in them without an operator: hooks do something else than computing there, or the thread has no CPU."""
        rows = self.timeline.ranges
        if not any(rows.end[index] - rows.start[index] >= LONG_GAP_NS for index in self.engine):
            return []
        inner = union(rows.span(index) for index in self.operators if index not in self.engine)
        idle = subtract(self.window.covered(rows.spans_of(self.engine)), inner)
        return [(start, end) for start, end in idle if end - start >= LONG_GAP_NS]

    @cached_property
    def collectives(self) -> list[int]:
        """The collectives that begin in the window, by index, in order; their library runs them on a thread of its own."""
        starts, (low, high) = self.timeline.ranges.start, self.window.span
        chosen = (index for index in self.timeline.ranges_named(_COLLECTIVE.match) if low <= starts[index] < high)
        return sorted(chosen, key=starts.__getitem__)

    @cached_property
    def communicating(self) -> Intervals:
        """Return when ranks exchange data, and the program neither computes nor loads beside it."""
        talking = self.window.covered(self.timeline.ranges.spans_of(self.timeline.ranges_named(COMMUNICATION.match)))
        return subtract(talking, union([*self.within_operators, *self.loader])) if talking else []
