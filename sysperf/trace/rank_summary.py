"""What comparing ranks of one job needs of each: its collectives and kernels, and how collectives of two ranks are matched."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.accounting.exposed import members
from sysperf.trace.accounting.host_time import HostTime
from sysperf.trace.accounting.window import LONG_GAP_NS
from sysperf.trace.accounting.work import is_between_two, is_sending
from sysperf.trace.intervals import Intervals, intersect, length, median, subtract, union
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import OPERATOR

MIN_MATCHED = 4
MAX_SHIFT = 400
"""Collectives by which windows of two ranks may begin apart."""
MAX_APART_NS = 1_000_000
"""Ranks leave a collective within some microseconds, a root sooner."""


class Entry(NamedTuple):
    """One collective of one rank."""

    key: str
    """What it is matched by."""
    start: int
    end: int
    alone: Intervals
    """When nothing is computed beside it: no other kernel, on a CPU no operator of the main thread."""
    is_between_two: bool = False
    """Whether one rank sends it to another, as stages of a pipeline do: the same number is another exchange elsewhere."""

    @property
    def took(self) -> int:
        return self.end - self.start

    def waiting(self, least: int) -> Intervals:
        """The exposed part of what it takes longer than this."""
        return intersect(self.alone, [(self.start, self.end - least)]) if self.took > least else []

    def working(self, least: int) -> Intervals:
        """The exposed rest: all ranks leave together, and the shortest one did not wait."""
        return intersect(self.alone, [(max(self.start, self.end - least), self.end)])


class RankSummary(NamedTuple):
    """What comparing ranks needs of one: small, so that it can come from another process."""

    rank: int | None
    window_ns: int
    """The time that these collectives and kernels are a part of: the window, or longer where the device does its work later."""
    collectives: list[Entry]
    """In the order of their starts."""
    kernels: dict[str, tuple[int, int]]
    """Number and total ns by the name of the kernel."""
    steps: Intervals = []
    """When the program's steps are; empty where nobody knows."""
    host_waits_ns: int = 0
    """How long the host waits for the device meanwhile, or may wait: calls that say so, others that last, long times that show nothing."""
    loads_ahead: bool = False
    """Whether workers of its loader make batches ahead, beside the steps."""


def summarize(accounting: Accounting) -> RankSummary:
    """The collectives and kernels of one rank."""
    timeline, host = accounting.timeline, accounting.host
    if host is None:
        return RankSummary(timeline.rank, 0, [], {})
    if not accounting.times:
        return RankSummary(timeline.rank, host.window.duration, _on_cpu(host), {}, host.iterations[1], loads_ahead=accounting.loads_ahead)
    rows, texts = timeline.operations, timeline.names.texts
    nccl = ByName(timeline.names, by_name.is_collective, lower=True)
    collectives: list[Entry] = []
    kernels: dict[str, tuple[int, int]] = {}
    time = accounting.times[0]
    computing = [index for index in time.kernel_indices if not nccl(rows.name[index])]
    others = union(rows.spans_of(computing + time.graph_indices))
    chosen = members(time, time.kernel_indices)
    begin, end = min((rows.start[index] for index in chosen), default=0), max((rows.end[index] for index in chosen), default=0)
    for index in chosen:
        name, span = texts[rows.name[index]], rows.span(index)
        if nccl(rows.name[index]):
            key, is_between_two = _key(accounting, index, name)
            collectives.append(Entry(key, *span, subtract([span], intersect(others, [span])), is_between_two))
        else:
            count, total = kernels.get(name, (0, 0))
            kernels[name] = count + 1, total + span[1] - span[0]
    waits, whole = length(union([*time.calls.waiting, *_silent(host)])), max(host.window.duration, end - begin)
    return RankSummary(timeline.rank, whole, collectives, kernels, accounting.iterations(host)[1], waits, accounting.loads_ahead)


def _silent(host: HostTime) -> Intervals:
    """The long times in which the file shows neither an operator nor a call: the program may wait for another one."""
    ranges, calls = host.timeline.ranges, host.timeline.calls
    shown = [span for span, kind in zip(ranges.spans(), ranges.kind, strict=True) if kind == OPERATOR]
    silent = subtract([host.window.span], union([*shown, *calls.spans()]))
    return [(start, end) for start, end in silent if end - start >= LONG_GAP_NS]


def _on_cpu(host: HostTime) -> list[Entry]:
    """The collectives of a program on the CPU, which run on threads of their own: it waits for them where its own does nothing else."""
    rows, texts, communicating = host.timeline.ranges, host.timeline.names.texts, host.communicating
    named = ((texts[rows.name[index]], rows.span(index)) for index in host.collectives)
    return [Entry(name, *span, intersect(communicating, [span]), is_sending(name)) for name, span in named]


def _key(accounting: Accounting, index: int, name: str) -> tuple[str, bool]:
    """(group and number of a collective where the file has them, else its name; whether it is one between two ranks)."""
    detail = accounting.timeline.operations.detail[index]
    collective = accounting.timeline.collectives[detail] if detail >= 0 else None
    is_numbered = collective is not None and collective.sequence >= 0
    key = f"{collective.group}#{collective.sequence}" if collective is not None and is_numbered else name.partition("(")[0]
    return key, is_between_two(accounting.times[0], index, accounting.threads)


def leaving_together(each: Sequence[RankSummary]) -> list[RankSummary]:
    """The same, with what ranks do not leave together marked as between two of them, where no file says what it is.

    NCCL calls what one rank sends to another as it calls an exchange of all. The first stage of a pipeline has half as many as the second.
    """
    names = {entry.key for summary in each for entry in summary.collectives if "#" not in entry.key}
    apart = {name for name in names if _is_apart([_ends(summary, name) for summary in each])}
    if not apart:
        return list(each)
    marked = []
    for summary in each:
        entries = [entry._replace(is_between_two=True) if entry.key in apart else entry for entry in summary.collectives]
        marked.append(summary._replace(collectives=entries))
    return marked


def _is_apart(ends: Sequence[Sequence[int]]) -> bool:
    """Whether collectives, matched in order, end at times that differ by more than what is between two of them, on any two ranks."""
    if any(len(one) < MIN_MATCHED for one in ends):
        return False
    longest = max(ends, key=len)
    usual = median([after - before for before, after in itertools.pairwise(longest)])
    shifts = ((one, _shift(one, longest)) for one in ends)
    return any(_spread(one, longest, shift) > max(usual, MAX_APART_NS) for one, shift in shifts)


def aligned(each: Sequence[RankSummary]) -> list[RankSummary]:
    """The same with collectives that have no number of their own matched by when ranks leave them, where windows begin apart.

    All ranks leave a collective together, so the times between two ends are the same on all of them, whatever their clocks show.
    """
    longest = max(each, key=lambda summary: len(summary.collectives), default=None)
    if longest is None:
        return []
    ends = {name: _ends(longest, name) for name in {entry.key for entry in longest.collectives}}
    moved = []
    for summary in each:
        begin = {name: _shift(_ends(summary, name), theirs) for name, theirs in ends.items() if "#" not in name}
        entries = []
        for entry in summary.collectives:
            if entry.key in begin:
                entries.append(entry._replace(key=f"{entry.key}@{begin[entry.key]}"))
                begin[entry.key] += 1
            else:
                entries.append(entry)
        moved.append(summary._replace(collectives=entries))
    return moved


def _ends(summary: RankSummary, name: str) -> list[int]:
    return [entry.end for entry in summary.collectives if entry.key == name]


def _shift(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many collectives of the other rank come before our first: where the ends differ by the same time throughout."""
    most = min(MAX_SHIFT, max(len(mine), len(theirs)))
    return min(range(-most, most + 1), key=lambda shift: (_spread(mine, theirs, shift), abs(shift)))


def _spread(mine: Sequence[int], theirs: Sequence[int], shift: int) -> float:
    """Return how far ends differ from what they differ by mostly, in ns."""
    apart = [ours - other for ours, other in zip(mine[max(0, -shift) :], theirs[max(0, shift) :], strict=False)]
    if len(apart) < max(MIN_MATCHED, len(mine) // 4):
        return inf
    middle = median(apart)
    return median([abs(value - middle) for value in apart])
