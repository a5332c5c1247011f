"""Which ranges of a host thread enclose a moment, and how much of a range is its own."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sysperf.model.finding import Place
from sysperf.startup import lazy
from sysperf.trace import frames
from sysperf.trace.timeline import ANNOTATION, OPERATOR, PYTHON, Timeline

_BEGINNING = lazy(r"(?:.*/)?torch/autograd/profiler\.py\(\d+\): _start_trace$")
"""The call that begins a recording. Functions that were open around it are recorded with the line of that call."""


class Around(NamedTuple):
    """What encloses a moment of a thread, each the innermost of its kind; empty where there is none."""

    operator: str = ""
    outer_operator: str = ""
    annotation: str = ""
    function: str = ""
    line: Place | None = None


class Threads:
    """The ranges of each thread in the order of their starts, the enclosing one first."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._by_thread = defaultdict[int, list[int]](list)
        self._sorted: set[int] = set()
        self._outer: dict[int, tuple[list[int], list[int], list[int], list[int]]] = {}
        for index, thread in enumerate(timeline.ranges.thread):
            self._by_thread[thread].append(index)
        self._open = frozenset(self._open_before())
        self._lines: dict[tuple[int, bool], Place | None] = {}
        """Lines by the number of a function's name; whether its own number counts."""
        self._callers: dict[int, Place | None] = {}
        """The same by the number of a call stack."""

    def ranges(self, thread: int) -> list[int]:
        indices = self._by_thread.get(thread, [])
        if thread not in self._sorted:
            rows = self._timeline.ranges
            indices.sort(key=rows.end.__getitem__, reverse=True)
            indices.sort(key=rows.start.__getitem__)
            self._sorted.add(thread)
        return indices

    def threads(self) -> Iterable[int]:
        return self._by_thread

    def _open_before(self) -> Iterator[int]:
        """The Python functions that were open when the recording began."""
        rows = self._timeline.ranges
        for beginning in self._timeline.ranges_named(_BEGINNING.match, python=True):
            start, end = rows.span(beginning)
            for index in self._by_thread[rows.thread[beginning]]:
                if rows.kind[index] == PYTHON and rows.start[index] <= start and rows.end[index] >= end:
                    yield index

    def around(self, thread: int, moments: Iterable[int]) -> Iterator[Around]:
        """What encloses each of these moments."""
        mine, starts, ends, outer = self._nested(thread)
        for moment in moments:
            stack, position = [], bisect_right(starts, moment) - 1
            while position >= 0:
                if ends[position] > moment:
                    stack.append(mine[position])
                position = outer[position]
            yield self._described(stack[::-1])

    def operator(self, thread: int, moment: int) -> int | None:
        """The innermost operator around a moment, by its row; None where there is none."""
        rows = self._timeline.ranges
        mine, starts, ends, outer = self._nested(thread)
        position = bisect_right(starts, moment) - 1
        while position >= 0 and not (ends[position] > moment and rows.kind[mine[position]] == OPERATOR):
            position = outer[position]
        return mine[position] if position >= 0 else None

    def _nested(self, thread: int) -> tuple[list[int], list[int], list[int], list[int]]:
        """The ranges of a thread, their starts and ends, and for each the place of the one that was open before it; -1: none."""
        if thread not in self._outer:
            mine, rows = self.ranges(thread), self._timeline.ranges
            starts, ends = [rows.start[index] for index in mine], [rows.end[index] for index in mine]
            outer, innermost = list[int](), -1
            for position, start in enumerate(starts):
                while innermost >= 0 and ends[innermost] <= start:
                    innermost = outer[innermost]
                outer.append(innermost)
                innermost = position
            self._outer[thread] = mine, starts, ends, outer
        return self._outer[thread]

    def _described(self, stack: list[int]) -> Around:
        rows, texts = self._timeline.ranges, self._timeline.names.texts
        operator = outer = annotation = function = ""
        called_by: Place | None = None
        lines = list[Place | None]()
        for index in stack:
            text = texts[rows.name[index]]
            if text.startswith("ProfilerStep"):
                pass  # says nothing
            elif rows.kind[index] == OPERATOR:
                outer, operator = outer or text, text
            elif rows.kind[index] == ANNOTATION:
                annotation = text
            elif rows.kind[index] == PYTHON:
                function = text
                lines.append(self._line(rows.name[index], index not in self._open))
            if rows.stack[index] >= 0:
                called_by = self._caller(rows.stack[index]) or called_by
        return Around(operator, outer, annotation, function, called_by or frames.innermost(lines))

    def _line(self, name: int, numbered: bool) -> Place | None:
        if (name, numbered) not in self._lines:
            self._lines[name, numbered] = frames.line(self._timeline.names.texts[name], numbered=numbered)
        return self._lines[name, numbered]

    def _caller(self, stack: int) -> Place | None:
        if stack not in self._callers:
            self._callers[stack] = frames.of_stack(self._timeline.stacks.texts[stack])
        return self._callers[stack]


def exclusive(timeline: Timeline, indices: list[int]) -> Iterator[tuple[int, int]]:
    """(range, its time without the ranges inside it) for the ranges of one thread, given in the order of their starts."""
    rows = timeline.ranges
    stack: list[list[int]] = []  # [range, end, own time]
    for index in indices:
        start, end = rows.start[index], rows.end[index]
        while stack and stack[-1][1] <= start:
            done = stack.pop()
            yield done[0], max(0, done[2])
        if stack:
            stack[-1][2] -= max(0, min(end, stack[-1][1]) - start)
        stack.append([index, end, end - start])
    while stack:
        done = stack.pop()
        yield done[0], max(0, done[2])
