"""Names of steps and phases in traces: off, for torch.profiler, or as NVTX ranges for Nsight Systems."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import torch

from sysperf_trainer.errors import TrainerError

Ranges = Callable[[str], contextlib.AbstractContextManager[object]]


def ranges(kind: str) -> Ranges:
    """Return a maker of contexts: ``none``, ``profiler`` or ``nvtx``. Raises TrainerError."""
    if kind == "nvtx":
        return _nvtx if torch_has_nvtx() else _nvtx_of_its_package()
    return torch.profiler.record_function if kind == "profiler" else _none


def torch_has_nvtx() -> bool:
    """Whether this torch was built with NVTX, as all builds for CUDA are."""
    try:
        torch.cuda.nvtx.mark("sysperf_trainer")
    except RuntimeError:
        return False
    return True


def _none(_name: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@contextlib.contextmanager
def _nvtx(name: str) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


def _nvtx_of_its_package() -> Ranges:
    try:
        from nvtx import annotate  # noqa: PLC0415 - only where it is asked for and torch has none
    except ImportError:
        raise TrainerError(f"this torch has no NVTX: {sys.executable} -m pip install nvtx, or --ranges profiler") from None
    return annotate
