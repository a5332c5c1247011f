"""Sets of time as sorted lists of disjoint half-open intervals (start, end), in integer nanoseconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Interval = tuple[int, int]
Intervals = list[Interval]


def union(intervals: Iterable[Interval]) -> Intervals:
    """The time that any of these intervals covers; empty and negative intervals cover nothing."""
    merged: Intervals = []
    first, last = 0, -1
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if start <= last and last >= first:
            last = max(last, end)
            continue
        if last > first:
            merged.append((first, last))
        first, last = start, end
    if last > first:
        merged.append((first, last))
    return merged


def length(intervals: Iterable[Interval]) -> int:
    """The total time of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def clip(intervals: Iterable[Interval], window: Interval) -> Intervals:
    """What of each interval lies in the window; the intervals may overlap, and stay as they are sorted."""
    low, high = window
    return [(max(start, low), min(end, high)) for start, end in intervals if start < high and end > low]


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """The time that both sets cover."""
    common: Intervals = []
    others = iter(right)
    low, high = next(others, (0, 0))
    for start, end in left:
        while low < end and low < high:
            if high > start:
                common.append((max(low, start), min(high, end)))
            if high > end:
                break
            low, high = next(others, (0, 0))
        if low >= high:
            break
    return common


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """The time of `left` that `right` does not cover."""
    kept: Intervals = []
    j = 0
    for start, end in left:
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < end:
            if right[k][0] > start:
                kept.append((start, right[k][0]))
            start = max(start, right[k][1])  # noqa: PLW2901 - what is left of it
            k += 1
        if start < end:
            kept.append((start, end))
    return kept


def median(values: Iterable[float]) -> float:
    """The middle of some values, as that of `statistics`, which takes 4 ms to import."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def overlap(parts: Intervals, span: Interval) -> int:
    """How much of `span` these disjoint, sorted intervals cover; quick where they are many."""
    position = max(0, bisect_right(parts, (span[0], span[0])) - 1)
    total = 0
    while position < len(parts) and parts[position][0] < span[1]:
        total += max(0, min(parts[position][1], span[1]) - max(parts[position][0], span[0]))
        position += 1
    return total
