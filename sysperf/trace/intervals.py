"""Sets of time as sorted lists of disjoint half-open intervals (start, end), in integer nanoseconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Interval = tuple[int, int]
Intervals = list[Interval]
_EVER = -(1 << 63), 1 << 63
MANY_TIMES = 8
"""Where one set has so many times more intervals than the other, the places in it are looked up."""


def union(intervals: Iterable[Interval]) -> Intervals:
    """The time that any of these intervals covers; empty and negative intervals cover nothing."""
    merged: Intervals = []
    first, last = 0, _EVER[0]
    for start, end in sorted(intervals):
        if start > last:
            if last > first:
                merged.append((first, last))
            first, last = start, end
        elif end > last:
            last = end
    if last > first:
        merged.append((first, last))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """The total time of disjoint intervals."""
    return sum([end - start for start, end in intervals])  # a list takes two thirds of a generator's time


def clip(intervals: Iterable[Interval], window: Interval) -> Intervals:
    """What of each interval lies in the window; the intervals may overlap, and stay as they are sorted."""
    low, high = window
    return [
        (start, end) if low <= start and end <= high else (max(low, start), min(high, end))
        for start, end in intervals
        if start < high and end > low
    ]


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """The time that both sets cover."""
    few, many = sorted((left, right), key=len)
    return _cut_out(many, few) if len(few) * MANY_TIMES < len(many) else _both(few, many)


def _cut_out(many: Intervals, few: Intervals) -> Intervals:
    """What lies within a few intervals of many."""
    common: Intervals = []
    for low, high in few:
        first = bisect_right(many, (low, _EVER[1])) - 1
        if first < 0 or many[first][1] <= low:
            first += 1
        last = bisect_left(many, (high, _EVER[0]), first)
        common += clip(many[first : first + 1], (low, high))
        if last - first > 1:
            common += many[first + 1 : last - 1]
            common += clip(many[last - 1 : last], (low, high))
    return common


def _both(left: Intervals, right: Intervals) -> Intervals:
    """The time that both cover, by going through both."""
    common: Intervals = []
    others = iter(right)
    low, high = next(others, (0, 0))
    for start, end in left:
        while low < end and low < high:
            if high > start:
                common.append((max(start, low), min(end, high)))
            if high > end:
                break
            low, high = next(others, (0, 0))
        if low >= high:
            break
    return common


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """The time of `left` that `right` does not cover."""
    if not left or not right:
        return left.copy()
    starts, ends = [start for start, _ in right], [end for _, end in right]
    between = zip([_EVER[0], *ends], [*starts, _EVER[1]], strict=True)
    return intersect(left, [(start, end) for start, end in between if start < end])


def median(values: Iterable[float]) -> float:
    """The middle of some values, as that of `statistics`, which takes 4 ms to import."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def overlap(parts: Intervals, span: Interval) -> int:
    """How much of `span` these disjoint, sorted intervals cover; quick where they are many."""
    low, high = span
    first = max(0, bisect_right(parts, (low, _EVER[1])) - 1)
    if first < len(parts) and parts[first][1] <= low:
        first += 1
    inside = parts[first : bisect_left(parts, (high, _EVER[0]), first)]
    return length(inside) - max(0, low - inside[0][0]) - max(0, inside[-1][1] - high) if inside else 0
