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
APART_S = 15.0
"""Between the beginnings of two rounds: noise of a few seconds is in one of them only."""
Say = Callable[[int, int, str], object]
"""Is told how many answered, of how many, and what they are asked for."""


class _Apart:
    """Keeps rounds apart in time."""

    _next = 0.0

    def wait(self) -> None:
        """Wait until a round may begin."""
        time.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + APART_S


def _in_a_round(first_look: int) -> int:
    """Return how many runs a round has: as many as the first look, where somebody asked for more because runs scatter."""
    return max(slow.RUNS, first_look)


class _Kept:
    """Runs behind the first look of records that lie there, in their order: what was measured before is measured again."""

    def __init__(self, records: Mapping[str, NodeRecord], first_look: int) -> None:
        self._runs = {(each.metric, name): each.values[first_look:] for name, record in records.items() for each in record.ceilings}
        self._many = _in_a_round(first_look)

    def measure(self, number: int, trials: Sequence[slow.Trial]) -> list[slow.Runs]:
        """Take the runs of this round."""
        first, end = number * self._many, (number + 1) * self._many
        return [{node: self._runs.get((each.cell.metric, node), ())[first:end] for node in each.nodes} for each in trials]


class _Live:
    """Fresh runs by the engine, of all suspects and their controls at the same time."""

    def __init__(self, engine: str, asked: Asked, groups: Mapping[str, str], apart: _Apart, say: Say) -> None:
        self._engine, self._asked, self._groups, self._apart, self._say = engine, asked, groups, apart, say

    def measure(self, number: int, trials: Sequence[slow.Trial]) -> list[slow.Runs]:
        """Ask these nodes alone, for each group of figures once. Raises KeyboardInterrupt."""
        self._apart.wait()
        runs: dict[slow.Cell, slow.Runs] = {}
        for group in sorted({self._groups[each.cell.metric] for each in trials}):
            for part in _parts([each for each in trials if self._groups[each.cell.metric] == group], self._asked.at_once):
                runs |= self._together(group, part, f" again, round {number + 1} of {slow.ROUNDS} at most")
        return [runs[each.cell] for each in trials]

    def _together(self, group: str, trials: Sequence[slow.Trial], what: str) -> dict[slow.Cell, slow.Runs]:
        asked = msgspec.structs.replace(self._asked, runs=_in_a_round(self._asked.runs), groups=(group,))
        nodes = [node for each in trials for node in each.nodes]
        gathered, interrupted = gather.ask(self._engine, asked, "bench", lambda done, of: self._say(done, of, what), only=nodes)
        if interrupted:
            raise KeyboardInterrupt
        fresh = {(each.metric, node): each.values for node in gathered.took_s for each in gathered.record(node).ceilings}
        return {each.cell: {node: fresh.get((each.cell.metric, node), ()) for node in each.nodes} for each in trials}


def _parts(trials: Sequence[slow.Trial], many: int) -> list[list[slow.Trial]]:
    """Parts whose nodes are no more than so many, where that can be."""
    parts: list[list[slow.Trial]] = [[]]
    for trial in trials:
        if parts[-1] and len({node for each in (*parts[-1], trial) for node in each.nodes}) > many:
            parts.append([])
        parts[-1].append(trial)
    return parts


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


def bench(engine: str, asked: Asked, say: Say = lambda *_: None, *, between: bool = False) -> FleetBench:
    """Measure nodes or, with `between`, pairs of them; choose suspects in each class, measure those again. Raises SysperfError.

    Ctrl-C ends it with what is there.
    """
    start = time.perf_counter()
    kept = (engine or plugin.ENGINES.default) == plugin.ENGINES.default
    gathered, interrupted = gather.ask(engine, asked, "record" if kept or between else "bench", lambda done, of: say(done, of, ""))
    records = {name: gathered.record(name) for name in sorted(gathered.took_s)}
    silence = Merge(lambda _: None)
    for answer in gathered.silent.values():
        silence.silence(answer.node, answer.state, answer.reason)
    names = list(records)
    keys = classed([hardware_key(records[name].hardware) for name in names])
    classes = {key: [names[number] for number in numbers] for key, numbers in keys.items()}
    groups = {each.metric: each.group for record in records.values() for each in record.ceilings}
    met, apart = _Met(engine, asked), _Apart()
    networks = {key: Network(nodes, met.measure, apart.wait, random.Random()) for key, nodes in classes.items() if between}  # noqa: S311 - no secret
    trials = {key: slow.trials(_values(records, nodes, asked.runs)) for key, nodes in classes.items() if not between}
    again = _Kept(records, asked.runs) if kept else _Live(engine, asked, groups, apart, say)
    try:
        if not interrupted:
            slow.decide([trial for of_class in trials.values() for trial in of_class], again.measure)
            for network in networks.values():
                network.decide()
    except KeyboardInterrupt:
        interrupted = True
    judged = {key: [each.judged() for each in of_class] for key, of_class in trials.items()}
    judged |= {key: network.found for key, network in networks.items()}
    suspects = [_suspect(found, key) for key, of_class in judged.items() for found in of_class]
    return FleetBench(
        sysperf=__version__,
        taken_at=reading.now(),
        engine=engine or plugin.ENGINES.default,
        asked=len(gathered.took_s) + len(gathered.silent),
        answered=len(records),
        silent=silence.silent(),
        classes=tuple(HardwareClass(class_name(key), {}, len(nodes), tuple(nodes)) for key, nodes in classes.items()),
        small=tuple(class_name(key) for key, nodes in classes.items() if len(nodes) < slow.MIN_NODES),
        figures=sum(network.figures for network in networks.values())
        if between
        else sum(len(record.ceilings) for record in records.values()),
        pairs=sum(len(network.pairs) for network in networks.values()) if between else None,
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
