"""Fuzzers of what a study leaves on the disk: it is gone on with, or is one error that says what to do."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given

from sysperf.cli.verify.study import StudyFile, is_over, progress_line
from sysperf.engine.verify import Plan, State
from sysperf.engine.verify.result import conclude
from sysperf.model.comparison import Conditions, Run, Variant
from sysperf.model.errors import UsageError
from sysperf.model.record import to_json
from sysperf.report.experiments import comparison, comparison_page
from sysperf.report.formats import as_json
from sysperf.verify import trials
from tests.fuzzing import fuzz
from tests.mutation import damaged_bytes, damaged_json

CONDITIONS = Conditions(0.1, 0.0, 0.2, 0.0, 3_000.0, 70.0, (0,), 1_400.0, 60.0, 0.0, 0.0)
RUNS = tuple(
    Run(pair, arm, 10.0 + pair % 3 + (arm == "b"), 2.0, 1.5, 0.1, 20, (0.1, 0.2), "", 0.5, CONDITIONS, 900)
    for pair in range(8)
    for arm in ("a", "b")
)  # fmt: skip
STATE = State(plan=Plan(a=Variant("a", ("true",)), b=Variant("b", ("true", "x"))), runs=RUNS, machine={"kernel": "6.1"})


def gone_on_with(raw: bytes) -> None:
    """What is read can be shown as a study that goes on and as one that has ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.json"
        path.write_bytes(raw)
        with contextlib.suppress(UsageError):
            state = StudyFile(str(path)).read(State)
            assert state is not None
            if len(state.runs) > 0:
                assert progress_line(state)
            is_over(state)
            state.with_time_left(10.0).at_the_end()
            outcome = conclude(state)
            assert comparison.text(outcome, color=False, width=80)
            assert comparison_page.page(outcome)
            json.loads(as_json.dump(outcome))


@fuzz
@given(damaged_json(json.loads(to_json(STATE))))
def test_studies_with_values_of_any_kind(state: Any) -> None:
    gone_on_with(json.dumps(state).encode())


@fuzz
@given(damaged_bytes(to_json(STATE)))
def test_damaged_studies(raw: bytes) -> None:
    gone_on_with(raw)


LINE = b'{"experiment":"verify","what":"x","metric":"wall time","unit":"s","baseline":1.0,"ratio":1.1,"low":1.0,"high":1.2,"confidence":0.95,"pairs":6,"verdict":"faster","at":1.7e9}'


@fuzz
@given(damaged_bytes(LINE))
def test_results_that_were_kept(raw: bytes) -> None:
    """A line that is none is left out."""
    trial = trials._trial(raw)
    assert trial is None or trial.gain().text
