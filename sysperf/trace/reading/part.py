"""The first part of a large trace's time, which is all that is kept: many steady steps say as much as all of them.

Memory and time of the analysis then do not grow with the file. Kineto writes events by thread and not by time, so a sample of
the file's times determines where to cut before it is read. What still is too much goes while it is read: when there are too many rows,
the later half of the time goes, and what starts later is not kept from then on. The profiler's own steps are kept, because their number
and lengths are figures, unless there are more of them than any profile has. Of Python functions, which stacks record by the hundred for
each operator, the shorter half goes instead: what matters of them is which enclose long times.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sysperf.startup import lazy
from sysperf.trace.accounting.window import STEP_MARKS
from sysperf.trace.timeline import PYTHON, Spans, Timeline

MAX_ROWS = 100_000
WHOLE_BYTES, WHOLE_ROWS = 100_000_000, 400_000
"""Files with no more text than this are examined whole, unless they have many more rows than such a text usually has."""
MAX_UNMARKED_ROWS = 200_000
"""Where the part has too few steps, more rows are kept, and so many at the most."""
SAMPLED_ROWS = 60_000
"""About as many rows start before a cut that a sample tells."""
MAX_FUNCTIONS = 200_000
"""So many rows more may be Python functions, of a file that is not examined whole."""
READ_FUNCTIONS = 600_000
"""So many are read where nobody marked steps."""
SAMPLES, SAMPLE_BYTES = 512, 1 << 12
MIN_SAMPLED = 20
MAX_STEPS = MAX_ROWS // 4
"""More are no steps of a profile, and are left out as other rows are."""
MIN_STEPS = 5
"""The first is warm-up, and the last may have operations that were not kept."""
STEP = "ProfilerStep"
_NO_LIMIT = float("inf")
_TIMES = lazy(rb'"ts"\s*:\s*(\d{1,18})\b')
_EVENTS = lazy(rb'"ph"\s*:\s*"X"')
_FUNCTIONS = lazy(rb'"cat"\s*:\s*"python_function"')


class Cut(NamedTuple):
    """The time until which a large file is needed."""

    at: int
    """ns."""
    latest_us: int = 0
    """About the last time in the file; 0: nobody knows."""
    share: float = 0.0
    """About how much of the file is earlier; 0: nobody knows."""


def sampled_cut(file: int, size: int, *, has_marks: bool = True) -> Cut | None:
    """After which time a large file need not be read, by a sample of the times in it; None: all of it is needed.

    Without marks of steps, nearly as much of it is needed as is kept.
    """
    if size <= WHOLE_BYTES:
        return None
    samples = [os.pread(file, SAMPLE_BYTES, place * (size - SAMPLE_BYTES) // (SAMPLES - 1)) for place in range(SAMPLES)]
    times = sorted(int(match[1]) for sample in samples if (match := _TIMES.search(sample)))
    counts = (sum(len(pattern.findall(sample)) for sample in samples) for pattern in (_EVENTS, _FUNCTIONS))
    rows, functions = (count * size // (SAMPLES * SAMPLE_BYTES) for count in counts)
    wanted, enough = SAMPLED_ROWS, 2 * SAMPLED_ROWS
    if not has_marks:
        bounds = (MAX_UNMARKED_ROWS, rows - functions), (READ_FUNCTIONS, functions)
        enough, rows = min(bounds, key=lambda bound: bound[0] / max(1, bound[1]))
        wanted = enough * 4 // 5
    if len(times) < MIN_SAMPLED or rows <= enough:
        return None
    place, part = divmod((len(times) - 1) * wanted, rows)  # between two of them, as where a file has thousands of steps
    at = times[place] * 1_000 + (times[place + 1] - times[place]) * 1_000 * part // rows
    return Cut(at, times[-1], wanted / rows)


def named(timeline: Timeline, start: str) -> set[int]:
    """The numbers of the names that start so."""
    return {number for number, text in enumerate(timeline.names.texts) if text.startswith(start)}


def better_cut(timeline: Timeline) -> Cut | None:
    """Return where to cut when too few steps were before the cut: behind enough of those that the profiler marked; None: nobody knows."""
    ends = _step_ends(timeline)
    return Cut(ends[MIN_STEPS + 1]) if len(ends) > MIN_STEPS + 1 else None


def is_all_needed(timeline: Timeline) -> bool:
    """Whether the profiler marked steps, and so few that none can be left out."""
    return 1 < len(_step_ends(timeline)) <= MIN_STEPS + 1


def _step_ends(timeline: Timeline) -> list[int]:
    """Return when the profiler's own steps end, in order."""
    names, rows = named(timeline, STEP), timeline.ranges
    return sorted(rows.end[i] for i, name in enumerate(rows.name) if name in names and rows.kind[i] != PYTHON)


class FirstPart:
    """Keeps a timeline small."""

    def __init__(self, timeline: Timeline, text_bytes: int | None = None) -> None:
        self._timeline = timeline
        is_large = text_bytes is None or text_bytes > WHOLE_BYTES
        self._rows, self._max_functions = (MAX_ROWS, MAX_FUNCTIONS) if is_large else (WHOLE_ROWS, WHOLE_ROWS)
        self.shortest_ns = -1
        """Python functions that are shorter are not kept."""
        self._functions = self._counted = 0
        """How many of so many ranges are Python functions."""

    def keep(self) -> float:
        """The time in µs after which events are not kept; drops rows where there are too many."""
        timeline = self._timeline
        kinds = timeline.ranges.kind
        self._functions += kinds[self._counted :].count(PYTHON)
        self._counted = len(kinds)
        if self._functions > self._max_functions:
            self._leave_out_short()
        if self._count() - self._functions > self._rows:
            self._shorten()
        return _NO_LIMIT if timeline.cut is None else timeline.cut / 1000

    @property
    def has_steps(self) -> bool:
        """Whether there are enough steps before the cut, or all of the file is kept."""
        return self._timeline.cut is None or self._steps_until(self._timeline.cut) >= MIN_STEPS

    def _count(self) -> int:
        timeline = self._timeline
        return sum(map(len, self._all_rows())) + len(timeline.memory) + len(timeline.overhead)

    def _leave_out_short(self) -> None:
        """Leave out the shorter half of the Python functions, and count them."""
        rows, whole = self._timeline.ranges, len(self._timeline.ranges)
        self.shortest_ns = 1 + _middle(
            end - start for start, end, kind in zip(rows.start, rows.end, rows.kind, strict=True) if kind == PYTHON
        )
        rows.keep([i for i, kind in enumerate(rows.kind) if kind != PYTHON or rows.end[i] - rows.start[i] >= self.shortest_ns])
        self._timeline.short_functions += whole - len(rows)
        self._count_functions()

    def _count_functions(self) -> None:
        kinds = self._timeline.ranges.kind
        self._functions, self._counted = kinds.count(PYTHON), len(kinds)

    def _shorten(self) -> None:
        cut = _middle(self._starts())
        if self._timeline.cut is not None:
            cut = min(cut, self._timeline.cut)  # what starts later is not there any more, the profiler's steps excepted
        if self._rows < MAX_UNMARKED_ROWS and self._steps_until(cut) < MIN_STEPS:
            self._rows = min(2 * self._rows, MAX_UNMARKED_ROWS)
            return
        self._cut_at(cut)
        if self._count() - self._functions > self._rows // 2 + MAX_STEPS:  # too many start at this time
            self._cut_at(cut - 1)
            if self._count() == self._functions:
                self._timeline.damage.truncated = f"more than {self._rows // 2:,} of its first events start at one time"

    def _starts(self) -> Iterator[int]:
        """Yield when all rows start that count."""
        timeline = self._timeline
        for rows in self._all_rows():
            if rows is not timeline.ranges:
                yield from rows.start
        yield from (start for start, kind in zip(timeline.ranges.start, timeline.ranges.kind, strict=True) if kind != PYTHON)
        yield from (change.at for change in timeline.memory)
        yield from (start for start, _ in timeline.overhead)

    def _cut_at(self, cut: int) -> None:
        """Keep what starts until then, and the profiler's steps."""
        timeline = self._timeline
        timeline.cut = cut
        steps = self._steps()
        for rows in self._all_rows():
            rows.keep([i for i, start in enumerate(rows.start) if start <= cut or (rows is timeline.ranges and rows.name[i] in steps)])
        timeline.memory = [change for change in timeline.memory if change.at <= cut]
        timeline.overhead = [span for span in timeline.overhead if span[0] <= cut]
        self._count_functions()

    def _steps(self) -> set[int]:
        """The names of the profiler's steps; of too many, none."""
        names, marks = self._timeline.ranges.name, named(self._timeline, STEP)
        return marks if sum(map(marks.__contains__, names)) <= MAX_STEPS else set()

    def _all_rows(self) -> tuple[Spans, ...]:
        timeline = self._timeline
        return timeline.operations, timeline.calls, timeline.ranges, timeline.accelerator

    def _steps_until(self, cut: int) -> int:
        """How many steps end before the cut, by whatever marks most of them."""
        rows = self._timeline.ranges
        most = 0
        for mark in STEP_MARKS:
            names = named(self._timeline, mark)
            if names:
                most = max(most, sum(name in names and rows.end[i] <= cut and rows.kind[i] != PYTHON for i, name in enumerate(rows.name)))
        return most


def _middle(times: Iterable[int]) -> int:
    """The time before which half of these are."""
    in_order = array("q", sorted(array("q", times)))
    return in_order[len(in_order) // 2]
