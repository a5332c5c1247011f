"""Facts about a search: whose pairs confirm it, how many steps a run has, and what is written."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from sysperf.engine import tune, verify
from sysperf.engine.tune.plan import Pilot, Plan, pilot_of
from sysperf.engine.tune.result import WRAPPED
from sysperf.engine.verify import measuring
from sysperf.engine.verify.measuring import Measured, RunFailed
from sysperf.model.comparison import Metric, Variant
from sysperf.model.errors import SysperfError
from sysperf.model.tuning import Factor, Level, TuneRun
from sysperf.verify.search.store import Store, opened

AS_IS = Level("as it is")
FACTORS = (
    Factor("waiting", (AS_IS, Level("passive", {"set": {"OMP_WAIT_POLICY": "passive"}}))),
    Factor("cache", (AS_IS, Level("4096", {"set": {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "4096"}}))),
)
SPEED = Metric("speed", "", True, "speed: (.*)")


def searched(store: Store, winner: tuple[int, int]) -> None:
    """Replace what a search found: this choice is clearly the fastest, and the search is over."""
    choices = [(0, 0), (1, 0), (0, 1), (1, 1)]
    for number in range(24):
        choice = choices[number % 4]
        store.add(TuneRun(number, "design", choice, 120.0 if choice == winner else 100.0 + number % 3, 1.0))


def test_a_resumed_confirmation_counts_pairs_of_its_own_winner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More runs chose another winner: the pairs of the earlier one tell nothing of it."""
    speeds = {"plain": 100.0, "tuned": 150.0}
    monkeypatch.setattr(measuring, "measure", lambda variant, *_, **__: Measured(speeds.get(variant.name, 100.0), 1.0, 1.0))
    plan = Plan(argv=("train",), metric=SPEED, factors=FACTORS, keep_disturbed=True, seed=1)
    path, scratch = str(tmp_path / "study.sqlite"), str(tmp_path / "scratch.toml")
    with opened(path, resume=False) as store:
        store.keep("pilot", Pilot(SPEED, 1.0))
        searched(store, (1, 0))
        monkeypatch.setattr("sysperf.verify.search.plan.Search.proposal", lambda _: None)
        first = tune.tune(plan, store, scratch)
        speeds["tuned"] = 100.0
        searched(store, (0, 1))
        second = tune.tune(plan, store, scratch)

    assert (first.winner, first.state) == ((1, 0), "confirmed")
    assert (second.winner, second.state) == ((0, 1), "nothing")


def confirming(monkeypatch: pytest.MonkeyPatch, speeds: list[float]) -> None:
    """A search that is over, and a machine on which the winner has these speeds beside 100 of plain, again and again."""
    tuned = itertools.cycle(speeds)
    monkeypatch.setattr(
        measuring, "measure", lambda variant, *_, **__: Measured(next(tuned) if variant.name == "tuned" else 100.0, 1.0, 1.0)
    )
    monkeypatch.setattr("sysperf.verify.search.plan.Search.proposal", lambda _: None)


PLAN = Plan(argv=("train",), metric=SPEED, factors=FACTORS, keep_disturbed=True, seed=1)


def test_the_winner_is_confirmed_by_all_its_pairs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large gain whose runs lie far apart, and one that only the first pairs seem to show."""
    states = []
    for speeds in ([220.0, 90.0, 190.0, 240.0, 95.0], [120.0, 121.0, 119.0, 120.0, 120.5, 120.0, *[85.0, 116.0, 104.0, 92.0, 103.0] * 7]):
        confirming(monkeypatch, speeds)
        with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
            store.keep("pilot", Pilot(SPEED, 1.0))
            searched(store, (1, 0))
            states.append(tune.tune(PLAN, store, str(tmp_path / "scratch.toml")))
    large, lucky = states

    assert large.comparison
    assert (large.state, large.comparison.pairs, large.comparison.fresh_pairs, large.comparison.confidence) == ("confirmed", 40, 0, 0.95)
    assert "40 pairs" in large.profile
    assert (lucky.state, lucky.profile) == ("unconfirmed", "")


def test_more_time_confirms_anew_what_was_unclear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one look told nothing: a larger budget looks once at other pairs. What was confirmed stays so, and runs no more."""
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        store.keep("pilot", Pilot(SPEED, 1.0))
        searched(store, (1, 0))
        tried = []
        for speeds in ([130.0, 80.0], [130.0, 131.0, 129.0], [70.0]):
            confirming(monkeypatch, speeds)
            tuning = tune.tune(PLAN, store, str(tmp_path / "scratch.toml"))
            assert tuning.comparison
            tried.append((tuning.state, tuning.comparison.median_b, tuning.comparison.confidence))

    assert tried == [("unconfirmed", 105.0, 0.95), ("confirmed", 130.0, 0.975), ("confirmed", 130.0, 0.975)]
    assert any(note.startswith("2 confirmations of this search") for note in tuning.notes)


def test_a_wrap_that_fails_at_the_beginning_ends_no_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first three runs the wrapped one fails: it is one start of many, kept with its reason, and the others are searched."""
    machine = Machine(monkeypatch)
    machine.gain, machine.fails = 10.0, lambda name: name == WRAPPED
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        tuning = tune.tune(PLAN, store, str(tmp_path / "scratch.toml"))

    assert (tuning.state, tuning.runs[0].phase) == ("confirmed", "pilot")
    assert [run.phase for run in tuning.runs if run.failed] == ["pilot"]


def test_a_program_with_fewer_steps_than_its_limit_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--max-steps 200` of a program that makes 100: that is the number which every run must make."""
    times = tuple(index / 10 for index in range(100))
    monkeypatch.setattr(measuring, "measure", lambda *_, **__: Measured(10.0, 0.1, 0.1, None, times))
    monkeypatch.setattr("sysperf.verify.search.plan.Search.proposal", lambda _: None)
    metric = Metric("steps per second", "steps/s", True, "", "optimizer", 200)
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        tune.tune(Plan(argv=("train",), metric=metric, factors=FACTORS), store, str(tmp_path / "scratch.toml"))
        pilot = store.kept("pilot", Pilot)

    assert pilot
    assert pilot.steps == 100


def test_a_folder_on_a_full_disk_is_an_error_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's error and the file system's own are told alike."""
    (tmp_path / "file").touch()
    with pytest.raises(SysperfError, match="file"), opened(str(tmp_path / "file" / "study.sqlite"), resume=False):
        pass
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: (_ for _ in ()).throw(sqlite3.OperationalError("database or disk is full")))
    with pytest.raises(SysperfError, match="disk is full"), opened(str(tmp_path / "study.sqlite"), resume=False):
        pass


class Machine:
    """A machine on which each run takes a second by a clock that only runs advance; that of others beside plain's 100 is `gain` more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_s, self.names, self.gain, self.run_s = 1_000.0, list[str](), 1.0, 1.0
        self.fails: Callable[[str], bool] = lambda _: False
        clock = SimpleNamespace(monotonic=lambda: self.at_s)
        monkeypatch.setattr(measuring, "measure", self.measured)
        monkeypatch.setattr(tune, "time", clock)
        monkeypatch.setattr(verify, "time", clock)

    def measured(self, variant: Variant, *_: object, **__: object) -> Measured:
        self.at_s += self.run_s
        self.names.append(variant.name)
        if self.fails(variant.name):
            raise RunFailed("it ended with exit code 1", "")
        return Measured(100.0 + self.gain * (variant.name != "plain") + len(self.names) % 3, self.run_s, 1.0)


@pytest.mark.parametrize(("budget_s", "run_s"), [(47.0, 1.0), (60.0, 1.6), (120.0, 2.0), (120.0, 0.5)])
def test_each_search_reaches_its_race_and_its_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget_s: float, run_s: float
) -> None:
    """Runs take longer, or shorter, than the first ones: the search is planned anew, and ends with its budget."""
    machine = Machine(monkeypatch)
    machine.gain, machine.run_s = 10.0, run_s
    plan = msgspec.structs.replace(PLAN, budget_s=budget_s)
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        store.keep("pilot", Pilot(SPEED, 1.0))
        tuning = tune.tune(plan, store, str(tmp_path / "scratch.toml"))

    assert tuning.state == "confirmed"
    assert max(run.block for run in tuning.runs) >= 3
    assert tuning.comparison
    assert tuning.comparison.pairs >= 5
    assert machine.at_s - 1_000.0 <= budget_s + 2 * run_s


def test_a_small_budget_searches_fewer_factors_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """50 runs: those factors that usually matter most, whose levels are no more than the runs that come before the race."""
    Machine(monkeypatch)
    factors = tuple(Factor(str(number), (AS_IS, *(Level(str(level)) for level in range(4)))) for number in range(6))
    plan = msgspec.structs.replace(PLAN, budget_s=50.0, factors=factors)
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        tuning = tune.tune(plan, store, str(tmp_path / "scratch.toml"))
        again = tune.tune(plan, store, str(tmp_path / "scratch.toml"))

    assert [factor.name for factor in tuning.factors] == ["0", "1", "2", "3"]
    assert [left.name for left in tuning.left_out] == ["4", "5"]
    assert "no time" in tuning.left_out[0].reason
    assert again.factors == tuning.factors


def test_the_search_leaves_the_confirmation_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six tenths of the budget; an interrupted search that goes on has what is left of it, and not all of it again."""
    machine = Machine(monkeypatch)
    plan = msgspec.structs.replace(PLAN, budget_s=100.0, max_runs=1_000)
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:

        def interrupt(state: object) -> None:
            if len(machine.names) == 30:
                raise KeyboardInterrupt

        assert tune.tune(plan, store, str(tmp_path / "scratch.toml"), interrupt).reason.startswith("interrupted")
        tune.tune(plan, store, str(tmp_path / "scratch.toml"))
        searched_runs = len(store.runs())

    assert 50 <= searched_runs <= 60
    assert machine.at_s <= 1_000.0 + 100.0 + 3.0


def test_plain_that_fails_ends_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any other start it is a result; of the program as it is nothing can be compared."""
    machine = Machine(monkeypatch)
    machine.fails = lambda name: name not in {"plain", WRAPPED}
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        tuning = tune.tune(PLAN, store, str(tmp_path / "scratch.toml"))
        assert any(run.failed for run in tuning.runs)
    machine.fails = lambda name: name == "plain" and len(machine.names) > 5
    machine.names.clear()
    with opened(str(tmp_path / "other.sqlite"), resume=False) as store, pytest.raises(RunFailed):
        tune.tune(PLAN, store, str(tmp_path / "scratch.toml"))


def test_a_run_that_is_ended_early_is_as_long_as_its_steps() -> None:
    """A thousand steps of 10 ms after two seconds of start: where 40 are enough, runs take 2.4 s, and there are so many more."""
    times = tuple(2.0 + 0.01 * step for step in range(1_000))
    done = [Measured(100.0, 12.0, 12.0, step_times_s=times)] * 3
    plan = msgspec.structs.replace(PLAN, metric=Metric("steps per second", "steps/s", True, "", "optimizer"))
    pilot = pilot_of(plan, done, 600.0)

    assert pilot.steps
    assert pilot.steps < 200
    assert pilot.run_s == pytest.approx(2.0 + 0.01 * pilot.steps, abs=0.02)
    assert pilot.metric.max_steps == pilot.steps


def test_without_time_for_other_pairs_the_unclear_confirmation_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--resume` with the budget that was spent before; pairs that were looked at several times are none of one look."""
    confirming(monkeypatch, [130.0, 80.0])
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        store.keep("pilot", Pilot(SPEED, 1.0))
        searched(store, (1, 0))
        first = tune.tune(PLAN, store, str(tmp_path / "scratch.toml"))
        confirming(monkeypatch, [130.0])
        again = tune.tune(msgspec.structs.replace(PLAN, budget_s=25.0), store, str(tmp_path / "scratch.toml"))
        state = store.kept("confirm (1, 0)", verify.State)
        assert state
        store.keep("confirm (1, 0)", msgspec.structs.replace(state, plan=msgspec.structs.replace(state.plan, one_look=False)))
        anew = tune.tune(PLAN, store, str(tmp_path / "scratch.toml"))

    assert first.comparison
    assert again.comparison
    assert (again.state, again.comparison.ratio) == ("unconfirmed", first.comparison.ratio)
    assert anew.comparison
    assert anew.comparison.median_b == 130.0


def test_a_race_that_had_no_time_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs take eight times as long as the first ones: whether plain is the best is undecided, and more time goes on with it."""
    machine = Machine(monkeypatch)
    machine.gain, machine.run_s = -10.0, 8.0
    plan = msgspec.structs.replace(PLAN, budget_s=40.0)
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        store.keep("pilot", Pilot(SPEED, 1.0))
        hurried = tune.tune(plan, store, str(tmp_path / "scratch.toml"))
        rested = tune.tune(msgspec.structs.replace(plan, budget_s=800.0), store, str(tmp_path / "scratch.toml"))

    assert (hurried.state, hurried.comparison) == ("unconfirmed", None)
    assert "before the race" in hurried.reason
    assert (rested.state, rested.reason) == ("nothing", "plain was the fastest of the race")


def test_what_the_start_costs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is not plain is 10 % slower, whatever it sets."""
    machine = Machine(monkeypatch)
    machine.gain = -10.0
    with opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        tuning = tune.tune(msgspec.structs.replace(PLAN, max_runs=40), store, str(tmp_path / "scratch.toml"))

    assert any(note.startswith("starting through `sysperf wrap` as it is: -") for note in tuning.notes)
    assert all(abs(level.ratio - 1) < 0.03 for effect in tuning.effects for level in effect.levels)
