"""Persistence mode through a stand-in NVML library: set, read back, taken back, by a lease too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.host.test_nvml import library

__all__ = ["library"]
ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
import json, os, sys
from pathlib import Path
from sysperf.fix import keeper, plan, recovery, transaction
from sysperf.fix.journal import Journal
from sysperf.host import Host
from sysperf.model.change import Setting
from tests.fix.kernel import asked
folder, state = Path(os.environ["HERE"]), Path(os.environ["FAKE_NVML_STATE"])
host, journal = Host(), Journal(os.environ["HERE"])
def planned(bus_id="0000:65:00.0", value="1"): return plan.plan(host, [Setting("gpu.persistence", value, bus_id)])
"""
pytestmark = pytest.mark.root


def run(library: Path, folder: Path, script: str, mode: str = "") -> Any:
    """What `script` prints as JSON, on a machine whose GPU at 65:00.0 has persistence mode off."""
    (folder / "mode").write_text("0")
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
        env={
            "PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library), "FAKE_NVML": mode,
            "FAKE_NVML_STATE": str(folder / "mode"), "HERE": str(folder / "state"),
        },
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def test_on_and_off_again(library: Path, tmp_path: Path) -> None:
    """Found by its address, however many digits its domain is written with."""
    script = """
    done = transaction.apply(host, journal, planned(), asked())
    on = state.read_text()
    undone = recovery.undo(host, journal, 1)
    print(json.dumps([done.state, on, undone[0].step.state, state.read_text(), planned("00000000:65:00.0").changes[0].before]))
    """
    assert run(library, tmp_path, script) == ["applied", "1", "undone", "0", "0"]


@pytest.mark.parametrize(("mode", "reason"), [("read-only", "Insufficient Permissions"), ("deaf", "it reads 0 after 1 was written")])
def test_what_the_driver_refuses(library: Path, tmp_path: Path, mode: str, reason: str) -> None:
    """With its reason, and rolled back."""
    script = """
    done = transaction.apply(host, journal, planned(), asked())
    print(json.dumps([done.state, done.steps[0].reason, state.read_text()]))
    """
    assert run(library, tmp_path, script, mode) == ["rolled-back", reason, "0"]


def test_a_gpu_that_is_not_there(library: Path, tmp_path: Path) -> None:
    """Named."""
    assert run(library, tmp_path, "print(json.dumps(planned('0000:01:00.0').skipped[0].reason))") == "NVML knows no GPU at 0000:01:00.0"


def test_a_library_that_does_not_answer_is_not_a_gpu_that_is_gone(library: Path, tmp_path: Path) -> None:
    """The step stays in force and is tried again; it is not given up."""
    script = """
    from sysperf.fix import gpu
    transaction.apply(host, journal, planned(), asked())
    os.environ["FAKE_NVML"] = "mismatch"
    broken = Host()
    import ctypes; ctypes.CDLL(None).setenv(b"FAKE_NVML", b"mismatch", 1)
    undone = recovery.undo(broken, journal, 1)
    print(json.dumps([undone[0].step.state, undone[0].message, journal.read(1).live]))
    """
    assert run(library, tmp_path, script) == ["applied", "Driver/library version mismatch", True]


def test_a_lease_ends_through_a_library_of_its_own(library: Path, tmp_path: Path) -> None:
    """The keeper is a fork, in which NVML does not work any more: it starts anew."""
    script = """
    request = asked(0.5)._replace(keep=lambda number: keeper.start(host, journal, number))
    done = transaction.apply(host, journal, planned(), request)
    print(json.dumps([done.state, state.read_text()]))
    """
    assert run(library, tmp_path, script) == ["applied", "1"]
    end = time.monotonic() + 20
    while (tmp_path / "mode").read_text() != "0" and time.monotonic() < end:
        time.sleep(0.05)
    assert (tmp_path / "mode").read_text() == "0"
