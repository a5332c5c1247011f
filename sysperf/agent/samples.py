"""Samples of series in memory: those that are not written yet, the minute that is not over, and points made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sysperf.agent.answers import Point

MINUTE_S = 60
PROCESS = "process."
MAX_NAME = 200
MAX_IN_SAMPLE = 2_000
MAX_FLOAT = 3.4e38


class Piece(NamedTuple):
    """Samples of one series, as they are added up to points."""

    at: float
    samples: int
    mean: float
    low: float
    high: float


class Chunk(NamedTuple):
    """All samples of one flush within one minute of the clock; NaN where a series has none."""

    at: float
    times: Sequence[float]
    columns: Mapping[str, Sequence[float]]


class Minute(NamedTuple):
    """What became of each series in one minute."""

    at: float
    figures: Mapping[str, Piece]


Row = Chunk | Minute


class Recent:
    """Samples that are not written yet, and the minute that is not over."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, dict[str, float]]] = []
        self._minute = math.nan
        self._figures: dict[str, list[float]] = {}

    def append(self, at: float, values: Mapping[str, float]) -> None:
        """Keep one sample; a figure that is not a number is no figure."""
        self.pending.append((at, _bounded(values)))

    def take(self) -> list[Row]:
        """What is to be written now."""
        rows: list[Row] = []
        for chunk in self.chunks():
            if chunk.at // MINUTE_S != self._minute:
                rows += self.seal()
                self._minute = chunk.at // MINUTE_S
            self._add(chunk)
            rows.append(chunk)
        self.pending = []
        return rows

    def seal(self) -> list[Row]:
        """The minute so far; the next sample begins another."""
        minute = Minute(self._minute * MINUTE_S, {name: _piece(self._minute, parts) for name, parts in self._figures.items()})
        self._figures = {}
        self._minute = math.nan
        return [minute] if minute.figures else []

    def chunks(self) -> list[Chunk]:
        """The samples that wait, cut where a minute of the clock ends and where the clock jumps back."""
        runs: list[list[tuple[float, dict[str, float]]]] = []
        for sample in self.pending:
            last = runs[-1][-1][0] if runs else math.inf
            if sample[0] < last or sample[0] // MINUTE_S != last // MINUTE_S:
                runs.append([])
            runs[-1].append(sample)
        return [_chunk(run) for run in runs]

    def _add(self, chunk: Chunk) -> None:
        for name, column in chunk.columns.items():
            known = [value for value in column if value == value]  # noqa: PLR0124 - NaN is not equal to itself
            count, total, low, high = self._figures.get(name) or (0, 0.0, math.inf, -math.inf)
            self._figures[name] = [count + len(known), total + sum(known), min(low, *known), max(high, *known)]


def _bounded(values: Mapping[str, float]) -> dict[str, float]:
    """The figures that can be kept: finite, under a name, and not too many; those of processes go first."""
    kept = {
        name: float(value)
        for name, value in values.items()
        if -MAX_FLOAT < value < MAX_FLOAT and len(name) <= MAX_NAME and name.isprintable()
    }
    if len(kept) > MAX_IN_SAMPLE:
        kept = dict(sorted(kept.items(), key=lambda pair: pair[0].startswith(PROCESS))[:MAX_IN_SAMPLE])
    return kept


def _chunk(run: list[tuple[float, dict[str, float]]]) -> Chunk:
    names = dict.fromkeys(name for _, values in run for name in values)
    columns = {name: [values.get(name, math.nan) for _, values in run] for name in names}
    return Chunk(run[0][0], [at - run[0][0] for at, _ in run], columns)


def _piece(minute: float, parts: Sequence[float]) -> Piece:
    count, total, low, high = parts
    return Piece((minute + 0.5) * MINUTE_S, int(count), total / count, low, high)


def pieces_of(at: float, times: Sequence[float], column: Sequence[float], width: float = 0.0) -> Iterator[Piece]:
    """One piece a sample; one for all where a point is as wide as they are."""
    if times[-1] <= width:
        known = [value for value in column if value == value]  # noqa: PLR0124 - NaN is not equal to itself
        if known:
            yield Piece(at + times[-1] / 2, len(known), sum(known) / len(known), min(known), max(known))
        return
    for offset, value in zip(times, column, strict=True):
        if value == value:  # noqa: PLR0124 - as above
            yield Piece(at + offset, 1, value, value, value)


def points(pieces: Iterable[Piece], since: float, until: float, most: int) -> tuple[Point, ...]:
    """Return at most `most` points in order of time; each is the mean of its samples, at their mean time."""
    width = max(until - since, 1e-3) / most
    sums: dict[int, list[float]] = {}
    for at, count, mean, low, high in pieces:
        if since <= at <= until:
            place = min(int((at - since) / width), most - 1)
            known = sums.setdefault(place, [0, 0.0, 0.0, math.inf, -math.inf])
            known[0] += count
            known[1] += (at - since) * count
            known[2] += mean * count
            known[3] = min(known[3], low)
            known[4] = max(known[4], high)
    return tuple(_point(since, *sums[place]) for place in sorted(sums))


def _point(since: float, count: float, time: float, total: float, low: float, high: float) -> Point:
    return Point(since + time / count, total / count, low, high)
