"""What tests of the trainer share: runs of its tiny sizes, in the interpreter that has torch, with data that is made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sysperf_trainer
from sysperf_trainer.launch import PROGRAM

TORCH_PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
needs_torch = pytest.mark.skipif(not TORCH_PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch")
LIMIT_S = 800
SYSPERF = (sys.executable, "-m", "sysperf")


class Run(NamedTuple):
    """How a run of the trainer ended."""

    code: int
    out: str
    err: str
    record: Mapping[str, Any]
    """Empty where none was written."""

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return list(self.record["losses"])


Train = Callable[..., Run]


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a run: one thread, so that a loaded machine computes what an idle one does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SYSPERF_"))}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all runs of a session find tokens and images, and torch.compile its kernels."""
    return tmp_path_factory.mktemp("trainer-data")


@pytest.fixture
def train(data: Path, tmp_path: Path) -> Train:
    """Run the trainer: `train("text", "--max-steps", "5", rungs="bf16")`."""

    def run(workload: str, *arguments: str, rungs: str = "", ranks: int = 1, **variables: str) -> Run:
        record = tmp_path / "record.json"
        record.unlink(missing_ok=True)
        more = ("--size", "tiny", "--cache", str(data), "--json", str(record), *arguments)
        start = sysperf_trainer.start(TORCH_PYTHON, workload, rungs.split(",") if rungs else (), more, ranks=ranks, sysperf=SYSPERF)
        variables = environment(TORCHINDUCTOR_CACHE_DIR=str(data / "kernels"), **start.environment, **variables)
        done = subprocess.run(start.argv, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        found = json.loads(record.read_text()) if record.exists() else {}
        return Run(done.returncode, done.stdout, done.stderr, found)

    return run


def program(*arguments: str | Path, data: Path) -> tuple[str, ...]:
    """Return the command of a tiny run, for tests that start it by themselves."""
    return (TORCH_PYTHON, PROGRAM, "--size", "tiny", "--cache", str(data), *map(str, arguments))
