"""Five workloads under `sysperf wrap` and under `python -m torch.backends.xeon.run_cpu`, compared by `sysperf verify`.

  SYSPERF_TORCH_PYTHON=/path/to/python python benchmarks/run_cpu.py [--minutes 30] [--only NAME] [--busy]

For each workload two studies: wrap against plain, and wrap against run_cpu. The metric is the seconds of a step that the program prints,
so that its start does not count. `--minutes` is for all of them together; each study uses its share, and is looked at once, at the end,
which gives the narrowest interval for the time. A run is 1.5 s of steps after some 2 s of start (some 4 s under run_cpu, which imports
torch itself): 30 minutes give 15 to 23 pairs a study. `--busy` keeps one core busy with another program the whole time. Needs a machine of
its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from companion import companion

PROGRAMS = str(Path(__file__).parent.parent / "sysperf" / "verify" / "workloads" / "programs.py")
PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", sys.executable)
SYSPERF = os.path.join(os.path.dirname(sys.executable), "sysperf")
WORKLOADS = ("small_mlp", "transformer_inference", "convolution_training", "loader_bound", "allocation_heavy")
RUN_CPU = (PYTHON, "-m", "torch.backends.xeon.run_cpu", "--throughput-mode")
RUN_SECONDS = "1.5"


def compared(a: Sequence[str], b: Sequence[str], minutes: float, folder: str) -> str:
    """How much faster b is than a, as `sysperf verify` says it; what it keeps goes to this folder."""
    options = ("--json", "--one-look", "--metric", "^([0-9.]+)$", "--minutes", f"{minutes:g}", "--a", shlex.join(a), "--b", shlex.join(b))
    environment = {**os.environ, "STATE_DIRECTORY": folder}
    done = subprocess.run((SYSPERF, "verify", *options), capture_output=True, text=True, check=False, cwd=folder, env=environment)
    if not done.stdout:
        return " / ".join(done.stderr.splitlines()[-2:])
    return described(json.loads(done.stdout)["comparison"])


def described(comparison: dict[str, float | str | None]) -> str:
    """Verdict, ratio and interval of a comparison's JSON."""
    pairs = f"{comparison['pairs']} pairs, {comparison['dropped_pairs']} dropped"
    if comparison["ratio"] is None:
        return f"{comparison['verdict']}, {pairs}: {comparison['reason']}"
    ratio, low, high = (100 * (float(comparison[key] or 0) - 1) for key in ("ratio", "low", "high"))
    return f"{comparison['verdict']} {ratio:+.1f} % [{low:+.1f}, {high:+.1f}], {pairs}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="for all workloads together")
    parser.add_argument("--only", action="append", default=[], choices=WORKLOADS)
    parser.add_argument("--busy", action="store_true", help="keep one core busy")
    args = parser.parse_args()
    names = args.only or WORKLOADS
    share = args.minutes / len(names) / 2
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, {PYTHON}{', one core busy' if args.busy else ''}", flush=True)
    with tempfile.TemporaryDirectory() as folder, companion("while True: pass") if args.busy else contextlib.nullcontext():
        for name in names:
            program = (PYTHON, PROGRAMS, name, RUN_SECONDS)
            wrapped = (SYSPERF, "wrap", "--quiet", "--", *program)
            print(f"{name:24} wrap against plain:   {compared(program, wrapped, share, folder)}", flush=True)
            print(f"{'':24} wrap against run_cpu: {compared((*RUN_CPU, *program[1:]), wrapped, share, folder)}", flush=True)


if __name__ == "__main__":
    main()
