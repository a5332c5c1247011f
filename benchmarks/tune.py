"""What `sysperf tune` finds, beside the best of the settings that people try by hand.

  SYSPERF_TORCH_PYTHON=/path/to/python python benchmarks/tune.py [--minutes 6] [--only NAME]

For each workload: the settings by hand run in turn, in random order, and the one of least median wins; `sysperf tune` searches, by the
command that a user types; then `sysperf verify` compares its profile with plain, and with the winner by hand, in fresh pairs. Where tune
says that nothing helps there is no profile: it stands for plain. Run times are the programs' own seconds per step, less is better.
Needs a machine of its own; pairs during which others took CPUs are dropped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAMS = str(Path(__file__).parent.parent / "sysperf" / "verify" / "workloads" / "programs.py")
PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", sys.executable)
SYSPERF = os.path.join(os.path.dirname(sys.executable), "sysperf")
WORKLOADS = ("small_mlp", "loader_bound", "allocation_heavy")
LARGE = str(1 << 31)
TCMALLOC = next((str(path) for path in Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")), None)
BY_HAND: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "one thread": {"OMP_NUM_THREADS": "1"},
    "threads that spin": {"OMP_WAIT_POLICY": "active"},
    "threads that sleep": {"OMP_WAIT_POLICY": "passive"},
    "glibc keeps memory": {"MALLOC_MMAP_THRESHOLD_": LARGE, "MALLOC_TRIM_THRESHOLD_": LARGE},
    "glibc, huge pages": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    "large tensors on huge pages": {"THP_MEM_ALLOC_ENABLE": "1"},
} | ({"tcmalloc": {"LD_PRELOAD": TCMALLOC}} if TCMALLOC else {})
"""What articles and forums advise for PyTorch on CPUs."""


def by_hand(program: Sequence[str], rounds: int) -> dict[str, float]:
    """Median seconds of a step by setting."""
    seconds: dict[str, list[float]] = {name: [] for name in BY_HAND}
    for _ in range(rounds):
        for name in random.sample(list(BY_HAND), len(BY_HAND)):
            done = subprocess.run(program, env={**os.environ, **BY_HAND[name]}, capture_output=True, text=True, check=True)
            seconds[name].append(float(done.stdout.split()[-1]))
    return {name: statistics.median(values) for name, values in seconds.items()}


def compared(a: Sequence[str], b: Sequence[str], folder: str) -> str:
    """How much faster b is than a, as `sysperf verify` says it."""
    command = (SYSPERF, "verify", "--json", "--metric", "^([0-9.]+)$", "--minutes", "6", "--a", " ".join(a), "--b", " ".join(b))
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if not done.stdout:
        return done.stderr.strip()
    result = json.loads(done.stdout)["comparison"]
    if result["ratio"] is None:
        return f"{result['verdict']}, {result['pairs']} pairs"
    ratio, low, high = (100 * (result[key] - 1) for key in ("ratio", "low", "high"))
    return f"{result['verdict']} {ratio:+.1f} % [{low:+.1f}, {high:+.1f}], {result['pairs']} pairs"


def study(name: str, rounds: int, minutes: float) -> None:
    """Print what each way finds for one workload."""
    program = (PYTHON, PROGRAMS, name, "1.5")
    settings = by_hand(program, rounds)
    best = min(settings, key=settings.__getitem__)
    print(f"\n{name}: plain {settings['plain'] * 1e3:.2f} ms a step", flush=True)
    for setting, seconds in sorted(settings.items(), key=lambda pair: pair[1]):
        print(f"  {setting:30} {100 * (settings['plain'] / seconds - 1):+6.1f} %")
    with tempfile.TemporaryDirectory() as folder:
        search = (SYSPERF, "tune", "--profile", "found.toml", "--metric", "^([0-9.]+)$", "--minutes", str(minutes), "--seed", "1")
        done = subprocess.run((*search, "--", *program), capture_output=True, text=True, check=False, cwd=folder)
        said = " / ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
        print(f"  tune: {said[:600] or done.stderr.strip()}", flush=True)
        profile = Path(folder) / "found.toml"
        tuned = (SYSPERF, "wrap", "--quiet", "--profile", str(profile), "--", *program) if profile.exists() else program
        hand = ("env", *(f"{key}={value}" for key, value in BY_HAND[best].items()), *program)
        if profile.exists():
            print(f"  the profile against plain:     {compared(program, tuned, folder)}", flush=True)
        if profile.exists() or best != "plain":
            print(f"  tune's answer against {best}: {compared(hand, tuned, folder)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=6.0, help="budget of each search")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each setting by hand")
    parser.add_argument("--only", action="append", default=[], choices=WORKLOADS)
    args = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, {PYTHON}")
    for name in args.only or WORKLOADS:
        study(name, args.rounds, args.minutes)


if __name__ == "__main__":
    main()
