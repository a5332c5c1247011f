"""What `sysperf tune` finds, beside the best of the settings that people try by hand.

  SYSPERF_TORCH_PYTHON=/path/to/python python benchmarks/tune.py [--minutes 14] [--only NAME]

For each workload: the settings by hand run in turn, in random order, and the one of least median wins; `sysperf tune` searches, by the
command that a user types. Then `sysperf verify` compares its profile with plain, and with the winner by hand, in fresh pairs that are
looked at once, at the end. Where tune says that nothing helps there is no profile: it stands for plain, and what it is compared with is the
winner by hand; where that is plain, too, there is nothing to compare. Run times are the programs' own seconds per step, less is better.
`--minutes` is for all: 15 % for the settings by hand (each runs twice at least), 50 % for the searches, and what is left then for
the comparisons that are needed. Needs a machine of its own; pairs during which others took CPUs are dropped.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from run_cpu import PROGRAMS, PYTHON, SYSPERF, compared

MIN_ROUNDS = 2
HAND_SHARE, TUNE_SHARE = 0.15, 0.5
RUN_SECONDS = "0.5"
"""A search needs many runs, and each starts anew."""
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


def by_hand(program: Sequence[str], seconds: float) -> dict[str, list[float]]:
    """Seconds of a step by setting, of as many rounds as there is time for, and two at least."""
    took: dict[str, list[float]] = {name: [] for name in BY_HAND}
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(took["plain"]) < MIN_ROUNDS:
        for name in random.sample(list(BY_HAND), len(BY_HAND)):
            done = subprocess.run(program, env={**os.environ, **BY_HAND[name]}, capture_output=True, text=True, check=True)
            took[name].append(float(done.stdout.split()[-1]))
    return took


Comparing = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A question, and the two commands that answer it."""


def study(name: str, minutes: float, folder: str) -> list[Comparing]:
    """Print what each way finds for one workload, and return what is to be compared then."""
    program = (PYTHON, PROGRAMS, name, RUN_SECONDS)
    took = by_hand(program, HAND_SHARE * 60 * minutes)
    settings = {setting: statistics.median(values) for setting, values in took.items()}
    best = min(settings, key=settings.__getitem__)
    print(f"\n{name}: plain {settings['plain'] * 1e3:.2f} ms a step; settings by hand, medians of {len(took['plain'])} runs:", flush=True)
    for setting, seconds in sorted(settings.items(), key=lambda pair: pair[1]):
        apart = max(took[setting]) / min(took[setting]) - 1
        print(f"  {setting:30} {100 * (settings['plain'] / seconds - 1):+6.1f} %, its runs {100 * apart:.0f} % apart")
    profile = Path(folder) / f"{name}.toml"
    print(f"  tune: {searched(program, TUNE_SHARE * minutes, profile)}", flush=True)
    tuned = (SYSPERF, "wrap", "--quiet", "--profile", str(profile), "--", *program) if profile.exists() else program
    hand = ("env", *(f"{key}={value}" for key, value in BY_HAND[best].items()), *program)
    against_plain = [(f"{name}, the profile against plain", program, tuned)] if profile.exists() else []
    against_hand = [(f"{name}, tune's answer against {best}", hand, tuned)] if best != "plain" else []
    return against_plain + against_hand


def searched(program: Sequence[str], minutes: float, profile: Path) -> str:
    """What `sysperf tune` says of a program; where it found something, its profile is then in this file."""
    search = (SYSPERF, "tune", "--profile", profile.name, "--metric", "^([0-9.]+)$", "--minutes", f"{minutes:g}", "--seed", "1")
    environment = {**os.environ, "STATE_DIRECTORY": str(profile.parent)}
    done = subprocess.run((*search, "--", *program), capture_output=True, text=True, check=False, cwd=profile.parent, env=environment)
    said = " / ".join(line.strip() for line in done.stdout.splitlines() if line.strip())
    return said[:600] or " / ".join(done.stderr.splitlines()[-2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=14.0, help="for all workloads together")
    parser.add_argument("--only", action="append", default=[], choices=WORKLOADS)
    args = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, {PYTHON}")
    end = time.monotonic() + 60 * args.minutes
    names = args.only or WORKLOADS
    with tempfile.TemporaryDirectory() as folder:
        comparisons = [comparison for name in names for comparison in study(name, args.minutes / len(names), folder)]
        for number, (question, a, b) in enumerate(comparisons):
            share = max(0.0, end - time.monotonic()) / 60 / (len(comparisons) - number)
            print(f"{question}: {compared(a, b, share, folder)}", flush=True)


if __name__ == "__main__":
    main()
