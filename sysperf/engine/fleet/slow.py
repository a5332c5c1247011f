"""Which node is slow: short runs of all, then fresh runs of suspects beside nodes that are as usual, then a name or none.

The first look only chooses: of a thousand figures the worst look bad by chance. A node is named by fresh runs in turn with controls, where
it is at least 2 % slower and Student's test of trimmed means excludes that it is less than 1 % slower, at 5 % for all suspects together.

Yuen, K. K. (1974): The two-sample trimmed t for unequal population variances. Biometrika 61, 165-170
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Literal, NamedTuple

from sysperf.verify.stats import t_quantile

Values = Mapping[str, Mapping[str, Sequence[float]]]
"""By metric, then by node: the runs of the first look. More is better."""
Measure = Callable[[str, Sequence[str], int], Mapping[str, Sequence[float]]]
"""Measures (metric, nodes, so many fresh runs each), the nodes at the same time or in turn; a node that gives none is left out."""

MIN_NODES = 4
"""A smaller class has differences, and nobody is named."""
SUSPECT_Z = -2.0
MAX_SUSPECTS, MAX_SHARE = 24, 0.01
ROUNDS = (12, 12, 24)
CONTROLS = 3
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
    soon: float = -0.05
    """From here on two rounds are enough: what a rack shares for as long as a round is smaller, and seldom there three times."""
    each_round: float = -0.015
    """No single round says otherwise: noise that a rack shares lasts as long as a round."""
    clear: float = 0.03
    """Runs that cannot tell this leave it unclear."""


FIGURES = Bounds()


class Cell(NamedTuple):
    """One metric of one node."""

    metric: str
    node: str


class Slow(NamedTuple):
    """What fresh runs say of a suspect. Differences are shares of the controls: -0.03 is 3 % slower."""

    cell: Cell
    verdict: Literal["slow", "slower", "usual", "unclear", "not measured"]
    """slow: named; slower: truly, by too little to be named; unclear: the runs scatter too much."""
    middle: float
    low: float
    high: float
    runs: int
    beside: tuple[str, ...]
    tells_from: float
    """The least difference that such runs can tell; 1.0: none."""


class Estimate(NamedTuple):
    """A trimmed mean, its standard error and degrees of freedom."""

    middle: float
    error: float
    freedom: int

    def reach(self, level: float) -> float:
        """How far the mean may be off to one side, at this level."""
        return t_quantile(1 - level, self.freedom) * self.error


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


def controls(values: Values, cell: Cell, suspected: Sequence[Cell]) -> tuple[str, ...]:
    """The nodes nearest to the median of this metric, none of which is a suspect in it."""
    odd = {other.node for other in suspected if other.metric == cell.metric}
    middles = {node: median(runs) for node, runs in values[cell.metric].items() if runs and node not in odd}
    usual = median(middles.values()) if middles else 0.0
    return tuple(sorted(middles, key=lambda node: (abs(middles[node] - usual), node))[:CONTROLS])


def confirmed(values: Values, measure: Measure) -> list[Slow]:
    """Measure each suspect again, and judge it."""
    suspected = suspects(values)
    return [judged(cell, controls(values, cell, suspected), measure, len(suspected)) for cell in suspected]


def judged(cell: Cell, beside: tuple[str, ...], measure: Measure, count: int, bounds: Bounds = FIGURES) -> Slow:
    """Runs in rounds, until it is named, clearly no suspect any more, or the last round is over."""
    differences: list[float] = []
    rounds: list[float] = []
    level = LEVEL / len(ROUNDS) / max(1, count)
    for runs in ROUNDS:
        fresh = measure(cell.metric, (cell.node, *beside), runs)
        added = _differences(fresh.get(cell.node, ()), [fresh[node] for node in beside if fresh.get(node)])
        differences += added
        if len(added) < 3:
            break
        rounds.append(trimmed(added).middle)
        estimate = trimmed(differences)
        if (
            len(rounds) > (1 if estimate.middle <= bounds.soon else len(ROUNDS) - 1)
            and max(rounds) <= bounds.each_round
            and estimate.middle <= bounds.named
            and estimate.middle + estimate.reach(level) < bounds.harmless
        ):
            return _said(cell, "slow", differences, beside, level, bounds)
        if estimate.middle > bounds.harmless:
            break
    if len(differences) < 3:
        return Slow(cell, "not measured", 0.0, 0.0, 0.0, 0, beside, 1.0)
    said = _said(cell, "usual", differences, beside, level, bounds)
    if said.middle > bounds.harmless:
        return said
    return said._replace(verdict="slower" if said.tells_from <= bounds.clear else "unclear")


def _differences(suspect: Sequence[float], others: Sequence[Sequence[float]]) -> list[float]:
    """Each run of the suspect beside the controls' runs of the same moment."""
    if not others:
        return []
    return [run / usual - 1 for run, *beside in zip(suspect, *others) if (usual := fmean(beside)) > 0]  # noqa: B905 - the shortest decides


def _said(
    cell: Cell, verdict: Literal["slow", "usual"], differences: Sequence[float], beside: tuple[str, ...], level: float, bounds: Bounds
) -> Slow:
    estimate = trimmed(differences)
    reach = estimate.reach((1 - INTERVAL) / 2)
    least = -bounds.harmless + estimate.reach(level)
    tells_from = next((share for share in TELLABLE if share >= least), 1.0)
    middle = estimate.middle
    return Slow(cell, verdict, middle, middle - reach, middle + reach, len(differences), beside, tells_from)


def trimmed(values: Sequence[float]) -> Estimate:
    """The trimmed mean of at least three values; runs that follow each other count as fewer where they are alike."""
    ordered = sorted(values)
    cut = int(TRIMMED * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    mean = fmean(winsorized)
    freedom = len(kept) - 1
    variance = sum((value - mean) ** 2 for value in winsorized) / (len(kept) * freedom)
    return Estimate(fmean(kept), math.sqrt(variance * _inflation(values)), freedom)


def _inflation(values: Sequence[float]) -> float:
    """Factor by which the variance of a mean grows where each run is like the one before (first-order autoregression)."""
    middle = median(values)
    low, high = sorted(values)[int(0.1 * len(values))], sorted(values)[-1 - int(0.1 * len(values))]
    rest = [min(max(value, low), high) - middle for value in values]
    square = sum(value * value for value in rest)
    if not square:
        return 1.0
    # An estimate from few runs is too low by (1 + 4 rho) / n (Kendall, 1954).
    rho = sum(one * next_one for one, next_one in itertools.pairwise(rest)) / square
    rho = min(0.9, max(0.0, rho + (1 + 4 * rho) / len(values)))
    return (1 + rho) / (1 - rho)
