"""A slow node and a slow link are told apart by pairs, in simulated networks and between namespaces with one slow link."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine.fleet import pair, pairs
from sysperf.engine.fleet.pairs import Network, Pair, matchings
from sysperf.model.errors import UsageError
from sysperf.model.node import Asked
from tests import openssh
from tests.agent.states import eventually
from tests.fleet.machines import node, write
from tests.fleet.networks import Net, rates
from tests.invoking import program, sysperf, with_variable
from tests.privileges import real_root

ROOT = Path(__file__).resolve().parent.parent.parent
LOOKS = 40
TOOLS = [tool for tool in ("ip", "tc", "unshare", "mount") if program(tool) is None]


@pytest.mark.parametrize(
    ("net", "found", "others"),
    [
        (Net(slow_node=0.15), 0.9, 0.05),
        (Net(slow_link=0.3), 0.9, 0.05),
        (Net(), 0.0, 0.05),
        (Net(nodes=4, slow_node=0.5), 0.95, 0.05),
        (Net(nodes=4, slow_link=0.5), 0.9, 0.05),
        pytest.param(Net(nodes=5, slow_node=0.3), 0.95, 0.05, marks=pytest.mark.slow),
        pytest.param(Net(nodes=5, slow_link=0.3), 0.9, 0.05, marks=pytest.mark.slow),
        (Net(slow_node=0.15, rack_noise=0.05), 0.7, 0.1),
        (Net(slow_link=0.2, rack_noise=0.05), 0.9, 0.1),
        (Net(rack_noise=0.05), 0.0, 0.1),
        pytest.param(Net(slow_node=0.15, alike=0.6), 0.9, 0.05, marks=pytest.mark.slow),
        pytest.param(Net(alike=0.6), 0.0, 0.05, marks=pytest.mark.slow),
        (Net(noise=0.1), 0.0, 0.05),
    ],
    ids=str,
)
def test_rates(net: Net, found: float, others: float) -> None:
    """At least so often found as what it is, at most so often something else named, of 40 looks with a fixed seed."""
    of_many = rates(net, LOOKS)

    assert of_many.found >= found
    assert of_many.others_named <= others


@given(st.integers(2, 60), st.randoms(use_true_random=False))
def test_matchings_meet_each_pair_once(count: int, numbers: random.Random) -> None:
    """Nobody is in two pairs of a matching; after all of them everybody has met everybody."""
    nodes = [f"n{number}" for number in range(count)]
    met = list(matchings(nodes, numbers))

    assert all(len({node for pair in matching for node in pair}) == 2 * len(matching) == count // 2 * 2 for matching in met)
    assert {frozenset(pair) for matching in met for pair in matching} == set(map(frozenset, itertools.combinations(nodes, 2)))
    assert sum(map(len, met)) == count * (count - 1) // 2


def test_a_network_that_gives_nothing_names_nobody() -> None:
    """Nor do three nodes, nor a suspect whose fresh runs fail."""
    nodes = [f"n{number}" for number in range(8)]
    asked: list[int] = []

    def once(pairs: Sequence[Pair], runs: int, _: Sequence[str]) -> Mapping[Pair, Mapping[str, Sequence[float]]]:
        asked.append(runs)
        return {pair: {"m": [1.0 if "n1" in pair else 10.0] * 5} for pair in pairs} if runs == 5 else {}

    def found(nodes: Sequence[str], measure: pairs.Measure) -> list[tuple[str, str]]:
        network = Network(nodes, measure, lambda: None, random.Random(1))
        network.decide()
        assert len(network.pairs) <= len(nodes) * (len(nodes) - 1) / 2
        return [(each.cell.node, each.verdict) for each in network.found]

    assert found(nodes[:4], lambda pairs, runs, _: {pair: {"m": [1.0 if "n1" in pair else 9.0] * runs} for pair in pairs}) == [
        ("n1", "slow")
    ]
    assert found(nodes, lambda *_: {}) == []
    assert found(nodes[:3], once) == []
    assert asked == []
    assert found(nodes, once) == [("n1", "not measured")]


def test_nothing_is_measured_in_a_folder(tmp_path: Path) -> None:
    """Records can be read, and no pair can meet there."""
    folder = write(tmp_path / "r", [node(f"n{number}") for number in range(4)])
    done = sysperf("fleet", "bench", str(folder), "--pairs")

    assert done.returncode == 2
    assert "nothing can be measured there" in done.stderr


@pytest.mark.parametrize("words", ["n1", "n1:n2:n3", "n1:-x", "n1:n1", "n2:n3", "n1:n2,n1:n3", ""])
def test_pairs_that_are_none(words: str) -> None:
    """A node measures with one other node, whose name is a name."""
    done = sysperf("node", "pair", "--node", "n1", f"--pairs={words}", "--port", "20000")

    assert done.returncode == 2
    assert done.stderr.startswith("sysperf: --pairs: ")


def test_what_nodes_are_asked() -> None:
    """Words of ours; each pair has a port of its own."""
    asked = Asked(runs=3, groups=("all-reduce",), pairs=(("a", "b"), ("c", "d")), port=20_000)

    measured = ("--runs", "3", "--only", "all-reduce")
    assert asked.words("pair") == ("node", "pair", *measured, "--pairs", "a:b,c:d", "--port", "20000", "--limit", "20")
    assert pair.own_pair(asked.pairs, "d") == (1, 1)
    with pytest.raises(UsageError, match="not in one of them"):
        pair.own_pair(asked.pairs, "e")


def test_without_torch_it_is_unknown(tmp_path: Path) -> None:
    """With its reason, as the answer of the node."""
    lonely = {"PATH": "/nowhere", "HOME": str(tmp_path)}
    record = json.loads(sysperf("node", "pair", "--node", "n1", "--pairs", "n1:n2", "--port", "20000", env=lonely).stdout)

    assert (record["ceilings"], record["problem"]) == ([], "no interpreter with torch was found")


def torch_environment() -> dict[str, str]:
    """The environment of a user who has activated the one with torch."""
    if not (python := os.environ.get("SYSPERF_TORCH_PYTHON")):
        pytest.skip("SYSPERF_TORCH_PYTHON names no Python with torch")
    folder = str(Path(python).parent)
    return {**os.environ, "VIRTUAL_ENV": str(Path(folder).parent), "PATH": f"{folder}:{os.environ['PATH']}"}


def test_two_nodes_measure_together() -> None:
    """Two addresses of this machine meet by gloo, and both say what they reach; as ranks of torchrun, too."""
    environment = {**torch_environment(), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    words = ("node", "pair", "--pairs", "127.0.0.2:127.0.0.3", "--port", str(openssh.free_port()), "--runs", "2", "--limit", "120")
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "sysperf", *words, "--node", name], env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for name in ("127.0.0.2", "127.0.0.3")
    ]
    records = [json.loads(each.communicate(timeout=200)[0]) for each in both]

    assert [record["problem"] for record in records] == ["", ""]
    for record in records:
        assert [(each["metric"], len(each["values"])) for each in record["ceilings"]] == [("all-reduce", 2), ("send-recv", 2)]
        assert all(value > 0 for each in record["ceilings"] for value in each["values"])


def test_a_node_that_waits_for_its_partner_leaves_nothing() -> None:
    """Killed while the other one does not come: its rank ends with it, though it reads no input."""
    environment = {**torch_environment(), "WAITS": str(os.getpid())}
    words = ("node", "pair", "--pairs", "127.0.0.2:127.0.0.3", "--port", str(port := openssh.free_port()), "--node", "127.0.0.2")
    waiting = subprocess.Popen([sys.executable, "-m", "sysperf", *words], env=environment, stdout=subprocess.DEVNULL, cwd=ROOT)
    assert eventually(lambda: openssh.answers("127.0.0.2", port))
    assert len(with_variable(f"WAITS={os.getpid()}")) == 2
    waiting.kill()
    waiting.wait()

    assert eventually(lambda: not with_variable(f"WAITS={os.getpid()}"), 20)


@real_root("to give nodes networks of their own")
@openssh.needed
@pytest.mark.skipif(bool(TOOLS), reason=f"no {', '.join(TOOLS)}: apt-get install iproute2 util-linux")
@pytest.mark.slow
def test_one_slow_link_of_four_nodes(tmp_path: Path) -> None:
    """The node behind it is named, and nobody else."""
    torch_environment()
    namespaces = ("unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
    words = (*namespaces, sys.executable, "-m", "tests.fleet.network_inside", str(tmp_path), "bench", "--pairs", "--json")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    answer: dict[str, Any] = json.loads(done.stdout)
    slow = [each for each in answer["suspects"] if each["verdict"] == "slow"]

    assert {(each["node"], each["to"]) for each in slow} == {("10.9.0.3", "")}, done.stdout
    assert (done.returncode, answer["answered"], answer["unknown"]) == (1, 4, [])
    assert all(each["middle_pct"] < -30 for each in slow)
    assert {name for each in slow for name in each["beside"]} <= {"10.9.0.1", "10.9.0.2", "10.9.0.4"}
    assert pairs.LOOKS <= answer["pairs"] <= 6
