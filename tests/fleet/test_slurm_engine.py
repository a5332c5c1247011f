"""Nodes by Slurm: a real controller and four slurmds in namespaces on this machine, one of which is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysperf.fleet.engines import slurm
from sysperf.model.errors import SysperfError
from sysperf.model.node import Asked, Node
from tests.fleet.machines import node
from tests.invoking import program, sysperf
from tests.privileges import real_root

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = [tool for tool in ("slurmctld", "slurmd", "srun", "salloc", "ip", "hostname", "unshare") if program(tool) is None]


def told_inside(module: str, folder: Path) -> dict[str, Any]:
    """What a module of tests.fleet told, which had processes, mounts, network and names of its own."""
    apart = ("unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child")
    words = (*apart, sys.executable, "-m", f"tests.fleet.{module}", str(folder))
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=550)
    assert done.returncode == 0, done.stderr[-3_000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the commands of tests/fleet/slurm_inside.py answered."""
    return told_inside("slurm_inside", tmp_path_factory.mktemp("slurm"))


def fleet(fact: dict[str, Any]) -> dict[str, Any]:
    """The fleet that a command printed."""
    answer: dict[str, Any] = json.loads(fact["out"])
    return answer


def silent(fact: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {name: (each["state"], each["reason"]) for each in fleet(fact)["silent"] for name in each["nodes"]}


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
        assert fleet(facts["killed"])["answered"] == 3, silent(facts["killed"])
        assert {name: state for name, (state, _) in silent(facts["killed"]).items()} == {"n4": "unreachable"}

    @pytest.mark.parametrize("where", ["outside", "inside"])
    def test_a_killed_collector_leaves_nothing(self, facts: dict[str, Any], where: str) -> None:
        """`kill -9` while all nodes measure, with jobs of its own or within an allocation: no program and no job is left."""
        killed = facts["collector killed"][where]

        assert killed["measuring"]
        assert killed["jobs"] == (["sysperf"] * 4 if where == "outside" else ["interactive"])
        assert killed["gone"]

    @pytest.mark.skipif("SYSPERF_TORCH_PYTHON" not in os.environ, reason="SYSPERF_TORCH_PYTHON names no Python with torch")
    def test_pairs_of_nodes_meet(self, facts: dict[str, Any]) -> None:
        """A job on each of both: each node met two partners, in both figures."""
        answer = json.loads(facts["pairs"]["out"])

        assert (answer["answered"], answer["figures"], answer["unknown"]) == (4, 8, []), facts["pairs"]["err"]
        assert answer["pairs"] >= 4

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
    known = slurm._known("n1", text)

    assert known.state == state
    assert "\x1b" not in known.reason
    assert known.name == Node("n1").name


def pretending(folder: Path, monkeypatch: pytest.MonkeyPatch, **programs: str) -> None:
    """Programs of Slurm that do as is said."""
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)


def test_a_scheduler_that_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for so long and no longer, and so is one that never stops talking."""
    monkeypatch.setattr(slurm, "ASK_S", 1.0)
    pretending(tmp_path, monkeypatch, sinfo="sleep 1000")
    with pytest.raises(SysperfError, match="no answer within 1 s"):
        slurm.nodes(Asked())
    monkeypatch.setattr(slurm, "ASK_S", 60.0)
    pretending(tmp_path, monkeypatch, sinfo="yes 'n1 idle'")
    with pytest.raises(SysperfError, match="it printed more than"):
        slurm.nodes(Asked())


def test_a_scheduler_that_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are none are left out; a state that no Slurm has is busy; one node twice is one node."""
    lines = ["n1 idle", "--help idle", "n2;reboot idle", "\\033[2J idle", "n3", "n4 \\033[2J", "n1 idle", "../x idle", "n5 IDLE", ""]
    pretending(tmp_path, monkeypatch, sinfo="printf '%b\\n' " + " ".join(f"'{line}'" for line in lines))

    assert {node.name: node.state for node in slurm.nodes(Asked())} == {"n1": "answered", "n3": "busy", "n4": "busy", "n5": "answered"}


def test_steps_that_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of tasks that there are not, of another node, cut off, and twice: each node has one answer, of which the records are judged."""
    one, other = (json.dumps(node(name)) for name in ("n1", "n2"))
    said = "\n".join(
        [f"7: {one}", f"0: {one}", f"0: {other}", "1: Welcome!", f"1: {other}", f"2: {other[:-20]}", "junk", "99999999999999999999: x"]
    )
    (tmp_path / "said").write_text(said + "\n")
    pretending(tmp_path, monkeypatch, srun=f"cat {tmp_path}/said", scontrol="printf 'n1\\nn2\\nn3\\nn4\\n'")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-4]")
    done = sysperf("fleet", "audit", "--json", "--fail-on", "never")
    silent = {name: (each["state"], each["reason"]) for each in json.loads(done.stdout)["silent"] for name in each["nodes"]}

    assert json.loads(done.stdout)["answered"] == 2, done.stdout
    assert silent == {"n3": ("refused", "its record is cut off"), "n4": ("unreachable", "no answer")}


@pytest.mark.parametrize(("limit_s", "minutes"), [(20.0, 2), (180.0, 4)])
def test_a_job_may_last_as_long_as_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit_s: float, minutes: int) -> None:
    """The scheduler does not end it before."""
    pretending(tmp_path, monkeypatch, srun=f'echo "$@" >{tmp_path}/asked')
    slurm.run([Node("n1")], "bench", Asked(node_limit_s=limit_s), lambda _: None)

    assert f"--time={minutes}" in (tmp_path / "asked").read_text().split()
