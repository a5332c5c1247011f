"""What is drawn of a trace: rows of events, and the device's time coloured by what it waited for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from sysperf.trace.accounting import coverage
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.accounting.exposed import QUEUED, DeviceTime
from sysperf.trace.intervals import Interval, Intervals, intersect, subtract
from sysperf.trace.timeline import ANNOTATION, COPY, GRAPH, KERNEL, OPERATOR, PYTHON

MAX_EVENTS = 100_000
MAX_OTHERS = 70_000
"""Of these, so many that are no Python functions: stacks have hundreds of functions for each operator."""
WHOLE = 0.99
"""Functions that last so much of the window enclose all of it, and tell nothing."""
MAX_NAME = 160
BUSY, LOADER, SYNC, COPY_CALL, HOST, QUEUE, KERNELS, COPIES, SETS, CALLS, OPERATORS, RANGES, FUNCTIONS, RANKS = range(14)
CAUSES = ("busy", "loader", "synchronisation", "copy call", "host", "idle although queued")
"""The names of the first colours."""
KINDS = (*CAUSES, "kernels", "copies", "memsets", "calls", "operators", "ranges", "Python functions", "waiting for other ranks")


class Event(NamedTuple):
    """One box: times in ns from the window's start."""

    start: int
    duration: int
    name: int
    color: int


class Row(NamedTuple):
    """One line of boxes; nested ones are drawn below each other."""

    name: str
    events: list[Event]


class Subject(NamedTuple):
    """A trace that is drawn; of several ranks, with what it is called and when it waits for others."""

    accounting: Accounting
    name: str = ""
    waits: Sequence[Interval] = ()
    waits_for: str = ""


class Drawing(NamedTuple):
    """All rows of a window, or of the windows of several ranks."""

    rows: list[Row]
    names: list[str]
    duration: int
    left_out: int
    """Events that are not drawn because there are too many; the shortest ones."""
    of: str = ""
    """Whose time it is, where there are several ranks."""


def causes(time: DeviceTime, unrecorded: frozenset[str] = frozenset()) -> list[tuple[int, Intervals]]:
    """The window of a device by cause; the parts do not overlap, and cover all of it that the file tells."""
    if not coverage.has_gaps(unrecorded):
        return [(BUSY, time.busy), (LOADER, time.loader_exposed)] if coverage.has_idle(unrecorded) else [(BUSY, time.busy)]
    queued: Intervals = [(gap.start, gap.end) for gap in time.gaps if gap.kind == QUEUED]
    host = subtract(time.host_exposed, queued)
    return [
        (BUSY, time.busy),
        (LOADER, time.loader_exposed),
        (SYNC, time.sync_exposed),
        (COPY_CALL, time.copy_call_exposed),
        (HOST, host),
        (QUEUE, intersect(time.host_exposed, queued)),
    ]


def draw(*subjects: Subject) -> Drawing:
    """The rows of each trace's window: exposed time, streams, then the host's threads. Windows of several ranks begin at the left."""
    names: dict[str, int] = {}
    drawn = [
        _Artist(subject, subject.accounting.window.span, names, len(subjects)).draw()
        for subject in subjects
        if subject.accounting.window is not None
    ]
    return Drawing(
        [row for each in drawn for row in each.rows],
        list(names),
        max((each.duration for each in drawn), default=0),
        sum(each.left_out for each in drawn),
        " and ".join(subject.name for subject in subjects if subject.name),
    )


def _count(rows: list[Row]) -> int:
    return sum(len(row.events) for row in rows)


def _longest(rows: list[Row], most: int) -> list[Row]:
    """So many of the longest events; of those that are as long as the last of them, the first."""
    lengths = sorted((event.duration for row in rows for event in row.events), reverse=True)
    if len(lengths) <= most:
        return rows
    limit = lengths[most - 1]
    room = most - bisect_left(lengths, -limit, key=lambda length: -length)
    kept = []
    for row in rows:
        events = []
        for event in row.events:
            room -= event.duration == limit
            if event.duration > limit or (event.duration == limit and room >= 0):
                events.append(event)
        kept.append(Row(row.name, events))
    return kept


class _Artist:
    """Collects the events of one window."""

    def __init__(self, subject: Subject, window: Interval, names: dict[str, int], beside: int) -> None:
        self._subject, self._accounting, self._timeline = subject, subject.accounting, subject.accounting.timeline
        self._low, self._high = window
        self._names = names
        self._most, self._most_others = MAX_EVENTS // beside, MAX_OTHERS // beside

    def draw(self) -> Drawing:
        rows = [*self._exposed(), *self._waits(), *self._streams(), *self._threads()]
        total = _count(rows)
        if total > self._most:
            functions = [row for row in rows if row.events and row.events[0].color == FUNCTIONS]
            others = [row for row in rows if row not in functions]
            room = max(self._most_others, self._most - _count(functions))
            others = _longest(others, room)
            kept = {row.name: row for row in (*others, *_longest(functions, self._most - min(room, _count(others))))}
            rows = [kept[row.name] for row in rows]
        before = f"{self._subject.name}: " if self._subject.name else ""
        kept_rows = [Row(before + row.name, row.events) for row in rows if row.events]
        return Drawing(kept_rows, [], self._high - self._low, total - _count(rows))

    def _event(self, start: int, end: int, name: str, color: int) -> Event | None:
        start, end = max(start, self._low), min(end, self._high)
        if end <= start:
            return None
        return Event(start - self._low, end - start, self._names.setdefault(name[:MAX_NAME], len(self._names)), color)

    def _exposed(self) -> list[Row]:
        rows = []
        for time in self._accounting.times:
            events = [
                self._event(start, end, CAUSES[color], color)
                for color, parts in causes(time, self._accounting.unrecorded)
                for start, end in parts
            ]
            rows.append(Row(f"device {time.device}: exposed time", sorted(event for event in events if event)))
        return rows

    def _waits(self) -> list[Row]:
        """The times in which the rank waits in collectives for others."""
        name = f"waits for {self._subject.waits_for}"
        events = [self._event(start, end, name, RANKS) for start, end in self._subject.waits]
        return [Row(name, sorted(event for event in events if event))]

    def _streams(self) -> list[Row]:
        rows, texts = self._timeline.operations, self._timeline.names.texts
        colors = {KERNEL: KERNELS, GRAPH: KERNELS, COPY: COPIES}
        by_stream: dict[tuple[int, int], list[Event]] = {}
        for time in self._accounting.times:
            for index in time.operations:
                event = self._event(rows.start[index], rows.end[index], texts[rows.name[index]], colors.get(rows.kind[index], SETS))
                if event:
                    by_stream.setdefault((time.device, rows.stream[index]), []).append(event)
        return [
            Row(f"device {device}, stream {stream & 0xFFFFFFFF}", sorted(events)) for (device, stream), events in sorted(by_stream.items())
        ]

    def _threads(self) -> list[Row]:
        ranges, calls, texts = self._timeline.ranges, self._timeline.calls, self._timeline.names.texts
        colors = {OPERATOR: OPERATORS, ANNOTATION: RANGES, PYTHON: FUNCTIONS}
        kinds = {CALLS: "calls", OPERATORS: "operators", RANGES: "ranges", FUNCTIONS: "functions"}
        drawn: dict[int, dict[int, list[Event]]] = {}
        whole = WHOLE * (self._high - self._low)
        for index, thread in enumerate(ranges.thread):
            event = self._event(ranges.start[index], ranges.end[index], texts[ranges.name[index]], colors[ranges.kind[index]])
            if event and not (event.color == FUNCTIONS and event.duration >= whole):
                drawn.setdefault(thread, {}).setdefault(event.color, []).append(event)
        for index, thread in enumerate(calls.thread):
            event = self._event(calls.start[index], calls.end[index], texts[calls.name[index]], CALLS)
            if event:
                drawn.setdefault(thread, {}).setdefault(CALLS, []).append(event)
        ordered = sorted(drawn.items(), key=lambda item: -sum(map(len, item[1].values())))
        return [
            Row(f"{self._thread_name(thread)}: {word}", sorted(rows[kind], key=lambda event: (event.start, -event.duration)))
            for thread, rows in ordered
            for kind, word in kinds.items()
            if kind in rows
        ]

    def _thread_name(self, thread: int) -> str:
        process, number = self._timeline.threads[thread]
        named = self._timeline.thread_names.get(thread)
        if process < 0:
            return "thread"
        return named[:40] if named and str(number) in named else f"thread {number}" + (f" ({named[:40]})" if named else "")
