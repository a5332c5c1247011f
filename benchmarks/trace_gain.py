"""Predicted against measured gains: real programs on the CPU, sick and cured, each trace taken of the sick one.

Needs a Python with torch: SYSPERF_TORCH_PYTHON=/path/to/python python benchmarks/trace_gain.py [--blocks 15]

Sick and cured steps take turns in blocks of one process, so that the machine's load hits both; gains are medians over pairs of blocks,
without the profiler, with the quartiles of these pairs. A prediction is an interval between two cures: the error is that of the end
which the cured program is. What others do on the machine meanwhile is printed: a worker without a CPU of its own hides little.

`--replay TRACE…` prints how far the unchanged replay is from the measured window, as Lumos does (arXiv 2504.09307: 3.3 % on average).

`--hand-over` prints what it costs the main thread to take a batch over that a worker has ready (HAND_OVER_MS in trace/replay/fixes.py).
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
from typing import NamedTuple

from sysperf.trace import account, read

PROGRAM = r"""
import json, os, sys, time
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

cause, trace = sys.argv[1:]
ALL = len(os.sched_getaffinity(0))
threads = {False: ALL if "-team" in cause else 1, True: ALL if "-keeps-team" in cause else 1}
torch.set_num_threads(threads[False])


class Data(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if cause.startswith("loader-storage"):
            time.sleep(0.0003)
        if cause.startswith("loader-decode"):
            torch.randn(60, 60) @ torch.randn(60, 60)
            sum(range(4000))
        return torch.randn(256), index % 10


layers = [torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)]
model = torch.nn.Sequential(*layers)
optimizers = {False: torch.optim.SGD(model.parameters(), lr=0.01), True: torch.optim.SGD(model.parameters(), lr=0.01)}
if cause == "optimizer":
    optimizers = {cured: torch.optim.AdamW(model.parameters(), foreach=False, fused=cured) for cured in (False, True)}
workers = int(cause.rpartition("-")[2]) if cause.startswith("loader") else 0
batches = {cured: iter(DataLoader(Data(), batch_size=48, num_workers=workers if cured else 0)) for cured in (False, True)}
fixed = next(batches[False])
written = open(os.devnull, "wb")


def step(cured):
    x, y = next(batches[cured]) if workers else fixed
    if cause == "copies" and not cured:
        for parameter in model.parameters():
            parameter.detach().clone()
            parameter.detach().to(torch.float64)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizers[cured].zero_grad()
    loss.backward()
    optimizers[cured].step()
    if cause == "pause" and not cured:
        time.sleep(0.006)
    if cause == "checkpoint" and not cured:
        import pickle
        pickle.dump({name: value.tolist() for name, value in list(model.state_dict().items())[:1]}, written)


def block(cured):
    torch.set_num_threads(threads[cured])
    for _ in range(SETTLE):
        step(cured)
    start = time.perf_counter()
    for _ in range(STEPS):
        step(cured)
    return (time.perf_counter() - start) / STEPS * 1e3


SETTLE, STEPS = 4, 8
for cured in (False, True):
    block(cured)
pairs = [(block(False), block(True)) for _ in range(int(os.environ["BLOCKS"]))]
torch.set_num_threads(threads[False])
plan = schedule(wait=0, warmup=2, active=20)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(trace)) as profiler:
    for _ in range(22):
        step(False)
        profiler.step()
print(json.dumps(pairs), flush=True)
os._exit(0)  # without waiting for the worker
"""
HAND_OVER = r"""
import json, os, time
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Data(Dataset):
    def __init__(self, busy_s):
        self.busy_s = busy_s

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        end = time.perf_counter() + self.busy_s
        while time.perf_counter() < end:
            pass
        return torch.zeros(3, 32, 32), index % 10


for busy_s in (0.0, 0.0003):
    batches, taken = iter(DataLoader(Data(busy_s), batch_size=16, num_workers=1)), []
    for _ in range(150):
        time.sleep(0.012)
        cpu, wall = time.thread_time(), time.perf_counter()
        batch = next(batches)
        taken.append(((time.thread_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3))
        del batch
    print(json.dumps(taken[20:]), flush=True)
os._exit(0)
"""
CAUSES = {
    "loader-storage-4": ("loader", "high"),
    "loader-decode-1": ("loader", "high"),
    "loader-decode-keeps-team-1": ("loader", ""),
    "loader-decode-for-team-1": ("loader", "high"),
    "pause": ("hole", "high"),
    "checkpoint": ("hole", "high"),
    "copies": ("cast", "high"),
    "optimizer": ("optimizer", "high"),
}
"""What is wrong with the program (and how many workers cure it), the fix whose prediction is compared, and the end that is this cure.

The steps of two programs compute on all CPUs: in one the worker comes beside that team, which is no end of the interval, and in the other
the team makes room for it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=15, help="pairs of blocks of 8 steps (default: 15)")
    parser.add_argument("--only", choices=CAUSES, nargs="+", default=list(CAUSES), help="these causes (default: all)")
    parser.add_argument("--hand-over", action="store_true", help="what taking a batch over costs, and nothing else (10 s)")
    parser.add_argument(
        "--replay", nargs="+", metavar="TRACE", help="the error of unchanged replays of these traces, and nothing else; needs no torch"
    )
    args = parser.parse_args()
    if args.replay:
        replay_unchanged(args.replay)
        return
    python = os.environ.get("SYSPERF_TORCH_PYTHON", "")
    if not python:
        sys.exit("SYSPERF_TORCH_PYTHON must name a Python with torch")
    print(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f} before")
    if args.hand_over:
        hand_over(python)
        return
    print(f"{'cause':<27} {'sick ms':>8} {'cured ms':>9} {'measured':>9} {'quartiles':>14} {'predicted':>14} {'inside':>7} {'error':>7}")
    with tempfile.TemporaryDirectory() as folder:
        results = [compare(python, folder, cause, args.blocks) for cause in args.only]
    known = [result for result in results if result is not None]
    middle = statistics.median(result.error for result in known if result.error is not None)
    inside = sum(result.inside for result in known)
    print(f"median error {middle:.0%} of the gain, {len(known)} of {len(results)} predicted, {inside} within the interval")
    print(f"load average {os.getloadavg()[0]:.1f} after")


def replay_unchanged(paths: list[str]) -> None:
    """Print the error of each trace's unchanged replay, without the delays that nothing explains, and the mean of those that are used."""
    used = []
    for path in paths:
        rank = account(read(path))
        if not rank.has_device or rank.replay.error_pct is None:
            print(f"{Path(path).name:<44} {'none':>8}  {rank.replay.why or 'a program on the CPU'}")
            continue
        used += [rank.replay.error_pct] if rank.replay.usable else []
        print(f"{Path(path).name:<44} {rank.replay.error_pct:>7.2f}%  {rank.replay.why}")
    print(f"mean of the {len(used)} that predictions rest on: {statistics.fmean(used):.2f} %" if used else "no prediction rests on any")


def hand_over(python: str) -> None:
    """Print the quartiles of what taking a batch over costs, from a worker that is done at once and from one that computes in Python."""
    done = subprocess.run([python, "-c", HAND_OVER], capture_output=True, check=True, timeout=120)
    for worker, line in zip(("at once", "computes"), done.stdout.decode().splitlines(), strict=True):
        for what, taken in zip(("CPU", "wall"), zip(*json.loads(line), strict=True), strict=True):
            print(f"{worker:<9} {what:<5} ms {' '.join(f'{value:5.2f}' for value in statistics.quantiles(taken, n=4))}")


class Comparison(NamedTuple):
    """How a prediction did: the error of the cure's end as a share of the gain, and whether the interval and the quartiles overlap."""

    error: float | None
    inside: bool


def compare(python: str, folder: str, cause: str, blocks: int) -> Comparison | None:
    """Run both forms by turns, and print a line; None where nothing was predicted."""
    fix, end = CAUSES[cause]
    trace = f"{folder}/{cause}.json"
    pairs = run(python, cause, trace, blocks)
    before, after = (statistics.median(times) for times in zip(*pairs, strict=True))
    least, measured, most = statistics.quantiles((100 * (1 - cured / sick) for sick, cured in pairs), n=4)
    rank = account(read(trace))
    prediction = next((one for one in rank.replay.predictions if one.fix == fix), None)
    line = f"{cause:<27} {before:>8.2f} {after:>9.2f} {measured:>8.1f}% {least:>6.1f}-{most:>5.1f}% "
    if prediction is None:
        print(f"{line} {'none':>14}", flush=True)
        return None
    error = abs(getattr(prediction, end) - measured) / abs(measured) if end else None
    inside = prediction.low <= most and least <= prediction.high
    shown = f"{'-':>6}" if error is None else f"{error:>6.0%}"
    print(f"{line} {prediction.low:>6.1f}-{prediction.high:>5.1f}% {'yes' if inside else 'no':>7} {shown}", flush=True)
    return Comparison(error, inside)


def run(python: str, cause: str, trace: str, blocks: int) -> list[tuple[float, float]]:
    """Milliseconds of a step, (sick, cured), of blocks that take turns in one process."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        Path(file.name).write_text(PROGRAM)
        environment = {**os.environ, "BLOCKS": str(blocks)}
        done = subprocess.run([python, file.name, cause, trace], capture_output=True, check=True, timeout=240, env=environment)
    return [(sick, cured) for sick, cured in json.loads(done.stdout.decode().splitlines()[-1])]


if __name__ == "__main__":
    main()
