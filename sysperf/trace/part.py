"""Of a large trace, only the first part of its time is kept: many steady steps say as much as all of them.

Memory and time of the analysis then do not grow with the file. Kineto writes events by thread and not by time, so what is
kept is decided while the file is read: when there are too many rows, the later half of the time goes, and what starts later is
not kept from then on. The profiler's own steps are kept all, because their number and lengths are figures.
"""

from __future__ import annotations

from array import array

from sysperf.trace.timeline import PYTHON, Spans, Timeline

MAX_ROWS = 100_000
WHOLE_BYTES, WHOLE_ROWS = 100_000_000, 400_000
"""Files with no more text than this are examined whole, unless they have many more rows than such a text usually has."""
MAX_UNMARKED_ROWS = 500_000
"""Where the part has too few steps, more rows are kept, and so many at the most."""
MIN_STEPS = 5
"""The first is warm-up, and the last may have operations that were not kept."""
STEP = "ProfilerStep"
_NO_LIMIT = float("inf")


class FirstPart:
    """Keeps a timeline small."""

    def __init__(self, timeline: Timeline, text_bytes: int | None = None) -> None:
        self._timeline = timeline
        self._rows = MAX_ROWS if text_bytes is None or text_bytes > WHOLE_BYTES else WHOLE_ROWS

    def keep(self) -> float:
        """The time in µs after which events are not kept; drops rows where there are too many."""
        timeline = self._timeline
        if self._count() > self._rows:
            self._shorten()
        return _NO_LIMIT if timeline.cut is None else timeline.cut / 1000

    def _count(self) -> int:
        timeline = self._timeline
        return len(timeline.operations) + len(timeline.calls) + len(timeline.ranges) + len(timeline.accelerator) + len(timeline.memory)

    def _shorten(self) -> None:
        timeline = self._timeline
        starts = array("q")
        for rows in self._all_rows():
            starts.extend(rows.start)
        starts = array("q", sorted(starts))
        cut = starts[len(starts) // 2]
        if self._rows < MAX_UNMARKED_ROWS and self._steps_until(cut) < MIN_STEPS:
            self._rows = min(2 * self._rows, MAX_UNMARKED_ROWS)
            return
        timeline.cut = cut
        steps = self._step_names()
        for rows in self._all_rows():
            rows.keep([i for i, start in enumerate(rows.start) if start <= cut or (rows is timeline.ranges and rows.name[i] in steps)])
        timeline.memory = [change for change in timeline.memory if change.at <= cut]
        timeline.overhead = [span for span in timeline.overhead if span[0] <= cut]

    def _all_rows(self) -> tuple[Spans, ...]:
        timeline = self._timeline
        return timeline.operations, timeline.calls, timeline.ranges, timeline.accelerator

    def _step_names(self) -> set[int]:
        return {number for number, text in enumerate(self._timeline.names.texts) if text.startswith(STEP)}

    def _steps_until(self, cut: int) -> int:
        rows, names = self._timeline.ranges, self._step_names()
        return sum(name in names and rows.end[i] <= cut and rows.kind[i] != PYTHON for i, name in enumerate(rows.name)) if names else 0
