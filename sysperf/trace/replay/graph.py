"""A step as a graph: the host's calls in order, what each launched, what each waited for, and the order of each stream.

Edges are those of Lumos (arXiv 2504.09307): program order on the host, launch to operation, order on a stream, operation to
operation across streams, operation to the call that waited for it. Files do not say what an event waits for: an operation
that starts right when one of another stream ends waited for it, and a call that returns right when an operation ends did too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.exposed import DeviceTime, Launches
from sysperf.trace.accounting.window import GPU_EXTENT, Window, loader_calls, optimizer_steps
from sysperf.trace.device_facts import KERNEL_KINDS
from sysperf.trace.intervals import Interval, Intervals
from sysperf.trace.timeline import COPY, KERNEL, NUMBER_BITS, Timeline

LAUNCH, SYNC, COPYING, FILLING, ALLOCATION, LOADER, OTHER = range(7)
"""What an item of the host is; FILLING: a copy to a device, and the synchronisation with which PyTorch waits for it."""
H2D, NCCL, PLAIN_MATMUL, PAGEABLE, D2H = 1, 2, 4, 8, 16
OF_KINDS = {name: 32 << number for number, name in enumerate(KERNEL_KINDS)}
"""The flags of the kinds of kernels that `Work` declares, by its fields."""
FLAGS = (H2D, NCCL, PLAIN_MATMUL, PAGEABLE, D2H, *OF_KINDS.values())
"""What an operation is; it can be several of these."""

OPTIMIZER, ZERO_GRAD = 1, 2
MAX_ITEMS = 8_000
AT_ONCE_NS = 20_000
"""A synchronisation that follows a copy so closely waits for that."""
EXPLAINED_NS = 15_000
"""A start that follows the end of something else so closely waited for it."""
OWN_NS = 5_000
"""What a call costs that waits for nothing."""
ROUNDED_NS = 1_000
"""By so much a call may seem to begin within the one before it: times are rounded, in some files to microseconds."""
RETURN_NS = 60_000
DRAIN_NS = 100_000
"""A kernel's last thread blocks leave the device within so long of its end: then the next kernel's first ones get in."""
BLOCKED_NS = 20_000
"""A launch that takes longer waited for a place in the queue, where an operation ended meanwhile."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """Something the host does: a call, or a request to the loader. A struct, because there are thousands: a named tuple takes longer."""

    start: int
    end: int
    kind: int
    think: int
    """ns between the end of all before it and its start; negative: it starts so much after the start of the one before it."""
    operations: tuple[int, ...] = ()
    waits_for: int = -1
    lag: int = 0
    """ns from the end of what it waits for to its own end."""
    nested: bool = False
    waits_for_all: bool = False
    """Whether it waits for everything that was launched before, on whatever stream."""
    in_long_gap: bool = False
    """Whether what the host does before it lies in a long gap of a device that waits for the host, however short it is itself."""
    region: int = 0
    """`OPTIMIZER` or `ZERO_GRAD` where it lies in a range of that name."""


class Operation(msgspec.Struct, frozen=True, gc=False):
    """Something a device does."""

    start: int
    duration: int
    stream: int
    flags: int
    latency: int
    """ns from the start of its launch at the least."""
    after: int
    """The operation of another stream that it waits for; -1: none."""
    lag: int
    """ns that follow what it waits for."""
    unexplained: int
    """ns more that nothing in the file explains."""


class Graph(NamedTuple):
    """One process within a window."""

    items: list[Item]
    operations: list[Operation]
    earlier: list[int]
    """Operations that were launched before the window."""
    start: int
    end: int
    last_think: int
    """ns from the end of the last item to the window's end."""
    has_workers: bool = False
    """Whether the loader's workers make batches beside the step: one that is waited for comes when it is made, whatever else takes time."""

    @property
    def measured(self) -> int:
        """What the window took, until both host and device were done."""
        return max([self.end, *(operation.start + operation.duration for operation in self.operations[-64:])]) - self.start


def part_of(window: Window, timeline: Timeline) -> Window:
    """Return as many of the window's last steps as can be replayed quickly; at least one."""
    starts = sorted(start for start in timeline.calls.start if window.start <= start < window.end)
    if len(starts) <= MAX_ITEMS:
        return window
    earliest = starts[-MAX_ITEMS]
    kept = tuple(step for step in window.steps if step[0] >= earliest) or window.steps[-1:]
    if not kept:
        return window._replace(start=earliest)
    return Window(window.rule, kept[0][0], window.end, len(kept), kept)


class Builder:
    """Builds the graph of one process."""

    def __init__(self, timeline: Timeline, window: Window, launches: Launches, process: int, long_gaps: Intervals) -> None:
        self.timeline, self.window, self.launches, self.process = timeline, window, launches, process
        self._long_gaps, self._gap_starts = long_gaps, [start for start, _ in long_gaps]
        self._owners = (process,) if timeline.device_processes else ()

    def build(self) -> Graph:
        chosen, launched = self._operations()
        ends = _Ends([self.timeline.operations.end[index] for index in chosen])
        operations = self._with_edges(chosen, launched, ends)
        items = self._items(chosen, ends, {position for position, operation in enumerate(operations) if operation.flags & H2D})
        inside = {index for item in items for index in item.operations}
        frontier = max((item.end for item in items), default=self.window.start)
        earlier = [index for index in range(len(operations)) if index not in inside]
        after_last = 0 if self.window.rule == GPU_EXTENT else max(0, self.window.end - frontier)  # the device's work ends that one
        has_workers = loader_calls(self.timeline, self._owners).worker_class == "_MultiProcessingDataLoaderIter"
        return Graph(items, operations, earlier, self.window.start, self.window.end, after_last, has_workers)

    def _operations(self) -> tuple[list[int], list[int]]:
        """(the operations that run or are launched in the window, by their start; the start of each launch, or -1)."""
        rows, (low, high), times = self.timeline.operations, self.window.span, self.launches.times
        chosen = [
            index
            for index, (start, end, at) in enumerate(zip(rows.start, rows.end, times, strict=True))
            if end > low and (start if at is None else at) < high and end >= start
        ]
        if len(self.timeline.device_processes) > 1:
            owners, process, devices = self.timeline.device_processes, self.process, rows.device
            others = {device for device, users in owners.items() if process not in users}
            shared = {device for device, users in owners.items() if len(users) > 1}
            chosen = [
                i
                for i in chosen
                if devices[i] not in others and (devices[i] not in shared or rows.correlation[i] >> NUMBER_BITS == process)
            ]
        chosen.sort(key=rows.start.__getitem__)
        return chosen, [-1 if (at := times[index]) is None or at < low else at for index in chosen]

    def _with_edges(self, chosen: list[int], launched: list[int], ends: _Ends) -> list[Operation]:
        rows, calls = self.timeline.operations, self.timeline.calls
        latency = _typical_latency(chosen, launched, rows.start)
        flags = _flags_by_name(self.timeline)
        numbers: dict[tuple[int, int], int] = {}
        streams = [numbers.setdefault((rows.device[index], rows.stream[index]), len(numbers)) for index in chosen]
        low = self.window.start
        busy_until = [low] * len(numbers)
        operations = []
        for position, (index, at, stream) in enumerate(zip(chosen, launched, streams, strict=True)):
            start, end = rows.start[index], rows.end[index]
            free = busy_until[stream]
            base = at + latency if at >= 0 and at + latency > free else free
            lag, after, unexplained = start - base if start > base else 0, -1, 0
            if lag > EXPLAINED_NS:
                call = self.launches.call(index)
                if call is not None and at >= 0 and start <= calls.end[call] + EXPLAINED_NS:
                    other = self._waited_for_room(call, ends)
                    if other >= 0:  # else the call itself did something first, such as filling a staging buffer
                        after, lag = other, max(0, start - rows.end[chosen[other]])
                else:
                    other = ends.just_before(start, base, position, streams)
                    if other < 0 or start - rows.end[chosen[other]] > EXPLAINED_NS:
                        other = self._draining(chosen, position)
                    if other >= 0:
                        after, lag = other, start - rows.end[chosen[other]]
                    else:
                        lag, unexplained = EXPLAINED_NS // 10, lag - EXPLAINED_NS // 10
            busy_until[stream] = max(end, free)
            what = flags[rows.kind[index], rows.name[index]]
            operations.append(Operation(start, end - start, stream, what, latency, after, lag, unexplained))
        return operations

    def _waited_for_room(self, call: int, ends: _Ends) -> int:
        """The operation whose end made room in the queue for what this call launches; -1: the call waited for none."""
        calls = self.timeline.calls
        is_launch = by_name.is_launch_call(self.timeline.names.texts[calls.name[call]])
        return ends.waited_for(calls.start[call], calls.end[call], LAUNCH, ())[0] if is_launch else -1

    def _draining(self, chosen: list[int], position: int) -> int:
        """A kernel of another stream whose last thread blocks were leaving the device when this operation found room on it."""
        rows = self.timeline.operations
        start, key = rows.start[chosen[position]], (rows.device[chosen[position]], rows.stream[chosen[position]])
        for other in range(position - 1, max(-1, position - 64), -1):
            index = chosen[other]
            left = rows.end[index] - start
            if left > 0 and rows.kind[index] == KERNEL and (rows.device[index], rows.stream[index]) != key:
                return other if left <= max(DRAIN_NS, (rows.end[index] - rows.start[index]) // 10) else -1
        return -1

    def _items(self, chosen: list[int], ends: _Ends, to_device: set[int]) -> list[Item]:
        calls, (low, high) = self.timeline.calls, self.window.span
        launched_by, starts = self.launches.calls, calls.start
        by_call = defaultdict[int, list[int]](list)
        for position, index in enumerate(chosen):
            call = launched_by[index]
            if call is not None and starts[call] >= low:
                by_call[call].append(position)
        threads = {calls.thread[call] for call in by_call}
        texts = self.timeline.names.texts
        kinds = {name: _kind(texts[name]) for name in set(calls.name)}
        of_all = {name for name in kinds if by_name.is_device_sync_call(texts[name])}
        timed: list[tuple[int, int, int, int]] = [
            (start, end, kinds[name], call)
            for call, (start, end, name, thread) in enumerate(zip(calls.start, calls.end, calls.name, calls.thread, strict=True))
            if low <= start < high and thread in threads
        ]
        timed += [
            (start, min(end, high), LOADER, -1) for start, end in loader_calls(self.timeline, self._owners).spans if low <= start < high
        ]
        timed.sort()
        regions = _Regions(self.timeline, self._owners)
        items = list[Item]()
        frontier = previous = loading = low
        for start, end, kind, call in timed:
            launched = tuple(by_call[call]) if call in by_call else ()
            waits_for, lag = (-1, 0) if kind == LOADER or end - start < OWN_NS else ends.waited_for(start, end, kind, launched)
            think = max(0, start - frontier) if start >= frontier - ROUNDED_NS else -(start - previous) - 1
            nested = start < loading and kind != LOADER
            region = regions.at(start) if regions.spans else 0
            waits_for_all = kind == SYNC and calls.name[call] in of_all
            in_long_gap = think > 0 and self._is_in_long_gap(start - think // 2)
            follows = kind == SYNC and not waits_for_all and 0 <= think < AT_ONCE_NS and bool(items) and items[-1].kind == FILLING
            fills = follows or (kind == COPYING and not to_device.isdisjoint(launched))
            items.append(
                Item(start, end, FILLING if fills else kind, think, launched, waits_for, lag, nested, waits_for_all, in_long_gap, region)
            )
            frontier, previous = max(frontier, end), start
            loading = max(loading, end) if kind == LOADER else loading
        return items

    def _is_in_long_gap(self, moment: int) -> bool:
        place = bisect_right(self._gap_starts, moment) - 1
        return place >= 0 and moment < self._long_gaps[place][1]


def _kind(name: str) -> int:
    """What a call does, by its name."""
    questions = (
        (SYNC, by_name.is_sync_call),
        (COPYING, by_name.is_copy_call),
        (LAUNCH, by_name.is_launch_call),
        (ALLOCATION, by_name.is_allocation_call),
    )
    return next((kind for kind, question in questions if question(name)), OTHER)


def _typical_latency(chosen: list[int], launched: list[int], starts: object) -> int:
    """What a launch takes to arrive where nothing is in its way: the fastest twentieth of them."""
    delays = sorted(starts[index] - at for index, at in zip(chosen, launched, strict=True) if at >= 0)  # type: ignore[index]
    return max(0, min(delays[len(delays) // 20], OWN_NS * 4)) if delays else OWN_NS


class _Ends:
    """The ends of operations: who waited for one of them was released by the last that ended before."""

    def __init__(self, ends: list[int]) -> None:
        self._by_end = sorted(zip(ends, range(len(ends)), strict=True))
        self._ends = [end for end, _ in self._by_end]

    def just_before(self, start: int, base: int, position: int, streams: list[int]) -> int:
        """The operation of another stream that ended last before this start, and not before `base`; -1: none."""
        at = bisect_right(self._ends, start) - 1
        while at >= 0 and self._ends[at] > base:
            other = self._by_end[at][1]
            if streams[other] != streams[position] and other < position:
                return other
            at -= 1
        return -1

    def waited_for(self, start: int, end: int, kind: int, launched: tuple[int, ...]) -> tuple[int, int]:
        """(the operation that a call waited for, ns from its end to the call's); (-1, 0) where it waited for nothing."""
        if end - start < (OWN_NS if kind in (SYNC, COPYING) else BLOCKED_NS):
            return -1, 0
        low, high = bisect_left(self._ends, start), bisect_right(self._ends, end)
        if low >= high:
            return -1, 0
        ended, position = self._by_end[high - 1]
        if kind != SYNC and end - ended > RETURN_NS:
            return -1, 0
        if kind not in (SYNC, COPYING) and position in launched:
            return -1, 0
        return position, end - ended


class _Regions:
    """Which of the optimizer's ranges a moment lies in; moments ascend."""

    def __init__(self, timeline: Timeline, processes: Collection[int]) -> None:
        rows = timeline.ranges
        zeroing = rows.spans_of(timeline.marks(lambda name: name.startswith("Optimizer.zero_grad#"), processes))
        stepping = optimizer_steps(timeline, processes)
        self.spans = sorted([*((*span, OPTIMIZER) for span in stepping), *((*span, ZERO_GRAD) for span in zeroing)])
        self._position = 0

    def at(self, moment: int) -> int:
        while self._position < len(self.spans) and self.spans[self._position][1] <= moment:
            self._position += 1
        inside = self._position < len(self.spans) and self.spans[self._position][0] <= moment
        return self.spans[self._position][2] if inside else 0


_OF_COPIES = ((H2D, by_name.is_h2d), (D2H, by_name.is_d2h), (PAGEABLE, by_name.is_memory_pageable))
_OF_KERNELS = ((NCCL, by_name.is_collective), *((flag, KERNEL_KINDS[name].is_one) for name, flag in OF_KINDS.items()))


def _flags_by_name(timeline: Timeline) -> dict[tuple[int, int], int]:
    """What operations are, by their kind and name."""
    rows, texts = timeline.operations, timeline.names.texts
    return {(kind, name): _flags(kind, texts[name], timeline) for kind, name in set(zip(rows.kind, rows.name, strict=True))}


def _flags(kind: int, name: str, timeline: Timeline) -> int:
    if kind == COPY:
        return sum(flag for flag, question in _OF_COPIES if question(name))
    if kind != KERNEL:
        return 0
    lowered = name.lower()
    is_plain = by_name.is_matmul(lowered) and by_name.is_plain_product(lowered, timeline.signatures)
    return (PLAIN_MATMUL if is_plain else 0) + sum(flag for flag, question in _OF_KERNELS if question(lowered))


def processes(times: list[DeviceTime], timeline: Timeline) -> list[int]:
    """The processes that use the devices; one that stands for all where the file does not tell them apart."""
    users = {owner for time in times for owner in timeline.device_processes.get(time.device, ())}
    return sorted(users) or [0]


__all__ = ["Builder", "Graph", "Interval", "Item", "Operation", "part_of", "processes"]
