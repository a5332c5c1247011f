"""A host that asks again and again whether the device is done waits for it: a run of such questions is one call that waits."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from sysperf.trace import kernels as by_name
from sysperf.trace.intervals import Intervals, overlap, union
from sysperf.trace.timeline import Timeline

MIN_QUERIES = 3
MAX_PAUSE_NS = 2_000_000
"""Who sleeps for a millisecond between two questions still polls; who does not ask for so long does something else."""
MAX_PART = 0.5
"""Of a wait, the longest time between two questions: two questions around the host's own work are no polling."""
MIN_BUSY = 0.8
"""Of a wait, the part in which devices work; the launch of what is waited for may still be on its way at the beginning."""
MIN_WAIT_NS, LONG_WAIT_NS = 50_000, 500_000
"""An allocator asks once for each block that another stream used, while devices work on. Real traces have such runs of 261 µs, which
wait for nothing. So a run is a wait if devices have nothing left to do at its end, or if it is longer than an allocator takes."""


def merge(timeline: Timeline) -> None:
    """Make one call of each run of queries on a thread that ends when an operation of a device does; it has the place of the first."""
    texts, calls = timeline.names.texts, timeline.calls
    if not any(by_name.is_query_call(texts[name]) for name in set(calls.name)):
        return
    ends, busy = sorted(timeline.operations.end), union(timeline.operations.spans())
    left_out = set[int]()
    for run in _runs(timeline):
        kept = _until_done(timeline, run, busy, ends)
        if not kept:
            continue
        first, *others = kept
        calls.end[first] = calls.end[kept[-1]]
        calls.name[first] = timeline.names.number(f"{texts[calls.name[first]]}{by_name.POLLED}")
        left_out.update(others)
    if left_out:
        calls.keep([index for index in range(len(calls)) if index not in left_out])


def _runs(timeline: Timeline) -> Iterator[list[int]]:
    """Queries of a thread with no call between them that does anything."""
    calls, texts = timeline.calls, timeline.names.texts
    asks = {name for name in set(calls.name) if by_name.is_query_call(texts[name])}
    aside = {name for name in set(calls.name) if by_name.is_call_without_effect(texts[name])}
    of_thread = defaultdict[int, list[int]](list)
    for index, (name, thread) in enumerate(zip(calls.name, calls.thread, strict=True)):
        if name not in aside:
            of_thread[thread].append(index)
    for indices in of_thread.values():
        indices.sort(key=calls.start.__getitem__)
        run, previous = list[int](), -1
        for place in [place for place, index in enumerate(indices) if calls.name[index] in asks]:
            index = indices[place]
            if run and (place > previous + 1 or calls.start[index] - calls.end[run[-1]] > MAX_PAUSE_NS):
                yield run
                run = []
            run.append(index)
            previous = place
        yield run


def _until_done(timeline: Timeline, run: list[int], busy: Intervals, ends: list[int]) -> list[int]:
    """The run, if these are the questions of one wait, else nothing: an operation ended between the last two of them."""
    calls = timeline.calls
    if len(run) < MIN_QUERIES:
        return []
    start, end, before_last = calls.start[run[0]], calls.end[run[-1]], calls.start[run[-2]]
    longest = max(calls.start[after] - calls.end[before] for before, after in itertools.pairwise(run))
    place = bisect_right(ends, end) - 1
    if end - start < MIN_WAIT_NS or longest > MAX_PART * (end - start) or place < 0 or ends[place] < before_last:
        return []
    working = overlap(busy, (start, ends[place]))
    is_idle = not overlap(busy, (ends[place], end))
    return run if working >= MIN_BUSY * (ends[place] - start) and (is_idle or end - start >= LONG_WAIT_NS) else []
