"""Exposed time, which is what really costs: a device is busy, or idle by what kept it waiting.

The definitions are those of docs/analyze.md: every part of the window belongs to exactly one of busy, loader,
synchronisation, copy calls and host, so that they add up to 100 %.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from sysperf.model.record import joined
from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.host_time import HostTime
from sysperf.trace.accounting.window import LONG_GAP_NS, Window, loader_calls
from sysperf.trace.device_facts import Figures
from sysperf.trace.intervals import Interval, Intervals, intersect, length, subtract, union
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import COPY, GRAPH, KERNEL, Timeline

ARRIVES_NS, QUICK_CALL_NS = 10_000, 20_000
"""A launch that nothing holds back arrives so soon behind its call; a longer call waited for room in the queue."""
TINY_KERNEL_NS = 10_000
BETWEEN_NS = 5_000
"""A device takes 1 to 5 µs from one operation to the next that it has."""
MAX_DEVICE_NS = 600_000_000_000
"""A device operation that takes more than 10 minutes is a broken record."""
HELD_NS = 100_000
"""Launches, and copies that nobody waits for, take 3 to 10 µs of the host; a longer one waits for room in the queue, or for the device."""
_CALLS = {
    "sync": by_name.is_sync_call,
    "copy": by_name.is_copy_call,
    "launch": by_name.is_launch_call,
    "alloc": by_name.is_allocation_call,
    "module": by_name.is_module_load,
}
STARVED, QUEUED, UNKNOWN = "starved", "queued", "unknown"


class Gap(NamedTuple):
    """One maximal time in which the device did nothing."""

    start: int
    end: int
    kind: str
    """`starved`: what ended it was launched after it began. `queued`: before it began. `unknown`: no launch is known."""
    ended_by: int
    """The operation that ended it, by index; -1: the window's end."""

    @property
    def is_long(self) -> bool:
        return self.end - self.start >= LONG_GAP_NS


class HostCalls:
    """The calls of the host that concern a device, by what they do, clipped to the window."""

    def __init__(self, timeline: Timeline, device: int, window: Window) -> None:
        rows, texts = timeline.calls, timeline.names.texts
        owners = timeline.device_processes.get(device)
        ours = None if not owners else {number for number, (process, _) in enumerate(timeline.threads) if process in owners}
        by_kind: dict[str, Intervals] = {kind: [] for kind in _CALLS}
        lists = {name: [by_kind[kind] for kind, asked in _CALLS.items() if asked(texts[name])] for name in set(rows.name)}
        low, high = window.span
        for name, start, end, thread in zip(rows.name, rows.start, rows.end, rows.thread, strict=True):
            if start < high and end > low and (ours is None or thread in ours):
                for spans in lists[name]:
                    spans.append((start, end))
        self.sync, self.copy, self.launch, self.alloc, self.module = (window.covered(by_kind[kind]) for kind in _CALLS)
        held = [(start, end) for start, end in (*by_kind["launch"], *by_kind["copy"]) if end - start >= HELD_NS]
        self.waiting = window.covered([*by_kind["sync"], *held])


class DeviceTime:
    """The time of one device within a window, as sets of intervals."""

    def __init__(self, host: HostTime, device: int, launches: Launches) -> None:
        self.timeline, self.window, self.device, self.launches = host.timeline, host.window, device, launches
        timeline, window, rows = host.timeline, host.window, host.timeline.operations
        self.operations = [
            index
            for index, (where, start, end) in enumerate(zip(rows.device, rows.start, rows.end, strict=True))
            if where == device and 0 <= end - start <= MAX_DEVICE_NS
        ]
        self.operations.sort(key=rows.start.__getitem__)
        self.kernel_indices = [index for index in self.operations if rows.kind[index] == KERNEL]
        self.graph_indices = [index for index in self.operations if rows.kind[index] == GRAPH]
        self.copy_indices = [index for index in self.operations if rows.kind[index] == COPY]
        self.busy = self.covered(self.operations)
        self.kernels = self.covered(self.kernel_indices + self.graph_indices)
        """When kernels run; of CUDA graphs whose kernels are not in the file, all of their time."""
        self.idle = subtract([window.span], self.busy)
        self.calls = HostCalls(timeline, device, window)
        users = timeline.device_processes.get(device, ())
        self.loader = window.covered(loader_calls(timeline, users).spans) if users else host.loader
        self.has_loader = bool(host.loader or self.loader)
        free = subtract(self.idle, self.loader)
        self.loader_exposed = intersect(self.idle, self.loader)
        self.sync_exposed = intersect(free, self.calls.sync)
        free = subtract(free, self.calls.sync)
        self.copy_call_exposed = intersect(free, self.calls.copy)
        self.host_exposed = subtract(free, self.calls.copy)
        self.gaps = self._gaps()

    @cached_property
    def members(self) -> list[int]:
        """The kernels that belong to the window."""
        return members(self, self.kernel_indices)

    @cached_property
    def _kernels_by_name(self) -> dict[int, list[int]]:
        names, kernels = self.timeline.operations.name, defaultdict[int, list[int]](list)
        for index in self.kernel_indices:
            kernels[names[index]].append(index)
        return kernels

    def kernels_named(self, question: Callable[[str], bool]) -> list[int]:
        """The kernels with such names, asked in lower case; those of one name after the other."""
        texts = self.timeline.names.texts
        groups = (indices for name, indices in self._kernels_by_name.items() if question(texts[name].lower()))
        return list(itertools.chain(*groups))

    def covered(self, indices: list[int]) -> Intervals:
        """The time of the window that any of these operations covers."""
        return self.window.covered(self.timeline.operations.spans_of(indices))

    def share(self, part: Intervals) -> float:
        """The share of the window in percent."""
        return 100 * length(part) / self.window.duration

    def _gaps(self) -> list[Gap]:
        """Every idle interval with its kind. The operations that start when it ends tell, by the earliest of their launches."""
        rows, launched = self.timeline.operations, self.launches.times
        first: dict[int, int] = {}  # the operation that starts at a time
        earliest: dict[int, int] = {}  # the launch of those that do
        starts, ends = rows.start, {end for _, end in self.idle}
        for index in self.operations:
            if (start := starts[index]) in ends:
                at = launched[index]
                first.setdefault(start, index)
                if at is not None and at < earliest.get(start, at + 1):
                    earliest[start] = at
        gaps = []
        for start, end in self.idle:
            at = earliest.get(end) if end < self.window.end else None
            kind = UNKNOWN if at is None else STARVED if at > start else QUEUED
            gaps.append(Gap(start, end, kind, first.get(end, -1) if end < self.window.end else -1))
        return gaps

    def late_gaps(self) -> Intervals:
        """Queued gaps that end as soon as the launch is there, whose call had just begun: kernels are shorter than their launches."""
        calls = self.timeline.calls
        late: Intervals = []
        for gap in self.gaps:
            call = self.launches.call(gap.ended_by) if gap.kind == QUEUED else None
            if call is not None and calls.end[call] - calls.start[call] < QUICK_CALL_NS and gap.end - calls.end[call] < ARRIVES_NS:
                late.append((gap.start, gap.end))
        return late

    def copies(self, question: ByName) -> Intervals:
        """The time of the copies whose names are so, less that of kernels."""
        rows = self.timeline.operations
        return subtract(self.covered([index for index in self.copy_indices if question(rows.name[index])]), self.kernels)


class Launches:
    """The launch of each device operation: the host call with the same correlation."""

    def __init__(self, timeline: Timeline) -> None:
        wanted = {number for number in timeline.operations.correlation if number >= 0}
        starts, first = timeline.calls.start, dict[int, int]()
        for index, number in enumerate(timeline.calls.correlation):
            if number in wanted and (number not in first or starts[index] < starts[first[number]]):
                first[number] = index
        self.calls = [first.get(number) for number in timeline.operations.correlation]
        """The call that launched each operation, by index; None: it is not in the file."""
        self.times = [None if call is None else starts[call] for call in self.calls]
        """When it began."""

    def call(self, operation: int) -> int | None:
        """The call that launched an operation, by index."""
        return self.calls[operation]

    def at(self, operation: int) -> int | None:
        """Return when its launch began."""
        return self.times[operation]


def members(time: DeviceTime, indices: list[int]) -> list[int]:
    """The operations that belong to the window: launched in it; in an extent, all; in the devices' own steps, started in it."""
    if time.window.is_extent:
        return indices
    starts, launched, (low, high) = time.timeline.operations.start, time.launches.times, time.window.span
    if time.window.is_of_device:
        return [index for index in indices if low <= starts[index] < high]
    return [index for index in indices if low <= (starts[index] if (at := launched[index]) is None else at) < high]


def in_turn_pct(times: Sequence[DeviceTime]) -> float | None:
    """Percent of the window in which only one of several devices works."""
    if len(times) < 2:
        return None
    any_of, several = list[Interval](), list[Interval]()
    for time in times:
        several = union([*several, *intersect(any_of, time.busy)])
        any_of = union([*any_of, *time.busy])
    return times[0].share(subtract(any_of, several))


def figures(time: DeviceTime) -> Figures:
    """Every figure of docs/analyze.md for one device."""
    percent = time.share
    starved = [(gap.start, gap.end) for gap in time.gaps if gap.kind == STARVED]
    short = [(gap.start, gap.end) for gap in time.gaps if gap.kind == STARVED and gap.end - gap.start < LONG_GAP_NS]
    long = [(gap.start, gap.end) for gap in time.gaps if gap.end - gap.start >= LONG_GAP_NS]
    queued = [(gap.start, gap.end) for gap in time.gaps if gap.kind == QUEUED]
    late = time.late_gaps()
    between = subtract([(start, end) for start, end in queued if end - start <= BETWEEN_NS], late)
    iterations = time.window.iterations
    found = Figures(
        gpu_busy_pct_mean=percent(time.busy),
        kernel_busy_pct=percent(time.kernels),
        dataloader_pct=percent(time.loader) if time.has_loader else None,
        dataloader_exposed_pct=percent(time.loader_exposed) if time.has_loader else None,
        sync_api_pct=percent(time.calls.sync),
        sync_api_ms_per_step=length(time.calls.sync) / 1e6 / iterations if iterations else None,
        sync_exposed_pct=percent(time.sync_exposed),
        copy_api_pct=percent(time.calls.copy),
        copy_api_exposed_pct=percent(time.copy_call_exposed),
        blocked_pct=percent(subtract(time.sync_exposed, queued)) + percent(time.copy_call_exposed),
        launch_api_pct=percent(time.calls.launch),
        alloc_api_exposed_pct=percent(intersect(time.idle, time.calls.alloc)),
        host_exposed_pct=percent(time.host_exposed),
        host_starved_pct=percent(intersect(time.host_exposed, starved)),
        dispatch_idle_pct=percent(intersect(time.host_exposed, short)),
        idle_queued_pct=percent(queued),
        host_late_pct=percent(intersect(time.host_exposed, late)),
        idle_between_pct=percent(between),
        idle_long_gaps_pct=percent(long),
        longest_gap_ms=max((end - start for start, end in time.idle), default=0) / 1e6,
    )
    return joined(found, _copies(time), _collectives(time), _counts(time))


def _copies(time: DeviceTime) -> Figures:
    names, rows, share = time.timeline.names, time.timeline.operations, time.share
    h2d, d2h = ByName(names, by_name.is_h2d), ByName(names, by_name.is_d2h)
    pageable = ByName(names, by_name.is_memory_pageable)

    def waiting(question: Callable[[int], bool]) -> float:
        """The time of pageable copies, and of the calls that wait for them, while no kernel runs."""
        waited: list[Interval] = []
        for index in time.copy_indices:
            if pageable(rows.name[index]) and question(rows.name[index]):
                waited.append(rows.span(index))
                call = time.launches.call(index)
                if call is not None:
                    waited.append(time.timeline.calls.span(call))
        return share(subtract(time.window.covered(waited), time.kernels))

    return Figures(
        copy_exposed_pct=share(time.copies(ByName(names, lambda _: True))),
        h2d_exposed_pct=share(time.copies(h2d)),
        h2d_pinned_exposed_pct=share(
            time.copies(ByName(names, lambda name: by_name.is_h2d(name) and not by_name.is_memory_pageable(name)))
        ),
        d2h_exposed_pct=share(time.copies(d2h)),
        pageable_wait_pct=waiting(lambda _: True),
        pageable_h2d_wait_pct=waiting(h2d),
    )


def _collectives(time: DeviceTime) -> Figures:
    ours = time.kernels_named(by_name.is_collective)
    together = time.covered(ours)
    others = time.covered(time.kernels_named(lambda name: not by_name.is_collective(name)) if ours else [])
    count, iterations = len(members(time, ours)), time.window.iterations
    return Figures(
        nccl_pct=time.share(together),
        nccl_exposed_pct=time.share(subtract(together, others)),
        nccl_kernels_per_step=count / iterations if iterations else None,
    )


def _counts(time: DeviceTime) -> Figures:
    rows, names, iterations = time.timeline.operations, time.timeline.names, time.window.iterations
    matmul, tensor = ByName(names, by_name.is_matmul, lower=True), ByName(names, by_name.uses_tensor_cores, lower=True)
    ours = time.members
    total = in_matmul = in_tensor = tiny = 0
    for index in ours:
        took = rows.end[index] - rows.start[index]
        total += took
        tiny += took < TINY_KERNEL_NS
        if matmul(rows.name[index]):
            in_matmul += took
            in_tensor += took if tensor(rows.name[index]) else 0
    copies = members(time, time.copy_indices)
    to_device = sum("Pageable -> Device" in names.texts[rows.name[index]] for index in copies)
    to_host = sum("Device -> Pageable" in names.texts[rows.name[index]] for index in copies)
    return Figures(
        kernels=len(ours),
        kernels_per_step=len(ours) / iterations if iterations else None,
        tiny_kernel_share=100 * tiny / len(ours) if ours else None,
        matmul_time_share=100 * in_matmul / total if total else None,
        tensor_core_share=100 * in_tensor / in_matmul if in_matmul else None,
        pageable_h2d=to_device,
        pageable_d2h=to_host,
        pageable_h2d_per_step=to_device / iterations if iterations else None,
        pageable_d2h_per_step=to_host / iterations if iterations else None,
    )
