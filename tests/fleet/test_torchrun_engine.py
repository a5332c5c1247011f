"""Nodes by torchrun: two agents of a real torchrun on this machine, each a node of two ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sysperf.fleet.engines import torchrun
from sysperf.model.node import Answer, Node
from sysperf.model.record import to_json
from tests import openssh
from tests.invoking import sysperf

ROOT = Path(__file__).resolve().parent.parent.parent
NODES = 2


def asked(*words: str) -> tuple[list[str], list[int]]:
    """(what each agent prints, how it ends) where each rank runs this command about the fleet."""
    if not (python := os.environ.get("SYSPERF_TORCH_PYTHON")):
        pytest.skip("SYSPERF_TORCH_PYTHON names no Python with torch")
    where = ("--nnodes", str(NODES), "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(openssh.free_port()))
    program = ("--no-python", sys.executable, "-m", "sysperf", "fleet", *words)
    agents = [
        subprocess.Popen(
            (python, "-m", "torch.distributed.run", "--node-rank", str(number), *where, *program),
            env={**os.environ, "SLURMD_NODENAME": f"n{number + 1}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        for number in range(NODES)
    ]
    printed = [agent.communicate(timeout=300)[0] for agent in agents]
    return printed, [agent.returncode for agent in agents]


@pytest.mark.slow
def test_the_first_rank_prints_what_all_nodes_say() -> None:
    """One rank a node answers, the others end at once, and torchrun with them."""
    (first, *others), codes = asked("audit", "--json", "--fail-on", "never", "--node-limit", "120")
    fleet: dict[str, Any] = json.loads(first)

    assert (fleet["engine"], fleet["asked"], fleet["answered"]) == ("torchrun", NODES, NODES), fleet["silent"]
    assert [each["nodes"] for each in fleet["classes"]] == [["n1", "n2"]]
    assert others == [""] * (NODES - 1)
    assert codes == [0] * NODES


@pytest.mark.slow
def test_nodes_that_are_asked_to_measure() -> None:
    """Of two nodes nobody is named; a name without a rank is told."""
    (first, *_), codes = asked("bench", "--json", "--only", "memory", "--hosts", "n[1-2],n9", "--engine", "torchrun", "--node-limit", "120")
    bench = json.loads(first)

    assert (bench["asked"], bench["answered"], bench["suspects"]) == (3, 2, [])
    assert [(each["nodes"], each["reason"]) for each in bench["silent"]] == [(["n9"], "no rank runs there")]
    assert codes == [0] * NODES


def test_outside_of_a_job_it_says_what_is_missing() -> None:
    """With how to start it."""
    done = sysperf("fleet", "audit", "--engine", "torchrun", env={"PATH": os.environ["PATH"]})

    assert done.returncode == 2
    assert "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set" in done.stderr
    assert "torchrun --nnodes" in done.stderr


def test_ranks_that_are_no_nodes() -> None:
    """One that did not come is known by its number; two of one name are neither."""
    assert torchrun._node(3, "", 1) == Node("rank-3", "unreachable", "it did not come")
    assert torchrun._node(3, "\x1b[2J", 1).name == "rank-3"
    assert torchrun._node(3, "n1", 2) == Node("n1", "refused", "2 nodes have its name")


def test_answers_that_are_none() -> None:
    """Whoever reaches the store may write into it."""
    assert torchrun._answer("n1", to_json(Answer("n1", data=b"{}"))) == Answer("n1", data=b"{}")
    assert torchrun._answer("n1", to_json(Answer("n2", data=b"{}"))).state == "refused"
    assert torchrun._answer("n1", b"\xff").state == "refused"
