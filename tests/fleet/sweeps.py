"""Fleets whose nodes run at known speeds: what a sweep says of them can be counted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import median
from typing import NamedTuple

from sysperf.engine.fleet.slow import MAD, RUNS, Runs, Slow, Trial, Values, decide, trials

METRICS = 12
DISTURBED = 0.02
"""The part of the runs that something disturbs, by 3 to 30 %."""
RACK = 16
HARMLESS = 0.99
"""Who is less than 1 % slower is healthy."""


class World(NamedTuple):
    """How fast healthy nodes are, and how much runs scatter, as parts of the figure."""

    nodes: int = 64
    spread: float = 0.005
    noise: float = 0.01
    slow_by: float = 0.0
    alike: float = 0.0
    """How much a run's noise is like that of the run before (first-order autoregression)."""
    rack_noise: float = 0.0
    """Noise that the nodes of a rack share, also at the first look."""
    lasts: float = 0.0
    """For how many rounds of runs; 0: for one."""
    scattered: bool = False
    """Whether neighbours by name lie in different racks."""
    slow_rack: bool = False
    """Whether all nodes of a rack are slow, not one."""
    runs: int = 5
    """Of the first look."""

    def rack(self, node: int) -> int:
        """Where a node lies."""
        return node % math.ceil(self.nodes / RACK) if self.scattered else node // RACK


def confirmed(values: Values, measure: Callable[[int, Sequence[Trial]], Sequence[Runs]]) -> list[Slow]:
    """Measure the suspects of a class again, and judge them."""
    suspected = trials(values)
    decide(suspected, measure)
    return [each.judged() for each in suspected]


class Outcome(NamedTuple):
    """What came of a sweep."""

    found: bool
    """The slow node is named, or most of the slow rack."""
    healthy_named: bool
    results: Sequence[Slow]
    at_a_glance: tuple[bool, bool]
    """The same two, where whoever is 3.5 robust deviations below at the first look is named."""


def sweep(world: World, random_numbers: random.Random) -> Outcome:
    """One sweep of a fleet, in which one node, or a rack, is slow in one metric."""
    gauss = random_numbers.gauss
    speed = {(metric, node): 100 * (1 + gauss(0, world.spread)) for metric in range(METRICS) for node in range(world.nodes)}
    metric, first = random_numbers.randrange(METRICS), random_numbers.randrange(world.nodes)
    bad = {(metric, node) for node in range(world.nodes) if node == first or (world.slow_rack and world.rack(node) == world.rack(first))}
    if world.slow_by:
        speed |= dict.fromkeys(bad, 100 * (1 - world.slow_by))
    before: dict[tuple[int, int], float] = {}

    def run(metric: int, node: int) -> float:
        noise = gauss(0, world.noise)
        if world.alike:
            last = before.get((metric, node), gauss(0, world.noise))
            before[metric, node] = noise = world.alike * last + (1 - world.alike**2) ** 0.5 * noise
        if random_numbers.random() < DISTURBED:
            noise -= random_numbers.uniform(0.03, 0.3)
        return speed[metric, node] * (1 + noise)

    kept = math.exp(-1 / world.lasts) if world.lasts else 0.0
    racks = [gauss(0, world.rack_noise) for _ in range(world.nodes // RACK + 1)]

    def measure(_: int, going: Sequence[Trial]) -> list[Runs]:
        racks[:] = [kept * last + (1 - kept**2) ** 0.5 * gauss(0, world.rack_noise) for last in racks]
        asked = {(int(each.cell.metric), int(node)) for each in going for node in each.nodes}
        fresh = {(metric, node): [run(metric, node) * (1 + racks[world.rack(node)]) for _ in range(RUNS)] for metric, node in sorted(asked)}
        return [{node: fresh[int(each.cell.metric), int(node)] for node in each.nodes} for each in going]

    values = {
        str(metric): {
            str(node): [run(metric, node) * (1 + racks[world.rack(node)]) for _ in range(world.runs)] for node in range(world.nodes)
        }
        for metric in range(METRICS)
    }
    results = confirmed(values, measure)
    named = {(int(each.cell.metric), int(each.cell.node)) for each in results if each.verdict == "slow"}
    odd = set(glanced(values))

    def healthy(cells: AbstractSet[tuple[int, int]]) -> bool:
        return any(speed[cell] >= 100 * HARMLESS for cell in cells)

    def found(cells: AbstractSet[tuple[int, int]]) -> bool:
        return 2 * len(bad & cells) > len(bad)

    return Outcome(found(named), healthy(named), results, (found(odd), healthy(odd)))


def glanced(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[tuple[int, int]]:
    """Whom one look would name."""
    for metric, nodes in values.items():
        middles = {node: median(runs) for node, runs in nodes.items()}
        usual = median(middles.values())
        spread = MAD * median(abs(value - usual) for value in middles.values())
        yield from ((int(metric), int(node)) for node, value in middles.items() if value - usual < -3.5 * spread)


class Rates(NamedTuple):
    """Of so many sweeps."""

    found: float
    healthy_named: float
    unclear: float
    """Sweeps in which some suspect is called unclear."""
    glance_found: float
    glance_healthy: float


def rates(world: World, sweeps: int, seed: int = 7) -> Rates:
    """How often the slow node is found, and a healthy one named."""
    random_numbers = random.Random(seed)
    outcomes = [sweep(world, random_numbers) for _ in range(sweeps)]
    unclear = sum(any(each.verdict == "unclear" for each in outcome.results) for outcome in outcomes)
    counts = (
        sum(outcome.found for outcome in outcomes),
        sum(outcome.healthy_named for outcome in outcomes),
        unclear,
        *(sum(outcome.at_a_glance[which] for outcome in outcomes) for which in (0, 1)),
    )
    return Rates(*(count / sweeps for count in counts))
