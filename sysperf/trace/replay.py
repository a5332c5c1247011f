"""The step replayed without a cause.

A replay runs the graph forward: the host does one thing after the other, each operation starts when it was launched, its
stream is free and what it waits for is done. An `Edit` takes a cause away.
"""

from __future__ import annotations

from functools import cached_property
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
        return self.short_host if self.region in (0, region) else 1.0

    def thinking(self, time: int, region: int = 0) -> int:
        """What is left of the host's time between two calls."""
        return int(time * (self.long_host if time >= LONG_THINK_NS else self.short(region)))


UNCHANGED = Edit()


class Step(NamedTuple):
    """An item of the host in a replay."""

    think: int
    took: int
    """Negative: a request to the loader that takes so long."""
    waits_for: int
    lag: int
    operations: tuple[int, ...]


class Plan(NamedTuple):
    """An operation in a replay."""

    stream: int
    latency: int
    after: int
    lag: int
    took: int


class Prepared:
    """A graph, and what edits make of its items and operations: several edits change only one of these."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.streams = 1 + max((operation.stream for operation in graph.operations), default=0)
        self._kinds: dict[int, list[int]] = {}
        self._long: list[int] = []
        for index, item in enumerate(graph.items):
            self._kinds.setdefault(item.kind, []).append(index)
            if item.think >= LONG_THINK_NS or item.nested:
                self._long.append(index)
        self._steps: dict[Edit, list[Step]] = {}
        self._plans: dict[tuple[int, object, bool], list[Plan]] = {}

    def steps(self, edit: Edit) -> list[Step]:
        """The host's items."""
        of_host = edit._replace(beside=0, speed=())
        if of_host not in self._steps:
            self._steps[of_host] = self._edited(edit)
        return self._steps[of_host]

    def _edited(self, edit: Edit) -> list[Step]:
        """The items that an edit changes, between the others as they are."""
        items = self.graph.items
        if edit == UNCHANGED or edit.short_host < 1:
            return [_step(item, edit) for item in items]
        edited = self.steps(UNCHANGED).copy()
        kinds = (*edit.no_waits, nodes.LOADER, *((nodes.ALLOCATION,) if edit.no_allocation else ()))
        for index in (*self._long, *(index for kind in kinds for index in self._kinds.get(kind, ()))):
            edited[index] = _step(items[index], edit)
        return edited

    def plans(self, edit: Edit, keep_unexplained: bool) -> list[Plan]:
        """The devices' operations."""
        of_device = edit.beside, edit.speed, keep_unexplained
        if of_device not in self._plans:
            operations, plain = self.graph.operations, self._plain
            wanted = edit.beside
            for flag, _ in edit.speed:
                wanted |= flag
            self._plans[of_device] = [
                self._plan(operation, edit, keep_unexplained)
                if operation.flags & wanted
                or (operation.unexplained and not keep_unexplained)
                or (operation.after >= 0 and operations[operation.after].flags & edit.beside)
                else plan
                for operation, plan in zip(operations, plain, strict=True)
            ]
        return self._plans[of_device]

    @cached_property
    def _plain(self) -> list[Plan]:
        """The operations without any edit."""
        return [self._plan(operation, UNCHANGED, keep_unexplained=True) for operation in self.graph.operations]

    def _plan(self, operation: nodes.Operation, edit: Edit, keep_unexplained: bool) -> Plan:
        took = operation.duration
        for flag, factor in edit.speed:
            if operation.flags & flag:
                took = int(took * factor)
        if operation.flags & edit.beside:
            return Plan(self.streams + bool(operation.flags & edit.beside & nodes.NCCL), 0, -1, 0, took)
        after = operation.after if operation.after >= 0 and not self.graph.operations[operation.after].flags & edit.beside else -1
        return Plan(operation.stream, operation.latency, after, operation.lag + (operation.unexplained if keep_unexplained else 0), took)


def _step(item: nodes.Item, edit: Edit) -> Step:
    kind, think = item.kind, item.think
    if think >= 0:
        think = edit.thinking(think, item.region)
    elif item.nested and edit.loader != "keep":
        think = -1
    took, waits_for = item.end - item.start, item.waits_for
    if kind == nodes.LOADER:
        took = -max(1, took)
    elif edit.no_allocation and kind == nodes.ALLOCATION:
        took, waits_for = 0, -1
    elif kind in edit.no_waits:
        took, waits_for = (0 if kind == nodes.SYNC else min(took, nodes.OWN_NS)), -1  # the synchronisation itself goes, too
    else:
        took = min(took, nodes.OWN_NS) if waits_for >= 0 else took
        took = int(took * edit.short(item.region)) if kind == nodes.LAUNCH else took
    return Step(think, took, waits_for, item.lag, item.operations)


def run(prepared: Prepared, edit: Edit = UNCHANGED, *, keep_unexplained: bool = True) -> int:
    """Nanoseconds that the window takes with this edit."""
    return _Run(prepared, edit, keep_unexplained).total()


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
        graph, ends = self._graph, self._ends
        for index in graph.earlier:
            self._earlier(index)
        frontier = previous = graph.start
        for think, took, waits_for, lag, operations in self._steps:
            start = frontier + think if think >= 0 else previous - think - 1
            end = start + took if took >= 0 else self._loaded(start, -took)
            if operations:
                self._operate(operations, start)
            if waits_for >= 0 and ends[waits_for] + lag > end:
                end = ends[waits_for] + lag
            previous = start
            if end > frontier:  # noqa: PLR1730 - max() takes twice as long, and this runs 200,000 times
                frontier = end
        return max([frontier + self._edit.thinking(graph.last_think), *ends]) - graph.start

    def _operate(self, indices: tuple[int, ...], launched: int) -> None:
        free, ends, plans = self._free, self._ends, self._plans
        for index in indices:
            stream, latency, after, lag, took = plans[index]
            begin = free[stream]
            arrived = launched + latency
            if arrived > begin:  # noqa: PLR1730 - as above
                begin = arrived
            if after >= 0 and ends[after] > begin:
                begin = ends[after]
            free[stream] = ends[index] = begin + lag + took

    def _earlier(self, index: int) -> None:
        """An operation that was launched before the window, or nobody knows when."""
        plan, started = self._plans[index], self._graph.operations[index].start
        begin = started if started < self._graph.start and plan.stream < self._streams else self._free[plan.stream]
        if plan.after >= 0:
            begin = max(begin, self._ends[plan.after])
        self._free[plan.stream] = self._ends[index] = begin + plan.lag + plan.took

    def _loaded(self, start: int, took: int) -> int:
        """When a batch is there that was asked for at `start`."""
        if self._edit.loader == "gone":
            return start
        if self._edit.loader == "worker":
            self._batch = start if self._batch < 0 else max(self._batch + took, start)
            return self._batch
        return start + took
