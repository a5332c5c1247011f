"""Programs on the CPU that read tensors value by value: a loop with an `.item()` in it, not a loss that is read once a step."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from sysperf.startup import lazy
from sysperf.trace.accounting.host_time import HostTime
from sysperf.trace.accounting.nesting import Threads
from sysperf.trace.accounting.pauses import outermost
from sysperf.trace.accounting.sites import of_threads
from sysperf.trace.host_facts import Site
from sysperf.trace.intervals import Interval, Intervals, length, overlap, subtract, union

MIN_READS = 20
"""So many one after the other are a loop."""
MAX_APART_NS = 100_000
"""From one to the next, with what picks the element between them; a model's forward pass between two takes longer."""
_READ = lazy(r"aten::(?:item|_local_scalar_dense|is_nonzero)$")


class Readbacks(NamedTuple):
    """What reading values one by one takes."""

    pct: float = 0.0
    per_step: float | None = None
    sites: tuple[Site, ...] = ()


def describe(host: HostTime, threads: Threads, iterations: Intervals) -> Readbacks:
    """The time of the main thread's loops that read values, outside the loader and optimizers: Adam in a loop reads its steps' numbers."""
    rows, main, (low, high) = host.timeline.ranges, host.main, host.window.span
    named = host.timeline.ranges_named(_READ.match)
    aside = union([*host.loader, *host.optimizing, *host.compiling])
    ours = (i for i in named if rows.thread[i] == main and low <= rows.start[i] < high and not overlap(aside, (rows.start[i], rows.end[i])))
    reads = [(start, end) for start, end, _ in outermost((rows.start[i], rows.end[i], 0) for i in ours)]
    if main is None or len(reads) < MIN_READS:
        return Readbacks()
    loops = [run for run in _runs(reads) if len(run) >= MIN_READS]
    spans = subtract([(run[0][0], run[-1][1]) for run in loops], aside)
    return Readbacks(
        pct=host.share(host.window.covered(spans)),
        per_step=sum(map(len, loops)) / len(iterations) if iterations else None,
        sites=of_threads({main: spans}, threads, host.window.duration) if spans and length(spans) else (),
    )


def _runs(reads: Intervals) -> list[list[Interval]]:
    """Reads that follow each other at once, in groups."""
    runs = [[reads[0]]]
    for before, read in itertools.pairwise(reads):
        if read[0] - before[1] > MAX_APART_NS:
            runs.append([])
        runs[-1].append(read)
    return runs
