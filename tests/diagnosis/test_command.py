"""`sysperf diagnose` for real: on a program that trains, and where there is nothing to say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.programs import command, training


def test_the_command_wants_a_program_that_is_there() -> None:
    """Each mistake says what to do next."""
    for arguments, said in (
        ((), "no program was named"), (("4194304",), "there is no process"), (("1", "--seconds", "0"), "not between"),
    ):  # fmt: skip
        done = command("diagnose", *arguments)
        assert done.returncode == 2
        assert said in done.stderr
        assert "hint:" in done.stderr or said == "not between"


def test_a_program_without_pytorch_is_told() -> None:
    """It may just not have loaded it yet."""
    with subprocess.Popen((sys.executable, "-c", "import time; time.sleep(60)")) as program:
        try:
            done = command("diagnose", str(program.pid), "--passive", "--seconds", "1")
        finally:
            program.kill()

    assert done.returncode == 2
    assert "runs PyTorch" in done.stderr


def test_a_command_that_ends_at_once_is_told() -> None:
    """With its exit code."""
    done = command("diagnose", "--", sys.executable, "-c", "raise SystemExit(7)")

    assert done.returncode == 2
    assert "ended with exit code 7" in done.stderr


@pytest.mark.torch
def test_a_program_that_makes_its_own_batches_is_named(tmp_path: Path) -> None:
    """Its loader has no workers; the data set's line is named, and the program goes on."""
    with training(tmp_path, workers=0) as pid:
        done = command("diagnose", str(pid), "--format", "json", "--no-trace", "--seconds", "2")
        os.kill(pid, 0)  # it is still there
    found = json.loads(done.stdout)

    assert done.returncode == 1
    named = {cause["id"]: cause for cause in found["causes"]}
    assert named["diagnosis.loader-inline"]["state"] == "confirmed"
    assert named["diagnosis.loader-inline"]["where"][0]["text"].startswith("def __getitem__(self, index): time.sleep(0.006)")


@pytest.mark.torch
def test_a_suspended_program_is_no_trouble(tmp_path: Path) -> None:
    """Nothing is sent to it, and there is an answer."""
    with training(tmp_path, workers=0) as pid:
        os.kill(pid, signal.SIGSTOP)
        done = command("diagnose", str(pid), "--passive", "--seconds", "1", "--format", "json")

    assert done.returncode in (0, 3)
    assert json.loads(done.stdout)["verdict"] in ("idle", "cannot-tell")
