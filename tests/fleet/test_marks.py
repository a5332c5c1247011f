"""Marks in a real Slurm, in namespaces on this machine: never over a person's words, never half set, taken back after kill -9."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sysperf.engine.change import setting
from sysperf.engine.configuration import read_config
from sysperf.engine.fleet.marks import Brake, BrakeTripped, of_words
from sysperf.engine.judging import machine_rules
from sysperf.fleet.markers import slurm
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.knob import of_mark
from sysperf.model.mark import NodeMark
from tests.fleet.marks_inside import HAND
from tests.fleet.test_slurm_engine import namespaces, pytest_skip, told_inside
from tests.invoking import sysperf

OURS = "sysperf: node gpu.fell-off-bus; sysperf explain gpu.fell-off-bus"
DRAINED = f"State=IDLE+DRAIN; Reason={OURS} [root@"
SHOWN = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=8.13
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=all,debug
   Comment=a Reason=b
   Reason=two [root@2026-11-24T02:47:49]
          Comment=sysperf: three

NodeName=n2 CoresPerSocket=1
   State=MIXED ThreadsPerCore=1

NodeName=n3 CoresPerSocket=1
   State=DOWN* ThreadsPerCore=1
   Reason=Not responding [slurm@2026-11-24T02:47:49]
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the commands of tests/fleet/marks_inside.py answered."""
    return told_inside("marks_inside", tmp_path_factory.mktemp("marks"))


@namespaces
@pytest_skip
@pytest.mark.slow
@pytest.mark.xdist_group("slurm")
class TestSlurm:
    """One cluster answers all."""

    def test_it_is_shown_first(self, facts: dict[str, Any]) -> None:
        """Without an answer nothing is told to anybody."""
        done, seen, marks = facts["asked"]

        assert (done["code"], seen, marks) == (2, "State=IDLE", [])
        assert f"+ {OURS}" in done["out"]

    def test_a_mark_is_a_comment(self, facts: dict[str, Any]) -> None:
        """It is listed with its transaction, once also where it is asked for twice, and goes."""
        done, seen, (mark,) = facts["comment"]

        assert (done["code"], seen) == (0, f"State=IDLE; Comment={OURS}")
        assert (mark["node"], mark["how"], mark["text"], mark["transaction"], mark["verdict"]) == ("n1", "mark", OURS, 1, "holds")
        again, *then = facts["again"]
        assert again["code"] == 0
        assert "marked already" in again["out"]
        assert then == [seen, [mark]]
        assert facts["uncomment"][1:] == ["State=IDLE", []]

    def test_a_drain_has_its_reason(self, facts: dict[str, Any]) -> None:
        """In one step, and goes in one step."""
        done, seen, (mark,) = facts["drain"]

        assert (done["code"], mark["how"]) == (0, "drain")
        assert seen.startswith(DRAINED)
        assert (facts["undrain"][0]["code"], facts["undrain"][1]) == (0, "State=IDLE")

    @pytest.mark.parametrize("name", ["brake", "brake_after", "keep"])
    def test_the_brake(self, facts: dict[str, Any], name: str) -> None:
        """One of four nodes within 24 hours, also where that one was taken back; one stays usable whatever is asked for."""
        done, seen = facts[name]

        assert (done["code"], seen) == (3, "State=IDLE")
        assert ("1 may be" if name != "keep" else "0 usable nodes would be left") in done["err"]

    def test_somebody_elses_words_stay(self, facts: dict[str, Any]) -> None:
        """Byte for byte, with their stamp: of who drained it before, and of who wrote over ours."""
        done, before, after = facts["foreign"]
        marks, undone, taken = facts["taken"]

        assert (done["code"], before) == (3, after)
        assert HAND in after
        assert facts["foreign_undone"][1] == after
        assert [(mark["text"], mark["verdict"], mark["now"]) for mark in marks] == [("sysperf: slow memory", "changed", "mine now")]
        assert undone["code"] == 3
        assert taken.startswith("State=IDLE+DRAIN; Reason=mine now [root@")
        assert facts["forced"][1] == taken, "undo --force puts settings back, and no person's words away"

    def test_all_is_no_node(self, facts: dict[str, Any]) -> None:
        """To Slurm it is every node."""
        done, *seen = facts["everybody"]

        assert (done["code"], seen) == (3, ["State=IDLE", "State=IDLE"])

    def test_records_say_who_is_broken(self, facts: dict[str, Any]) -> None:
        """The machine itself, and not its settings."""
        done, sick, fine = facts["records"]

        assert (done["code"], fine) == (0, "State=IDLE")
        assert "Reason=sysperf: node gpu.ecc-uncorrectable GPU 3; sysperf explain gpu.ecc-uncorrectable [root@" in sick

    def test_killed_at_any_step(self, facts: dict[str, Any]) -> None:
        """There is no mark that the journal does not have, none without its reason, and none is left after `unmark`."""
        killed = dict(facts["killed"])
        last = killed.pop(list(killed)[-1])
        drained = [when for when, each in killed.items() if each["state"] != "State=IDLE"]

        assert (last["code"], last["after"]) == (0, "State=IDLE")
        assert {each["code"] for each in killed.values()} == {-9}
        assert drained
        assert all(killed[when]["state"].startswith(DRAINED) and killed[when]["marks"][0]["transaction"] for when in drained)
        assert {(each["after"], each["undone"]["code"]) for each in killed.values()} == {("State=IDLE", 0)}

    def test_unmark_is_killed_at_any_step(self, facts: dict[str, Any]) -> None:
        """A mark is whole or gone, and another `unmark` ends what the first began."""
        killed = facts["unmark_killed"]

        assert {each["code"] for each in killed.values()} >= {-9}
        assert {each["state"].partition("root@")[0] for each in killed.values()} == {"State=IDLE", DRAINED.removesuffix("root@")}
        assert all(each["marks"] for each in killed.values() if each["state"] != "State=IDLE")
        assert {each["marks"][0]["verdict"] for each in killed.values() if each["marks"]} == {"holds", "lifted"}
        assert {(each["after"], each["undone"]["code"]) for each in killed.values()} == {("State=IDLE", 0)}

    def test_a_scheduler_that_does_not_answer(self, facts: dict[str, Any]) -> None:
        """Nothing is changed, and the journal keeps what it has."""
        mark, unmark, changes = facts["dead"]

        assert (mark["code"], unmark["code"]) == (2, 2)
        assert "Unable to contact slurm controller" in mark["err"]
        assert "1  in force" in changes["out"]


# ---------------------------------------------------------------------- without Slurm


def test_nodes_as_slurm_prints_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Words of others that look like a field are words."""
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\ncat <<'E'\n{SHOWN}E\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = slurm.states()

    assert [(each.node, each.usable, each.partitions) for each in found.values()] == [
        ("n1", False, ("all", "debug")),
        ("n2", True, ()),
        ("n3", False, ()),
    ]
    assert (found["n1"].comment, found["n1"].reason) == ("a Reason=b", "two\nComment=sysperf: three")
    assert (found["n3"].reason, found["n3"].by) == ("Not responding", "slurm@2026-11-24T02:47:49")
    assert not any(each.ours for each in found.values())


@pytest.mark.parametrize(("node", "text"), [("ALL", "x"), ("all", "x"), ("n[1-4]", "x"), ("-n1", "x"), ("n1", "a\nb"), ("n1", "x" * 161)])
def test_what_is_never_told_to_slurm(node: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Names that mean several nodes, words of several lines."""
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    with pytest.raises(SysperfError):
        slurm.write(node, "drain", text)
    assert not (tmp_path / "called").exists()


def cluster(nodes: int, **marks: NodeMark) -> dict[str, NodeMark]:
    return {**{f"n{number}": NodeMark(node=f"n{number}", partitions=("all",), usable=True) for number in range(nodes)}, **marks}


@pytest.mark.parametrize(
    ("nodes", "marked", "before", "trips"),
    [(512, 10, 0, False), (512, 11, 0, True), (512, 1, 10, True), (4, 1, 0, False), (4, 2, 0, True)],
)
def test_the_brake_takes_two_percent(nodes: int, marked: int, before: int, trips: bool) -> None:
    """Of a partition, and one node at least; what was marked before counts."""
    names = [f"n{number}" for number in range(marked)]
    earlier = [f"n{number}" for number in range(100, 100 + before)]
    brake = Brake(0.02, 1)

    if trips:
        with pytest.raises(BrakeTripped, match=f"{marked + before} of {nodes} nodes would be marked"):
            brake.check(names, cluster(nodes), earlier, drain=True)
    else:
        brake.check(names, cluster(nodes), earlier, drain=True)


def test_marks_of_another_machine_count() -> None:
    """The journal here does not have them; the scheduler does."""
    theirs = NodeMark(node="n9", partitions=("all",), reason="sysperf: node x")

    with pytest.raises(BrakeTripped):
        Brake(1, 0).check(["n1"], cluster(4, n9=theirs), [], drain=False)


def test_a_rule_names_itself_and_words_stay_words() -> None:
    """Printable, on one line, at most 160 characters."""
    rules = machine_rules(read_config())

    assert of_words(["n1"], "gpu.fell-off-bus", rules) == {"n1": OURS}
    assert of_words(["n1"], 'slow\x1b[2J\n"memory" | x=1', rules) == {"n1": "sysperf: slow?[2J ?memory? ? x?1"}
    assert len(of_words(["n1"], "x" * 1_000, rules)["n1"]) == 160


def test_no_rule_and_no_option_sets_a_mark() -> None:
    """Only the command does, with its brake."""
    assert of_mark("drain.slurm") is not None
    assert of_mark("drain.../x") is None
    with pytest.raises(UsageError, match="no setting that sysperf may change"):
        setting("drain.slurm@n1=x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mark", "n1"), "say why"),
        (("mark", "--why", "x"), "no node is named"),
        (("mark", "n1", "--why", "x", "--records", "r"), "say why"),
        (("mark", "n1", "--why", "x", "--at-most", "0%"), "a number of nodes"),
        (("unmark",), "name nodes, or --all"),
        (("mark", "n1", "--why", "x", "--scheduler", "nobody"), "no markers plugin `nobody`"),
    ],
)
def test_command_lines_that_are_wrong(words: tuple[str, ...], said: str) -> None:
    """They end before a scheduler is asked."""
    done = sysperf("fleet", *words)

    assert done.returncode == 2
    assert said in done.stderr
