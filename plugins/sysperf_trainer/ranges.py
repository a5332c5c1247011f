"""Names of steps and phases in traces: off, for torch.profiler, or as NVTX ranges for Nsight Systems."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

Ranges = Callable[[str], contextlib.AbstractContextManager[Any]]


def ranges(kind: str) -> Ranges:
    """Return a maker of contexts: ``none``, ``profiler`` or ``nvtx``."""
    return {"none": _none, "profiler": torch.profiler.record_function, "nvtx": _nvtx}[kind]


def _none(_name: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@contextlib.contextmanager
def _nvtx(name: str) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()
