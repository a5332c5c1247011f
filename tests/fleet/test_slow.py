"""A slow node is found, a healthy one is not named; where runs scatter too much, it is said that nobody can tell."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine.fleet import slow
from sysperf.model.node import NodeRecord
from sysperf.model.record import from_json
from tests.fleet.machines import LOGIN, node, write
from tests.fleet.sweeps import World, confirmed, rates
from tests.invoking import sysperf

SWEEPS = 40


@pytest.mark.parametrize(
    ("world", "found", "healthy"),
    [
        (World(slow_by=0.03), 0.95, 0.05),
        (World(), 0.0, 0.05),
        pytest.param(World(nodes=8, slow_by=0.03), 0.75, 0.05, marks=pytest.mark.slow),
        pytest.param(World(noise=0.03, slow_by=0.05), 0.65, 0.05, marks=pytest.mark.slow),
        pytest.param(World(noise=0.03, slow_by=0.03), 0.0, 0.05, marks=pytest.mark.slow),
        (World(slow_by=0.03, alike=0.6), 0.8, 0.1),
        pytest.param(World(alike=0.6), 0.0, 0.1, marks=pytest.mark.slow),
        (World(rack_noise=0.01), 0.0, 0.0),
        pytest.param(World(slow_by=0.03, rack_noise=0.01), 0.5, 0.0, marks=pytest.mark.slow),
        pytest.param(World(rack_noise=0.01, scattered=True), 0.0, 0.05, marks=pytest.mark.slow),
        pytest.param(World(nodes=160, slow_by=0.03, slow_rack=True), 0.9, 0.0, marks=pytest.mark.slow),
    ],
    ids=[
        "3 %",
        "none is slow",
        "8 nodes",
        "5 % in noise",
        "3 % in noise",
        "like the run before",
        "alike and none is slow",
        "racks share noise",
        "3 % where racks share noise",
        "racks share noise, and names do not tell them",
        "a rack is slow",
    ],
)
def test_rates(world: World, found: float, healthy: float) -> None:
    """At least so often found, at most so often a healthy node named, of 40 sweeps with a fixed seed; benchmarks/fleet.py has more."""
    of_many = rates(world, SWEEPS)

    assert of_many.found >= found
    assert of_many.healthy_named <= healthy


def test_a_node_that_is_far_slower_is_found_by_four_rounds() -> None:
    """No more runs than it takes, and the interval holds the truth."""
    numbers = random.Random(1)
    speed = {f"n{number}": 100.0 for number in range(1, 9)} | {"n3": 90.0}
    values = {"m": {name: [value * (1 + numbers.gauss(0, 0.005)) for _ in range(5)] for name, value in speed.items()}}

    def measure(_: int, going: Sequence[slow.Trial]) -> list[slow.Runs]:
        return [{name: [speed[name] * (1 + numbers.gauss(0, 0.005)) for _ in range(slow.RUNS)] for name in each.nodes} for each in going]

    (found,) = confirmed(values, measure)

    assert (found.cell, found.verdict, found.runs) == (slow.Cell("m", "n3"), "slow", 24)
    assert found.low < -0.1 < found.high
    assert "n3" not in found.beside
    assert len(found.beside) == 3


def test_three_nodes_name_nobody() -> None:
    """Nor do figures of which nothing is known."""
    values = {"m": {"n1": [1.0] * 5, "n2": [1.0] * 5, "n3": [0.5] * 5}, "empty": {}, "zero": {f"n{number}": [0.0] for number in range(9)}}

    assert slow.suspects(values) == []


def test_a_suspect_that_gives_no_run_is_not_named() -> None:
    """It was not measured again."""
    values = {"m": {f"n{number}": [100.0 + number / 10] * 5 for number in range(9)} | {"bad": [50.0] * 5}}
    results = confirmed(values, lambda _, going: [{} for _ in going])

    assert {(each.cell.node, each.verdict, each.runs) for each in results} == {("bad", "not measured", 0)}


def test_nothing_is_slower_than_standing_still() -> None:
    """Two rounds that are far apart leave an interval that ends at -100 %."""
    trial = slow.Trial(slow.Cell("m", "bad"), ("n1",), 1)
    for rate in (10.0, 170.0):
        trial.add({"bad": [rate] * slow.RUNS, "n1": [100.0] * slow.RUNS})

    found = trial.judged()
    assert (round(found.middle, 2), found.low) == (-0.1, -1.0)


@given(st.lists(st.floats(-0.5, 0.5), min_size=3, max_size=60))
def test_a_trimmed_mean_lies_among_its_values(values: list[float]) -> None:
    """Whatever they are."""
    assert min(values) - 1e-12 <= slow.trimmed(values) <= max(values) + 1e-12


def test_controls_are_neighbours_that_do_not_look_slow() -> None:
    """By name, as people count; of a slow rack none is a control, also where there are more than can be suspects."""
    values = {"m": {f"n{number}": [97.0 if 33 <= number <= 64 else 100.0 + number % 5 / 10] * 5 for number in range(1, 201)}}
    suspected = slow.trials(values)

    assert 0 < len(suspected) < 32
    for each in suspected:
        assert len(each.beside) == 3
        assert not [name for name in each.beside if 33 <= int(name[1:]) <= 64 or not 20 <= int(name[1:]) <= 77]


def test_all_suspects_are_in_each_round() -> None:
    """So rounds of one lie apart in time, and noise that all share is in one of them."""
    values = {"m": {f"n{number}": [100.0 + number / 10] * 5 for number in range(30)} | {"bad": [50.0] * 5, "worse": [40.0] * 5}}
    asked: list[tuple[int, list[str]]] = []

    def measure(number: int, going: Sequence[slow.Trial]) -> list[slow.Runs]:
        asked.append((number, [each.cell.node for each in going]))
        return [{name: [values["m"][name][0]] * slow.RUNS for name in each.nodes} for each in going]

    assert {each.verdict for each in confirmed(values, measure)} == {"slow"}
    assert asked == [(number, ["worse", "bad"]) for number in range(4)]


def measured(count: int, runs: int, noise: float, slow_by: float = 0.03, hardware: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Records with figures, of which n7 is slow in one."""
    numbers = random.Random(3)
    records = []
    for number in range(1, count + 1):
        ceilings = [
            {
                "metric": metric,
                "unit": "GB/s",
                "group": "memory",
                "values": [100 * (1 - slow_by * (number == 7 and metric == "triad")) * (1 + numbers.gauss(0, noise)) for _ in range(runs)],
            }
            for metric in ("copy", "triad")
        ]
        records.append(node(f"n{number}", {}, **({"hardware": hardware} if hardware else {}), ceilings=ceilings))
    return records


def benched(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = sysperf("fleet", "bench", str(folder), "--json", *words)
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


def test_the_slow_node_of_a_folder(tmp_path: Path) -> None:
    """The first five runs choose, the others judge."""
    code, answer = benched(write(tmp_path / "r", measured(32, 77, 0.01)))
    (found,) = [each for each in answer["suspects"] if each["verdict"] == "slow"]

    assert code == 1
    assert (found["node"], found["metric"]) == ("n7", "triad")
    assert found["low_pct"] < -3 < found["high_pct"]
    text = sysperf("fleet", "bench", str(tmp_path / "r")).stdout
    assert text.startswith("32 of 32 nodes, 64 figures: n7 is slow\n")
    assert "runs beside" in text


def test_without_fresh_runs_nobody_is_named(tmp_path: Path) -> None:
    """A suspect is a suspect."""
    code, answer = benched(write(tmp_path / "r", measured(32, 5, 0.001)))

    assert code == 0
    assert {each["verdict"] for each in answer["suspects"]} == {"not measured"}
    assert "by chance" in sysperf("fleet", "bench", str(tmp_path / "r")).stdout


def test_noise_is_told(tmp_path: Path) -> None:
    """Where runs scatter by 5 %, two rounds tell nothing of a node that is 10 % slower, and the answer says so."""
    write(tmp_path / "r", measured(32, 17, 0.05, slow_by=0.1))
    text = " ".join(sysperf("fleet", "bench", str(tmp_path / "r")).stdout.split())

    assert "nobody is called slow" in text
    assert "more of them would: `sysperf fleet bench --runs 15`" in text


def test_more_runs_tell_more(tmp_path: Path) -> None:
    """As many in each round as at the first look: what scatters by 6 % hides a node that is 4 % slower from few of them."""
    write(tmp_path / "r", measured(32, 195, 0.06, slow_by=0.04))
    found = [benched(tmp_path / "r", *more)[1]["suspects"] for more in ((), ("--runs", "15"))]
    few, many = ([(each["node"], each["verdict"], each["runs"]) for each in suspects if each["verdict"] == "slow"] for suspects in found)

    assert few == []
    assert many == [("n7", "slow", 180)]


def test_small_classes_and_silent_nodes_are_told(tmp_path: Path) -> None:
    """Of three login nodes nobody is named; who sent no record is counted; no figure at all is no clean answer."""
    folder = write(tmp_path / "r", [*measured(3, 77, 0.01, slow_by=0.5, hardware=LOGIN)])
    (folder / "n9.json").write_text("x")
    code, answer = benched(folder, "--strict")

    assert (code, answer["suspects"], len(answer["small"])) == (3, [], 1)
    assert answer["silent"][0]["nodes"] == ["n9"]
    assert benched(write(tmp_path / "none", [node(f"n{number}") for number in range(5)]))[0] == 3


def test_figures_that_are_none(tmp_path: Path) -> None:
    """Below nothing, without end, by the hundred thousand."""
    records = measured(8, 5, 0.01)
    records[0]["ceilings"][0]["values"] = [-1.0, 0.0, 1e308, 1e308, 1e308]
    records[1]["ceilings"][0]["values"] = [0.0] * 5
    records[2]["ceilings"][0]["values"] = []
    records[3]["ceilings"][0]["values"] = [1.0] * 20_000
    code, answer = benched(write(tmp_path / "r", records))

    assert code in (0, 3)
    assert not [each for each in answer["suspects"] if each["verdict"] == "slow"]


def test_a_node_measures_itself() -> None:
    """`sysperf node bench` is a record with figures."""
    done = sysperf("node", "bench", "--node", "n1", "--only", "memory", "--runs", "1")
    record = from_json(done.stdout, NodeRecord)

    assert done.returncode == 0, done.stderr
    assert record.ceilings
    assert {(each.group, len(each.values)) for each in record.ceilings} == {("memory", 1)}


def test_where_nobody_answered_nobody_is_called_fine(tmp_path: Path) -> None:
    """The headline says that nothing was measured, and each silent node why."""
    (tmp_path / "r").mkdir()
    text = sysperf("fleet", "bench", str(tmp_path / "r"), "--hosts", "n1,n2").stdout

    assert "nothing was measured" in text
    assert "nobody is called slow" not in text
    assert "Nothing is known of n[1-2]" in text
