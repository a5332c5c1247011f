"""`sysperf verify --experiment` as a user runs it: what cannot be told here, and what does not go together."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf.engine.verify import obstacles
from sysperf.model.comparison import NotHere
from sysperf.report import not_here
from tests.invoking import sysperf


def verify(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run `sysperf verify` with a state folder of its own and without a GPU."""
    return sysperf("verify", *argv, env={"STATE_DIRECTORY": str(home / "state"), "CUDA_VISIBLE_DEVICES": ""}, timeout=300)


@pytest.mark.parametrize("experiment", ["numa-bandwidth", "h2d-bandwidth", "pinned-copies"])
def test_the_machine_is_named_before_an_interpreter_that_is_missing(tmp_path: Path, experiment: str) -> None:
    """One memory node, or no NVIDIA GPU: the torch that no interpreter has here would not change that."""
    if not obstacles.obstacle(experiment):
        pytest.skip("this machine could measure it")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "STATE_DIRECTORY": str(tmp_path)}
    done = sysperf("verify", "--experiment", experiment, env=env)

    assert done.returncode == 3, done.stderr
    assert "this cannot be measured here: this machine" in done.stdout


@pytest.mark.parametrize("words", [("--experiment", "h2d-bandwidth"), ("--experiment", "pinned-copies"), ("--fix", "gpu.pcie-width-degraded"), ("--fix", "dataloader.pin-memory-off")])  # fmt: skip
def test_what_needs_a_gpu_cannot_be_told_without_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Exit code 3 and the reason, in each format; nothing is run and nothing is kept."""
    done = verify(tmp_path, *words, "--python", sys.executable)
    experiment = json.loads(verify(tmp_path, *words, "--python", sys.executable, "--json").stdout)["experiment"]

    assert done.returncode == 3, done.stderr
    assert "cannot be measured here: " in done.stdout
    assert "GPU" in experiment["cannot"]
    assert not (tmp_path / "state" / "trials.jsonl").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--experiment", "numa-bandwidth", "--", "true"), "a program of sysperf's own"),
        (("--experiment", "pinned-copies", "--a", "true", "--b", "true"), "says itself what is compared"),
        (("--experiment", "numa-bandwidth", "--fail-if-slower", "2"), "no comparison of two programs"),
        (("--experiment", "numa-bandwidth", "--minutes", "5"), "fixed number of seconds"),
        (("--experiment", "h2d-bandwidth", "--resume"), "fixed number of seconds"),
        (("--experiment", "luck"), "invalid choice"),
        (("--fix", "threads.one-busy", "--", "true"), "sysperf tune --fix threads.one-busy -- "),
    ],
)
def test_what_does_not_go_together_is_an_error(tmp_path: Path, argv: tuple[str, ...], message: str) -> None:
    """Before anything runs."""
    done = verify(tmp_path, *argv)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_measured_is_told_in_each_format() -> None:
    """Hostile words do nothing."""
    result = NotHere("numa-bandwidth", "node <b>|` \x1b[31m")
    text, markdown, page = not_here.text(result), not_here.markdown(result), not_here.page(result)

    assert "\x1b" not in text + markdown + page
    assert "<b>" not in page
    assert "\\|'" in markdown
