"""Which times of the host a damaged file holds as a whole: with all that devices did of what was launched in them.

A profiler writes down last what devices did, by the buffers in which it got that, and maybe the calls beside it. Of a file that breaks
off, devices seem to have done nothing in the last steps, or in some between others.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sysperf.trace import kernels as by_name
from sysperf.trace.intervals import Interval
from sysperf.trace.timeline import OPERATOR, Timeline

MIN_DONE = 0.95
"""Of the launches of a time: devices did them, by the file."""
MIN_ALIKE = 0.9
"""Of the launches by operator that the time with most of them has: calls may be lost with what they launched."""


def whole(timeline: Timeline, spans: list[Interval]) -> list[Interval]:
    """Return the longest run of these times, in order, of which the file has all that devices did; all where it lost nothing.

    Of several, one alone is none: nothing shows that it has as many launches as it should.
    """
    launches = _launches(timeline) if spans else _NONE
    if not launches.done:
        return spans
    lost = launches.lost_from
    early = spans if lost is None else [span for span in spans if span[1] <= lost]
    done, missed = _Starts(launches.done), _Starts(launches.missed)
    rows = timeline.ranges
    operators = _Starts(start for start, kind in zip(rows.start, rows.kind, strict=True) if kind == OPERATOR)
    dense = [done.within(span) / max(1, operators.within(span)) if operators else 1.0 for span in early]
    most = max(dense, default=0.0)
    are_whole = [
        done.within(span) >= MIN_DONE * (done.within(span) + missed.within(span)) and part >= MIN_ALIKE * most
        for span, part in zip(early, dense, strict=True)
    ]
    groups = itertools.groupby(zip(early, are_whole, strict=True), key=lambda pair: pair[1])
    runs = [[span for span, _ in group] for is_whole, group in groups if is_whole]
    return max(runs, key=len, default=[]) if sum(are_whole) > 1 or len(spans) == 1 else []


def are_known(timeline: Timeline) -> bool:
    """Whether the file lost events, and tells by its launches which."""
    return bool(_launches(timeline).done)


def begins(timeline: Timeline) -> int | None:
    """Return when the host made the first of those last launches of a damaged file whose operations are not in it; None: there are none."""
    return _launches(timeline).lost_from


class _Launches(NamedTuple):
    """Launches of a damaged file, by whether it has the operations: when they began, in order."""

    done: Sequence[int]
    missed: Sequence[int]
    lost_from: int | None
    """When the first of the last ones began that lack operations; of a file that breaks off without such, the end of the last call."""


_NONE = _Launches((), (), None)


def _launches(timeline: Timeline) -> _Launches:
    """Return those of a file that lost events; none of any other.

    Of calls by a name of which none has an operation, the writer may not say what they launched. Some write calls among the operations:
    what such a file has lost begins behind its last call.
    """
    damage, calls, texts = timeline.damage, timeline.calls, timeline.names.texts
    if not (damage.breaks_off or damage.dropped):
        return _NONE
    wanted = {name for name in set(calls.name) if by_name.is_launch_call(texts[name])}
    known = set(timeline.operations.correlation)
    rows = [row for row in zip(calls.start, calls.name, calls.correlation, strict=True) if row[1] in wanted]
    done = sorted(start for start, _, number in rows if number in known)
    answered = {name for _, name, number in rows if number in known}
    missed = sorted(start for start, name, number in rows if number not in known and name in answered)
    if not done:
        return _NONE
    last = missed[bisect_left(missed, done[-1]) :]
    return _Launches(done, missed, last[0] if last else max(calls.end) if damage.breaks_off else None)


class _Starts:
    """Beginnings of things of one kind, to count them in a time."""

    def __init__(self, starts: Iterable[int]) -> None:
        self._starts = sorted(starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def within(self, span: Interval) -> int:
        """How many of them began in this time."""
        return bisect_left(self._starts, span[1]) - bisect_left(self._starts, span[0])
