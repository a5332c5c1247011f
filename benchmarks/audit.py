"""How long sysperf takes, beside bare Python and `python -m torch.utils.collect_env`.

    python benchmarks/audit.py [--runs 11] [--torch-python PATH]

Interleaved runs, medians with quartiles, ratios against the peer of the same round. Prints; asserts nothing.
`--torch-python` is an interpreter with torch (default: $SYSPERF_TORCH_PYTHON); sysperf is run by it too when it has
sysperf installed, else by this interpreter.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--torch-python", default=os.environ.get("SYSPERF_TORCH_PYTHON"))
    args = parser.parse_args()

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without bytecode, every run would compile sysperf anew
    sysperf = [os.path.join(os.path.dirname(sys.executable), "sysperf")]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "sysperf --version": [*sysperf, "--version"],
        "sysperf --help": [*sysperf, "--help"],
        "sysperf audit": [*sysperf, "audit", "--fail-on", "never"],
        "sysperf facts cpu numa": [*sysperf, "facts", "cpu", "numa"],
        "sysperf ps": [*sysperf, "ps"],
    }
    if args.torch_python:
        commands["collect_env"] = [args.torch_python, "-m", "torch.utils.collect_env"]
    times, memory = measure(commands, args.runs)
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:<24} {middle:8.1f} ms  [{low:.1f}-{high:.1f}]   peak {memory[name] / 1024:6.1f} MB")
    print_ratio("sysperf --version / python -c pass (promise: at most 3)", times["sysperf --version"], times["python -c pass"])
    if args.torch_python:
        print_ratio("collect_env / sysperf audit (promise: at least 20)", times["collect_env"], times["sysperf audit"])
    crowd(sysperf, args.runs)


def measure(commands: dict[str, list[str]], runs: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """(milliseconds of each run, peak resident kB) of each command, interleaved; the first round warms the caches."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    memory = dict.fromkeys(commands, 0)
    for round_number in range(runs + 1):
        for name, argv in commands.items():
            milliseconds, peak = once(argv)
            if round_number:
                times[name].append(milliseconds)
                memory[name] = max(memory[name], peak)
    return times, memory


def once(argv: Sequence[str]) -> tuple[float, int]:
    """(wall milliseconds, peak resident kB) of one run."""
    start = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return (time.perf_counter() - start) * 1e3, usage.ru_maxrss


def print_ratio(what: str, above: list[float], below: list[float]) -> None:
    ratios = [value / other for value, other in zip(above, below, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{what}: {middle:.1f} [{low:.1f}-{high:.1f}]")


def crowd(sysperf: list[str], runs: int) -> None:
    """What 60 further processes cost an audit."""
    alone: list[float] = []
    crowded: list[float] = []
    for _ in range(runs):
        alone.append(once([*sysperf, "audit", "--fail-on", "never"])[0])
        sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(60)]
        time.sleep(2)
        crowded.append(once([*sysperf, "audit", "--fail-on", "never"])[0])
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
    difference = [more - less for more, less in zip(crowded, alone, strict=True)]
    low, middle, high = statistics.quantiles(difference, n=4)
    print(f"60 further processes cost {middle:.1f} ms [{low:.1f}-{high:.1f}] (promise: at most 10)")


if __name__ == "__main__":
    main()
