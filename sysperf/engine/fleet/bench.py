"""The verb `fleet bench`: figures of all nodes or of pairs of them, then of suspects again beside their controls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sysperf import __version__, plugin
from sysperf.engine import reading
from sysperf.engine.fleet import gather, slow
from sysperf.engine.fleet.pairs import Network, Pair, Seen
from sysperf.fleet.classes import Hardware, class_name, classed, hardware_key
from sysperf.fleet.merge import Merge
from sysperf.model.fleet import FleetBench, FleetUnknown, HardwareClass, SlowNode
from sysperf.model.node import Asked, NodeRecord

MAX_RUNS = 10_000
FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below those that Linux gives to connections."""


class _Kept:
    """Runs behind the first look of records that lie there, in their order: what was measured before is measured again."""

    def __init__(self, records: Mapping[str, NodeRecord], first_look: int) -> None:
        self._runs = {(each.metric, name): list(each.values[first_look:]) for name, record in records.items() for each in record.ceilings}

    def measure(self, metric: str, nodes: Sequence[str], runs: int) -> Mapping[str, Sequence[float]]:
        """Take the next runs of each; where one has fewer, all have as many as that one."""
        there = [self._runs[metric, node] for node in nodes if (metric, node) in self._runs]
        many = min([runs, *map(len, there)]) if len(there) == len(nodes) else 0
        return {node: [self._runs[metric, node].pop(0) for _ in range(many)] for node in nodes} if many else {}


class _Live:
    """Fresh runs by the engine, on the suspect and its controls at the same time."""

    def __init__(self, engine: str, asked: Asked, groups: Mapping[str, str]) -> None:
        self._engine, self._asked, self._groups = engine, asked, groups

    def measure(self, metric: str, nodes: Sequence[str], runs: int) -> Mapping[str, Sequence[float]]:
        """Ask these nodes alone. Raises KeyboardInterrupt."""
        asked = msgspec.structs.replace(self._asked, runs=runs, groups=(self._groups[metric],))
        gathered, interrupted = gather.ask(self._engine, asked, "bench", only=nodes)
        if interrupted:
            raise KeyboardInterrupt
        records = {name: gathered.record(name) for name in gathered.took_s}
        return {
            name: fresh for name, record in records.items() for each in record.ceilings if each.metric == metric and (fresh := each.values)
        }


class _Met:
    """Pairs of nodes by the engine, as many at the same time as it asks nodes at once."""

    def __init__(self, engine: str, asked: Asked) -> None:
        self._engine, self._asked = engine, asked
        self._random = random.Random()  # noqa: S311 - no secret
        self.failed: dict[Pair, str] = {}

    def measure(self, pairs: Sequence[Pair], runs: int, metrics: Sequence[str]) -> Seen:
        """Ask both nodes of each pair; what one of them says is what both have. Raises KeyboardInterrupt."""
        seen: dict[Pair, Mapping[str, Sequence[float]]] = {}
        many = max(1, self._asked.at_once // 2)
        for first in range(0, len(pairs), many):
            seen |= self._together(pairs[first : first + many], runs, metrics)
        return seen

    def _together(self, pairs: Sequence[Pair], runs: int, metrics: Sequence[str]) -> dict[Pair, Mapping[str, Sequence[float]]]:
        nodes = [node for pair in pairs for node in pair]
        port = self._random.randrange(FIRST_PORT, LAST_PORT)
        whom = msgspec.structs.replace(self._asked, pairs=tuple(pairs), port=port, at_once=max(2, self._asked.at_once))
        asked = msgspec.structs.replace(whom, runs=runs, groups=tuple(metrics))
        gathered, interrupted = gather.ask(self._engine, asked, "pair", only=nodes)
        if interrupted:
            raise KeyboardInterrupt
        seen: dict[Pair, Mapping[str, Sequence[float]]] = {}
        for pair in pairs:
            silent = [gathered.silent[node] for node in pair if node in gathered.silent]
            if silent or not all(node in gathered.took_s for node in pair):
                self.failed[pair] = f"{silent[0].node}: {silent[0].reason}" if silent else "no answer"
                continue
            self.failed.pop(pair, None)
            seen[pair] = {each.metric: rates for each in gathered.record(pair[0]).ceilings if (rates := _possible(each.values))}
        return seen


def bench(engine: str, asked: Asked, say: Callable[[int, int], object] = lambda *_: None, *, between: bool = False) -> FleetBench:
    """Measure nodes or, with `between`, pairs of them; choose suspects in each class, measure those again. Raises SysperfError.

    Ctrl-C ends it with what is there.
    """
    start = time.perf_counter()
    kept = (engine or plugin.ENGINES.default) == plugin.ENGINES.default
    gathered, interrupted = gather.ask(engine, asked, "record" if kept or between else "bench", say)
    records = {name: gathered.record(name) for name in sorted(gathered.took_s)}
    silence = Merge(lambda _: None)
    for answer in gathered.silent.values():
        silence.silence(answer.node, answer.state, answer.reason)
    names = list(records)
    classes = classed([hardware_key(records[name].hardware) for name in names])
    groups = {each.metric: each.group for record in records.values() for each in record.ceilings}
    again = _Kept(records, asked.runs) if kept else _Live(engine, asked, groups)
    met, networks = _Met(engine, asked), list[Network]()
    suspects: list[SlowNode] = []
    for key, numbers in classes.items():
        if interrupted:
            break
        of_class = [names[number] for number in numbers]
        try:
            if between:
                networks.append(Network(of_class, met.measure, random.Random()))  # noqa: S311 - no secret
                found = networks[-1].judged()
            else:
                found = slow.confirmed(_values(records, of_class, asked.runs), again.measure)
        except KeyboardInterrupt:
            interrupted = True
        else:
            suspects += [_suspect(each, key) for each in found]
    return FleetBench(
        sysperf=__version__,
        taken_at=reading.now(),
        engine=engine or plugin.ENGINES.default,
        asked=len(gathered.took_s) + len(gathered.silent),
        answered=len(records),
        silent=silence.silent(),
        classes=tuple(_class(key, [names[number] for number in numbers]) for key, numbers in classes.items()),
        small=tuple(class_name(key) for key, numbers in classes.items() if len(numbers) < slow.MIN_NODES),
        figures=sum(network.figures for network in networks) if between else sum(len(record.ceilings) for record in records.values()),
        pairs=sum(len(network.pairs) for network in networks) if between else None,
        unknown=tuple(FleetUnknown("network", why, pair) for pair, why in met.failed.items()),
        suspects=tuple(sorted(suspects, key=lambda each: (each.verdict != "slow", each.middle_pct))),
        interrupted=interrupted,
        took_ms=round((time.perf_counter() - start) * 1e3, 1),
    )


def _values(records: Mapping[str, NodeRecord], names: Sequence[str], first_look: int) -> slow.Values:
    """The first look, metric by metric."""
    values: dict[str, dict[str, Sequence[float]]] = {}
    for name in names:
        for each in records[name].ceilings:
            if rates := _possible(each.values):
                values.setdefault(each.metric, {})[name] = rates[:first_look]
    return values


def _possible(values: Sequence[float]) -> Sequence[float]:
    """The values, where all of them can be figures."""
    return values if all(0 < value < float("inf") for value in values[:MAX_RUNS]) else ()


def _class(key: Hardware, names: Sequence[str]) -> HardwareClass:
    return HardwareClass(class_name(key), {}, len(names), tuple(names))


def _suspect(found: slow.Slow, key: Hardware) -> SlowNode:
    node, _, to = found.cell.node.partition(" ")
    return SlowNode(
        node=node,
        to=to,
        of_class=class_name(key),
        metric=found.cell.metric,
        verdict=found.verdict,
        middle_pct=round(100 * found.middle, 2),
        low_pct=round(100 * found.low, 2),
        high_pct=round(100 * found.high, 2),
        runs=found.runs,
        beside=found.beside,
        tells_from_pct=round(100 * found.tells_from, 1),
    )
