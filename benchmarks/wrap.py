"""What `sysperf wrap` costs and what it wins, beside `python -m torch.backends.xeon.run_cpu`.

  python benchmarks/wrap.py start                     time added to a program that does nothing
  python benchmarks/wrap.py speed [--rounds 7]        five workloads, two conditions: plain, run_cpu, wrap
  python benchmarks/wrap.py memory [--rounds 3]       peak memory and page faults of the five, with glibc's variables and without

SYSPERF_TORCH_PYTHON names an interpreter with torch. Runs are interleaved in random order; a ratio is the median over rounds of
plain time by that round's time (above 1 is faster than plain), with a bootstrap interval of 95 %. On a busy machine they mean little:
the load of others during a run is printed, and rounds with much of it are rejected.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = str(HERE.parent / "sysperf" / "verify" / "workloads" / "programs.py")
PYTHON = os.environ.get("SYSPERF_TORCH_PYTHON", sys.executable)
SYSPERF = os.path.join(os.path.dirname(sys.executable), "sysperf")
WORKLOADS = ("small_mlp", "transformer_inference", "convolution_training", "loader_bound", "allocation_heavy")
WRAP = (SYSPERF, "wrap", "-q", "--")
RUN_CPU = (PYTHON, "-m", "torch.backends.xeon.run_cpu", "--throughput-mode")
CONDITIONS = ("idle", "one core busy")
FOREIGN_SHARE = 0.10
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MALLOC_", "LD_PRELOAD", "PYTHONDONTWRITE"))}


def seconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=CLEAN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def start(rounds: int) -> None:
    """Median milliseconds, interleaved."""
    nothing = (PYTHON, "-c", "pass")
    script = HERE / ".nothing.py"
    script.write_text("")
    kinds = {
        "true": ("true",),
        "wrap -- true": (*WRAP, "true"),
        "python -c pass": nothing,
        "wrap -- python -c pass": (*WRAP, *nothing),
        "run_cpu, a script that does nothing": (PYTHON, "-m", "torch.backends.xeon.run_cpu", "--ninstances", "1", str(script)),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(rounds):
        for name, command in random.sample(list(kinds.items()), len(kinds)):
            if "run_cpu" not in name or number < max(3, rounds // 5):
                times[name].append(seconds(command) * 1e3)
    script.unlink()
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, value in middle.items():
        print(f"{name:38} {value:9.1f} ms  (least {min(times[name]):.1f})")
    added = middle["wrap -- true"] - middle["true"]
    theirs = middle["run_cpu, a script that does nothing"] - middle["python -c pass"]
    print(
        f"\nwrap adds {added:.1f} ms to `true` (promise: at most 60)"
        f"\nrun_cpu adds {theirs:.0f} ms, {theirs / added:.0f} times as much (promise: at least 20)"
    )


def foreign() -> tuple[float, float]:
    """(busy ticks of all CPUs, ticks of our children so far)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    busy = sum(map(int, fields)) - int(fields[3]) - int(fields[4])
    times = os.times()
    return busy, (times.children_user + times.children_system + times.user + times.system) * os.sysconf("SC_CLK_TCK")


def step_seconds(command: Sequence[str], busy_ticks: float) -> tuple[float | None, float]:
    """(seconds of a step, share of a CPU that others used meanwhile); None when it did not run."""
    before, begun = foreign(), time.perf_counter()
    done = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False)
    after, took = foreign(), time.perf_counter() - begun
    others = ((after[0] - before[0]) - (after[1] - before[1])) / os.sysconf("SC_CLK_TCK") / took - busy_ticks
    lines = [line for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
    return (float(lines[-1]) if lines and done.returncode == 0 else None), others


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2_000))  # noqa: S311 - no secret
    return medians[50], medians[-51]


def speed(rounds: int, run_seconds: float, only: Sequence[str], conditions: Sequence[str]) -> None:
    """The table."""
    print(f"{'workload':24}{'condition':16}{'plain ms':>10}{'run_cpu':>26}{'wrap':>26}   rounds")
    for condition in conditions or CONDITIONS:
        spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if condition != "idle" else None
        try:
            time.sleep(1.0)
            for name in only or WORKLOADS:
                _row(name, condition, rounds, run_seconds, 1.0 if spinner else 0.0)
        finally:
            if spinner:
                spinner.kill()
                spinner.wait()


def _row(name: str, condition: str, rounds: int, run_seconds: float, busy: float) -> None:
    program = (PROGRAMS, name, str(run_seconds))
    kinds = {"plain": (PYTHON, *program), "run_cpu": (*RUN_CPU, *program), "wrap": (*WRAP, PYTHON, *program)}
    kept: dict[str, list[float]] = {kind: [] for kind in kinds}
    noisy = 0
    for _ in range(rounds):
        results = {kind: step_seconds(command, busy) for kind, command in random.sample(list(kinds.items()), 3)}
        if any(value is None for value, _ in results.values()):
            print(f"{name}: did not run: {[kind for kind, (value, _) in results.items() if value is None]}")
            return
        if busy == 0 and max(others for _, others in results.values()) > FOREIGN_SHARE:
            noisy += 1
        for kind, (value, _) in results.items():
            kept[kind].append(value or 0.0)
    cells = []
    for kind in ("run_cpu", "wrap"):
        ratios = [plain / value for plain, value in zip(kept["plain"], kept[kind], strict=True)]
        low, high = interval(ratios)
        cells.append(f"{statistics.median(ratios):.2f} [{low:.2f}–{high:.2f}]")
    print(
        f"{name:24}{condition:16}{statistics.median(kept['plain']) * 1e3:10.2f}{cells[0]:>26}{cells[1]:>26}   {rounds}, {noisy} disturbed",
        flush=True,
    )


def memory(rounds: int, run_seconds: float, only: Sequence[str]) -> None:
    """What glibc's variables cost and win in counters, which a busy machine does not change: peak memory, page faults, switches."""
    variables = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 31)) | {"MALLOC_TOP_PAD_": str(64 << 20)}
    print(f"{'workload':24}{'variables':>10}{'peak MiB':>10}{'faults':>10}{'waits':>8}{'preempted':>10}")
    for name in only or WORKLOADS:
        for kind, extra in (("none", {}), ("MALLOC_", variables)):
            counters = [_counters((PYTHON, PROGRAMS, name, str(run_seconds)), extra) for _ in range(rounds)]
            peak, *others = map(statistics.median, zip(*counters, strict=True))
            print(f"{name:24}{kind:>10}{peak / 1024:10.0f}{others[0]:10.0f}{others[1]:8.0f}{others[2]:10.0f}", flush=True)


def _counters(command: Sequence[str], extra: dict[str, str]) -> tuple[int, int, int, int]:
    """(peak kB, minor faults, voluntary and involuntary switches) of one run."""
    with open(os.devnull, "wb") as nowhere:
        pid = os.posix_spawn(command[0], command, {**CLEAN, **extra}, file_actions=[(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)])
    _, _, usage = os.wait4(pid, 0)
    return usage.ru_maxrss, usage.ru_minflt, usage.ru_nvcsw, usage.ru_nivcsw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("start", "speed", "memory"))
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", action="append", default=[], choices=WORKLOADS)
    parser.add_argument("--condition", action="append", default=[], choices=CONDITIONS)
    args = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}, {PYTHON}\n")
    if args.what == "memory":
        memory(args.rounds or 3, args.seconds, args.only)
        return
    start(args.rounds or 15) if args.what == "start" else speed(args.rounds or 7, args.seconds, args.only, args.condition)


if __name__ == "__main__":
    main()
