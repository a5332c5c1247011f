"""Facts about what follows from the first runs of a search: how long a run is, how many there are, and of how many factors."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from sysperf.engine.tune.plan import Plan, confirming_pairs, factors_for, first_metric, pilot_of, searching, steps_for
from sysperf.engine.verify.measuring import Measured
from sysperf.model.comparison import Metric
from sysperf.model.errors import UsageError
from sysperf.model.tuning import Factor, Level
from sysperf.verify.search.effects import Effects

STEPS = Metric("steps per second", "steps/s", True, "", "optimizer")
FACTORS = tuple(Factor(str(number), tuple(Level(str(level)) for level in range(5))) for number in range(6))
PLAN = Plan(argv=("train",), metric=STEPS, factors=FACTORS)
SPEED = msgspec.structs.replace(PLAN, metric=Metric("speed", "", True, "speed: (.*)"))


def runs(counts: Sequence[int], walls_s: Sequence[float] = (20.0, 20.0, 20.0), warm_up: int = 0) -> list[Measured]:
    """Three runs that make a step each 10 ms, and of the first steps one each 100 ms."""
    times = []
    for count in counts:
        ends, now = [], 1.0
        for step in range(count):
            now += 0.1 if step < warm_up else 0.01
            ends.append(now)
        times.append(tuple(ends))
    return [Measured(100.0, wall_s, 1.0, step_times_s=ends) for wall_s, ends in zip(walls_s, times, strict=True)]


def test_a_program_without_an_end_is_bounded_by_the_budget() -> None:
    """Its first run gets the time that the budget has for a run; one that the user bounds keeps that."""
    budget = msgspec.structs.replace(PLAN, metric=STEPS, budget_s=1_800.0)
    assert 5.0 < first_metric(budget).run_s < 60.0
    limited = msgspec.structs.replace(budget, metric=msgspec.structs.replace(STEPS, max_steps=50))
    assert first_metric(limited).run_s == 0

    agreed = msgspec.structs.replace(budget, metric=msgspec.structs.replace(first_metric(budget), max_steps=100))
    assert pilot_of(agreed, runs((100, 100, 100)), 3_000.0).metric.max_steps <= 100


def test_the_first_run_warms_caches_and_says_nothing_of_the_others() -> None:
    """The longer one of the two after it is what a run takes."""
    assert pilot_of(SPEED, runs((0, 0, 0), (30.0, 2.0, 3.0)), 600.0).run_s == 3.0


def test_runs_of_different_steps_have_no_number_that_each_must_make() -> None:
    """Where the program's own runs differ, those of a setting may, too."""
    limited = msgspec.structs.replace(PLAN, metric=msgspec.structs.replace(STEPS, max_steps=5_000))

    assert pilot_of(limited, runs((100, 90, 100)), 3_000.0).steps is None
    assert pilot_of(limited, runs((100, 100, 100)), 3_000.0).steps == 100


def test_a_run_that_ends_early_has_its_warm_up_and_its_steps() -> None:
    """A hundred slow steps at the beginning are left out, and as many as a good rate takes come after them."""
    pilot = pilot_of(PLAN, runs((1_000, 1_000, 1_000), warm_up=100), 3_000.0)

    assert pilot.warm_up_steps >= 100
    assert pilot.metric.max_steps == pilot.steps
    assert pilot.metric.max_steps >= pilot.warm_up_steps + 10


def test_no_run_is_ended_after_more_steps_than_the_shortest_one_makes() -> None:
    """One of the first runs made thirty steps only: each run goes to its own end."""
    assert pilot_of(PLAN, runs((1_000, 30, 1_000)), 3_000.0).metric.max_steps == 0


@pytest.mark.parametrize("left_s", [0.0, 43.9 * 20])
def test_a_budget_without_room_for_search_and_confirmation_is_refused(left_s: float) -> None:
    """18 runs and 26 more; with the minutes that it names it is accepted."""
    with pytest.raises(
        UsageError, match=f"there is time for {int(left_s / 20)} runs, and a search with its confirmation needs 44"
    ) as error:
        pilot_of(SPEED, runs((0, 0, 0)), left_s)
    minutes = int(error.value.hint.split()[1].rstrip(","))

    assert 44 * 20 <= 60 * minutes - 3 * 20 <= 50 * 20
    assert pilot_of(SPEED, runs((0, 0, 0)), 60 * minutes - 3 * 20).run_s == 20.0
    assert [searching(possible) for possible in (44.0, 100.0)] == [26, 60]


def test_few_runs_tell_few_factors_apart() -> None:
    """Four levels each beside *as it is*: no more of them than there are runs before the race; one factor is always searched."""
    assert [factors_for(FACTORS, total) for total in (18, 28, 40, 60, 120)] == [2, 4, 6, 6, 6]
    assert factors_for((Factor("large", tuple(Level(str(level)) for level in range(40))), *FACTORS), 18) == 1
    assert pilot_of(msgspec.structs.replace(SPEED, max_runs=18), runs((0, 0, 0)), 60_000.0).factors == 2


@pytest.mark.parametrize(("noise", "gain", "pairs"), [(0.01, 0.2, 40), (0.2, 0.15, 40), (0.2, 0.1, 84), (0.5, 0.1, 400), (0.2, -0.1, 40)])
def test_a_gain_beside_much_noise_gets_more_pairs(noise: float, gain: float, pairs: int) -> None:
    """As many as show it in nine of ten searches, 2 (3.24 noise / gain)²: forty at least, where it is clear long before."""
    model = Effects((2,), [gain, 0.0], [[1.0, 0.0], [0.0, 1.0]], noise, [0.0])

    assert confirming_pairs(model, (1,)) == pairs


def test_as_many_steps_as_a_rate_needs() -> None:
    """Steady ones need ten; those that vary by half need many more; of a single one all is taken."""
    rng = random.Random(1)

    assert steps_for([0.01] * 100) == 10
    assert steps_for([0.01]) == 1
    assert 1_000 < steps_for([rng.choice((0.005, 0.015)) for _ in range(400)]) < 6_000
