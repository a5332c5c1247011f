"""What a day of the agent's history costs: bytes on disk, CPU, and how long questions take (promise: 24 h of 40 series in 40 MB).

    python benchmarks/history.py [--hours 24] [--series 40] [--programs 0]

A made-up day, one sample a second and a flush every ten, as fast as the store takes it; flushes and pruning are part of
its CPU. `--programs N` adds N programs of 10 series each, of which one ends and another begins every minute. Asserts
nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time

from sysperf.agent.store import Store

START = 1_800_000_000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--series", type=int, default=40)
    parser.add_argument("--programs", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"{folder}/history.db")
        seconds = int(asked.hours * 3600)
        cpu_s = fill(store, seconds, asked.series, asked.programs)
        assert not store.problem, store.problem
        print(f"{asked.hours:g} h of {asked.series} series and {asked.programs} programs, {len(store.series())} names")
        print(f"on disk: {size(folder) / 1e6:.1f} MB, of which in use {store.size_bytes() / 1e6:.1f} MB")
        print(f"CPU: {cpu_s / seconds * 1e6:.0f} µs a second of history ({cpu_s / seconds * 100:.4f} % of a CPU)")
        for label, span in (("last 10 min", 600), ("last 2 h", 7_200), ("all", seconds)):
            print(f"history of one series, {label}: {ask(store, START + seconds, span):.1f} ms")
        store.close()


def fill(store: Store, seconds: int, series: int, programs: int) -> float:
    """CPU seconds that the store used; making up the samples is not counted."""
    dice = random.Random(7)  # noqa: S311 - not a secret
    values = [{f"series.number_{number}": dice.random() * 1e9 for number in range(series)} for _ in range(60)]
    used = 0.0
    for second in range(seconds):
        sample = values[second % 60]
        if programs:
            born = second // 60
            sample = {
                **sample,
                **{f"process.{pid}.meter_{number}": dice.random() for pid in range(born, born + programs) for number in range(10)},
            }
        start = time.process_time()
        store.append(START + second, sample)
        if second % 10 == 9:
            store.flush()
        used += time.process_time() - start
    return used


def size(folder: str) -> int:
    """Bytes that the disk gives to the file and its journals."""
    return sum(os.stat(entry.path).st_blocks * 512 for entry in os.scandir(folder))


def ask(store: Store, until: float, span: float) -> float:
    """Milliseconds of the fastest of five."""
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        assert store.history("series.number_0", until - span, until)
        taken.append(time.perf_counter() - start)
    return min(taken) * 1e3


if __name__ == "__main__":
    main()
