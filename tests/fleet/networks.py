"""Networks whose nodes and links run at known speeds: what a look at their pairs says can be counted."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sysperf.engine.fleet.pairs import Network, Pair
from sysperf.engine.fleet.slow import Slow

RACK = 16
DISTURBED = 0.02


class Net(NamedTuple):
    """How fast healthy nodes are, and how much runs scatter, as parts of the figure."""

    nodes: int = 64
    slow_node: float = 0.0
    slow_link: float = 0.0
    spread: float = 0.02
    noise: float = 0.03
    alike: float = 0.0
    """How much a run's noise is like that of the run before (first-order autoregression)."""
    rack_noise: float = 0.0
    """Noise that the nodes of a rack share, and that lasts as long as a round of runs."""


class Found(NamedTuple):
    """What came of a look."""

    named: set[tuple[str, ...]]
    results: Sequence[Slow]


class _Noise:
    """Noise of the runs of a pair, one after the other."""

    def __init__(self, net: Net, numbers: random.Random) -> None:
        self._net, self._numbers = net, numbers
        self._last: dict[tuple[str, Pair], float] = {}

    def next(self, metric: str, pair: Pair) -> float:
        own = self._numbers.gauss(0, self._net.noise)
        last = self._last.get((metric, pair), self._numbers.gauss(0, self._net.noise))
        noise: float = self._net.alike * last + (1 - self._net.alike**2) ** 0.5 * own
        self._last[metric, pair] = noise
        return noise - (self._numbers.uniform(0.03, 0.3) if self._numbers.random() < DISTURBED else 0.0)


def look(net: Net, numbers: random.Random) -> Found:
    """A network in which n0 is slow, or the link between n0 and each partner it meets first."""
    names = [f"n{number}" for number in range(net.nodes)]
    speed = {name: 10 * (1 + numbers.gauss(0, net.spread)) for name in names}
    speed["n0"] *= 1 - net.slow_node
    bad: set[frozenset[str]] = set()
    noise = _Noise(net, numbers)

    def measure(pairs: Sequence[Pair], runs: int, metrics: Sequence[str]) -> Mapping[Pair, Mapping[str, Sequence[float]]]:
        if net.slow_link and not bad:
            bad.update(frozenset(pair) for pair in pairs if "n0" in pair)
        racks = {number: numbers.gauss(0, net.rack_noise) for number in range(net.nodes // RACK + 1)}

        def rate(metric: str, pair: Pair) -> float:
            ends = [speed[name] * (1 + racks[int(name[1:]) // RACK]) for name in pair]
            return min(ends) * (1 - net.slow_link * (frozenset(pair) in bad)) * (1 + noise.next(metric, pair))

        return {pair: {metric: [rate(metric, pair) for _ in range(runs)] for metric in metrics} for pair in pairs}

    network = Network(names, measure, lambda: None, numbers)
    network.decide()
    return Found({tuple(sorted(each.cell.node.split())) for each in network.found if each.verdict == "slow"}, network.found)


class Rates(NamedTuple):
    """Of so many looks."""

    found: float
    others_named: float


def rates(net: Net, looks: int, seed: int = 5) -> Rates:
    """How often the slow node or link is named, and how often something that is healthy."""
    numbers = random.Random(seed)
    named = [look(net, numbers).named for _ in range(looks)]
    size = 1 if net.slow_node else 2 if net.slow_link else 0
    right = [{each for each in some if len(each) == size and "n0" in each} for some in named]
    return Rates(sum(map(bool, right)) / looks, sum(bool(some - each) for some, each in zip(named, right, strict=True)) / looks)
