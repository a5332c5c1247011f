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
from collections.abc import Set as AbstractSet
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
BOUNDS = slow.Bounds(suspect=0.9, harmless=-0.05, named=-0.1, far=-0.25, clear=0.2)
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


class _Trial(slow.Trial):
    """A suspected node with another partner in each round, or a link."""

    def __init__(self, cell: slow.Cell, partners: Iterator[str], count: int) -> None:
        super().__init__(cell, (_CONTROLS,), count, BOUNDS)
        self.partners = partners
        self.used: dict[str, None] = {}
        """The nodes of the pairs beside it."""

    def judged(self) -> slow.Slow:
        """What all rounds say."""
        return super().judged()._replace(beside=tuple(self.used))


class Network:
    """What pairs of the nodes of a class show. `wait` keeps rounds apart."""

    def __init__(self, nodes: Sequence[str], measure: Measure, wait: Callable[[], object], numbers: random.Random) -> None:
        self._nodes, self._measure, self._wait, self._numbers = nodes, measure, wait, numbers
        self._middles: dict[str, dict[Pair, float]] = {}
        self._good: dict[str, list[str]] = {}
        """By metric: nodes that are no suspects."""
        self._low: dict[str, list[Pair]] = {}
        self.pairs: set[frozenset[str]] = set()
        """Those that were measured."""
        self.found: list[slow.Slow] = []
        """What came of suspects; a link's cell has both its ends."""

    @property
    def figures(self) -> int:
        """Metrics of all pairs of the first look."""
        return sum(map(len, self._middles.values()))

    def decide(self) -> None:
        """Look, then measure suspects again, nodes first: a slow node explains its pairs. Fewer than four nodes name nobody."""
        if len(self._nodes) < slow.MIN_NODES:
            return
        nodes = self._looked()
        self.found = self._judged([self._alone(cell, len(nodes)) for cell in nodes])
        sick = {each.cell for each in self.found if each.verdict != "usual"}
        links = [(metric, pair) for metric, low in self._low.items() for pair in low if not sick.intersection(_ends(metric, pair))]
        tried = self._judged([_Trial(slow.Cell(metric, " ".join(pair)), itertools.repeat(pair[1]), len(links)) for metric, pair in links])
        # That its ends are well was seen once. A link is named where they are well again, each with other partners.
        but: dict[slow.Cell, set[str]] = {}
        for (metric, pair), link in zip(links, tried, strict=True):
            for end in _ends(metric, pair) if link.verdict == "slow" else ():
                but.setdefault(end, set()).update(pair)
        ends = self._judged([self._alone(end, len(links), others) for end, others in but.items()])
        ill = {each.cell: each for each in ends if each.verdict != "usual"}
        well = [link for (metric, pair), link in zip(links, tried, strict=True) if not ill.keys() & _ends(metric, pair)]
        self.found = [*self.found, *ill.values(), *well]

    def _looked(self) -> list[slow.Cell]:
        """The nodes that a first look suspects."""
        for matching in itertools.islice(matchings(self._nodes, self._numbers), LOOKS + len(self._nodes) % 2):
            for pair, runs in self._again(matching, FIRST_RUNS, METRICS).items():
                for metric, values in runs.items():
                    if values:
                        self._middles.setdefault(metric, {})[pair] = median(values)
        found: list[slow.Cell] = []
        for metric, middles in sorted(self._middles.items()):
            nodes, self._low[metric] = suspects(middles)
            self._good[metric] = [node for node in self._nodes if node not in nodes and any(node in pair for pair in middles)]
            found += [slow.Cell(metric, node) for node in nodes]
        return found

    def _alone(self, cell: slow.Cell, count: int, but: AbstractSet[str] = frozenset()) -> _Trial:
        """A node, in each round with another good partner."""
        good = self._good[cell.metric]
        partners = [each for each in self._numbers.sample(good, len(good)) if each not in {cell.node, *but}]
        return _Trial(cell, itertools.cycle(partners), count)

    def _judged(self, trials: Sequence[_Trial]) -> list[slow.Slow]:
        slow.decide(trials, self._round)
        return [trial.judged() for trial in trials]

    def _round(self, _: int, trials: Sequence[_Trial]) -> list[slow.Runs]:
        self._wait()
        return [self._beside(trial) for trial in trials]

    def _beside(self, trial: _Trial) -> slow.Runs:
        """Fresh runs beside pairs of other good nodes."""
        metric, node, partner = trial.cell.metric, trial.cell.node.partition(" ")[0], next(trial.partners, "")
        if not partner:
            return {}
        good, low = self._good[metric], {*self._low[metric]}
        others = [each for each in self._numbers.sample(good, len(good)) if each not in (node, partner)]
        controls = [pair for pair in zip(others[::2], others[1::2], strict=False) if not {pair, pair[::-1]} & low][:CONTROLS]
        fresh = self._again([(node, partner), *controls], slow.RUNS, [metric])
        rates = [fresh[pair][metric] for pair in controls if metric in fresh.get(pair, {})]
        trial.used |= dict.fromkeys(itertools.chain.from_iterable(controls))
        beside = [median(each) for each in zip(*rates, strict=False)]
        return {trial.cell.node: fresh.get((node, partner), {}).get(metric, ()), _CONTROLS: beside}

    def _again(self, pairs: Sequence[Pair], runs: int, metrics: Sequence[str]) -> Seen:
        seen = self._measure(pairs, runs, metrics)
        self.pairs.update(map(frozenset, seen))
        return seen


def _ends(metric: str, pair: Pair) -> set[slow.Cell]:
    return {slow.Cell(metric, node) for node in pair}


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
