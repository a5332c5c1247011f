"""The verb `verify --experiment` for sweeps: one setting at several levels, the best of them confirmed against plain in fresh pairs."""

from __future__ import annotations

import contextlib
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from statistics import median

import msgspec

from sysperf.engine import measuring, tune_space, verify
from sysperf.engine.measuring import RunFailed
from sysperf.engine.wrap_facts import Known, gather
from sysperf.host import Host
from sysperf.host.commands import sysperf_command
from sysperf.launch import environment
from sysperf.launch.profile import Profile, text
from sysperf.launch.request import LaunchRequest
from sysperf.model.comparison import Comparison, Metric, Variant
from sysperf.model.errors import SysperfError
from sysperf.model.experiment import SWEEPS
from sysperf.model.record import Record, convert
from sysperf.model.sweep import Sweep, SweptLevel
from sysperf.model.text import neutral
from sysperf.model.tuning import Factor, Level
from sysperf.verify import probe

ROUNDS = 3
ENOUGH_GAIN = 0.03
"""More workers must be faster by so much: each costs memory and CPU time."""
LOADER = "loader-sweep"


class SweepPlan(Record, kw_only=True):
    """What is swept, and the study that confirms the best: its B is replaced by that."""

    experiment: str
    study: verify.Plan

    @property
    def factor(self) -> str:
        """What is set."""
        return SWEEPS[self.experiment]


Say = Callable[[str], object]


def sweep(plan: SweepPlan, say: Say, observe: verify.Observe = lambda _: None) -> Sweep:
    """Run each level in three shuffled rounds, then the best against plain. Ctrl-C ends it with what is there. Raises SysperfError."""
    with _profiles() as folder:
        sweeper = _Sweeper(plan, folder, say)
        try:
            sweeper.run()
        except tune_space.Unfit as reason:
            return sweeper.result(cannot=str(reason))
        except KeyboardInterrupt:
            return sweeper.result(cannot="interrupted before each level had run three times")
        best = sweeper.best()
        if best is None:
            return sweeper.result()
        b = sweeper.variant(best)
        return sweeper.result(best.name, verify.verify(msgspec.structs.replace(plan.study, b=b), observe))


@contextlib.contextmanager
def _profiles() -> Iterator[str]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="sysperf-sweep-", ignore_cleanup_errors=True)
    except OSError as error:
        raise SysperfError(f"there is no folder for launch profiles: {error.strerror or error}", "set TMPDIR to another folder") from None
    with folder as path:
        yield path


class _Sweeper:
    def __init__(self, plan: SweepPlan, folder: str, say: Say) -> None:
        self.plan, self.folder, self.say = plan, folder, say
        self.metric: Metric = plan.study.metric
        self.argv = plan.study.a.argv
        self.warm_up, self.walls_s = 0, list[float]()
        self.levels: list[Level] = []
        self.values: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}
        self.basis = ""

    def run(self) -> None:
        """Warm caches, choose the levels, run them. Raises Unfit, SysperfError."""
        known = gather(Host(), LaunchRequest(argv=self.argv), environment.inherited(), os.getcwd(), None)
        levels, reason = tune_space.levels(self.plan.factor, known, tune_space.Asked(loader=True))
        if not levels:
            raise tune_space.Unfit(reason or "there is one way only")
        self._pilot()
        chosen = self._workers(known) if self.plan.experiment == LOADER else list(levels)
        self.levels = [tune_space.AS_IS, *chosen]
        order = random.Random(self.plan.study.seed)  # noqa: S311 - an order, no secret
        for number in range(ROUNDS):
            for level in order.sample(self.levels, len(self.levels)):
                if level.name not in self.failed:
                    self._measure(level)
                    self.say(f"round {number + 1} of {ROUNDS}, {self.plan.factor} {level.name}: {self._last(level)}")

    def best(self) -> Level | None:
        """Return the level to confirm; None where plain was the fastest."""
        speeds = {level.name: self._speed(level) for level in self.levels if self.values.get(level.name)}
        fastest = max(speeds.values(), default=0.0)
        enough = fastest / (1 + ENOUGH_GAIN) if self.plan.experiment == LOADER else fastest
        best = next((level for level in self.levels[1:] if speeds.get(level.name, 0.0) >= enough), None)
        return best if best and speeds[best.name] > speeds.get(tune_space.AS_IS.name, 0.0) else None

    def variant(self, level: Level) -> Variant:
        """How the program is started at a level. Raises SysperfError."""
        if not level.profile:
            return self.plan.study.a
        path = f"{self.folder}/{level.name}.toml"
        fields = tune_space.profile_of((Factor(self.plan.factor, (tune_space.AS_IS, level)),), (1,))
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text(convert(fields, Profile)))
        except OSError as error:
            raise SysperfError(f"{path}: {error.strerror or error}", "make room there, or set TMPDIR to another folder") from None
        return Variant(f"{self.plan.factor}: {level.name}", (*sysperf_command(), "wrap", "--quiet", "--profile", path, "--", *self.argv))

    def result(self, best: str = "", comparison: Comparison | None = None, cannot: str = "") -> Sweep:
        """Return what is known so far."""
        swept = [
            SweptLevel(level.name, tuple(values), median(values) if values else None, self.failed.get(level.name, ""))
            for level in self.levels
            for values in (self.values.get(level.name, []),)
        ]
        return Sweep(
            experiment=self.plan.experiment,
            factor=self.plan.factor,
            metric=self.metric,
            levels=tuple(swept),
            basis=self.basis,
            best=best,
            comparison=comparison,
            cannot=cannot,
        )

    def _pilot(self) -> None:
        """A run that warms caches and tells how long the program warms up. Raises RunFailed."""
        done = measuring.measure(self.plan.study.a, self.metric, self.plan.study.limit_s)
        steps = probe.Steps(done.step_times_s)
        self.warm_up = probe.warm_up_steps(steps, steps) if self.metric.counts else 0
        self.walls_s.append(done.wall_s)

    def _workers(self, known: Known) -> list[Level]:
        """Choose numbers of workers by Little's law, and their neighbours. Raises Unfit, RunFailed.

        One worker makes batches at the rate 1 / (time of a batch); as many as there are CPUs show the rate at which the program takes
        them. The ratio of both is the number of batches that must be in the making.
        """
        most = max(1, len(known.machine.allowed or ()) or (os.cpu_count() or 1))
        rates = [self._rate(_workers_level(number)) for number in dict.fromkeys((1, most))]
        needed = max(1, math.ceil(rates[-1] / rates[0] - 0.05))
        self.basis = (
            f"Little's law: with {most} workers the program is {rates[-1] / rates[0]:.2f} times as fast as with one, so that {needed} "
            f"keep{'s' if needed == 1 else ''} it fed; tried with its neighbours"
        )
        numbers = sorted(number for number in {needed - 1, needed, needed + 1, 2 * needed} if 1 <= number <= most)
        return [_workers_level(number) for number in numbers]

    def _rate(self, level: Level) -> float:
        done = measuring.measure(self.variant(level), self.metric, self._limit_s(), self.warm_up)
        self.walls_s.append(done.wall_s)
        self.say(f"{self.plan.factor} {level.name}: {done.value:.4g} {self.metric.unit}")
        return done.value if self.metric.higher_is_better else 1 / done.value

    def _measure(self, level: Level) -> None:
        try:
            done = measuring.measure(self.variant(level), self.metric, self._limit_s(), self.warm_up)
        except RunFailed as error:
            if level == tune_space.AS_IS:
                raise
            self.failed[level.name] = neutral(str(error), 300)
            return
        self.walls_s.append(done.wall_s)
        self.values.setdefault(level.name, []).append(done.value)

    def _limit_s(self) -> float:
        return measuring.limit_s(self.plan.study.limit_s, self.walls_s)

    def _last(self, level: Level) -> str:
        return self.failed.get(level.name) or f"{self.values[level.name][-1]:.4g} {self.metric.unit}"

    def _speed(self, level: Level) -> float:
        middle = median(self.values[level.name])
        return middle if self.metric.higher_is_better else 1 / middle


def _workers_level(number: int) -> Level:
    return Level(f"{number} worker{'' if number == 1 else 's'}", {"loader_workers": number})
