"""Which long times between operators are the program's doing: those that come back at the same place of its iterations.

What takes the CPU away from a program (another one whose turn it is) comes wherever the program is just then. A place is the
operator that ended before, counted within its iteration by name: the seventh `aten::addmm`, or the last one.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from sysperf.trace.intervals import Interval, Intervals

MIN_ITERATIONS = 4
MIN_TIMES = 3
Part = tuple[int, int, int]
"""Start, end and name of what the thread did that is no pause: an outermost operator, a request to the loader, communication."""
Place = tuple[int, int]
"""A name, and which of that name it is in its iteration; negative: counted from the iteration's end."""


class Pauses(NamedTuple):
    """Pauses by when they come back."""

    regular: Intervals
    """At places where half of the iterations pause, or more; of two or three iterations, each."""
    periodic: Intervals
    """At places where fewer do, at equal distances, or each that gets there: a checkpoint in every tenth step."""
    scattered: Intervals
    """The rest: at another place in each iteration."""


def outermost(spans: Iterable[Part]) -> list[Part]:
    """Those that lie in no other one, in order."""
    parts, frontier = list[Part](), None
    for part in sorted(spans, key=lambda part: (part[0], -part[1])):
        if frontier is None or part[0] >= frontier:
            parts.append(part)
        frontier = part[1] if frontier is None else max(frontier, part[1])
    return parts


def told_apart(pauses: Intervals, parts: list[Part], iterations: Intervals) -> Pauses:
    """The pauses by whether they come back at the same place; of fewer than two iterations nobody knows, and all are scattered."""
    places, visits = _places(parts, [start for start, _ in iterations]), defaultdict[Place, set[int]](set)
    for number, at in places:
        for place in at if number >= 0 else ():
            visits[place].add(number)
    starts, pausing = [start for start, _, _ in parts], defaultdict[Place, set[int]](set)
    located = list[tuple[Interval, tuple[Place, ...]]]()
    last = len(iterations) - 1
    for pause in pauses:
        before = bisect_right(starts, pause[0]) - 1
        number, at = places[before] if before >= 0 else (-1, ())
        located.append((pause, at))
        for place in at:
            pausing[place].add(number if 0 <= number <= last else last)  # what precedes the first iteration ends one like the last
    kinds = {place: _kind(numbers, visits[place], len(iterations)) for place, numbers in pausing.items()}
    chosen: tuple[Intervals, Intervals, Intervals] = [], [], []
    for pause, at in located:
        chosen[min((kinds[place] for place in at), default=2)].append(pause)
    return Pauses(*chosen)


def _places(parts: list[Part], starts: list[int]) -> list[tuple[int, tuple[Place, ...]]]:
    """(iteration, the two places) of each part."""
    numbers = [bisect_right(starts, start) - 1 for start, _, _ in parts]
    total = Counter((number, name) for number, (_, _, name) in zip(numbers, parts, strict=True))
    seen = Counter[tuple[int, int]]()
    places = list[tuple[int, tuple[Place, ...]]]()
    for number, (_, _, name) in zip(numbers, parts, strict=True):
        count = seen[number, name]
        seen[number, name] += 1
        places.append((number, ((name, count), (name, count - total[number, name]))))
    return places


def _kind(pausing: set[int], visiting: set[int], iterations: int) -> int:
    """The index in `Pauses` of a place where these iterations pause, of those that get there."""
    if iterations < MIN_ITERATIONS:
        return 0 if 1 < iterations == len(pausing) else 2
    if 2 * len(pausing) >= iterations:
        return 0
    distances = {after - before for before, after in itertools.pairwise(sorted(pausing))}
    is_periodic = len(pausing) >= MIN_TIMES and len(distances) == 1
    return 1 if is_periodic or (len(pausing) > 1 and pausing >= visiting) else 2
