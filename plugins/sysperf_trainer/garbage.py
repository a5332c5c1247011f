"""Runs of Python's garbage collector: whenever it thinks so, or between steps, once in a while."""

from __future__ import annotations

import gc

from sysperf_trainer.chosen import Chosen

EVERY_STEPS = 100


def begin(chosen: Chosen) -> None:
    """Take what exists before the first step out of every later collection, and let none happen by itself."""
    if "gc-control" in chosen:
        gc.collect()
        gc.freeze()
        gc.disable()


def collect(step: int) -> None:
    """Collect after every hundredth step where nothing else does: cycles with tensors in them hold memory."""
    if not gc.isenabled() and step % EVERY_STEPS == 0:
        gc.collect()
