"""How honest `sysperf verify` is on this machine, beside hyperfine and pyperf.

  python benchmarks/verify.py same [--seconds 150] [--neighbour]     programs against themselves: how often are they called different?
  python benchmarks/verify.py planted [--seconds 150] [--neighbour]  1, 2, 5 and 20 % more work: found, and after how many pairs
  python benchmarks/verify.py probe                                  what counting steps costs (SYSPERF_TORCH_PYTHON)
  python benchmarks/verify.py record NAME [--neighbour]              run times of this machine, into benchmarks/noise.json
  python benchmarks/verify.py coverage [--studies 400]               error rates and coverage of intervals, on what was recorded

The programs are loops of the shell and of Python, 10 and 40 ms long: short runs are the hard case. `--seconds` bounds each command.
Beside it stands what the test of hyperfine's and pyperf's comparisons says of the same runs (Welch's test, at 5 %), and what both say of
runs of their own: 40 of each, one command after the other, as both do it. hyperfine: `apt-get install hyperfine`; pyperf: `pip install
pyperf` beside sysperf. Where one is not installed, the table says so.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import importlib.util
import itertools
import json
import math
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from companion import companion

from sysperf.engine.verify import Plan, verify
from sysperf.model.comparison import Comparison, Variant
from sysperf.verify import probe, stats
from sysperf.verify.run import run
from tests.verify import simulation

ROUNDS = 6_000
PLANTED_ROUNDS = 40_000
"""Of a program whose start is a small part of its time."""
GAINS = (0.01, 0.02, 0.05, 0.20)
PEER_RUNS = 40
LEVEL = 0.05
NOISE = Path(__file__).parent / "noise.json"
MAX_RECORDED = 2_000
PYPERF_OPTIONS = ("-p", "4", "-n", "10", "-w", "1", "-l", "1", "-q")
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


def python(rounds: int) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", f"for i in range({100 * rounds}): pass")


PROGRAMS = {"shell": shell, "python": python}


def study(a: Sequence[str], b: Sequence[str], seed: int) -> Comparison:
    return verify(Plan(a=Variant("a", tuple(a)), b=Variant("b", tuple(b)), seed=seed, keep_disturbed=True))


def same(studies: int, seconds: float) -> None:
    """Verdicts of programs against themselves: of made-up noise, and of two real ones in turn."""
    for spread in (0.005, 0.01, 0.03):
        rng = random.Random(f"same {spread}")  # noqa: S311 - noise, no secret
        rates = simulation.rates(lambda: simulation.made_up(rng, spread), 0.0, studies, rng)  # noqa: B023 - called before the next round
        print(f"simulated, noise {spread:.1%}: {studies} studies: called different {rates.different:.1%}; intervals that hold 0: "
              f"{rates.coverage:.1%}; {rates.mean_pairs:.0f} pairs on average", flush=True)  # fmt: skip
    results: dict[str, list[Comparison]] = {name: [] for name in PROGRAMS}
    end = time.monotonic() + seconds
    for seed in range(studies):
        for name, program in PROGRAMS.items():
            if time.monotonic() < end:
                results[name].append(study(program(ROUNDS), program(ROUNDS), seed))
    for name, done in results.items():
        if done:
            print(f"{name}: {verdicts(done)}")


def verdicts(done: Sequence[Comparison]) -> str:
    """What came of comparing a program with itself."""
    count, found = len(done), collections.Counter(result.verdict for result in done)
    holding = sum((result.low or 0) <= 1 <= (result.high or math.inf) for result in done)
    welch = sum(welch_p(result) < LEVEL for result in done)
    different, pairs = (found["faster"] + found["slower"]) / count, statistics.fmean(result.pairs for result in done)
    return (
        f"{count} studies: {dict(found)}; called different {different:.1%}, by Welch's test of the same runs {welch / count:.1%}; "
        f"intervals that hold 1: {holding / count:.1%}; {pairs:.0f} pairs on average"
    )


def times_of(result: Comparison) -> tuple[list[float], list[float]]:
    """The wall times of both variants, without the first pair."""
    a, b = ([run.wall_s for run in result.runs if run.pair and run.arm == arm] for arm in ("a", "b"))
    return a, b


def welch_p(result: Comparison) -> float:
    """The p-value of Welch's test of all runs, as if they had been asked for at once."""
    (a, b), errors = times_of(result), [statistics.variance(times) / len(times) for times in times_of(result)]
    if min(map(len, (a, b))) < 2 or not sum(errors):
        return 1.0
    freedom = sum(errors) ** 2 / sum(error**2 / (len(times) - 1) for error, times in zip(errors, (a, b), strict=True))
    return 2 * (1 - stats.t_cdf(abs(statistics.fmean(a) - statistics.fmean(b)) / math.sqrt(sum(errors)), int(freedom)))


def planted(seconds: float) -> None:
    """Gains of known size, again and again until the time is over; what the peers say of the same two commands."""
    begun = time.monotonic()
    start_share = share_of_start()
    print(f"{start_share:.1%} of a run is its start, which no work makes longer")
    for gain in GAINS:
        own = f"hyperfine {hyperfine(*both(gain))}; pyperf {pyperf(*both(gain))}" if time.monotonic() - begun < seconds / 2 else "no time"
        print(f"{gain:4.0%} work, peers' 40 runs of their own: {own}", flush=True)
    results: dict[float, list[Comparison]] = {gain: [] for gain in GAINS}
    seed = 0
    while time.monotonic() - begun < seconds or not seed:
        for gain in GAINS:
            results[gain].append(study(*both(gain), seed))
        seed += 1
    for gain, done in results.items():
        print_planted(gain, gain * (1 - start_share), done)
        print(f"           pyperf on the runs of the first study: {pyperf_says(*times_of(done[0]))}", flush=True)


def both(gain: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return shell(round(PLANTED_ROUNDS * (1 + gain))), shell(PLANTED_ROUNDS)


def print_planted(work: float, truth: float, done: Sequence[Comparison]) -> None:
    found = [result for result in done if result.verdict == "faster"]
    holding = sum((result.low or 0) <= 1 + truth <= (result.high or math.inf) for result in done)
    kept = statistics.median(100 * ((result.ratio or 1) - 1) for result in done)
    welch = sum(welch_p(result) < LEVEL for result in done)
    pairs = statistics.median(result.pairs + result.fresh_pairs for result in done)
    kinds = dict(collections.Counter(result.verdict for result in done))
    print(f"{work:4.0%} work: about {truth:.1%} faster; found in {len(found)} of {len(done)} ({kinds}), median {kept:+.2f} %")
    print(f"           interval holds it in {holding}; {pairs:.0f} pairs; Welch's test of the same runs: {welch} of {len(done)}")


def share_of_start() -> float:
    """The share of a run that no work makes longer."""
    walls: dict[int, list[float]] = {0: [], PLANTED_ROUNDS: []}
    for _ in range(30):
        for rounds in random.sample(list(walls), 2):
            walls[rounds].append(run(shell(rounds), os.environ, limit_s=60).wall_s)
    return statistics.median(walls[0]) / statistics.median(walls[PLANTED_ROUNDS])


def hyperfine(slow: Sequence[str], fast: Sequence[str]) -> str:
    """Its ratio, and Welch's test of the times that it exports, which its own script makes."""
    program = shutil.which("hyperfine")
    if not program:
        return "not installed"
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        options = ("-N", "--warmup", "3", "--runs", str(PEER_RUNS), "--export-json", file.name)
        subprocess.run((program, *options, shlex.join(slow), shlex.join(fast)), check=True, capture_output=True)
        results = json.load(file)["results"]
    a, b = (result["times"] for result in results)
    error = math.sqrt(statistics.variance(a) / len(a) + statistics.variance(b) / len(b))
    t = (statistics.fmean(a) - statistics.fmean(b)) / error
    return f"{(statistics.fmean(a) / statistics.fmean(b) - 1) * 100:+.2f} %, t = {t:+.1f}"


def pyperf(slow: Sequence[str], fast: Sequence[str]) -> str:
    """What its `compare_to` says of its own runs."""
    if importlib.util.find_spec("pyperf") is None:
        return "not installed"
    with tempfile.TemporaryDirectory() as folder:
        for name, command in (("slow", slow), ("fast", fast)):
            options = (*PYPERF_OPTIONS, "-o", f"{folder}/{name}.json")
            subprocess.run((sys.executable, "-m", "pyperf", "command", *options, *command), check=True, capture_output=True)
        return pyperf_compared(folder)


def pyperf_says(slow: Sequence[float], fast: Sequence[float]) -> str:
    """What its `compare_to` says of these times."""
    try:
        import pyperf as installed  # noqa: PLC0415 - may be absent
    except ImportError:
        return "not installed"
    with tempfile.TemporaryDirectory() as folder:
        for name, times in (("slow", slow), ("fast", fast)):
            runs = [installed.Run([value], metadata={"name": "shell"}, collect_metadata=False) for value in times]
            installed.Benchmark(runs).dump(f"{folder}/{name}.json")
        return pyperf_compared(folder)


def pyperf_compared(folder: str) -> str:
    command = (sys.executable, "-m", "pyperf", "compare_to", f"{folder}/slow.json", f"{folder}/fast.json")
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return " ".join(said.split())[:110]


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


BURSTS = """
import random, time
while True:
    end = time.monotonic() + random.expovariate(4)
    while time.monotonic() < end: pass
    time.sleep(random.expovariate(4))
"""
"""A neighbour: it takes a CPU in bursts of random length."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("same", "planted", "probe", "record", "coverage"))
    parser.add_argument("name", nargs="?", default="idle", help="of the series that is recorded")
    parser.add_argument("--studies", type=int, default=200, help="at most so many of each program, and so many simulated ones")
    parser.add_argument("--blocks", type=int, default=5_000, help="pairs of blocks of steps, with and without the probe")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--neighbour", action="store_true")
    args = parser.parse_args()
    random.seed(0)
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.2f}{', a noisy neighbour' if args.neighbour else ''}", flush=True)
    with companion(BURSTS) if args.neighbour else contextlib.nullcontext():
        {
            "same": lambda: same(args.studies, args.seconds),
            "planted": lambda: planted(args.seconds),
            "probe": lambda: probe_cost(args.blocks),
            "record": lambda: record(args.name, args.seconds),
            "coverage": lambda: coverage(args.studies),
        }[args.what]()


if __name__ == "__main__":
    main()
