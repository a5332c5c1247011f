"""Which node or which link of a network is slow, by what pairs of nodes reach.

A pair is as fast as the slower of its ends and the link between them, so a node is as fast as the best of its pairs. Two random perfect
matchings give each node two partners; who is slow with both is a suspect, and so is a pair that is slow though its ends are not. Suspects
are measured again beside pairs of good nodes, a suspected node with another good partner in each round. Before a link is named, its ends
are measured so, too.

Circle method  https://en.wikipedia.org/wiki/Round-robin_tournament#Circle_method
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from sysperf.engine.fleet import slow

Pair = tuple[str, str]
Seen = Mapping[Pair, Mapping[str, Sequence[float]]]
"""Runs of each metric; more is better. A pair that could not be measured is not in it."""
Measure = Callable[[Sequence[Pair], int, Sequence[str]], Seen]
"""Measures pairs that have no node in common, at the same time, so many runs of each of these metrics."""
METRICS = ("all-reduce", "send-recv")

LOOKS = 2
FIRST_RUNS = 5
BOUNDS = slow.Bounds(suspect=0.9, harmless=-0.05, named=-0.1, soon=-0.25, each_round=-0.075, clear=0.2)
"""Networks scatter more than what one machine does alone."""
CONTROLS = 3
_CONTROLS = "controls"


def matchings(nodes: Sequence[str], numbers: random.Random) -> Iterator[list[Pair]]:
    """Perfect matchings in random order, none of whose pairs is in another one; of an odd number of nodes one sits out each."""
    circle = numbers.sample(list(nodes), len(nodes)) + [""] * (len(nodes) % 2)
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        yield [(one, other) for one, other in zip(circle[:half], reversed(circle[half:]), strict=True) if one and other]
        circle[1:] = [circle[-1], *circle[1:-1]]


class Network:
    """What pairs of the nodes of a class show."""

    def __init__(self, nodes: Sequence[str], measure: Measure, numbers: random.Random) -> None:
        self._nodes, self._measure, self._numbers = nodes, measure, numbers
        self._middles: dict[str, dict[Pair, float]] = {}
        self.pairs: set[frozenset[str]] = set()
        """Those that were measured."""

    @property
    def figures(self) -> int:
        """Metrics of all pairs of the first look."""
        return sum(map(len, self._middles.values()))

    def judged(self) -> list[slow.Slow]:
        """Look, then measure suspects again; a link's cell has both its ends. Fewer than four nodes name nobody."""
        if len(self._nodes) < slow.MIN_NODES:
            return []
        for matching in itertools.islice(matchings(self._nodes, self._numbers), LOOKS + len(self._nodes) % 2):
            for pair, runs in self._again(matching, FIRST_RUNS, METRICS).items():
                for metric, values in runs.items():
                    if values:
                        self._middles.setdefault(metric, {})[pair] = median(values)
        return [found for metric in sorted(self._middles) for found in self._of(metric)]

    def _of(self, metric: str) -> list[slow.Slow]:
        """Nodes first: a slow node explains its pairs."""
        middles = self._middles[metric]
        nodes, low = suspects(middles)
        good = [node for node in self._nodes if node not in nodes and any(node in pair for pair in middles)]
        found: dict[str, slow.Slow] = {node: self._node(metric, node, good, low, len(nodes)) for node in nodes}
        sick = {node for node in nodes if found[node].verdict != "usual"}
        links = [pair for pair in low if not sick.intersection(pair)]
        for one, other in links:
            if sick.intersection((one, other)):
                continue
            link = self._judge(metric, one, other, itertools.repeat(other), good, low, len(links))
            # That its ends are well was seen once. A link is named where they are well again, each with other partners.
            ends = {end: self._node(metric, end, good, low, len(links), but=(one, other)) for end in (one, other) if link.verdict == "slow"}
            ill = {end: judged for end, judged in ends.items() if judged.verdict != "usual"}
            sick |= ill.keys()
            found |= ill or {f"{one} {other}": link}
        return list(found.values())

    def _node(self, metric: str, node: str, good: Sequence[str], low: Sequence[Pair], count: int, but: Sequence[str] = ()) -> slow.Slow:
        """Fresh runs of a node, in each round with another good partner."""
        partners = [each for each in self._numbers.sample(good, len(good)) if each != node and each not in but]
        return self._judge(metric, node, "", itertools.cycle(partners), good, low, count)

    def _judge(
        self, metric: str, node: str, end: str, partners: Iterator[str], good: Sequence[str], low: Sequence[Pair], count: int
    ) -> slow.Slow:
        """Fresh runs of a node with these partners, or of a link, beside pairs of other good nodes."""
        used: dict[str, None] = {}

        def measure(_: str, __: Sequence[str], runs: int) -> Mapping[str, Sequence[float]]:
            if (partner := next(partners, "")) == "":
                return {}
            others = [each for each in self._numbers.sample(good, len(good)) if each not in (node, partner)]
            controls = [pair for pair in zip(others[::2], others[1::2], strict=False) if not {pair, pair[::-1]} & {*low}][:CONTROLS]
            fresh = self._again([(node, partner), *controls], runs, [metric])
            rates = [fresh[pair][metric] for pair in controls if metric in fresh.get(pair, {})]
            used.update(dict.fromkeys(itertools.chain.from_iterable(controls)))
            return {node: fresh.get((node, partner), {}).get(metric, ()), _CONTROLS: [median(each) for each in zip(*rates, strict=False)]}

        cell = slow.Cell(metric, f"{node} {end}" if end else node)
        found = slow.judged(slow.Cell(metric, node), (_CONTROLS,), measure, count, BOUNDS)
        return found._replace(cell=cell, beside=tuple(used))

    def _again(self, pairs: Sequence[Pair], runs: int, metrics: Sequence[str]) -> Seen:
        seen = self._measure(pairs, runs, metrics)
        self.pairs.update(map(frozenset, seen))
        return seen


def suspects(middles: Mapping[Pair, float]) -> tuple[list[str], list[Pair]]:
    """(nodes that are slow with all their partners, pairs that are slow), the worst first."""
    best: dict[str, float] = {}
    for pair, value in middles.items():
        for node in pair:
            best[node] = max(value, best.get(node, 0.0))
    usual = median(best.values())
    spread = slow.MAD * median(abs(value - usual) for value in best.values())

    def is_low(value: float) -> bool:
        z = (value - usual) / spread if spread > 0 else math.copysign(math.inf, value - usual)
        return z < slow.SUSPECT_Z and value < BOUNDS.suspect * usual

    nodes = sorted((node for node in best if is_low(best[node])), key=lambda node: best[node])
    low = sorted((pair for pair in middles if is_low(middles[pair])), key=lambda pair: middles[pair])
    return nodes[: slow.MAX_SUSPECTS], low[: slow.MAX_SUSPECTS]
