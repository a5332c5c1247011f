"""Steps per second of an unmodified program: counted by a module that Python loads at its start, in this process tree only.

Nothing of the user's environment changes on disk. It works under torchrun, `python -m`, spawn and fork; not under `python -I`,
-E or -S, which ignore PYTHONPATH, and then no step is counted, which is said.
"""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from sysperf.verify.changepoint import steady_start

INJECTED = f"{os.path.dirname(os.path.abspath(__file__))}/injected"
MAX_FILE_BYTES = 64 << 20
"""The times of 8 million steps."""
MIN_STEPS = 5
WARMUP_RESERVE = 1.1
"""The warm-up that both variants leave out is the longer one's and a tenth."""

Counts = Literal["optimizer", "forward"]


class Steps(NamedTuple):
    """The steps of the process that made most of them."""

    times: Sequence[float]
    """When each step ended, in seconds of the monotonic clock."""

    def durations(self) -> list[float]:
        """Return the time from each step's end to the next one's."""
        return [after - before for before, after in itertools.pairwise(self.times)]


def environment(folder: str, base: Mapping[str, str], max_steps: int = 0, counts: Counts = "optimizer") -> dict[str, str]:
    """Return the variables that have a program count its steps into this folder."""
    path = base.get("PYTHONPATH", "")
    return {
        "PYTHONPATH": f"{INJECTED}:{path}" if path else INJECTED,
        "SYSPERF_PROBE_FOLDER": folder,
        "SYSPERF_PROBE_MAX_STEPS": str(max_steps),
        "SYSPERF_PROBE_COUNTS": counts,
    }


def read(folder: str) -> Steps:
    """Return the steps that were counted in this folder; none when no process counted any. Raises OSError."""
    most: array[float] = array("d")
    for entry in os.scandir(folder):
        if entry.name.endswith(".steps") and entry.is_file(follow_symlinks=False):
            times = _times(entry.path)
            most = times if len(times) > len(most) else most
    return Steps(most)


def warm_up_steps(a: Steps, b: Steps) -> int:
    """Return how many steps both variants leave out: until the later one of both is steady, by change points."""
    starts = [steady_start(steps.durations()) for steps in (a, b)]
    longest = max(start or 0 for start in starts)
    shortest = min(len(steps.durations()) for steps in (a, b))
    return min(round(longest * WARMUP_RESERVE), max(0, shortest - MIN_STEPS))


def steps_per_s(steps: Steps, warm_up: int) -> float | None:
    """Return the rate after the warm-up; None where too few steps are left."""
    steady = steps.durations()[warm_up:]
    return len(steady) / sum(steady) if len(steady) >= MIN_STEPS - 1 and sum(steady) > 0 else None


def _times(path: str) -> array[float]:
    """The doubles of one file; a torn last one is left out."""
    with open(path, "rb") as file:
        raw = file.read(MAX_FILE_BYTES)
    times = array("d")
    times.frombytes(raw[: len(raw) - len(raw) % times.itemsize])
    return times
