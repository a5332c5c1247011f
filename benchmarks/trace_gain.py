"""Predicted against measured gains: real programs on the CPU, sick and cured, each trace taken of the sick one.

Needs a Python with torch: SYSPERF_TORCH_PYTHON=/path/to/python python benchmarks/trace_gain.py [--repeats 5]

Sick and cured runs take turns, so that the machine's load hits both; times are medians without the profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from sysperf.trace import account, read

PROGRAM = r"""
import json, os, sys, time
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

cause, cured, trace = sys.argv[1], sys.argv[2] == "cured", sys.argv[3]
torch.set_num_threads(1)


class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if cause == "loader-storage":
            time.sleep(0.0008)
        if cause == "loader-decode":
            torch.randn(60, 60) @ torch.randn(60, 60)
            sum(range(4000))
        return torch.randn(256), index % 10


layers = [torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loads = cause.startswith("loader")
batches = iter(DataLoader(Data(), batch_size=16, num_workers=1 if cured and loads else 0))
fixed = next(batches)
written = open(os.devnull, "wb")


def step():
    x, y = next(batches) if loads else fixed
    if cause == "copies" and not cured:
        for parameter in model.parameters():
            parameter.detach().clone()
            parameter.detach().to(torch.float64)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if cause == "pause" and not cured:
        time.sleep(0.006)
    if cause == "checkpoint" and not cured:
        import pickle
        pickle.dump({name: value.tolist() for name, value in list(model.state_dict().items())[:1]}, written)


for _ in range(8):
    step()
times = []
for _ in range(40):
    start = time.perf_counter()
    step()
    times.append(time.perf_counter() - start)
if trace:
    plan = schedule(wait=0, warmup=2, active=10)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(trace)) as profiler:
        for _ in range(12):
            step()
            profiler.step()
print(json.dumps(sorted(times)[len(times) // 2] * 1e3))
"""
CAUSES = {"loader-storage": "loader", "loader-decode": "loader", "pause": "hole", "checkpoint": "hole", "copies": "cast"}
"""What is wrong with the program, and the fix whose prediction is compared."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    python = os.environ.get("SYSPERF_TORCH_PYTHON", "")
    if not python:
        sys.exit("SYSPERF_TORCH_PYTHON must name a Python with torch")
    errors = []
    print(f"{'cause':<16} {'sick ms':>8} {'cured ms':>9} {'measured':>9} {'predicted':>14} {'error of the gain':>18}")
    with tempfile.TemporaryDirectory() as folder:
        for cause, fix in CAUSES.items():
            errors.append(compare(python, folder, cause, fix, args.repeats))
    known = [error for error in errors if error is not None]
    print(f"median error {statistics.median(known):.0%} of the gain, {len(known)} of {len(errors)} predicted")


def compare(python: str, folder: str, cause: str, fix: str, repeats: int) -> float | None:
    """Run both forms by turns, and print a line; returns the error of the middle of the interval, as a share of the gain."""
    trace = f"{folder}/{cause}.json"
    sick, cured = [], []
    for number in range(repeats):
        sick.append(run(python, cause, "sick", trace if number == repeats - 1 else ""))
        cured.append(run(python, cause, "cured", ""))
    before, after = statistics.median(sick), statistics.median(cured)
    measured = 100 * (1 - after / before)
    rank = account(read(trace))
    found = next((one for one in rank.replay.predictions if one.fix == fix), None)
    if found is None:
        print(f"{cause:<16} {before:>8.2f} {after:>9.2f} {measured:>8.1f}% {'none':>14}")
        return None
    error = abs((found.low + found.high) / 2 - measured) / abs(measured)
    print(f"{cause:<16} {before:>8.2f} {after:>9.2f} {measured:>8.1f}% {found.low:>6.1f}-{found.high:>5.1f}% {error:>17.0%}", flush=True)
    return error


def run(python: str, cause: str, form: str, trace: str) -> float:
    """Median milliseconds of a step."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        Path(file.name).write_text(PROGRAM)
        done = subprocess.run([python, file.name, cause, form, trace], capture_output=True, check=True, timeout=240)
    return float(json.loads(done.stdout.decode().splitlines()[-1]))


if __name__ == "__main__":
    main()
