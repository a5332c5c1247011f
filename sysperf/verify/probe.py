"""Steps per second of an unmodified program: counted by a module that Python loads at its start, in this process tree only.

Nothing of the user's environment changes on disk. It works under torchrun, `python -m`, spawn and fork; not under `python -I`,
-E or -S, which ignore PYTHONPATH, and then no step is counted, which the result says.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from sysperf.injected import python_path
from sysperf.procfs.numbers import whole
from sysperf.verify.changepoint import steady_start

MAX_FILE_BYTES = 64 << 20
"""The times of 8 million steps."""
MAX_LOSS_BYTES = 100
MIN_STEPS = 5
WARMUP_RESERVE = 1.1
"""The warm-up that both variants leave out is the longer one's and a tenth."""

Counts = Literal["optimizer", "forward"]


class Steps(NamedTuple):
    """The steps of one process."""

    times: Sequence[float]
    """When each step ended, in seconds of the monotonic clock."""
    pid: int = 0

    def durations(self) -> list[float]:
        """Return the time from each step's end to the next one's."""
        return [after - before for before, after in itertools.pairwise(self.times)]

    def is_steady(self) -> bool:
        """Whether at least the last half of the steps has one mean."""
        return steady_start(self.durations()) is not None


def settings(base: Mapping[str, str], *, interop_threads: int = 0, loader_workers: int = 0, loader_prefetch: int = 0) -> dict[str, str]:
    """Return the variables that have a program's torch set these when it is imported; 0 leaves one as it is."""
    asked = {"INTEROP_THREADS": interop_threads, "LOADER_WORKERS": loader_workers, "LOADER_PREFETCH": loader_prefetch}
    wanted = {f"SYSPERF_SET_{name}": str(value) for name, value in asked.items() if value}
    return {"PYTHONPATH": python_path(base), **wanted} if wanted else {}


def environment(
    folder: str, base: Mapping[str, str], max_steps: int = 0, counts: Counts = "optimizer", *, run_s: float = 0.0
) -> dict[str, str]:
    """Return the variables that have a program count its steps into this folder, and end after so many, or after about so long."""
    return {
        "PYTHONPATH": python_path(base),
        "SYSPERF_PROBE_FOLDER": folder,
        "SYSPERF_PROBE_MAX_STEPS": str(max_steps),
        "SYSPERF_PROBE_COUNTS": counts,
        **({"SYSPERF_PROBE_RUN_S": f"{run_s:g}"} if run_s and not max_steps else {}),
    }


def read(folder: str, processes: int = 1) -> list[Steps]:
    """Return the steps that were counted in this folder, of so many processes, most steps first. Raises OSError."""
    entries = (entry for entry in os.scandir(folder) if entry.name.endswith(".steps") and entry.is_file(follow_symlinks=False))
    counted = [Steps(_times(entry.path), whole(entry.name.removesuffix(".steps")) or 0) for entry in entries]
    return sorted((steps for steps in counted if steps.times), key=lambda steps: len(steps.times), reverse=True)[:processes]


def agreed_steps(folder: str) -> int:
    """Return after how many steps all processes of a run of a given length ended; 0 where it ended by itself. Raises OSError."""
    try:
        with open(_open(f"{folder}/agreed"), "rb") as file:
            return whole(file.read(MAX_LOSS_BYTES)) or 0
    except FileNotFoundError:
        return 0


def read_loss(folder: str) -> float | None:
    """Return the mean of the last losses that the process with most backward passes saw; None where none saw any. Raises OSError."""
    seen: list[tuple[int, float]] = []
    for entry in os.scandir(folder):
        if entry.name.endswith(".loss") and entry.is_file(follow_symlinks=False):
            with open(_open(entry.path), "rb") as file, contextlib.suppress(ValueError):
                passes, loss = file.read(MAX_LOSS_BYTES).split()
                seen.append((int(passes), float(loss)))
    mean = max(seen)[1] if seen else math.nan
    return mean if math.isfinite(mean) else None


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
    """The times in one file, whose room at the end may have none yet."""
    with open(_open(path), "rb") as file:
        raw = file.read(MAX_FILE_BYTES)
    times = array("d")
    times.frombytes(raw[: len(raw) - len(raw) % times.itemsize])
    return array("d", filter(None, times))


def _open(path: str) -> int:
    """A file that the program wrote, which may have put a link or a pipe there since. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
