"""Fleets whose nodes run at known speeds: what a sweep says of them can be counted."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from sysperf.engine.fleet.slow import MAD, Slow, confirmed

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
    """Noise that the nodes of a rack share, and that lasts as long as a round of runs."""
    runs: int = 5
    """Of the first look."""


class Outcome(NamedTuple):
    """What came of a sweep."""

    found: bool
    healthy_named: bool
    results: Sequence[Slow]
    at_a_glance: tuple[bool, bool]
    """The same two, where whoever is 3.5 robust deviations below at the first look is named."""


def sweep(world: World, random_numbers: random.Random) -> Outcome:
    """One sweep of a fleet, in which one node is slow in one metric."""
    gauss = random_numbers.gauss
    speed = {(metric, node): 100 * (1 + gauss(0, world.spread)) for metric in range(METRICS) for node in range(world.nodes)}
    bad = (random_numbers.randrange(METRICS), random_numbers.randrange(world.nodes))
    if world.slow_by:
        speed[bad] = 100 * (1 - world.slow_by)
    before: dict[tuple[int, int], float] = {}

    def run(metric: int, node: int) -> float:
        noise = gauss(0, world.noise)
        if world.alike:
            last = before.get((metric, node), gauss(0, world.noise))
            before[metric, node] = noise = world.alike * last + (1 - world.alike**2) ** 0.5 * noise
        if random_numbers.random() < DISTURBED:
            noise -= random_numbers.uniform(0.03, 0.3)
        return speed[metric, node] * (1 + noise)

    def measure(metric: str, nodes: Sequence[str], runs: int) -> Mapping[str, Sequence[float]]:
        rack = {int(node) // RACK: gauss(0, world.rack_noise) for node in nodes}
        return {node: [run(int(metric), int(node)) * (1 + rack[int(node) // RACK]) for _ in range(runs)] for node in nodes}

    values = {
        str(metric): {str(node): [run(metric, node) for _ in range(world.runs)] for node in range(world.nodes)} for metric in range(METRICS)
    }
    results = confirmed(values, measure)
    named = [(int(each.cell.metric), int(each.cell.node)) for each in results if each.verdict == "slow"]
    odd = list(glanced(values))

    def healthy(cells: Sequence[tuple[int, int]]) -> bool:
        return any(speed[cell] >= 100 * HARMLESS for cell in cells)

    return Outcome(bad in named, healthy(named), results, (bad in odd, healthy(odd)))


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
