"""Facts about a search: whose pairs confirm it, how many steps a run has, and what is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sysperf.engine import measuring, tune
from sysperf.engine.measuring import Measured
from sysperf.engine.tune_plan import Pilot, Plan
from sysperf.model.comparison import Metric
from sysperf.model.errors import SysperfError
from sysperf.model.tuning import Factor, Level, TuneRun
from sysperf.verify.search.store import Store

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
    with tune.opened(path, resume=False) as store:
        store.keep("pilot", Pilot(SPEED, 1.0, total=24))
        searched(store, (1, 0))
        monkeypatch.setattr("sysperf.verify.search.plan.Search.proposal", lambda _: None)
        first = tune.tune(plan, store, scratch)
        speeds["tuned"] = 100.0
        searched(store, (0, 1))
        second = tune.tune(plan, store, scratch)

    assert (first.winner, first.state) == ((1, 0), "confirmed")
    assert (second.winner, second.state) == ((0, 1), "nothing")


def test_a_gain_whose_size_fresh_pairs_do_not_show_writes_no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The early pairs say faster, the further ones anything between -9 and +11 %."""
    speeds = iter([100, 120, 121, 119, 120, 120.5, 120, *[90, 112, 104, 97, 103] * 40])
    monkeypatch.setattr(
        measuring, "measure", lambda variant, *_, **__: Measured(next(speeds) if variant.name == "tuned" else 100.0, 1.0, 1.0)
    )
    monkeypatch.setattr("sysperf.verify.search.plan.Search.proposal", lambda _: None)
    plan = Plan(argv=("train",), metric=SPEED, factors=FACTORS, keep_disturbed=True, seed=1)
    with tune.opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        store.keep("pilot", Pilot(SPEED, 1.0, total=24))
        searched(store, (1, 0))
        tuning = tune.tune(plan, store, str(tmp_path / "scratch.toml"))

    assert tuning.comparison
    assert not tuning.comparison.is_certain()
    assert (tuning.state, tuning.profile) == ("unconfirmed", "")
    assert "further pairs" in tuning.reason


def test_a_program_with_fewer_steps_than_its_limit_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--max-steps 200` of a program that makes 100: that is the number which every run must make."""
    times = tuple(index / 10 for index in range(100))
    monkeypatch.setattr(measuring, "measure", lambda *_, **__: Measured(10.0, 0.1, 0.1, None, times))
    monkeypatch.setattr("sysperf.verify.search.plan.Search.proposal", lambda _: None)
    metric = Metric("steps per second", "steps/s", True, "", "optimizer", 200)
    with tune.opened(str(tmp_path / "study.sqlite"), resume=False) as store:
        tune.tune(Plan(argv=("train",), metric=metric, factors=FACTORS), store, str(tmp_path / "scratch.toml"))
        pilot = store.kept("pilot", Pilot)

    assert pilot
    assert pilot.steps == 100


def test_a_folder_on_a_full_disk_is_an_error_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's error and the file system's own are told alike."""
    (tmp_path / "file").touch()
    with pytest.raises(SysperfError, match="file"), tune.opened(str(tmp_path / "file" / "study.sqlite"), resume=False):
        pass
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: (_ for _ in ()).throw(sqlite3.OperationalError("database or disk is full")))
    with pytest.raises(SysperfError, match="disk is full"), tune.opened(str(tmp_path / "study.sqlite"), resume=False):
        pass
