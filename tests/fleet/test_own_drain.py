"""`check --drain` in a real Slurm: a node drains itself for what two checks found, takes that back, and leaves alone what is not its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fleet.marks_inside import HAND
from tests.fleet.test_slurm_engine import namespaces, pytest_skip, told_inside
from tests.invoking import sysperf

FAULT = "sysperf: node site.cpus; sysperf explain site.cpus"
DRAINED = f"State=IDLE+DRAIN; Reason={FAULT} [root@"
IDLE = "State=IDLE"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the checks of tests/fleet/drain_inside.py answered."""
    return told_inside("drain_inside", tmp_path_factory.mktemp("drain"))


@namespaces
@pytest_skip
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
class TestSlurm:
    """One cluster answers all."""

    def test_a_fault_that_two_checks_found(self, facts: dict[str, Any]) -> None:
        """One drains nothing; a third says nothing new; the health check's own exit code is 0 throughout."""
        (first, second), third = facts["sick"], facts["still"]

        assert [each[2] for each in facts["fine"]] == [IDLE, IDLE]
        assert first == [0, f"{FAULT}\n", IDLE]
        assert second[:2] == [0, f"{FAULT}\nsysperf: drained by the fault above\n"]
        assert second[2].startswith(DRAINED)
        assert third == [0, f"{FAULT}\n", second[2]]

    def test_one_good_check_takes_nothing_back(self, facts: dict[str, Any]) -> None:
        """Nor do two that could not look: two that saw the fault gone do."""
        assert all(state.startswith(DRAINED) for _, _, state in [facts["once fine"], facts["sick again"], *facts["no evidence"]])
        first, second = facts["gone"]
        assert first[2].startswith(DRAINED)
        assert second == [0, "sysperf: drain taken back\n", IDLE]

    def test_a_fault_that_flutters_drains_nothing(self, facts: dict[str, Any]) -> None:
        """It was not there twice in a row."""
        assert facts["flutters"][2] == IDLE

    def test_a_persons_words_stay(self, facts: dict[str, Any]) -> None:
        """Byte for byte: where they stood before, and where they replaced ours."""
        before, sick, fine, after = facts["by hand"]
        taken, check, gone, left = facts["taken over"]

        assert HAND in before
        assert {before} == {after, *(each[2] for each in (*sick, *fine))}
        assert "not drained: it is IDLE+DRAIN, and these words are not ours: by hand" in sick[1][1]
        assert "Reason=mine now [root@" in taken
        assert {taken} == {left, check[2], *(each[2] for each in gone)}
        assert "drain left as it is" in gone[1][1]

    def test_who_resumes_a_node_is_not_overruled(self, facts: dict[str, Any]) -> None:
        """The fault is there still, and told in the log."""
        assert facts["resumed by hand"] == [[0, f"{FAULT}\n", IDLE]] * 2

    def test_the_brake(self, facts: dict[str, Any]) -> None:
        """The second of four nodes is not drained, and not later either, until a person says so and two checks find it sick."""
        brake = facts["brake"]

        assert "2 of 4 nodes would be marked within 24 hours, and 1 may be" in brake["tripped"][1][1]
        assert [each[2] for each in (*brake["tripped"], *brake["held"])] == [IDLE] * 4
        assert brake["n1"] == IDLE
        assert all("until a person says --reset" in each[1] for each in brake["held"])
        assert [each[2].partition("root@")[0] for each in brake["reset"]] == [IDLE, DRAINED.removesuffix("root@")]

    def test_all_nodes_at_once(self, facts: dict[str, Any]) -> None:
        """No more than the brake allows, whoever comes first."""
        said, states = facts["together"]

        assert sum(state != IDLE for state in states) <= 1
        assert sum("the brake" in each for each in said) >= 3

    def test_killed_at_any_call(self, facts: dict[str, Any]) -> None:
        """The node is drained with its reason or it is not; the next check ends what was begun; nothing is left once the fault is gone."""
        killed = dict(facts["killed"])
        last = killed.pop(list(killed)[-1])

        assert (last["code"], last["after"]) == (0, IDLE)
        assert {each["code"] for each in killed.values()} == {-9}
        assert {each["then"].partition("root@")[0] for each in killed.values()} == {IDLE, DRAINED.removesuffix("root@")}
        assert all(each["again"].startswith(DRAINED) for each in killed.values())
        assert {each["after"] for each in killed.values()} == {IDLE}

    def test_slurmds_own_health_check_drains(self, facts: dict[str, Any]) -> None:
        """With its environment of next to nothing; the healthy node stays."""
        sick, fine = facts["by slurmd"]

        assert sick.startswith(DRAINED)
        assert fine == IDLE

    def test_a_scheduler_that_does_not_answer(self, facts: dict[str, Any]) -> None:
        """Nothing is changed, 0 is the exit code, and no journal is left open."""
        (code, said, _), seconds = facts["dead"]

        assert code == 0
        assert "nothing is drained or taken back: `scontrol show`" in said
        assert seconds < 60
        assert facts["changes"]["code"] == 0
        assert "interrupted" not in facts["changes"]["out"]


@pytest.mark.parametrize(
    "words", [("--as", "npd", "--drain"), ("--as", "slurm-health", "--reset"), ("--as", "slurm-health", "--drain", "--at-most", "0%")]
)
def test_command_lines_that_are_wrong(words: tuple[str, ...]) -> None:
    """They end before anything is looked at."""
    done = sysperf("check", *words)

    assert (done.returncode, done.stdout) == (2, "")


def test_nothing_is_drained_unless_it_is_asked_for(tmp_path: Path) -> None:
    """A health check alone tells its log."""
    done = sysperf("check", "--as", "slurm-health", "--budget", "30s", "--no-agent", env={"STATE_DIRECTORY": str(tmp_path)})

    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
