"""A trace of a real program on the CPU: what makes it slow is the verdict."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.plugins.programs import TRAINING, command, sockets, started

PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch"),
]

SYSPERF = "import sys; from sysperf.cli import main; sys.exit(main(sys.argv[1:]))"


def test_a_live_program_is_traced_and_analyzed(tmp_path: Path) -> None:
    """Its loader sleeps 48 ms a batch in the main thread; `trace --analyze` says so, and the file stays."""
    written = tmp_path / "live.json"
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    wrapped = ("wrap", "--traceable", "--", PYTHON, str(script), "0")
    with sockets() as folder, started(sys.executable, SYSPERF, *wrapped, env={"XDG_RUNTIME_DIR": folder}) as program:
        done = command("trace", str(program.pid), "--analyze", "--json", "--output", str(written), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert (found["verdict"], found["file"]) == ("input-bound", str(written))
    assert found["summary"]["dataloader_workers"] == 0
    assert found["ranks"][0]["facts"]["cpu"]["loader_pct"] >= 50
    assert "T1" in {detection for one in found["findings"] for detection in one["detects"]}
    assert written.stat().st_size > 10_000
