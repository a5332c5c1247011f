"""How honest `sysperf verify` is on this machine, beside hyperfine and pyperf.

  python benchmarks/verify.py same [--studies 100] [--neighbour]   a program against itself: how often is it called different?
  python benchmarks/verify.py planted                              1, 2, 5 and 20 % more work: found, and after how many pairs
  python benchmarks/verify.py probe                                what counting steps costs (SYSPERF_TORCH_PYTHON)
  python benchmarks/verify.py record NAME [--neighbour]            run times of this machine, into benchmarks/noise.json
  python benchmarks/verify.py coverage [--studies 400]             error rates and coverage of intervals, on what was recorded

The program is a loop of the shell, 10 ms long: short runs are the hard case. hyperfine (Debian) and pyperf (PyPI) are asked about the
same two commands where they are installed: 40 runs of each, one command after the other, as both do it.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sysperf.engine.verify import Plan, verify
from sysperf.model.comparison import Comparison, Variant
from sysperf.verify import probe, simulation
from sysperf.verify.run import run

ROUNDS = 6_000
GAINS = (0.01, 0.02, 0.05, 0.20)
PEER_RUNS = 40
NOISE = Path(__file__).parent / "noise.json"
MAX_RECORDED = 2_000
PYPERF_OPTIONS = ("-p", "10", "-n", "4", "-w", "1", "-q")
TRAIN = """
import json, random, statistics, time, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
def step():
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(data), labels).backward()
    optimizer.step()
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
counting, counted = dict(hooks), torch.Tensor.backward
assert counting and counted.__wrapped__, "the probe is not there"
def block(probed):
    hooks.clear()
    hooks.update(counting if probed else {})
    torch.Tensor.backward = counted if probed else counted.__wrapped__
    start = time.process_time()
    for _ in range(20): step()
    return (time.process_time() - start) / 20
for _ in range(10): block(True)
plain, added = [], []
for _ in range(BLOCKS):
    order = random.sample((False, True), 2)
    seconds = {probed: block(probed) for probed in order}
    plain.append(seconds[False])
    added.append(seconds[True] - seconds[False])
print(json.dumps((plain, added)))
"""


def shell(rounds: int) -> tuple[str, ...]:
    return ("sh", "-c", f"i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); done")


def study(slow: int, fast: int, seed: int) -> Comparison:
    a, b = Variant("a", shell(slow)), Variant("b", shell(fast))
    return verify(Plan(a=a, b=b, seed=seed, keep_disturbed=True))


def same(studies: int, seconds: float) -> None:
    """Verdicts of a program against itself."""
    found, pairs, begun = collections.Counter[str](), list[int](), time.monotonic()
    covered = 0
    for seed in range(studies):
        if time.monotonic() - begun > seconds:
            break
        result = study(ROUNDS, ROUNDS, seed)
        found[result.verdict] += 1
        pairs.append(result.pairs)
        covered += (result.low or 0) <= 1 <= (result.high or 2)
    total = sum(found.values())
    different = (found["faster"] + found["slower"]) / total
    print(
        f"{total} studies: {dict(found)}; called different {different:.1%}; intervals that hold 1: {covered / total:.1%}; "
        f"{statistics.fmean(pairs):.0f} pairs on average"
    )


def planted(seconds: float) -> None:
    """Gains of known size; what the peers say of the same two commands."""
    print(f"{'planted':>8} {'verify':>44} {'pairs':>6} {'runs s':>7}   {'hyperfine (Welch)':28} pyperf")
    begun = time.monotonic()
    for gain in GAINS:
        slow, fast = round(ROUNDS * (1 + gain)), ROUNDS
        start = time.monotonic()
        result = study(slow, fast, round(gain * 1e4))
        took = time.monotonic() - start
        low, ratio, high = (100 * ((value or 1) - 1) for value in (result.low, result.ratio, result.high))
        shown = f"{result.verdict} {ratio:+.2f} % [{low:+.2f}, {high:+.2f}]"
        peers = (hyperfine(slow, fast), pyperf(slow, fast)) if time.monotonic() - begun < seconds else ("no time", "no time")
        print(f"{gain:8.0%} {shown:>44} {result.pairs:6d} {took:7.1f}   {peers[0]:28} {peers[1]}", flush=True)


def hyperfine(slow: int, fast: int) -> str:
    """Its ratio, and Welch's test of the times that it exports, which its own script makes."""
    program = shutil.which("hyperfine")
    if not program:
        return "not installed"
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        commands = [" ".join((*shell(rounds)[:2], f"'{shell(rounds)[2]}'")) for rounds in (slow, fast)]
        subprocess.run(
            (program, "-N", "--warmup", "3", "--runs", str(PEER_RUNS), "--export-json", file.name, *commands),
            check=True, capture_output=True,
        )  # fmt: skip
        results = json.load(file)["results"]
    a, b = (result["times"] for result in results)
    error = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
    t = (statistics.fmean(a) - statistics.fmean(b)) / error
    return f"{(statistics.fmean(a) / statistics.fmean(b) - 1) * 100:+.2f} %, t = {t:+.1f}"


def pyperf(slow: int, fast: int) -> str:
    """What its `compare_to` says."""
    try:
        import pyperf as installed  # noqa: PLC0415 - may be absent
    except ImportError:
        return "not installed"
    with tempfile.TemporaryDirectory() as folder:
        for name, rounds in (("slow", slow), ("fast", fast)):
            command = (*PYPERF_OPTIONS, "-o", f"{folder}/{name}.json", *shell(rounds))
            subprocess.run(
                (sys.executable, "-m", installed.__name__, "command", *command),
                check=True, capture_output=True,
            )  # fmt: skip
        said = subprocess.run(
            (sys.executable, "-m", installed.__name__, "compare_to", f"{folder}/slow.json", f"{folder}/fast.json"),
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    return " ".join(said.split())[:70]


def probe_cost(blocks: int) -> None:
    """What the probe adds to a step of a third of a millisecond, in CPU time: blocks of 20 steps with and without it, in one process."""
    python = os.environ.get("SYSPERF_TORCH_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        command = (python, "-c", TRAIN.replace("BLOCKS", str(blocks)))
        environment = {**os.environ, **probe.environment(folder, os.environ)}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    plain, added = json.loads(done.stdout)
    medians = sorted(statistics.median(random.choices(added, k=len(added))) for _ in range(1_000))  # noqa: S311 - no secret
    low, middle, high = (1e6 * value for value in (medians[25], statistics.median(added), medians[-26]))
    step_us = 1e6 * statistics.median(plain)
    print(f"the probe adds {middle:.2f} us [{low:.2f}, {high:.2f}] to a step: {middle / step_us:.2%} of one of {step_us:.0f} us, "
          f"{middle / 20_000:.4%} of one of 20 ms; {blocks} pairs of blocks")  # fmt: skip


def record(name: str, seconds: float) -> None:
    """Time the program again and again, and keep the series beside the others."""
    times: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(times) < MAX_RECORDED:
        times.append(round(run(shell(ROUNDS), os.environ, limit_s=60).wall_s * 1e6))
    kept = json.loads(NOISE.read_text()) if NOISE.exists() else {"what": "run times of a loop of the shell, in microseconds", "series": {}}
    kept["series"][name] = times
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in kept["series"].items())
    NOISE.write_text(f'{{"what": {json.dumps(kept["what"])}, "series": {{\n{lines}\n}}}}\n')
    print(described(name, times))


def described(name: str, times: list[int]) -> str:
    """What kind of noise a series is: its spread, how alike neighbours are, how it drifts, and whether it has two modes."""
    logs = [math.log(value) for value in times]
    middle, spread = statistics.fmean(logs), statistics.pstdev(logs)
    alike = statistics.fmean((a - middle) * (b - middle) for a, b in itertools.pairwise(logs)) / spread**2
    tenth = len(logs) // 10
    means = [statistics.fmean(logs[at : at + tenth]) for at in range(0, tenth * 10, tenth)]
    skew, kurtosis = (statistics.fmean(((value - middle) / spread) ** power for value in logs) for power in (3, 4))
    return (
        f"{name}: {len(times)} runs, median {statistics.median(times) / 1e3:.2f} ms, spread {spread:.1%}, autocorrelation {alike:.2f}, "
        f"tenths differ by {max(means) - min(means):.1%}, bimodality {(skew**2 + 1) / kurtosis:.2f} (above 0.56: two modes or a long tail)"
    )


def coverage(studies: int) -> None:
    """Whole studies on the recorded series, replayed from random places: called different from itself, and what intervals hold."""
    for name, times in json.loads(NOISE.read_text())["series"].items():
        print(described(name, times))
        series, rng = [math.log(value) for value in times], random.Random(name)  # noqa: S311 - places in a series, no secret
        for gain in (0.0, *GAINS):
            found = simulation.rates(functools.partial(simulation.replayed, series, rng), math.log1p(gain), studies, rng)
            shares = ", ".join(f"{verdict} {share:.1%}" for verdict, share in found.verdicts.items())
            print(
                f"  true gain {gain:+4.0%}: intervals hold it in {found.coverage:.1%}; {shares}; {found.mean_pairs:.0f} pairs", flush=True
            )


def neighbour() -> Iterator[None]:
    """Another program that takes a CPU in bursts of random length, until the end."""
    script = (
        "import random, time\nwhile True:\n    end = time.monotonic() + random.expovariate(4)\n"
        "    while time.monotonic() < end: pass\n    time.sleep(random.expovariate(4))"
    )
    with subprocess.Popen((sys.executable, "-c", script)) as other:
        yield
        other.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("same", "planted", "probe", "record", "coverage"))
    parser.add_argument("name", nargs="?", default="idle", help="of the series that is recorded")
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--blocks", type=int, default=5_000, help="pairs of blocks of steps, with and without the probe")
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--neighbour", action="store_true")
    args = parser.parse_args()
    random.seed(0)
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}{', a noisy neighbour' if args.neighbour else ''}", flush=True)
    beside = neighbour() if args.neighbour else iter(())
    next(beside, None)
    try:
        {
            "same": lambda: same(args.studies, args.seconds),
            "planted": lambda: planted(args.seconds),
            "probe": lambda: probe_cost(args.blocks),
            "record": lambda: record(args.name, args.seconds),
            "coverage": lambda: coverage(args.studies),
        }[args.what]()
    finally:
        next(beside, None)


if __name__ == "__main__":
    main()
