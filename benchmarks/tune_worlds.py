"""What `sysperf tune` delivers on machines that are made up, where the best start is known: whole searches, their confirmation included.

  python benchmarks/tune_worlds.py [--worlds 40] [--budget 60 --budget 120] [--noise 0.03 --noise two-modes] [--null]

A world has six factors with effects of 7 % that add up, a drift of 3 %, and one run in 25 that is an outlier. `two-modes` is a program
whose runs are 60 % apart by the placement of its threads. The search is that of the engine: the clock and the measured run are made up.
Budgets are in run times of the plain program. Runs take 15 % more or less by chance; with `--slower 1.6` all after the first three are
that much longer. Printed are shares of the worlds, and means in per cent: the gain to be had, what the best of the search lacks to it,
and the gain delivered, which is that of the profile that is written, and 0 without one. `--null`: worlds where no level gains
anything; `--null-gain -0.015` gives every start but the plain one that log speed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, stdev
from types import SimpleNamespace
from typing import NamedTuple

from sysperf.engine import tune, verify
from sysperf.engine.tune.plan import Plan
from sysperf.engine.verify import measuring
from sysperf.engine.verify.measuring import Measured
from sysperf.model.comparison import Metric, Variant
from sysperf.model.errors import UsageError
from sysperf.model.tuning import Choice, Factor, Level, Tuning
from sysperf.verify.search.plan import WRAP

SIZES = (5, 3, 4, 3, 2, 3)
FACTORS = tuple(
    Factor(f"F{place}", (Level("as it is"), *(Level(str(level), {"set": {f"F{place}": str(level)}}) for level in range(1, size))))
    for place, size in enumerate(SIZES)
)
PLAIN: Choice = (0,) * len(SIZES)
WRAPPED: Choice = (WRAP,) * len(SIZES)
WRAP_COST = -0.01
MEMORY = "/dev/shm"  # noqa: S108 - the folder of a search lies there, with a name of its own
RUN_S, RUN_SPREAD = 2.0, 0.15
MODES_APART = math.log(1.6)
Speed = Callable[[Choice], float]


class Played(NamedTuple):
    """What came of one search."""

    best: float
    """Log speed of the best choice; plain has 0."""
    chosen: float
    """That of the best of the search."""
    state: str
    raced: bool
    runs: int
    pairs: int
    over: float
    """How much longer than its budget it took, as a share of that."""


def speeds(rng: random.Random, null_gain: float | None, *, null: bool) -> Speed:
    """Log speeds of all choices."""
    if null_gain is not None:
        return lambda choice: null_gain if any(choice) else 0.0
    of = [[0.0, *(-abs(rng.gauss(0, 0.05)) if null else rng.gauss(-0.01, 0.07) for _ in range(size - 1))] for size in SIZES]
    return lambda choice: WRAP_COST if WRAP in choice else sum(levels[level] for levels, level in zip(of, choice, strict=True))


def noise(rng: random.Random, spread: float | None) -> Iterator[float]:
    """Drift (AR(1), 3 %), and 4 % outliers beside the spread of runs; None: two modes, and 3 %."""
    drift, width = 0.0, 0.03 if spread is None else spread
    while True:
        drift = 0.9 * drift + rng.gauss(0, 0.03 * math.sqrt(0.19))
        outlier = rng.expovariate(1 / (4 * width)) if rng.random() < 0.04 else 0.0
        mode = MODES_APART * (rng.random() < 0.5) if spread is None else 0.0
        yield drift + rng.gauss(0, width) - outlier - mode


class Machine:
    """Measures runs of a world, by a clock that only they advance."""

    def __init__(self, rng: random.Random, speed: Speed, spread: float | None, slower: float, profile: str) -> None:
        self.rng, self.speed, self.noise, self.slower, self.profile = rng, speed, noise(rng, spread), slower, profile
        self.at_s, self.runs = 1_000.0, 0

    def monotonic(self) -> float:
        return self.at_s

    def measure(self, variant: Variant, *_: object, **__: object) -> Measured:
        self.runs += 1
        wall_s = RUN_S * math.exp(self.rng.gauss(0, RUN_SPREAD)) * (self.slower if self.runs > 3 else 1.0)
        self.at_s += wall_s
        return Measured(math.exp(self.speed(self.choice(variant)) + next(self.noise)), wall_s, wall_s)

    def choice(self, variant: Variant) -> Choice:
        if "--profile" not in variant.argv:
            return WRAPPED if "wrap" in variant.argv else PLAIN
        with open(self.profile, encoding="utf-8") as file:
            levels = {int(place): int(level) for place, level in re.findall(r'F(\d)"? *= *"(\d+)"', file.read())}
        return tuple(levels.get(place, 0) for place in range(len(SIZES)))


def play(seed: int, budget: float, spread: float | None, args: argparse.Namespace, folder: str) -> Played | None:
    """Play a search of a world; None where it was refused."""
    rng = random.Random(f"{seed}/{spread}")  # noqa: S311 - a world, no secret
    speed = speeds(rng, args.null_gain, null=args.null)
    scratch = f"{folder}/profile.toml"
    machine = Machine(rng, speed, spread, args.slower, scratch)
    measuring.measure = machine.measure  # type: ignore[assignment]
    tune.time = verify.time = SimpleNamespace(monotonic=machine.monotonic)  # type: ignore[assignment]
    plan = Plan(
        argv=("train",), metric=Metric("speed", "", True, "(.*)"), factors=FACTORS, budget_s=budget * RUN_S, keep_disturbed=True, seed=seed
    )
    with tune.opened(f"{folder}/study.sqlite", resume=False) as store:
        try:
            tuning = tune.tune(plan, store, scratch)
        except UsageError:
            return None
    best = max(speed(choice) for choice in itertools.product(*map(range, SIZES)))
    over = (machine.at_s - 1_000.0) / plan.budget_s - 1
    return Played(max(best, 0.0), chosen(tuning, speed), tuning.state, raced(tuning), len(tuning.runs), pairs_of(tuning), over)


def chosen(tuning: Tuning, speed: Speed) -> float:
    return speed(whole(tuning.winner)) if tuning.winner else 0.0


def whole(choice: Choice) -> Choice:
    """A choice of all factors, as it is for those that were left out."""
    return WRAPPED if WRAP in choice else (*choice, *PLAIN[len(choice) :])


def raced(tuning: Tuning) -> bool:
    """Whether the best of the search comes from three rounds of a race or more."""
    return len({run.block for run in tuning.runs if run.block and not any(run.choice)}) >= 3


def pairs_of(tuning: Tuning) -> int:
    return tuning.comparison.pairs if tuning.comparison else 0


def line(name: str, budget: float, played: Sequence[Played | None]) -> str:
    """One line of the table."""
    done = [world for world in played if world]
    if not done:
        return f"{name:>9}{budget:7.0f}  refused"
    delivered = [world.chosen if world.state == "confirmed" else 0.0 for world in done]
    lacking = [world.best - world.chosen for world in done]
    figures = (
        share(world.raced for world in done),
        share(world.state == "confirmed" for world in done),
        share(gain < 0 for gain in delivered),
        share(gain < math.log(0.99) for gain in delivered),
        f"{100 * fmean(world.best for world in done):.1f}",
        f"{100 * fmean(lacking):.1f}",
        f"{100 * fmean(delivered):.1f}±{100 * stdev(delivered) / math.sqrt(len(done)):.1f}",
        f"{fmean(world.runs for world in done):.0f}",
        f"{fmean(world.pairs for world in done):.0f}",
        f"{100 * max(world.over for world in done):+.0f}",
    )
    return f"{name:>9}{budget:7.0f}" + "".join(f"{figure:>10}" for figure in figures)


def share(facts: Iterator[bool]) -> str:
    values = list(facts)
    return f"{100 * sum(values) / len(values):.1f}"


HEAD = ("raced", "confirmed", "slower", "by > 1 %", "to be had", "lacking", "delivered", "runs", "pairs", "% over")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=40)
    parser.add_argument("--budget", type=float, action="append", help="run times of the plain program (default: 60, 100 and 200)")
    parser.add_argument("--noise", action="append", help="a share, or two-modes (default: 0.01, 0.03, 0.1, 0.3, two-modes)")
    parser.add_argument("--slower", type=float, default=1.0, help="how much longer runs take than the first three")
    parser.add_argument("--null", action="store_true")
    parser.add_argument("--null-gain", type=float, default=None)
    args = parser.parse_args()
    print(f"{'noise':>9}{'budget':>7}" + "".join(f"{word:>10}" for word in HEAD))
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        for name, budget in itertools.product(args.noise or ("0.01", "0.03", "0.1", "0.3", "two-modes"), args.budget or (60, 100, 200)):
            spread = None if name == "two-modes" else float(name)
            print(line(name, budget, [play(seed, budget, spread, args, folder) for seed in range(args.worlds)]))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
