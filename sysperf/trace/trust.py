"""Whether a trace can be believed: what is impossible in it is counted before anything is concluded."""

from __future__ import annotations

from sysperf.trace import kernels as by_name
from sysperf.trace.exposed import MAX_DEVICE_NS, Launches
from sysperf.trace.facts import Trust
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import Timeline

CLOCK_NS = 1_000
"""Files with whole microseconds round start and length each for itself."""


def examine(timeline: Timeline, launches: Launches) -> Trust:
    """Count what cannot be: over the whole file, not over the window."""
    rows, damage = timeline.operations, timeline.damage
    unlaunched = launches.times.count(None)
    early = sum(at is not None and start < at for start, at in zip(rows.start, launches.times, strict=True))
    total = len(rows)
    return Trust(
        gpu_ops=total,
        gpu_before_launch=early,
        same_stream_overlaps=_overlaps(timeline),
        bad_durations=sum(not 0 <= end - start <= MAX_DEVICE_NS for start, end in rows.spans()),
        uncorrelated_gpu_ops=unlaunched,
        uncorrelated_pct=100 * unlaunched / total if total else 0.0,
        damaged_events=damage.events + damage.no_duration,
        dropped_events=damage.dropped,
        truncated=damage.truncated,
        device_missing=not total and _launches_kernels(timeline),
    )


def _overlaps(timeline: Timeline) -> int:
    """A stream does one thing after the other: what starts before its predecessor's end is wrong by that much."""
    rows = timeline.operations
    ends: dict[tuple[int, int], int] = {}
    count = 0
    for index in sorted(range(len(rows)), key=rows.start.__getitem__):
        key = rows.device[index], rows.stream[index]
        count += ends.get(key, rows.start[index]) - rows.start[index] > CLOCK_NS
        ends[key] = max(ends.get(key, 0), rows.end[index])
    return count


def _launches_kernels(timeline: Timeline) -> bool:
    launch = ByName(timeline.names, by_name.is_launch_call)
    return any(launch(name) for name in set(timeline.calls.name))
