"""What a diagnosis costs the job: speed alone, listening idly for traces, under the window, and while stacks and machine code are sampled.

    SYSPERF_TORCH_PYTHON=… python benchmarks/diagnose.py [--rounds 6] [--seconds 4]

One program is looked at in turns, in each round in another order; its speed is what it counts itself. The idle listener is a second
program, under `wrap --traceable`, which runs in turns with the first. Medians of the rounds' ratios, with their quartiles. Needs an idle
machine: on few CPUs the sampler's own CPU time shows in the job's speed.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sysperf import plugin
from sysperf.diagnosis.window import Window
from sysperf.engine.diagnose.inside import SEQUENCE_HZ
from sysperf.host import Host

JOB = """
import mmap, sys, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(256, 256)
with open(sys.argv[1], "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
while True:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    shared[0] += 1
"""


class Job:
    """A program that counts its steps in a file."""

    def __init__(self, python: str, folder: str, *, traceable: bool = False) -> None:
        self.file = Path(folder) / f"steps-{traceable}"
        self.file.write_bytes(bytes(8))
        wrap = (sys.executable, "-m", "sysperf", "wrap", "-q", "--traceable", "--only", "launch.traceable-asked", "--") if traceable else ()
        self.program = subprocess.Popen((*wrap, python, "-c", JOB, str(self.file)), start_new_session=True)
        while self.steps() < 50 and self.program.poll() is None:
            time.sleep(0.2)
        self.pause()

    def steps(self) -> int:
        return int.from_bytes(self.file.read_bytes()[:8], sys.byteorder)

    def pause(self) -> None:
        os.kill(self.program.pid, signal.SIGSTOP)

    def speed(self, seconds: float, beside: Callable[[int, int], object] | None) -> float:
        """Steps a second while something is done beside it."""
        os.kill(self.program.pid, signal.SIGCONT)
        time.sleep(0.3)
        thread = threading.Thread(target=beside, args=(self.program.pid, int(seconds))) if beside else None
        if thread:
            thread.start()
        first, start = self.steps(), time.monotonic()
        time.sleep(seconds)
        rate = (self.steps() - first) / (time.monotonic() - start)
        if thread:
            thread.join()
        self.pause()
        return rate


def window(pid: int, seconds: int) -> None:
    Window(pid).run(seconds)


def stacks(pid: int, seconds: int) -> None:
    plugin.stack_taker("pyspy").sample(Host(), pid, seconds)


def in_order(pid: int, seconds: int) -> None:
    for _ in range(seconds):
        plugin.stack_taker("pyspy").sequence(Host(), pid, SEQUENCE_HZ)  # type: ignore[attr-defined]


def machine_code(pid: int, seconds: int) -> None:
    plugin.stack_taker("perf").sample(Host(), pid, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0)
    args = parser.parse_args()
    python = os.environ["SYSPERF_TORCH_PYTHON"]
    with tempfile.TemporaryDirectory() as folder:
        plain, listening = Job(python, folder), Job(python, folder, traceable=True)
        ways = {
            "alone": (plain, None), "idle listener": (listening, None), "window": (plain, window), "stacks (py-spy)": (plain, stacks),
            "stacks in order": (plain, in_order), "machine code (perf)": (plain, machine_code),
        }  # fmt: skip
        rates: dict[str, list[float]] = {name: [] for name in ways}
        try:
            for number in range(args.rounds):
                names = list(ways)
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    job, beside = ways[name]
                    rates[name].append(job.speed(args.seconds, beside))
        finally:
            for job in (plain, listening):
                os.killpg(job.program.pid, signal.SIGKILL)
    print(f"{'':<22} {'steps/s':>9} {'cost':>8} {'quartiles':>18}")
    for name, measured in rates.items():
        costs = [100 * (1 - rate / alone) for rate, alone in zip(measured, rates["alone"], strict=True)]
        low, _, high = statistics.quantiles(costs, n=4) if len(costs) > 1 else (costs[0], 0, costs[0])
        print(f"{name:<22} {statistics.median(measured):9.1f} {statistics.median(costs):7.2f}% {low:8.2f} to {high:5.2f}%")


if __name__ == "__main__":
    main()
