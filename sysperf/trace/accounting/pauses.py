"""Which long times between operators are the program's doing: those that come back at the same place of its iterations.

What takes the CPU away from a program (another one whose turn it is) comes wherever the program is just then. A place is the
operator that ended before, counted within its iteration by name: the seventh `aten::addmm`, or the last one.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sysperf.trace.accounting.window import LONG_GAP_NS
from sysperf.trace.intervals import Interval, Intervals, median

MIN_ITERATIONS = 4
MIN_TIMES = 3
MUCH_SHORTER = 4
"""Pauses so many times shorter than the longest of their place are something else, as what takes the CPU away."""
OUTNUMBERED, AS_LONG = 2, 2
"""Pauses that come anywhere are so many times as many as those of a place, and differ by no more from their length."""
REGULAR, PERIODIC, SCATTERED = 0, 1, 2
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


class Shares(NamedTuple):
    """What pauses of some iterations cost, in percent of the time."""

    low: float = 0.0
    high: float = 0.0
    every: float | None = None
    """How many iterations it is from one to the next; None: there are none."""


def outermost(spans: Iterable[Part]) -> list[Part]:
    """Return those that lie in no other one, in order."""
    parts, frontier = list[Part](), None
    for part in sorted(spans, key=lambda part: (part[0], -part[1])):
        if frontier is None or part[0] >= frontier:
            parts.append(part)
        frontier = part[1] if frontier is None else max(frontier, part[1])
    return parts


def classify(pauses: Intervals, parts: list[Part], iterations: Intervals) -> Pauses:
    """The pauses by whether they come back at the same place; of fewer than two iterations nobody knows, and all are scattered."""
    places, visits = _places(parts, [start for start, _ in iterations]), defaultdict[Place, set[int]](set)
    for number, at in places:
        for place in at if number >= 0 else ():
            visits[place].add(number)
    starts, pausing = [start for start, _, _ in parts], defaultdict[Place, dict[int, int]](dict)
    located = list[tuple[Interval, tuple[Place, ...]]]()
    last = len(iterations) - 1
    for pause in pauses:
        before = bisect_right(starts, pause[0]) - 1
        number, at = places[before] if before >= 0 else (-1, ())
        located.append((pause, at))
        number = number if 0 <= number <= last else last  # what precedes the first iteration ends one like the last
        for place in at:
            pausing[place][number] = max(pause[1] - pause[0], pausing[place].get(number, 0))
    longest = {place: max(took.values()) for place, took in pausing.items()}
    kinds = dict[tuple[Place, bool], int]()
    for place, took in pausing.items():
        long = {number for number, ns in took.items() if MUCH_SHORTER * ns >= longest[place]}
        kinds[place, False] = _kind(set(took), visits[place], len(iterations))
        kinds[place, True] = min(kinds[place, False], _kind(long, visits[place], len(iterations)))
    chosen: tuple[Intervals, Intervals, Intervals] = [], [], []
    groups = defaultdict[tuple[int, tuple[Place, ...]], Intervals](list)
    for pause, at in located:
        ns = pause[1] - pause[0]
        kind = min((kinds[place, MUCH_SHORTER * ns >= longest[place]] for place in at), default=SCATTERED)
        (chosen[SCATTERED] if kind == SCATTERED else groups[kind, at]).append(pause)
    elsewhere = [end - start for start, end in chosen[SCATTERED]]
    for (kind, at), spans in groups.items():
        is_seldom = max(len(pausing[place]) for place in at) < min(len(iterations), *(len(visits[place]) for place in at))
        if is_seldom and _may_coincide(spans, elsewhere):
            chosen[SCATTERED].extend(spans)
        elif kind == PERIODIC:
            chosen[PERIODIC].extend(spans)
        else:
            usual, more = _parted(spans, iterations)
            chosen[REGULAR].extend(usual)
            chosen[PERIODIC].extend(more)
    return Pauses(*map(sorted, chosen))


def _may_coincide(spans: Intervals, elsewhere: Sequence[int]) -> bool:
    """Whether pauses of a place that has them now and then may be of those that come anywhere: far more, and as long.

    The kernel takes the CPU away after equal times, which may be a whole number of iterations.
    """
    if len(elsewhere) < OUTNUMBERED * len(spans):
        return False
    usual, here = median(elsewhere), median([end - start for start, end in spans])
    return usual <= AS_LONG * here and here <= AS_LONG * usual


def _parted(spans: Intervals, iterations: Intervals) -> tuple[Intervals, Intervals]:
    """(what each pause of a place has, what only every so many have), where some last twice as long as the median: more is done there."""
    took = [end - start for start, end in spans]
    usual, longest = int(median([*took, *[0] * (len(iterations) - len(took))])), max(took)
    longer = [(start, end) for start, end in spans if end - start >= max(2 * usual, longest / MUCH_SHORTER)]
    starts = [start for start, _ in iterations]
    if not _is_periodic({bisect_right(starts, start) - 1 for start, _ in longer}, len(iterations)):
        return spans, []
    return [(start, min(end, start + usual)) for start, end in spans], [(start + usual, end) for start, end in longer]


def scattered(took: Sequence[int]) -> int:
    """ns by which a few of these, at no equal distances, take longer than the median: something else had the CPU."""
    usual = median(took) if took else 0
    longer = {number for number, ns in enumerate(took) if ns >= max(2 * usual, LONG_GAP_NS)}
    return 0 if 2 * len(longer) >= len(took) or _is_periodic(longer, len(took)) else round(sum(took[number] - usual for number in longer))


def interrupted(parts: list[Part], iterations: Intervals) -> int:
    """ns by which parts take longer now and then than at the same place of other iterations."""
    took = defaultdict[Place, list[int]](list)
    for (start, end, _), (number, places) in zip(parts, _places(parts, [start for start, _ in iterations]), strict=True):
        for place in places[:1] if number >= 0 else ():
            took[place].append(end - start)
    return sum(scattered(times) for times in took.values() if len(times) >= MIN_ITERATIONS)


def shares(periodic: Intervals, iterations: Intervals) -> Shares:
    """What pauses that come back seldom cost: by how many are in the window, and by how far they are apart.

    Two pauses in seven iterations may come in every third one.
    """
    if not periodic or not iterations:
        return Shares()
    starts, took = [start for start, _ in iterations], Counter[int]()
    for start, end in periodic:
        took[bisect_right(starts, start) - 1 if start < iterations[-1][1] else len(starts)] += end - start
    lengths = [end - start - took[number] for number, (start, end) in enumerate(iterations)]
    within = sum(took[number] for number in range(len(starts)))
    usual, pause = max(1, median(lengths)), took.total() / sum(map(bool, took.values()))
    numbers = [number for number, ns in took.items() if ns]
    every = (max(numbers) - min(numbers)) / (len(numbers) - 1) if len(numbers) > 1 else len(starts)
    by_number, by_distance = min(100.0, 100 * within / max(1, sum(lengths) + within)), 100 * pause / (pause + every * usual)
    return Shares(min(by_number, by_distance), max(by_number, by_distance), every)


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
        return REGULAR if 1 < iterations == len(pausing) else SCATTERED
    if 2 * len(pausing) >= iterations:
        return REGULAR
    return PERIODIC if _is_periodic(pausing, iterations) or (len(pausing) > 1 and pausing >= visiting) else SCATTERED


def _is_periodic(those: set[int], iterations: int) -> bool:
    """Whether these of the iterations are at equal distances, from the first ones to the last."""
    distances = {after - before for before, after in itertools.pairwise(sorted(those))}
    if len(those) < MIN_TIMES or len(distances) > 1:
        return False
    return min(those) <= min(distances) and max(those) + min(distances) >= iterations - 1
