"""Facts about a search of one factor: each level in turn, a short budget, and how many loader workers are tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from sysperf.engine import tune, verify
from sysperf.engine.tune import space
from sysperf.engine.tune.plan import Plan
from sysperf.engine.verify import measuring
from sysperf.engine.verify.measuring import Measured, RunFailed
from sysperf.launch import profile
from sysperf.model.comparison import Metric, Variant
from sysperf.model.errors import UsageError
from sysperf.model.tuning import Factor, Level, Tuning
from sysperf.report.experiments import tuning as report
from sysperf.verify.search.store import opened

SPEED = Metric("speed", "", True, "speed: (.*)")
THREADS = Factor("threads", (space.AS_IS, *(Level(str(number), {"threads": number}) for number in (8, 4, 2, 1))))
WORKERS = Factor(space.LOADER, (space.AS_IS, *(Level(f"{number} workers", {"loader_workers": number}) for number in (1, 8, 16, 32))))
Speed = Callable[[profile.Profile], float]


def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: Factor, speed: Speed, budget_s: float = 1_800.0) -> Tuning:
    """Search one factor of a program of which each run takes a second by a clock of its own; what it is set to decides its speed."""
    clock, scratch = SimpleNamespace(now=1_000.0), tmp_path / "scratch.toml"

    def measure(variant: Variant, *_: object, **__: object) -> Measured:
        clock.now += 1.0
        is_plain = "--profile" not in variant.argv
        value = speed(profile.Profile() if is_plain else profile.read(str(scratch)))
        if not value:
            raise RunFailed("it ended with exit code 1", "")
        return Measured(value * (1 + 0.001 * (clock.now % 3)), 1.0, 1.0)

    monkeypatch.setattr(measuring, "measure", measure)
    for module in (tune, verify):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    plan = Plan(argv=("train",), metric=SPEED, factors=(factor,), keep_disturbed=True, seed=1, budget_s=budget_s)
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        return tune.tune(plan, store, str(scratch))


def winner(tuning: Tuning) -> str:
    return tuning.words(tuning.winner) if tuning.winner else "plain"


def test_each_level_runs_in_turn_and_the_best_is_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No design and no proposals: three blocks of all, more of those that are not behind; `wrap` by itself is no level."""
    tuning = searched(tmp_path, monkeypatch, THREADS, lambda start: {None: 100.0, 8: 90.0, 4: 200.0, 2: 120.0, 1: 50.0}[start.threads])
    runs = Counter(run.choice for run in tuning.runs)

    assert (tuning.state, winner(tuning)) == ("confirmed", "threads 4")
    assert {run.phase for run in tuning.runs} == {"race"}
    assert runs == dict.fromkeys(((level,) for level in range(5)), 3)
    assert [round(level.ratio, 1) for level in tuning.effects[0].levels] == [1.0, 0.9, 2.0, 1.2, 0.5]
    assert "15 runs of threads by speed; each level in turn, in shuffled blocks" in report.text(tuning)


def test_a_tie_ends_after_six_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much time there is: what six blocks do not tell apart is as good, and plain stays."""
    tuning = searched(tmp_path, monkeypatch, THREADS, lambda _: 100.0)

    assert (tuning.state, tuning.comparison) == ("nothing", None)
    assert 15 <= len(tuning.runs) <= 30


def test_a_short_budget_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs of each level and fourteen that confirm; one less is refused with the time that it takes."""
    tuning = searched(tmp_path, monkeypatch, THREADS, lambda start: 200.0 if start.threads == 4 else 100.0, budget_s=2 + 15 + 14)

    assert (tuning.state, winner(tuning)) == ("confirmed", "threads 4")
    with pytest.raises(UsageError, match="needs 29"):
        searched(tmp_path, monkeypatch, THREADS, lambda _: 100.0, budget_s=30.0)


def test_a_level_that_fails_is_kept_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is not run again; where all but plain fail, nothing helps."""
    tuning = searched(tmp_path, monkeypatch, THREADS, lambda start: 0.0 if start.threads in (1, 4) else 100.0 + 50 * (start.threads == 2))
    nothing = searched(tmp_path, monkeypatch, THREADS, lambda start: 0.0 if start.threads else 100.0)

    assert winner(tuning) == "threads 2"
    assert Counter(run.choice for run in tuning.runs if run.failed) == {(2,): 1, (4,): 1}
    assert nothing.state == "nothing"


@pytest.mark.parametrize(
    ("speedup", "cpus", "numbers"),
    [
        (1.0, 16, [1, 2]),
        (4.6, 16, [4, 5, 6, 10]),
        (4.04, 16, [3, 4, 5, 8]),
        (16.0, 16, [15, 16, 17, 32]),
        (0.3, 1, [1, 2]),
        (50.0, 2, []),
    ],
)
def test_workers_are_tried_near_as_many_as_feed_the_program(speedup: float, cpus: int, numbers: list[int]) -> None:
    """By Little's law the ratio of both rates is the number of batches in the making; no more than two for each CPU."""
    assert [level.profile["loader_workers"] for level in space.feeding(speedup, cpus)] == numbers


def fed_by(enough: int, plain: float = 0.5) -> Speed:
    """A program whose speed grows with each worker until so many feed it."""
    return lambda start: 100.0 * (min(start.loader_workers, enough) if start.loader_workers else plain)


@pytest.mark.parametrize(("enough", "plain", "best"), [(5, 0.5, "5 workers"), (1, 0.5, "1 worker"), (16, 4, "16 workers"), (5, 5, "plain")])
def test_the_first_runs_choose_the_numbers_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enough: int, plain: float, best: str
) -> None:
    """16 CPUs: five that feed the program are found, which 1, 8, 16 and 32 would miss; more workers for the same speed do not win."""
    tuning = searched(tmp_path, monkeypatch, WORKERS, fed_by(enough, plain))

    assert winner(tuning).removeprefix(f"{space.LOADER} ") == best
    assert any(note.startswith("Little's law: with 16 loader workers it is") for note in tuning.notes)


def test_one_worker_that_fails_leaves_the_usual_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rate is not known, so one, half as many as CPUs, as many and twice as many are tried."""
    speed = fed_by(6)
    tuning = searched(tmp_path, monkeypatch, WORKERS, lambda start: 0.0 if start.loader_workers == 1 else speed(start))

    assert winner(tuning) == "loader workers 8 workers"
    assert not any("Little" in note for note in tuning.notes)


def test_factors_are_named_as_words_too() -> None:
    """Those of a command line need no quotes."""
    assert space.factors_named(("loader-workers", "MKL's own choice of threads", "Threads", "loader workers"), "--only") == (
        "loader workers",
        "MKL's own choice of threads",
        "threads",
    )
    assert space.factors_named(space.WORDS, "--only") == space.NAMES
    with pytest.raises(UsageError, match="--without luck: no such factor"):
        space.factors_named(("luck",), "--without")


def test_no_run_is_lost_between_two_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is gone on with keeps the numbers of workers that its first runs chose."""
    first = searched(tmp_path, monkeypatch, WORKERS, fed_by(5))
    with opened(str(tmp_path / "study.sqlite"), resume=True) as store:
        plan = Plan(argv=("train",), metric=SPEED, factors=(WORKERS,), keep_disturbed=True, seed=1)
        again = tune.tune(msgspec.structs.replace(plan, budget_s=1.0), store, str(tmp_path / "scratch.toml"))

    assert again.factors == first.factors
    assert again.runs == first.runs
