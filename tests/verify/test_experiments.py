"""Rules name experiments that are there, checked when their file is loaded; each built-in program runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sysperf.engine import judging
from sysperf.engine.verify import workload
from sysperf.evaluate.rule_files import read_file
from sysperf.model.errors import RuleError
from sysperf.model.experiment import EXPERIMENTS

TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
RULE = """
[[rule]]
id = "site.slow"
title = "T"
scope = "host"
severity = "info"
message = "m"
when = "True"
explain = "e"
measure = {{ experiment = "{experiment}" }}
"""


def test_an_unknown_experiment_is_an_error_when_rules_are_loaded(tmp_path: Path) -> None:
    """With the names that there are."""
    path = tmp_path / "site.toml"
    path.write_text(RULE.format(experiment="ab-luck"))

    with pytest.raises(RuleError, match="ab-luck") as error:
        read_file(path)
    assert "tune-threads" in error.value.hint


def test_each_rule_that_sysperf_can_try_by_itself_has_a_program() -> None:
    """Settings, launch changes and variables: `verify --fix RULE` needs no command where a rule names an experiment with one."""
    named = {rule.measure.experiment for rule in judging.load_rules().rules if rule.measure}

    assert named <= EXPERIMENTS.keys()
    assert {program for program in EXPERIMENTS.values() if program} <= set(workload.NAMES)


NEED_GPU = {"host_to_device", "pageable_copies", "pinned_copies"}


@pytest.mark.torch
@pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in workload.NAMES if name not in NEED_GPU])
def test_each_program_prints_the_seconds_of_a_step(name: str, tmp_path: Path) -> None:
    """One number, greater than 0."""
    done = subprocess.run(
        (*workload.command(name, TORCH_PYTHON)[:-1], "0.3"), cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )

    assert float(done.stdout) > 0
    assert not list(tmp_path.iterdir())
