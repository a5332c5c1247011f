"""Waivers need a reason and end; a baseline only shrinks; a stale one is itself a finding."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from sysperf.evaluate.accepted import Accepted, Baseline, Waiver, waiver_for
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import fingerprint
from sysperf.evaluate.waivers import apply_waivers, shrink
from sysperf.model.finding import Finding, Subject
from sysperf.model.rule import RuleFile

from .conftest import SCHEMA
from .test_judge import rule

RULES = Ruleset([RuleFile(rule=(rule(), rule(id="box.other")))], SCHEMA)
FINDING = Finding("box.swaps", "finding", "warning", "host", "It swaps", Subject("item", "sda"), fingerprint="f1")
UNKNOWN = Finding("box.other", "unknown", "warning", "host", "Other", fingerprint="f2")


def test_a_waiver_suppresses_with_its_reason() -> None:
    """The finding stays visible as suppressed, with who said why and until when."""
    waiver = Waiver("box.*", "agreed with operations", datetime.date(2999, 1, 1))

    (outcome,) = apply_waivers([FINDING], [waiver], None, RULES)

    assert outcome.state == "suppressed"
    assert outcome.because == "waived: agreed with operations (until 2999-01-01)"


def test_an_expired_waiver_fires_again_and_says_so() -> None:
    """After its last day the finding is back."""
    (outcome,) = apply_waivers([FINDING], [Waiver("box.swaps", "until the move", datetime.date(2020, 1, 1))], None, RULES)

    assert outcome.state == "finding"
    assert "expired on 2020-01-01" in outcome.because


def test_a_waiver_of_another_subject_does_not_count() -> None:
    """Subject patterns narrow a waiver; one that suppresses nothing is a finding itself."""
    outcomes = apply_waivers([FINDING], [Waiver("box.swaps", "other disk", subject="sdb*")], None, RULES)

    assert [(outcome.rule, outcome.state) for outcome in outcomes] == [("box.swaps", "finding"), ("waiver.stale", "finding")]


def test_a_waiver_for_scripts_is_not_stale_in_an_audit() -> None:
    """`sysperf lint` reads the same configuration, and an audit judges no scripts."""
    rules = Ruleset([RuleFile(rule=(rule(), rule(id="box.script", scope="script")))], SCHEMA)

    assert apply_waivers([], [Waiver("box.script", "reviewed")], None, rules) == []


def test_an_unknown_is_not_waived() -> None:
    """What could not be read stays unknown."""
    outcomes = apply_waivers([UNKNOWN], [Waiver("box.other", "whatever")], None, RULES)

    assert outcomes[0].state == "unknown"


def test_a_baseline_accepts_and_reports_what_is_gone() -> None:
    """Accepted findings are suppressed; entries that are no longer found are reported until dropped."""
    baseline = Baseline(accepted=(Accepted("box.swaps", "sda", "f1"), Accepted("box.other", "sdz", "gone")))

    outcomes = apply_waivers([FINDING], [], baseline, RULES)

    assert [(outcome.rule, outcome.state) for outcome in outcomes] == [("box.swaps", "suppressed"), ("baseline.stale", "finding")]
    assert "box.other sdz" in outcomes[1].message


def test_a_baseline_only_shrinks() -> None:
    """The first takes all; a later one drops what is gone, keeps what is unknown, and never adds."""
    first, fresh = shrink(None, [FINDING, UNKNOWN], "now")
    assert [accepted.fingerprint for accepted in first.accepted] == ["f1"]
    assert fresh == []

    both = Baseline(accepted=(*first.accepted, Accepted("box.other", "", "f2"), Accepted("box.other", "x", "f3")))
    new = Finding("box.new", "finding", "error", "host", "New", fingerprint="f9")
    later, fresh = shrink(both, [FINDING, UNKNOWN, new], "later")

    assert [accepted.fingerprint for accepted in later.accepted] == ["f1", "f2"]
    assert fresh == [new]


TRAIN = Finding(
    "box.swaps", "finding", "warning", "process", "It swaps", Subject("process", "python", pid=7, program="python train.py", user=1000),
    key="box.swaps@process:7:70", fingerprint="train",
)  # fmt: skip
SERVE = msgspec.structs.replace(
    TRAIN, subject=Subject("process", "python", pid=8, program="python serve.py", user=1001), fingerprint="serve"
)


def test_a_baseline_of_one_program_does_not_accept_another() -> None:
    """The same fault of another team's program of the same name is new."""
    baseline, _ = shrink(None, [TRAIN], "now")

    assert [(entry.subject, entry.program, entry.user) for entry in baseline.accepted] == [("python", "python train.py", 1000)]
    assert [outcome.state for outcome in apply_waivers([TRAIN, SERVE], [], baseline, RULES)] == ["suppressed", "finding"]


def test_an_old_baseline_is_read_and_renewed() -> None:
    """It knows programs by name: it goes on to accept them, says so, and the next `sysperf baseline` writes what is there by program."""
    old = Baseline(accepted=(Accepted("box.swaps", "python", fingerprint("box.swaps", "python")),))

    (outcome,) = apply_waivers([TRAIN], [], old, RULES)
    renewed, fresh = shrink(old, [TRAIN], "later")

    assert (outcome.state, "renews it" in outcome.because) == ("suppressed", True)
    assert (renewed.schema, [entry.fingerprint for entry in renewed.accepted], fresh) == (2, ["train"], [])
    assert [outcome.state for outcome in apply_waivers([TRAIN, SERVE], [], renewed, RULES)] == ["suppressed", "finding"]


def test_a_new_baseline_does_not_go_by_name() -> None:
    """An entry of a host's finding with the fingerprint of a name says nothing about programs."""
    new = Baseline(schema=2, accepted=(Accepted("box.swaps", "python", fingerprint("box.swaps", "python")),))

    assert apply_waivers([TRAIN], [], new, RULES)[0].state == "finding"


@pytest.mark.parametrize(
    ("fields", "reach", "covered"),
    [
        ({}, "every subject", [True, True]),
        ({"program": "python train.py"}, "program python train.py", [True, False]),
        ({"program": "* serve.py", "user": "1001"}, "program * serve.py of user 1001", [False, True]),
        ({"user": "1000"}, "user 1000", [True, False]),
        ({"user": "root"}, "user root", [False, False]),
        ({"subject": "python (pid 8)"}, "subject python (pid 8)", [False, True]),
    ],
)
def test_a_waiver_reaches_whom_it_names(fields: dict[str, str], reach: str, covered: list[bool]) -> None:
    """By program and owner; what it reaches is said with its reason."""
    waiver = Waiver("box.swaps", "agreed", **fields)  # type: ignore[arg-type]  # no `expires` among them

    assert waiver.reach() == reach
    assert [waiver.covers(outcome) for outcome in (TRAIN, SERVE)] == covered
    assert [outcome.state == "suppressed" for outcome in apply_waivers([TRAIN, SERVE], [waiver], None, RULES)[:2]] == covered


def test_a_waiver_names_a_user_by_name() -> None:
    root = msgspec.structs.replace(TRAIN, subject=msgspec.structs.replace(TRAIN.subject, user=0))
    assert Waiver("box.swaps", "agreed", user="root").covers(root)
    assert not Waiver("box.swaps", "agreed", user="root").covers(
        msgspec.structs.replace(TRAIN, subject=msgspec.structs.replace(TRAIN.subject, user=None))
    )
    assert not Waiver("box.swaps", "agreed", program="*train*").covers(FINDING)


def test_a_waiver_made_for_a_finding_reaches_that_program_only() -> None:
    """Neither its number, which does not come again, nor every program."""
    waiver = waiver_for(TRAIN, "agreed", datetime.date(2999, 1, 1))
    disk = waiver_for(msgspec.structs.replace(FINDING, subject=Subject("item", "sd[a]")), "agreed")

    assert (waiver.subject, waiver.program, waiver.user) == ("*", "python train.py", "1000")
    assert [waiver.covers(outcome) for outcome in (TRAIN, SERVE)] == [True, False]
    assert disk.covers(msgspec.structs.replace(FINDING, subject=Subject("item", "sd[a]")))
    assert not disk.covers(FINDING)
