"""Facts about the results that *Bench* shows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sysperf.model.trial import Trial
from sysperf.tui.widgets import trials as widget
from sysperf.verify import trials
from sysperf.verify.trials import Trials

MEASURED = Path(__file__).parent / "data/trials.jsonl"


@pytest.mark.parametrize(("now", "stale"), [("this machine", False), ("another kernel", True), ("", False)])
def test_a_result_from_before_a_change_of_the_machine_is_called_stale(now: str, stale: bool) -> None:
    """In its row and in its detail; its rule's finding does not take it for a gain. Where nothing is known of now, nothing is said."""
    trial = msgspec.structs.replace(trials.read([str(MEASURED)]).results[0], rule="numa.balancing-on", fingerprint="this machine")
    results = Trials([trial], fingerprint=now)
    drawn = "\n".join(line.text for line in (*widget.draw(results, 120), *widget.detail(trial, 120, stale=results.is_stale(trial))))

    assert ("stale" in drawn) == stale
    assert (trial.verdict in drawn.splitlines()[1]) != stale
    expected: Trial | None = None if stale else trial
    assert widget.of_rule(results, "numa.balancing-on") == expected
