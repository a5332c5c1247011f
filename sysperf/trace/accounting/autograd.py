"""Autograd's engine: its ranges lie around operators, and what it calls beside them are hooks of the program."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

from sysperf.startup import lazy
from sysperf.trace.accounting.exposed import LONG_GAP_NS
from sysperf.trace.accounting.window import Window
from sysperf.trace.intervals import Intervals, clip, subtract, union
from sysperf.trace.timeline import OPERATOR, Timeline

_AROUND = lazy(r"autograd::engine::evaluate_function: |torch::autograd::AccumulateGrad$")


class Engine:
    """The ranges of autograd's engine on the CPU."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    @cached_property
    def around(self) -> frozenset[int]:
        """Return those that have operators in them; one without is taken for an operator, as what it did is not in the file."""
        rows = self._timeline.ranges
        named = {index for index in self._timeline.ranges_named(_AROUND.match) if rows.kind[index] == OPERATOR}
        others = (index for index, kind in enumerate(rows.kind) if kind == OPERATOR and index not in named) if named else ()
        starts = sorted(map(rows.start.__getitem__, others))
        return frozenset(index for index in named if bisect_left(starts, rows.start[index]) < bisect_left(starts, rows.end[index]))

    def pauses(self, window: Window) -> Intervals:
        """Long times in them without an operator: hooks do something else than computing there, or the thread has no CPU."""
        rows, (low, high) = self._timeline.ranges, window.span
        if not any(rows.end[index] - rows.start[index] >= LONG_GAP_NS for index in self.around):
            return []
        inner = (
            (start, end)
            for index, (start, end, kind) in enumerate(zip(rows.start, rows.end, rows.kind, strict=True))
            if kind == OPERATOR and start < high and end > low and index not in self.around
        )
        idle = subtract(union(clip(rows.spans_of(self.around), window.span)), union(inner))
        return [(start, end) for start, end in idle if end - start >= LONG_GAP_NS]
