"""The step replayed without a cause.

A replay runs the graph forward: the host does one thing after the other, each operation starts when it was launched, its
stream is free and what it waits for is done. An `Edit` takes a cause away.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from sysperf.trace import graph as nodes
from sysperf.trace.graph import Graph

LONG_THINK_NS = 1_000_000


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

    def short(self, region: int = 0) -> float:
        """The factor for launches and short times there."""
        return self.short_host if not self.region or self.region == region else 1.0

    def thinking(self, time: int, region: int = 0) -> int:
        """What is left of the host's time between two calls."""
        if time >= LONG_THINK_NS:
            return int(time * self.long_host)
        return int(time * self.short_host) if not self.region or self.region == region else time


UNCHANGED = Edit()


Step = tuple[int, int, int, int, tuple[int, ...]]
"""An item of the host: ns before it; ns that it takes (negative: a request to the loader, which takes so long); the operation that
it waits for, or -1; ns from that one's end to its own; the operations that it launches."""
Plan = tuple[int, int, int, int, int]
"""An operation: its stream; ns from its launch; the operation that it waits for, or -1; ns that follow that; ns that it takes."""


class Prepared:
    """A graph that is replayed with several edits. Each of them changes a few items and operations, and shares the others."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.streams = 1 + max((operation.stream for operation in graph.operations), default=0)
        self._items, self._operations = _Items(graph), _Operations(graph)
        self._plain_steps = [_step(item, UNCHANGED) for item in graph.items]
        self._plain_plans: list[Plan] = [
            (stream, latency, after, lag + unexplained, duration)
            for _, duration, stream, _, latency, after, lag, unexplained in graph.operations
        ]
        self._steps: dict[Edit, list[Step]] = {}
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

    def steps(self, edit: Edit) -> list[Step]:
        """The host's items with this edit."""
        of_host = edit._replace(beside=0, speed=())
        if of_host not in self._steps:
            items = self.graph.items
            steps = self._steps[of_host] = self._plain_steps.copy()
            for index in self._items.changed_by(edit):
                steps[index] = _step(items[index], edit)
        return self._steps[of_host]

    def plans(self, edit: Edit, keep_unexplained: bool) -> list[Plan]:
        """The devices' operations with this edit."""
        operations, plans = self.graph.operations, self._plain_plans.copy()
        for index in self._operations.changed_by(edit, keep_unexplained):
            plans[index] = self._plan(operations[index], edit, keep_unexplained)
        return plans

    def _plan(self, operation: nodes.Operation, edit: Edit, keep_unexplained: bool) -> Plan:
        took = operation.duration
        for flag, factor in edit.speed:
            if operation.flags & flag:
                took = int(took * factor)
        if operation.flags & edit.beside:
            return self.streams + bool(operation.flags & edit.beside & nodes.NCCL), 0, -1, 0, took
        after = operation.after if operation.after >= 0 and not self.graph.operations[operation.after].flags & edit.beside else -1
        return operation.stream, operation.latency, after, operation.lag + (operation.unexplained if keep_unexplained else 0), took


class _Items:
    """The items of a graph by what an edit can change about them."""

    def __init__(self, graph: Graph) -> None:
        self.kinds: dict[int, list[int]] = {}
        self.regions: dict[int, list[int]] = {}
        self._long: list[int] = []
        self._nested: list[int] = []
        self._all = range(len(graph.items))
        for index, (_, _, kind, think, _, _, _, nested, region) in enumerate(graph.items):
            self.kinds.setdefault(kind, []).append(index)
            if region:
                self.regions.setdefault(region, []).append(index)
            if think >= LONG_THINK_NS:
                self._long.append(index)
            if nested:
                self._nested.append(index)

    def changed_by(self, edit: Edit) -> Iterable[int]:
        """The items that an edit can change."""
        if edit.short_host < 1 and not edit.region:
            return self._all
        kinds = (*edit.no_waits, *((nodes.ALLOCATION,) if edit.no_allocation else ()))
        return itertools.chain(
            *(self.kinds.get(kind, ()) for kind in kinds),
            self.regions.get(edit.region, ()) if edit.short_host < 1 else (),
            self._long if edit.long_host < 1 else (),
            self._nested if edit.loader != "keep" else (),
        )


class _Operations:
    """The operations of a graph by what an edit can change about them."""

    def __init__(self, graph: Graph) -> None:
        self.flagged: dict[int, list[int]] = {}
        self.unexplained: list[int] = []
        self._following: list[int] = []
        flags_of = {flags: [flag for flag in nodes.FLAGS if flags & flag] for flags in {operation.flags for operation in graph.operations}}
        for index, (_, _, _, flags, _, after, _, unexplained) in enumerate(graph.operations):
            for flag in flags_of[flags]:
                self.flagged.setdefault(flag, []).append(index)
            if unexplained:
                self.unexplained.append(index)
            if after >= 0:
                self._following.append(index)

    def changed_by(self, edit: Edit, keep_unexplained: bool) -> Iterable[int]:
        """The operations that an edit can change."""
        flags = (*(flag for flag in self.flagged if flag & edit.beside), *(flag for flag, _ in edit.speed))
        return itertools.chain(
            *(self.flagged.get(flag, ()) for flag in flags),
            () if keep_unexplained else self.unexplained,
            self._following if edit.beside else (),
        )


def _step(item: nodes.Item, edit: Edit) -> Step:
    start, end, kind, think, operations, waits_for, lag, nested, region = item
    took = end - start
    if think >= 0:
        think = edit.thinking(think, region) if edit is not UNCHANGED else think
    elif nested and edit.loader != "keep":
        think = -1
    if kind == nodes.LOADER:
        took = -max(1, took)
    elif edit.no_allocation and kind == nodes.ALLOCATION:
        took, waits_for = 0, -1
    elif kind in edit.no_waits:
        took, waits_for = (0 if kind == nodes.SYNC else min(took, nodes.OWN_NS)), -1  # the synchronisation itself goes, too
    else:
        took = min(took, nodes.OWN_NS) if waits_for >= 0 else took
        took = int(took * edit.short(region)) if kind == nodes.LAUNCH else took
    return think, took, waits_for, lag, operations


class _Run:
    """One replay: a loop that only adds and compares."""

    def __init__(self, prepared: Prepared, edit: Edit, keep_unexplained: bool) -> None:
        self._graph, self._edit = prepared.graph, edit
        self._streams = prepared.streams
        self._steps, self._plans = prepared.steps(edit), prepared.plans(edit, keep_unexplained)
        self._ends = [self._graph.start] * len(self._graph.operations)
        self._free = [self._graph.start] * (self._streams + 2)
        """When each stream is free; the last two are those of copies and collectives that get one of their own."""
        self._batch = -1

    def total(self) -> int:
        """Nanoseconds from the window's start until host and device are done."""
        graph, free, ends, plans = self._graph, self._free, self._ends, self._plans
        for index in graph.earlier:
            self._earlier(index)
        frontier = previous = graph.start
        for think, took, waits_for, lag, operations in self._steps:
            start = frontier + think if think >= 0 else previous - think - 1
            for index in operations:
                stream, latency, after, delay, busy = plans[index]
                begin = free[stream]
                if start + latency > begin:  # noqa: PLR1730 - max() takes twice as long, and this runs 200,000 times
                    begin = start + latency
                if after >= 0 and ends[after] > begin:
                    begin = ends[after]
                free[stream] = ends[index] = begin + delay + busy
            end = start + took if took >= 0 else self._loaded(start, -took)
            if waits_for >= 0 and ends[waits_for] + lag > end:
                end = ends[waits_for] + lag
            previous = start
            if end > frontier:  # noqa: PLR1730 - as above
                frontier = end
        return max([frontier + self._edit.thinking(graph.last_think), *ends]) - graph.start

    def _earlier(self, index: int) -> None:
        """An operation that was launched before the window, or nobody knows when."""
        stream, _, after, delay, busy = self._plans[index]
        started = self._graph.operations[index].start
        begin = started if started < self._graph.start and stream < self._streams else self._free[stream]
        if after >= 0:
            begin = max(begin, self._ends[after])
        self._free[stream] = self._ends[index] = begin + delay + busy

    def _loaded(self, start: int, took: int) -> int:
        """When a batch is there that was asked for at `start`."""
        if self._edit.loader == "gone":
            return start
        if self._edit.loader == "worker":
            self._batch = start if self._batch < 0 else max(self._batch + took, start)
            return self._batch
        return start + took
