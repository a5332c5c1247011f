"""Waivers need a reason and end; a baseline only shrinks; a stale one is itself a finding."""

from __future__ import annotations

import datetime

import msgspec
import pytest

from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import fingerprint
from sysperf.evaluate.waivers import Accepted, Baseline, Waiver, apply_waivers, shrink
from sysperf.model.outcome import Outcome
from sysperf.model.rule import RuleFile

from .conftest import SCHEMA
from .test_judge import rule

RULES = Ruleset([RuleFile(rule=(rule(), rule(id="box.other")))], SCHEMA)
FINDING = Outcome("box.swaps", "finding", "warning", "host", "It swaps", "sda", fingerprint="f1")
UNKNOWN = Outcome("box.other", "unknown", "warning", "host", "Other", "", fingerprint="f2")


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

    assert [(one.rule, one.state) for one in outcomes] == [("box.swaps", "finding"), ("waiver.stale", "finding")]


def test_an_unknown_is_not_waived() -> None:
    """What could not be read stays unknown."""
    outcomes = apply_waivers([UNKNOWN], [Waiver("box.other", "whatever")], None, RULES)

    assert outcomes[0].state == "unknown"


def test_a_baseline_accepts_and_reports_what_is_gone() -> None:
    """Accepted findings are suppressed; entries that are no longer found are reported until dropped."""
    baseline = Baseline(accepted=(Accepted("box.swaps", "sda", "f1"), Accepted("box.other", "sdz", "gone")))

    outcomes = apply_waivers([FINDING], [], baseline, RULES)

    assert [(one.rule, one.state) for one in outcomes] == [("box.swaps", "suppressed"), ("baseline.stale", "finding")]
    assert "box.other sdz" in outcomes[1].message


def test_a_baseline_only_shrinks() -> None:
    """The first takes all; a later one drops what is gone, keeps what is unknown, and never adds."""
    first, fresh = shrink(None, [FINDING, UNKNOWN], "now", RULES)
    assert [one.fingerprint for one in first.accepted] == ["f1"]
    assert fresh == []

    both = Baseline(accepted=(*first.accepted, Accepted("box.other", "", "f2"), Accepted("box.other", "x", "f3")))
    new = Outcome("box.new", "finding", "error", "host", "New", fingerprint="f9")
    later, fresh = shrink(both, [FINDING, UNKNOWN, new], "later", RULES)

    assert [one.fingerprint for one in later.accepted] == ["f1", "f2"]
    assert fresh == [new]


RENAMED = [RuleFile(rule=(rule(formerly=("crate.swaps",)), rule(id="box.other")))]
"""`box.swaps` was `crate.swaps` once."""


@pytest.mark.parametrize("written", ["crate.swaps", "crate.*", "crate.swap?"])
def test_a_waiver_by_an_earlier_id_still_waives_and_the_id_of_today_is_said(written: str) -> None:
    """An id or a pattern of an earlier version means the same rule."""
    ruleset = Ruleset(RENAMED, SCHEMA)

    (outcome,) = apply_waivers([FINDING], [Waiver(written, "agreed with operations")], None, ruleset)

    assert outcome.state == "suppressed"
    assert ruleset.earlier_ids.notes() == [f"`{written}` is an earlier name: today it is `box.swaps`"]


def test_a_waiver_by_the_id_of_today_says_nothing() -> None:
    """A pattern that names the rule anyway needs no note, also where an earlier id matches it too."""
    ruleset = Ruleset(RENAMED, SCHEMA)

    apply_waivers([FINDING], [Waiver("box.swaps", "agreed"), Waiver("*", "agreed")], None, ruleset)

    assert ruleset.earlier_ids.notes() == []


def test_a_baseline_with_an_earlier_id_still_accepts_and_is_written_with_the_id_of_today() -> None:
    """The fingerprint of a finding is made from its id: an entry of the earlier one is translated."""
    ruleset = Ruleset(RENAMED, SCHEMA)
    finding = msgspec.structs.replace(FINDING, fingerprint=fingerprint("box.swaps", "sda"))
    old = Baseline(accepted=(Accepted("crate.swaps", "sda", fingerprint("crate.swaps", "sda")),))

    (outcome,) = apply_waivers([finding], [], old, ruleset)
    written, fresh = shrink(old, [finding], "now", ruleset)

    assert outcome.state == "suppressed"
    assert fresh == []
    assert written.accepted == (Accepted("box.swaps", "sda", finding.fingerprint),)
