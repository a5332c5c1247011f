"""What to run next: a pure function of the runs so far, so that a search goes on after kill -9 as if nothing had happened.

Three parts in ten of the runs are a balanced design, three are proposals of the main-effects model in turn with TPE, four are a race
of the best against plain and against `sysperf wrap` without a profile.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from sysperf.model.tuning import Choice, Phase, TuneRun
from sysperf.verify.search import design, effects, race, tpe
from sysperf.verify.search.effects import Effects, Observation

DESIGN_SHARE, RACE_SHARE = 0.3, 0.4
MIN_RUNS = 18
"""Fewer runs than this tell nothing of several factors."""
MIN_CANDIDATES, MAX_CANDIDATES = 3, 8
MIN_RACE = MIN_CANDIDATES * race.MIN_BLOCKS
"""Runs of the shortest race."""
MAX_CHOICES = 5_000
"""More combinations than this are sampled."""
MAX_DRAWS = 20
MIN_LEVEL_FAILURES = 2
"""A level that failed so often and never ran is not tried again."""
WRAP = -1
"""The level of each factor in the choice that stands for `sysperf wrap` without a profile."""


class Proposal(NamedTuple):
    """The next run."""

    phase: Phase
    choice: Choice
    block: int = 0


class Search(NamedTuple):
    """A search in progress."""

    sizes: tuple[int, ...]
    """Levels of each factor."""
    total: int
    """Runs that the budget has room for, those that are done included: it changes as runs get slower and faster."""
    seed: int
    higher_is_better: bool
    use_tpe: bool
    runs: Sequence[TuneRun] = ()
    worth: float = 0.0
    """What a later level must gain, a log ratio, where that costs more."""

    @property
    def plain(self) -> Choice:
        return (0,) * len(self.sizes)

    @property
    def wrapped(self) -> Choice:
        return (WRAP,) * len(self.sizes)

    def proposal(self) -> Proposal | None:
        """Return the next run; None when the race is over. No phase comes back when there is room for more runs than was thought.

        The levels of one factor race at once: there is nothing to tell apart.
        """
        if len(self.sizes) == 1:
            return self._in_race()
        designed, proposed, raced = self._done("design"), self._done("model", "tpe"), self._done("race")
        before_race = self.total - race_runs(self.total)
        if not proposed and not raced and designed < min(round(DESIGN_SHARE * self.total), before_race):
            return Proposal("design", self._allowed(design.balanced(self.sizes, designed + 1, self.seed)[designed]))
        if not raced and designed + proposed < before_race:
            return self._by_tpe(proposed) if proposed % 2 and self.use_tpe and self.total >= tpe.MIN_RUNS else self._by_model(proposed)
        return self._in_race() if designed else None

    def model(self) -> Effects:
        """Return the main effects of all runs so far. Needs a run that counts."""
        return effects.fit(self.sizes, self.observations())

    def observations(self) -> list[Observation]:
        """Return the runs that count and are points of the space."""
        return [observation for observation in self._counted() if WRAP not in observation.choice]

    def _counted(self) -> list[Observation]:
        return [Observation(run.choice, run.number, self.log_speed(run.value)) for run in self.runs if run.value and not run.disturbed]

    def log_speed(self, value: float) -> float:
        """Return the log of the speed that a value of the metric stands for."""
        return math.log(value) if self.higher_is_better else -math.log(value)

    def candidates(self) -> list[Choice]:
        """Return who is in the race, by the runs before it: plain, wrap, the model's best and the fastest that were measured.

        As many as there are runs for three blocks in a race that has its share. Of one factor it is each level.
        """
        failed = {run.choice for run in self.runs if run.failed}
        if len(self.sizes) == 1:
            return [(level,) for level in range(self.sizes[0]) if not level or (level,) not in failed]
        before = tuple(run for run in self.runs if run.phase != "race")
        counted = sum(1 for run in before if not run.disturbed)
        room = max(MIN_RACE, round(counted * RACE_SHARE / (1 - RACE_SHARE))) // race.MIN_BLOCKS
        best = _best_of(self._replace(runs=before, total=0))[: min(room, MAX_CANDIDATES)]
        return [choice for choice in best if choice not in failed or choice == self.plain]

    def has_raced(self) -> bool:
        """Whether the race has blocks enough to tell who is the best."""
        return len(self.blocks()) >= race.MIN_BLOCKS

    def blocks(self) -> list[dict[Choice, float]]:
        """Return the log speeds of the race's blocks that are complete."""
        candidates, complete = self.candidates(), list[dict[Choice, float]]()
        racing = candidates
        for number in itertools.count(1):
            runs = {run.choice: run for run in self.runs if run.phase == "race" and run.block == number and not run.disturbed}
            if not all(choice in runs for choice in racing):
                return complete
            complete.append({choice: self.log_speed(run.value) for choice, run in runs.items() if run.value})
            racing = race.survivors(candidates, complete)
        return complete

    def winner(self) -> Choice:
        """Return the best of the race; what the model is certain of where the race had no time."""
        candidates, blocks = self.candidates(), self.blocks()
        if len(blocks) < race.MIN_BLOCKS:
            return self.model().sparing()
        apart = [choice for choice in candidates if any(choice)] if len(self.sizes) > 1 else []
        model = effects.fit(self.sizes, self._counted(), apart=apart)
        return race.winner(candidates, blocks, model.predicted, self.worth)

    # ------------------------------------------------------------------ the phases

    def _done(self, *phases: Phase) -> int:
        return sum(1 for run in self.runs if run.phase in phases and not run.disturbed)

    def _by_model(self, number: int) -> Proposal:
        model, rng = self.model(), random.Random(f"{self.seed}/model/{number}")  # noqa: S311 - a draw, no secret
        failed = {run.choice for run in self.runs if run.failed}
        draws = (self._allowed(model.best(model.draw(rng))) for _ in range(MAX_DRAWS))
        return Proposal("model", next((choice for choice in draws if choice not in failed), self.plain))

    def _by_tpe(self, number: int) -> Proposal:
        model = self.model()
        values = [(observation.choice, model.without_drift(observation)) for observation in self.observations()]
        choice = self._allowed(tpe.propose(self.sizes, values, self.seed + number))
        failed = any(run.failed and run.choice == choice for run in self.runs)
        return self._by_model(number) if failed else Proposal("tpe", choice)

    def _in_race(self) -> Proposal | None:
        candidates, complete = self.candidates(), self.blocks()
        racing, block = race.survivors(candidates, complete), len(complete) + 1
        is_full = self._done("design", "model", "tpe", "race") >= self.total
        if len(complete) >= race.MIN_BLOCKS and (len(racing) <= 2 or is_full):
            return None
        done = {run.choice for run in self.runs if run.phase == "race" and run.block == block and not run.disturbed}
        choice = next(choice for choice in race.order(racing, block, self.seed) if choice not in done)
        return Proposal("race", choice, block)

    # ------------------------------------------------------------------ the space

    def some_choices(self) -> Iterator[Choice]:
        """All combinations, or a sample where they are many, without levels that cannot run."""
        if math.prod(self.sizes) <= MAX_CHOICES:
            choices: Iterator[Choice] = itertools.product(*map(range, self.sizes))
        else:
            rng = random.Random(f"{self.seed}/choices")  # noqa: S311 - a sample, no secret
            choices = (tuple(rng.randrange(size) for size in self.sizes) for _ in range(MAX_CHOICES))
        barred = self._barred()
        return (choice for choice in choices if not barred & set(enumerate(choice)))

    def _allowed(self, choice: Choice) -> Choice:
        """The choice, as it is where a level cannot run here."""
        barred = self._barred()
        return tuple(0 if (factor, level) in barred else level for factor, level in enumerate(choice))

    def _barred(self) -> set[tuple[int, int]]:
        failures: dict[tuple[int, int], int] = {}
        ran = set[tuple[int, int]]()
        for run in self.runs:
            for entry in enumerate(run.choice):
                failures[entry] = failures.get(entry, 0) + bool(run.failed)
                ran |= {entry} if not run.failed else set()
        return {entry for entry, count in failures.items() if count >= MIN_LEVEL_FAILURES and entry not in ran and entry[1] > 0}


def race_runs(total: int) -> int:
    """Return how many of the runs of a search are its race."""
    return max(MIN_RACE, round(RACE_SHARE * total))


@functools.lru_cache(maxsize=2)
def _best_of(before: Search) -> tuple[Choice, ...]:
    """The race's candidates by the runs before it, which stay the same while it is run."""
    model = before.model()
    named = sorted(before.some_choices(), key=lambda choice: -model.predicted(choice))
    measured: dict[Choice, list[float]] = {}
    for observation in before.observations():
        measured.setdefault(observation.choice, []).append(model.without_drift(observation))
    fastest = sorted(measured, key=lambda choice: -fmean(measured[choice]))
    wanted = [before.plain, model.sparing(), named[0], before.wrapped, fastest[0], *named[1:3], *fastest[1:2]]
    failed = {run.choice for run in before.runs if run.failed}
    return tuple(choice for choice in dict.fromkeys(wanted) if choice not in failed or choice == before.plain)
