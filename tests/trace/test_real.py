"""Traces of real programs on the CPU: what makes each slow is the verdict, its cured twin is bound by its own computation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sysperf.trace import account, read
from sysperf.trace.facts import Rank
from sysperf.trace.host_facts import Cpu
from tests.plugins.programs import TRAINING, command, sockets, started

PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", "")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not PYTHON, reason="SYSPERF_TORCH_PYTHON names no interpreter with torch"),
]

SYSPERF = "import sys; from sysperf.cli import main; sys.exit(main(sys.argv[1:]))"
PROGRAM = """
import sys, time, torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 10_000
    def __getitem__(self, index):
        if cause == "loader": time.sleep(0.02)
        return torch.rand(256), index % 10

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = iter(DataLoader(Data(), batch_size=8))
fixed = torch.rand(256, 256), torch.zeros(256, dtype=torch.long)
written = lambda profiler: profiler.export_chrome_trace(f"{cause}.json")
for cause in sys.argv[1:]:
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=5), on_trace_ready=written) as profiler:
        for _ in range(6):
            x, y = next(batches) if cause == "loader" else fixed
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if cause == "pause": time.sleep(0.5)
            profiler.step()
"""


def traced(folder: Path, *causes: str) -> list[tuple[Rank, Cpu]]:
    """The facts of the traces that torch.profiler took of this program, one for each cause."""
    subprocess.run((PYTHON, "-c", PROGRAM, *causes), check=True, timeout=240, capture_output=True, cwd=folder)
    return [facts(folder / f"{cause}.json") for cause in causes]


def facts(path: Path) -> tuple[Rank, Cpu]:
    rank = account(read(str(path)))
    assert rank.cpu is not None
    return rank, rank.cpu


def high(rank: Rank, fix: str) -> float:
    """The most that a fix is said to gain."""
    return next((prediction.high for prediction in rank.replay.predictions if prediction.fix == fix), 0.0)


@pytest.mark.slow
def test_a_slow_loader_a_pause_and_neither_are_told_apart(tmp_path: Path) -> None:
    """160 ms a batch in the loader, half a second between the steps, or computation alone; parts add up, and gains are of the cause."""
    (loads, loading), (pauses, pausing), (cured, computing) = traced(tmp_path, "loader", "pause", "none")

    assert (loads.verdict, pauses.verdict, cured.verdict) == ("input-bound", "host-bound", "compute-bound")
    for rank, cpu in ((loads, loading), (pauses, pausing), (cured, computing)):
        assert (rank.steps.by, rank.window_rule, rank.step_count) == ("ProfilerStep", "steady", 5)
        assert cpu.operator_pct + cpu.loader_pct + cpu.communication_pct + cpu.python_pct == pytest.approx(100)
        assert cpu.matmul_pct > cpu.fallback_pct
    assert (pausing.loader_pct, computing.loader_pct) == (0, 0)
    assert loading.loader_pct / 100 * (loads.window_ms or 0) / loads.steps.count >= 150
    assert (pauses.hole.pct or 0) / 100 * (pauses.window_ms or 0) / pauses.steps.count >= 490
    assert loading.loader_pct >= high(loads, "loader") > loading.loader_pct - 5 > high(loads, "hole")
    assert high(pauses, "hole") >= (pauses.hole.recurring_pct or 0) > 0
    assert high(pauses, "loader") == high(cured, "loader") == 0


@pytest.mark.slow
def test_a_live_program_is_traced_and_analyzed(tmp_path: Path) -> None:
    """Its loader sleeps 48 ms a batch in the main thread; `trace --analyze` says so, and the file stays."""
    written = tmp_path / "live.json"
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    wrapped = ("wrap", "--traceable", "--", PYTHON, str(script), "0")
    with sockets() as folder, started(sys.executable, SYSPERF, *wrapped, env={"XDG_RUNTIME_DIR": folder}) as program:
        done = command("trace", str(program.pid), "--analyze", "--json", "--output", str(written), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)

    assert (document["verdict"], document["file"]) == ("input-bound", str(written))
    assert document["summary"]["dataloader_workers"] == 0
    assert document["ranks"][0]["facts"]["cpu"]["loader_pct"] >= 50
    assert "dataloader.inline" in {finding["rule"] for finding in document["findings"]}
    assert written.stat().st_size > 10_000
