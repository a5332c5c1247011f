"""Which node is slow: short runs of all, then fresh runs of suspects beside nodes that are as usual, then a name or none.

The first look only chooses: of a thousand figures the worst look bad by chance. A node is named by fresh runs in turn with controls, where
it is at least 2 % slower and Student's test excludes that it is less than 1 % slower, at 5 % for all suspects together. Runs of one moment
share what disturbs them, a rack's noise above all: a round of runs is one observation, and rounds of a suspect lie apart in time.

Hurlbert, S. H. (1984): Pseudoreplication and the design of ecological field experiments. Ecological Monographs 54, 187-211
Yuen, K. K. (1974): The two-sample trimmed t for unequal population variances. Biometrika 61, 165-170
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import fmean, median, stdev
from typing import Literal, NamedTuple, TypeVar

from sysperf.model.text import natural
from sysperf.verify.stats import t_quantile

Runs = Mapping[str, Sequence[float]]
"""By node. More is better."""
Values = Mapping[str, Runs]
"""By metric: the first look."""

MIN_NODES = 4
"""A smaller class has differences, and nobody is named."""
SUSPECT_Z = -2.0
MAX_SUSPECTS, MAX_SHARE = 24, 0.01
ROUNDS, RUNS = 12, 6
FEW_ROUNDS = 4
"""So many name a node that is far slower."""
MIN_ROUNDS, MIN_RUNS = 2, 3
LOOKS = 2
"""At the rounds of a suspect: after few, and after all."""
CONTROLS = 3
NEIGHBOURS = 12
"""Controls come from so many nodes whose names are nearest: where names count through racks, they share the suspect's rack."""
TRIMMED = 0.17
LEVEL = 0.05
INTERVAL = 0.95
TELLABLE = (0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
MAD = 1.4826
"""Times the median of absolute deviations is a standard deviation, of normal noise."""


class Bounds(NamedTuple):
    """What counts as slow, as shares of the controls."""

    suspect: float = 0.99
    """The part of the usual figure below which a node is a suspect."""
    harmless: float = -0.01
    """A smaller difference is none."""
    named: float = -0.02
    far: float = -0.05
    """Noise that a rack shares for a minute is smaller."""
    clear: float = 0.03
    """Runs that cannot tell this leave it unclear."""


FIGURES = Bounds()


class Cell(NamedTuple):
    """One metric of one node."""

    metric: str
    node: str


Verdict = Literal["slow", "slower", "usual", "unclear", "not measured"]


class Slow(NamedTuple):
    """What fresh runs say of a suspect. Differences are shares of the controls: -0.03 is 3 % slower."""

    cell: Cell
    verdict: Verdict
    """slow: named; slower: truly, by too little to be named; unclear: the runs scatter too much."""
    middle: float
    low: float
    high: float
    runs: int
    beside: tuple[str, ...]
    tells_from: float
    """The least difference that such runs can tell; 1.0: none."""


def suspects(values: Values) -> list[Cell]:
    """The cells that are far below their class, the worst first: 1 % of all, and at least 24 if there are so many."""
    found: list[tuple[float, Cell]] = []
    cells = 0
    for metric, nodes in values.items():
        middles = {node: median(runs) for node, runs in nodes.items() if runs}
        cells += len(middles)
        if len(middles) < MIN_NODES:
            continue
        usual = median(middles.values())
        spread = MAD * median(abs(value - usual) for value in middles.values())
        for node, value in middles.items():
            z = (value - usual) / spread if spread > 0 else math.copysign(math.inf, value - usual)
            if usual > 0 and z < SUSPECT_Z and value < FIGURES.suspect * usual:
                found.append((z, Cell(metric, node)))
    return [cell for _, cell in sorted(found)[: max(MAX_SUSPECTS, math.ceil(MAX_SHARE * cells))]]


def controls(nodes: Runs, suspected: AbstractSet[str]) -> dict[str, tuple[str, ...]]:
    """Choose for each suspect in a metric, of the nodes with the nearest names that do not look slow, those nearest to the median."""
    middles = {node: median(runs) for node, runs in nodes.items() if runs}
    usual = median(middles.values())
    place = {node: number for number, node in enumerate(sorted(middles, key=natural))}
    healthy = [node for node in place if node not in suspected and middles[node] >= FIGURES.suspect * usual]

    def beside(suspect: str) -> tuple[str, ...]:
        near = heapq.nsmallest(NEIGHBOURS, healthy, key=lambda node: abs(place[node] - place[suspect]))
        return tuple(heapq.nsmallest(CONTROLS, near, key=lambda node: abs(middles[node] - usual)))

    return {suspect: beside(suspect) for suspect in suspected}


class Trial:
    """A suspect, measured in rounds beside its controls."""

    def __init__(self, cell: Cell, beside: tuple[str, ...], count: int, bounds: Bounds = FIGURES) -> None:
        self.cell, self.beside, self._bounds = cell, beside, bounds
        self._level = LEVEL / LOOKS / max(1, count)
        self._rounds: list[float] = []
        self._runs = 0
        self.goes_on = True
        """Whether a further round is wanted."""

    def add(self, fresh: Runs) -> None:
        """Take the runs of a round. One without enough of them is the last."""
        added = _differences(fresh.get(self.cell.node, ()), [fresh[node] for node in self.beside if fresh.get(node)])
        if len(added) < MIN_RUNS:
            self.goes_on = False
            return
        self._rounds.append(trimmed(added))
        self._runs += len(added)
        many, middle = len(self._rounds), fmean(self._rounds)
        far = many == FEW_ROUNDS and middle <= self._bounds.far and self._is_slow
        self.goes_on = many < MIN_ROUNDS or (many < ROUNDS and middle <= self._bounds.harmless and not far)

    def judged(self) -> Slow:
        """What all rounds say."""
        if len(self._rounds) < MIN_ROUNDS:
            return Slow(self.cell, "not measured", 0.0, 0.0, 0.0, 0, self.beside, 1.0)
        middle, reach = fmean(self._rounds), self._reach((1 - INTERVAL) / 2)
        least = self._reach(self._level) - self._bounds.harmless
        tells_from = next((share for share in TELLABLE if share >= least), 1.0)
        verdict: Verdict = "slower" if tells_from <= self._bounds.clear else "unclear"
        if middle > self._bounds.harmless:
            verdict = "usual"
        elif len(self._rounds) >= FEW_ROUNDS and self._is_slow:
            verdict = "slow"
        return Slow(self.cell, verdict, middle, max(-1.0, middle - reach), middle + reach, self._runs, self.beside, tells_from)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The suspect and its controls."""
        return (self.cell.node, *self.beside)

    @property
    def _is_slow(self) -> bool:
        """Whether these rounds name it."""
        middle = fmean(self._rounds)
        return middle <= self._bounds.named and middle + self._reach(self._level) < self._bounds.harmless

    def _reach(self, level: float) -> float:
        """How far the mean of the rounds may be off to one side, at this level."""
        many = len(self._rounds)
        return t_quantile(1 - level, many - 1) * stdev(self._rounds) / math.sqrt(many)


T = TypeVar("T", bound=Trial)


def trials(values: Values) -> list[Trial]:
    """The suspects of a class, each with its controls."""
    suspected = suspects(values)
    beside = {metric: controls(nodes, {each.node for each in suspected if each.metric == metric}) for metric, nodes in values.items()}
    return [Trial(cell, beside[cell.metric][cell.node], len(suspected)) for cell in suspected]


def decide(trials: Sequence[T], measure: Callable[[int, Sequence[T]], Sequence[Runs]]) -> None:
    """Measure RUNS runs of each suspect and its controls, round after round, until none wants a further one."""
    for number in range(ROUNDS):
        if not (going := [trial for trial in trials if trial.goes_on]):
            return
        for trial, fresh in zip(going, measure(number, going), strict=True):
            trial.add(fresh)


def _differences(suspect: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    """Each run of the suspect beside the controls' runs of the same moment."""
    if not others:
        return []
    return [run / usual - 1 for run, *beside in zip(suspect, *others) if (usual := fmean(beside)) > 0]  # noqa: B905 - the shortest decides


def trimmed(values: Sequence[float]) -> float:
    """The mean of what lies in the middle: one run that something disturbs does not move it."""
    ordered = sorted(values)
    cut = int(TRIMMED * len(ordered))
    return fmean(ordered[cut : len(ordered) - cut])
