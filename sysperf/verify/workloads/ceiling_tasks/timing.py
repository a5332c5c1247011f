"""How a task is bound and timed, and what later ones use again."""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

Arguments = dict[str, Any]  # any: what a request says, as JSON
Rate = tuple[float, str]
"""Units a second, and a remark."""
MIN_ROUNDS = 3
LIBC = ctypes.CDLL(None, use_errno=True)
KEPT: dict[str, Any] = {}  # any: of each task its own
"""What later requests use again: sizes that were found, files and pictures."""


def of_list(text: str) -> set[int]:
    """Return the CPUs of ``0-3,8``."""
    bounds = (part.partition("-") for part in text.split(","))
    return {cpu for first, _, last in bounds for cpu in range(int(first), int(last or first) + 1)}


def bind(cpus: set[int]) -> None:
    """Bind every thread of this process, those that torch has started already too."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


def rounds(act: Callable[[], object], seconds: float) -> float:
    """Return the median seconds that an action takes, repeated for so long."""
    act()
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < MIN_ROUNDS:
        start = time.perf_counter()
        act()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def synchronize(device: str) -> Callable[[], object]:
    """Return what waits for a device; nothing for a CPU."""
    import torch

    return (lambda: torch.cuda.synchronize(device)) if device.startswith("cuda") else (lambda: None)
