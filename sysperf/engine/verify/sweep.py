"""The verb `verify --experiment` for sweeps: one setting at several levels, the best of them confirmed against plain in fresh pairs."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from statistics import median

import msgspec

from sysperf import paths
from sysperf.engine import verify
from sysperf.engine.tune import space
from sysperf.engine.verify import measuring
from sysperf.engine.verify.measuring import RunFailed
from sysperf.engine.wrap.facts import Known, gather
from sysperf.host import Host
from sysperf.host.commands import sysperf_command
from sysperf.launch import environment
from sysperf.launch.profile import Profile, text
from sysperf.launch.request import LaunchRequest
from sysperf.model.comparison import MAX_TIME_S, MAX_VALUE, Comparison, Metric, Variant
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
SHOWN_PROFILE = "best.toml"
"""What a result calls the profile of the best level: its text is in the result."""


class SweepPlan(Record, kw_only=True):
    """What is swept, and the study that confirms the best: its B is replaced by that."""

    experiment: str
    study: verify.Plan

    @property
    def factor(self) -> str:
        """What is set."""
        return SWEEPS[self.experiment]


class SweepState(Record, kw_only=True):
    """A sweep in progress: all that is needed to go on with it."""

    seed: int
    machine: dict[str, str] = {}
    """How it was when the sweep began, as far as that decides whether runs can be compared."""
    warm_up: int = 0
    walls_s: tuple[float, ...] = ()
    levels: tuple[Level, ...] = ()
    """Empty: they are not chosen yet."""
    basis: str = ""
    values: dict[str, list[float]] = {}
    failed: dict[str, str] = {}
    study: verify.State | None = None
    """The best against plain; None: each level has not run three times yet."""

    def is_sound(self) -> bool:
        """Whether its figures can be figures of a sweep, and its names those of levels: it may have been read from a file."""
        times_s, values = (self.warm_up, *self.walls_s), [*itertools.chain.from_iterable(self.values.values())]
        return (
            all(0 <= time_s < MAX_TIME_S for time_s in times_s)
            and all(0 < value < MAX_VALUE for value in values)
            and not any("/" in level.name for level in self.levels)  # a profile of this name is written
            and (self.study is None or self.study.is_sound())
        )


Say = Callable[[str], object]
Keep = Callable[[SweepState], object]


def sweep(plan: SweepPlan, say: Say, keep: Keep = lambda _: None, state: SweepState | None = None) -> Sweep:
    """Run each level in three shuffled rounds, then the best against plain. Ctrl-C ends it with what is there. Raises SysperfError.

    `keep` is given the state after each run; one that was kept is gone on with.
    """
    state = state or SweepState(seed=plan.study.seed)
    plan = msgspec.structs.replace(plan, study=msgspec.structs.replace(plan.study, seed=state.seed))
    with _profiles() as folder:
        sweeper = _Sweeper(plan, folder, say, keep, state)
        try:
            sweeper.run()
        except space.Unfit as reason:
            return sweeper.result(cannot=str(reason))
        except KeyboardInterrupt:
            return sweeper.result(cannot="interrupted before each level had run three times")
        best = sweeper.best()
        if best is None:
            return sweeper.result()
        return sweeper.result(best, sweeper.confirmed(best))


@contextlib.contextmanager
def _profiles() -> Iterator[str]:
    try:
        folder = tempfile.TemporaryDirectory(prefix="sysperf-sweep-", dir=paths.temporary_home(), ignore_cleanup_errors=True)
    except OSError as error:
        raise SysperfError(f"there is no folder for launch profiles: {error.strerror or error}", "set TMPDIR to another folder") from None
    with folder as path:
        yield path


class _Sweeper:
    def __init__(self, plan: SweepPlan, folder: str, say: Say, keep: Keep, state: SweepState) -> None:
        self.plan, self.folder, self.say, self.keep, self.state = plan, folder, say, keep, state
        self.metric: Metric = plan.study.metric
        self.argv = plan.study.a.argv
        self.warm_up, self.walls_s = state.warm_up, list(state.walls_s)
        self.levels = list(state.levels)
        self.values = {name: list(values) for name, values in state.values.items()}
        self.failed = dict(state.failed)
        self.basis = state.basis

    def run(self) -> None:
        """Warm caches, choose the levels, run them. Raises Unfit, SysperfError."""
        if not self.levels:
            self._choose_levels()
        order = random.Random(self.plan.study.seed)  # noqa: S311 - an order, no secret
        for number in range(ROUNDS):
            for level in order.sample(self.levels, len(self.levels)):
                if level.name not in self.failed and len(self.values.get(level.name, ())) <= number:
                    self._measure(level)
                    self.say(f"round {number + 1} of {ROUNDS}, {self.plan.factor} {level.name}: {self._last(level)}")
                    self._keep()

    def _choose_levels(self) -> None:
        known = gather(Host(), LaunchRequest(argv=self.argv), environment.inherited(), os.getcwd(), None)
        levels, reason = space.levels(self.plan.factor, known, space.Asked(loader=True))
        if not levels:
            raise space.Unfit(reason or "there is one way only")
        self._pilot()
        chosen = self._workers(known) if self.plan.experiment == LOADER else list(levels)
        self.levels = [space.AS_IS, *chosen]

    def confirmed(self, best: Level) -> Comparison:
        """Compare plain with a level in fresh pairs. Raises SysperfError."""
        kept = self.state.study
        one_look = (kept.plan if kept else self.plan.study).one_look  # looks that were made cannot become none
        plan = msgspec.structs.replace(self.plan.study, b=self.variant(best), one_look=one_look)
        comparison = verify.verify(plan, self._keep, msgspec.structs.replace(kept, plan=plan) if kept else None)
        argv = tuple(SHOWN_PROFILE if word.startswith(f"{self.folder}/") else word for word in comparison.b.argv)  # that file is gone then
        return msgspec.structs.replace(comparison, b=msgspec.structs.replace(comparison.b, argv=argv))

    def _keep(self, study: verify.State | None = None) -> None:
        self.state = msgspec.structs.replace(
            self.state, warm_up=self.warm_up, walls_s=tuple(self.walls_s), levels=tuple(self.levels), basis=self.basis,
            values=self.values, failed=self.failed, study=study,
        )  # fmt: skip
        self.keep(self.state)

    def best(self) -> Level | None:
        """Return the level to confirm; None where plain was the fastest."""
        speeds = {level.name: self._speed(level) for level in self.levels if self.values.get(level.name)}
        fastest = max(speeds.values(), default=0.0)
        enough = fastest / (1 + ENOUGH_GAIN) if self.plan.experiment == LOADER else fastest
        best = next((level for level in self.levels[1:] if speeds.get(level.name, 0.0) >= enough), None)
        return best if best and speeds[best.name] > speeds.get(space.AS_IS.name, 0.0) else None

    def variant(self, level: Level) -> Variant:
        """How the program is started at a level. Raises SysperfError."""
        if not level.profile:
            return self.plan.study.a
        path = f"{self.folder}/{level.name}.toml"
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(self._profile(level))
        except OSError as error:
            raise SysperfError(f"{path}: {error.strerror or error}", "make room there, or set TMPDIR to another folder") from None
        return Variant(f"{self.plan.factor}: {level.name}", (*sysperf_command(), "wrap", "--quiet", "--profile", path, "--", *self.argv))

    def _profile(self, level: Level) -> str:
        fields = space.profile_of((Factor(self.plan.factor, (space.AS_IS, level)),), (1,))
        try:
            return text(convert(fields, Profile))
        except ValueError as error:
            raise SysperfError(f"the level {neutral(level.name)} is no launch profile: {error}", "run it without --resume") from None

    def result(self, best: Level | None = None, comparison: Comparison | None = None, cannot: str = "") -> Sweep:
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
            best=best.name if best else "",
            profile=self._profile(best) if best else "",
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
            if level == space.AS_IS:
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
