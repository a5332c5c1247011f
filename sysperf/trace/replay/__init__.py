"""The step replayed without a cause.

A replay runs the graph forward: the host does one thing after the other, each operation starts when it was launched, its
stream is free and what it waits for is done. An `Edit` takes a cause away.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from operator import add
from typing import NamedTuple

from sysperf.trace.replay import graph as nodes
from sysperf.trace.replay.graph import Graph

LONG_THINK_NS = 1_000_000
HAND_OVER_NS = 3_500_000
"""What taking a batch over from a worker costs the main thread at the most, and no more than making it: a worker that computes in Python
answers late (3.5 ms of wall time where `HAND_OVER_MS` of `fixes` was measured, 3.7 to 5.1 ms at a load average of 4)."""


class Edit(NamedTuple):
    """What is different in a replay."""

    loader: str = "keep"
    """`keep`, `worker` (one process prepares batches beside the step) or `gone`."""
    no_waits: frozenset[int] = frozenset()
    """Kinds of calls that return at once."""
    short_host: float = 1.0
    """Factor for launches and the host's time between them, where that is short."""
    region: int = 0
    """Where only that part of the host is short: `OPTIMIZER` or `ZERO_GRAD`; 0: everywhere."""
    long_host: float = 1.0
    """Factor for the host's long times between calls."""
    no_allocation: bool = False
    beside: int = 0
    """Flags of operations that get a stream of their own and that nothing waits for."""
    speed: tuple[tuple[int, float], ...] = ()
    """(flag, factor for the duration)."""

    def thinking(self, time: int) -> int:
        """What is left of the host's time between two calls, outside of the regions."""
        if time >= LONG_THINK_NS:
            return int(time * self.long_host)
        return time if self.region else int(time * self.short_host)


UNCHANGED = Edit()


Step = tuple[int, int, tuple[int, ...]]
"""An item of the host: the operation that it waits for, or -1; ns from that one's end to its own; the operations that it launches.

Where operations have got streams of their own, and it waits for those, too, the first is -3 less that operation."""
Plan = tuple[int, int, int]
"""An operation: its stream; ns from its launch; the operation that it waits for, or -1."""


class Host(NamedTuple):
    """The items of the host, by what a replay needs of them."""

    thinks: list[int]
    """ns before it."""
    takes: list[int]
    """ns that it takes; negative: a request to the loader, which takes so long."""
    steps: list[Step]


class Prepared:
    """A graph that is replayed with several edits. Each of them changes a few items and operations, and shares the others."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.streams = 1 + max((operation.stream for operation in graph.operations), default=0)
        self._items, self._operations = _Items(graph), _Operations(graph)
        self._plain = Host(
            [item.think for item in graph.items],
            list(map(_took, graph.items)),
            [(item.waits_for, item.lag, item.operations) for item in graph.items],
        )
        self._plans: list[Plan] = [(operation.stream, operation.latency, operation.after) for operation in graph.operations]
        self._durations = [operation.duration for operation in graph.operations]
        self._delays = {
            True: [operation.lag + operation.unexplained for operation in graph.operations],
            False: [operation.lag for operation in graph.operations],
        }
        """ns before each operation that are no other's; with those that nothing explains, and without."""
        self._lengths = {keep: list(map(add, self._durations, delays)) for keep, delays in self._delays.items()}
        self.first_batch = _first_batch(graph)
        self._hosts: dict[Edit, Host] = {}
        self._times: dict[tuple[Edit, bool], int] = {}

    def time(self, edit: Edit, *, keep_unexplained: bool = True) -> int:
        """Nanoseconds that the window takes with this edit."""
        key = self._concerned(edit), keep_unexplained or not self._operations.unexplained
        if key not in self._times:
            self._times[key] = _Run(self, *key).total()
        return self._times[key]

    def _concerned(self, edit: Edit) -> Edit:
        """What of an edit concerns this graph: edits that do the same here are replayed once."""
        kinds = self._items.kinds
        return Edit(
            loader=edit.loader if nodes.LOADER in kinds else "keep",
            no_waits=edit.no_waits.intersection(kinds),
            short_host=edit.short_host if not edit.region or edit.region in self._items.regions else 1.0,
            region=edit.region if edit.region in self._items.regions else 0,
            long_host=edit.long_host,
            no_allocation=edit.no_allocation and nodes.ALLOCATION in kinds,
            beside=sum(flag for flag in self._operations.flagged if edit.beside & flag),
            speed=tuple((flag, factor) for flag, factor in edit.speed if flag in self._operations.flagged),
        )

    def host(self, edit: Edit) -> Host:
        """The host with this edit."""
        of_host = edit._replace(beside=1 if edit.beside else 0, speed=())
        if of_host not in self._hosts:
            self._hosts[of_host] = self._items.edited(self._plain, of_host)
        return self._hosts[of_host]

    def plans(self, edit: Edit) -> list[Plan]:
        """Return when operations can start with this edit."""
        if not edit.beside:
            return self._plans
        operations, plans = self.graph.operations, self._plans.copy()
        for index in self._operations.following:
            stream, latency, after = plans[index]
            plans[index] = stream, latency, -1 if operations[after].flags & edit.beside else after
        for index in self._operations.with_flags(flag for flag in self._operations.flagged if flag & edit.beside):
            plans[index] = self.streams + bool(operations[index].flags & edit.beside & nodes.NCCL), 0, -1
        return plans

    def lengths(self, edit: Edit, keep_unexplained: bool) -> list[int]:
        """ns from when each operation can start to its end, with this edit."""
        if not edit.beside and not edit.speed:
            return self._lengths[keep_unexplained]
        durations, delays = self._durations.copy(), self._delays[keep_unexplained].copy()
        for flag, factor in edit.speed:
            for index in self._operations.flagged.get(flag, ()):
                durations[index] = int(durations[index] * factor)
        for index in self._operations.with_flags(flag for flag in self._operations.flagged if flag & edit.beside):
            delays[index] = 0
        return list(map(add, durations, delays))


class _Items:
    """The items of a graph by what an edit can change about them."""

    def __init__(self, graph: Graph) -> None:
        self.kinds: dict[int, list[int]] = {}
        self.regions: dict[int, list[int]] = {}
        self._long: list[int] = []
        self._nested: list[int] = []
        self._waits_for_all: list[int] = []
        for index, item in enumerate(graph.items):
            self.kinds.setdefault(item.kind, []).append(index)
            if item.waits_for_all:
                self._waits_for_all.append(index)
            if item.region:
                self.regions.setdefault(item.region, []).append(index)
            if item.think >= LONG_THINK_NS or item.in_long_gap:
                self._long.append(index)
            elif item.nested and item.think < 0:
                self._nested.append(index)

    def edited(self, plain: Host, edit: Edit) -> Host:
        """The host with this edit."""
        thinks, takes, steps = plain.thinks.copy(), plain.takes.copy(), plain.steps.copy()
        if edit.short_host < 1:
            self._shorten(thinks, takes, edit)
        for index in self._long if edit.long_host < 1 else ():
            thinks[index] = int(thinks[index] * edit.long_host)
        for index in self._nested if edit.loader != "keep" else ():
            thinks[index] = -1
        for index in self._waits_for_all if edit.beside else ():
            steps[index] = (-3 - steps[index][0], *steps[index][1:])
        for kind in (*edit.no_waits, *((nodes.ALLOCATION,) if edit.no_allocation else ())):
            for index in self.kinds.get(kind, ()):  # the synchronisation and the allocation themselves go, too
                takes[index] = min(takes[index], nodes.OWN_NS) if kind in (nodes.COPYING, nodes.FILLING) else 0
                steps[index] = (-1, *steps[index][1:])
        return Host(thinks, takes, steps)

    def _shorten(self, thinks: list[int], takes: list[int], edit: Edit) -> None:
        """Launches and the short times between calls, everywhere or in a region."""
        factor, launches = edit.short_host, self.kinds.get(nodes.LAUNCH, [])
        if edit.region:
            concerned = self.regions.get(edit.region, [])
            launches = sorted(set(launches).intersection(concerned))
            for index in concerned:
                if 0 <= thinks[index] < LONG_THINK_NS:
                    thinks[index] = int(thinks[index] * factor)
        else:
            thinks[:] = [int(think * factor) if 0 <= think < LONG_THINK_NS else think for think in thinks]
        for index in launches:
            takes[index] = int(takes[index] * factor)


class _Operations:
    """The operations of a graph by what an edit can change about them."""

    def __init__(self, graph: Graph) -> None:
        self.flagged: dict[int, list[int]] = {}
        self.unexplained: list[int] = []
        self.following: list[int] = []
        flags_of = {flags: [flag for flag in nodes.FLAGS if flags & flag] for flags in {operation.flags for operation in graph.operations}}
        for index, operation in enumerate(graph.operations):
            for flag in flags_of[operation.flags]:
                self.flagged.setdefault(flag, []).append(index)
            if operation.unexplained:
                self.unexplained.append(index)
            if operation.after >= 0:
                self.following.append(index)

    def with_flags(self, flags: Iterable[int]) -> list[int]:
        """The operations that are one of these."""
        return list(itertools.chain(*(self.flagged.get(flag, ()) for flag in flags)))


def _first_batch(graph: Graph) -> int:
    """Return when the batch of the step before the window was there, if that step went on as long behind its batch as the last one does."""
    loads = [item for item in graph.items if item.kind == nodes.LOADER]
    if not loads:
        return graph.start
    took = loads[-1].end - loads[-1].start
    return graph.start - (graph.end - loads[-1].end) - min(took, HAND_OVER_NS)


def _took(item: nodes.Item) -> int:
    """What an item takes of the host, nothing where it ends before it begins; a request to the loader is negative."""
    took = max(0, item.end - item.start)
    if item.kind == nodes.LOADER:
        return -max(1, took)
    return min(took, nodes.OWN_NS) if item.waits_for >= 0 else took


class _Run:
    """One replay: a loop that only adds and compares."""

    def __init__(self, prepared: Prepared, edit: Edit, keep_unexplained: bool) -> None:
        self._graph, self._edit = prepared.graph, edit
        self._streams = prepared.streams
        self._host, self._plans, self._lengths = prepared.host(edit), prepared.plans(edit), prepared.lengths(edit, keep_unexplained)
        self._ends = [self._graph.start] * len(self._graph.operations)
        self._free = [self._graph.start] * (self._streams + 2)
        """When each stream is free; the last two are those of copies and collectives that get one of their own."""
        self._batch = prepared.first_batch
        """When the worker had the last batch ready."""
        self._made = iter([item.end for item in self._graph.items if item.kind == nodes.LOADER])

    def total(self) -> int:
        """Nanoseconds from the window's start until host and device are done."""
        graph, free, ends, plans, lengths = self._graph, self._free, self._ends, self._plans, self._lengths
        for index in graph.earlier:
            self._earlier(index)
        frontier = previous = graph.start
        for think, took, (waits_for, lag, operations) in zip(*self._host, strict=True):
            start = frontier + think if think >= 0 else previous - think - 1
            for index in operations:
                stream, latency, after = plans[index]
                begin = start + latency
                if free[stream] > begin:  # noqa: PLR1730 - max() takes twice as long, and this runs 200,000 times
                    begin = free[stream]
                if after >= 0 and ends[after] > begin:
                    begin = ends[after]
                free[stream] = ends[index] = begin + lengths[index]
            end = start + took if took >= 0 else self._loaded(start, -took)
            if waits_for >= 0:
                end = max(end, ends[waits_for] + lag)
            elif waits_for < -1:
                end = max(end, max(free[-2], free[-1], ends[-3 - waits_for] if waits_for < -2 else 0) + lag)
            previous = start
            if end > frontier:  # noqa: PLR1730 - as above
                frontier = end
        return max([frontier + self._edit.thinking(graph.last_think), *ends]) - graph.start

    def _earlier(self, index: int) -> None:
        """An operation that was launched before the window, or nobody knows when."""
        stream, _, after = self._plans[index]
        started = self._graph.operations[index].start
        begin = started if started < self._graph.start and stream < self._streams else self._free[stream]
        if after >= 0:
            begin = max(begin, self._ends[after])
        self._free[stream] = self._ends[index] = begin + self._lengths[index]

    def _loaded(self, start: int, took: int) -> int:
        """Return when a batch is there that was asked for at `start`: one that workers had not ready does not come sooner."""
        made = next(self._made)
        if self._edit.loader == "gone":
            return start
        if self._edit.loader == "worker":
            self._batch = max(self._batch + took, start)
            return self._batch + min(took, HAND_OVER_NS)
        if self._graph.has_workers and took > HAND_OVER_NS:
            return max(start + HAND_OVER_NS, made)
        return start + took
