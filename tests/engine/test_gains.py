"""Measured gains beside the findings whose advice was tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sysperf.engine import gains, reading
from sysperf.host import Host
from sysperf.model.trial import Trial
from sysperf.verify import trials
from tests.conftest import captured
from tests.report import reports


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that keeps a result for a rule."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))

    def keep(fingerprint: str, at: float = 1.9e9, ratio: float = 1.05, rule: str = "numa.balancing-on", experiment: Any = "verify") -> None:
        trial = Trial(
            experiment=experiment, what="numa.balancing = 0", metric="steps per second", unit="steps/s", baseline=8.0, ratio=ratio, low=ratio - 0.03,
            high=ratio + 0.03, confidence=0.95, pairs=9, verdict="faster", at=at, rule=rule, fingerprint=fingerprint,
        )  # fmt: skip
        trials.append(str(tmp_path / trials.FILE), trial)

    return keep


def gain() -> Any:
    """The gain of that rule's finding in a report of a sick machine, and of all others."""
    with_gain = gains.with_gains(reports.sick())
    (mine,) = [outcome.gain for outcome in with_gain.outcomes if outcome.rule == "numa.balancing-on" and outcome.state == "finding"]
    return mine, [outcome.gain for outcome in with_gain.outcomes if outcome.rule != "numa.balancing-on"]


def test_without_results_all_is_unmeasured() -> None:
    """No file, no gain."""
    assert gain()[0].basis == "unmeasured"


def test_the_latest_result_of_this_machine_is_the_gain(kept: Any) -> None:
    """With its interval; other findings keep theirs."""
    now = gains.fingerprint(reports.sick().snapshot)
    kept(now, at=1.9e9, ratio=1.30)
    kept(now, at=1.95e9, ratio=1.05)

    mine, others = gain()
    assert mine.basis == "measured"
    assert "5.0 % faster here (+2.0 to +8.0 % at 95 %" in mine.text
    assert others == [outcome.gain for outcome in reports.sick().outcomes if outcome.rule != "numa.balancing-on"]


def test_a_users_own_program_counts_more_than_the_reference_trainer(kept: Any) -> None:
    """Also where the ladder was climbed later; alone it is the gain."""
    now = gains.fingerprint(reports.sick().snapshot)
    kept(now, at=1.95e9, ratio=1.30, experiment="ladder")
    assert "30.0 % faster here" in gain()[0].text
    kept(now, at=1.9e9, ratio=1.05)

    assert "5.0 % faster here" in gain()[0].text


def test_a_result_from_before_a_change_of_the_machine_is_stale(kept: Any) -> None:
    """It is shown as what it was, and does not count as measured."""
    kept("another kernel")

    mine, _ = gain()
    assert mine.basis == "unmeasured"
    assert mine.text.startswith("unmeasured since kernel, CPUs or driver changed; before: 5.0 % faster")


def test_the_bench_knows_which_results_are_stale(kept: Any) -> None:
    """One of this machine as it is now, one of before, and one of an earlier version that kept no fingerprint."""
    now = gains.fingerprint(reading.snapshot(Host(), gains.DECIDING))
    for fingerprint in (now, "another kernel", ""):
        kept(fingerprint)
    results = gains.kept()

    assert {trial.fingerprint: results.is_stale(trial) for trial in results.results} == {now: False, "another kernel": True, "": False}


def test_the_fingerprint_is_stable_and_tells_machines_apart() -> None:
    """This machine, read twice; and a captured one."""
    areas = gains.DECIDING
    here = [gains.fingerprint(reading.snapshot(Host(), areas)) for _ in range(2)]
    other = gains.fingerprint(reading.snapshot(captured("hwloc", "8em64t-4c2t"), areas))

    assert here[0] == here[1]
    assert other != here[0]
