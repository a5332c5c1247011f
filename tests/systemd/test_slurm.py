"""`srun sysperf wrap -- python …` with a real Slurm: a controller and a node in one container."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.systemd.conftest import MakeMachine
from tests.systemd.machine import Booted

TOOLS = [
    tool
    for tool in ("slurmctld", "slurmd", "srun", "munged", "ip", "hostname")
    if not shutil.which(tool) and not os.path.exists(f"/usr/sbin/{tool}")
]
pytestmark = [
    pytest.mark.systemd,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(bool(TOOLS), reason=f"no {', '.join(TOOLS)}: apt-get install slurmctld slurmd slurm-client munge iproute2"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two CPUs"),
]


@pytest.fixture(scope="module")
def slurm(make_systemd: MakeMachine) -> Booted:
    return make_systemd().boot("tests.systemd.check_slurm", seconds=120)


def test_slurm_runs(slurm: Booted) -> None:
    """The node is there and idle."""
    assert slurm["state"].split()[0] == "idle"


def test_each_rank_gets_its_share(slurm: Booted) -> None:
    """With --cpu-bind=none the CPUs of the node are divided: nobody's CPU is another's."""
    answer = slurm["unbound"]
    first, second = (set(rank["cpus"]) for rank in answer["ranks"])

    assert answer["code"] == 0, answer["err"]
    assert first
    assert second
    assert not first & second


def test_what_slurm_bound_is_kept(slurm: Booted) -> None:
    """A CPU that srun gave to each rank is a decision, and stays."""
    assert [rank["cpus"] for rank in slurm["bound"]["ranks"]] == [[0], [1]]


def test_the_rank_is_the_program(slurm: Booted) -> None:
    """Slurm's task is the program itself: wrap has become it."""
    assert [rank["pid"] for rank in slurm["unbound"]["ranks"]] == [True, True]


def test_the_exit_code_is_the_programs(slurm: Booted) -> None:
    """srun ends as the program does."""
    assert slurm["exit_code"] == 7


def test_scancel_reaches_the_program(slurm: Booted) -> None:
    """The signal ends the program in order."""
    text, seconds = slurm["cancelled"]

    assert "ended in order" in text
    assert seconds < 15
