"""Nodes by Slurm: a real controller and four slurmds in namespaces on this machine, one of which is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysperf.fleet.engines import slurm
from sysperf.model.node import Node
from tests.invoking import program
from tests.privileges import real_root

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = [tool for tool in ("slurmctld", "slurmd", "srun", "salloc", "ip", "hostname", "unshare") if program(tool) is None]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the commands of tests/fleet/slurm_inside.py answered."""
    folder = tmp_path_factory.mktemp("slurm")
    namespaces = ("unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
    words = (*namespaces, sys.executable, "-m", "tests.fleet.slurm_inside", str(folder))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3_000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def fleet(fact: dict[str, Any]) -> dict[str, Any]:
    """The fleet that a command printed."""
    answer: dict[str, Any] = json.loads(fact["out"])
    return answer


def silent(fact: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {node: (each["state"], each["reason"]) for each in fleet(fact)["silent"] for node in each["nodes"]}


pytest_skip = pytest.mark.skipif(
    bool(TOOLS), reason=f"no {', '.join(TOOLS)}: apt-get install slurmctld slurmd slurm-client iproute2 hostname"
)
namespaces = real_root("to give Slurm's daemons a network and names of their own")


@namespaces
@pytest_skip
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
class TestSlurm:
    """One cluster answers all."""

    def test_all_of_an_allocation_answer(self, facts: dict[str, Any]) -> None:
        """One step beside the job's own."""
        answer = fleet(facts["whole"])

        assert (answer["engine"], answer["answered"], answer["asked"]) == ("slurm", 4, 4), facts["whole"]["err"]

    def test_idle_nodes_answer_without_an_allocation(self, facts: dict[str, Any]) -> None:
        """A job of its own on each."""
        assert fleet(facts["idle"])["answered"] == 4

    def test_the_nodes_of_a_running_job_answer_in_a_step_beside_it(self, facts: dict[str, Any]) -> None:
        """From outside of its allocation; without ranks of PyTorch nothing can be told."""
        answer = json.loads(facts["job"]["out"])

        assert (answer["answered"], answer["asked"], answer["verdict"]) == (4, 4, "cannot tell"), facts["job"]["err"]

    def test_states_of_the_scheduler(self, facts: dict[str, Any]) -> None:
        """Who is drained is not asked, and told."""
        assert silent(facts["states"]) == {"n1": ("drained", "the scheduler says drained")}
        assert fleet(facts["states"])["answered"] == 3

    def test_a_dead_node_costs_its_own_answer_only(self, facts: dict[str, Any]) -> None:
        """Its slurmd was killed a moment before."""
        assert fleet(facts["killed"])["answered"] == 3
        assert {node: state for node, (state, _) in silent(facts["killed"]).items()} == {"n4": "unreachable"}

    def test_slurmds_own_health_check(self, facts: dict[str, Any]) -> None:
        """It starts with next to no environment, ends with 0, and no node is drained for it."""
        names = {line.partition("=")[0] for line in facts["health"]["n1.env"].splitlines()}

        assert facts["health"]["code"] == "0\n"
        assert "SLURMD_NODENAME" in names
        assert "HOME" not in names

    def test_a_scheduler_that_does_not_answer_is_an_error(self, facts: dict[str, Any]) -> None:
        """No empty fleet."""
        assert facts["dead"]["code"] == 2
        assert "Unable to contact slurm controller" in facts["dead"]["err"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("idle", "answered"),
        ("idle*", "unreachable"),
        ("mixed", "busy"),
        ("allocated+", "busy"),
        ("draining", "drained"),
        ("drained*", "unreachable"),
        ("down", "unreachable"),
        ("reserved", "busy"),
        ("", "busy"),
        ("\x1b[2J", "busy"),
    ],
)
def test_what_the_scheduler_says(text: str, state: str) -> None:
    """A star means that the node does not answer; what is not known is left alone."""
    node = slurm._known("n1", text)

    assert node.state == state
    assert "\x1b" not in node.reason
    assert node.name == Node("n1").name
