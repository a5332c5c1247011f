"""A trace of a few steps by torch.profiler, as `sysperf analyze` and https://ui.perfetto.dev read it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import torch

from sysperf_trainer.errors import TrainerError
from sysperf_trainer.options import Options

WAIT_STEPS, WARM_UP_STEPS = 5, 2


@contextlib.contextmanager
def tracing(options: Options) -> Iterator[Callable[[], None]]:
    """Yield what is to be called after each step. Without `--trace` that does nothing."""
    if not options.trace:
        yield lambda: None
        return
    needed = WAIT_STEPS + WARM_UP_STEPS + options.trace_steps
    if options.max_steps < needed:
        raise TrainerError(f"a trace of {options.trace_steps} steps begins after {WAIT_STEPS + WARM_UP_STEPS}: give --max-steps {needed}")
    schedule = torch.profiler.schedule(wait=WAIT_STEPS, warmup=WARM_UP_STEPS, active=options.trace_steps, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda taken: _export(taken, options.trace)) as profile:
        yield profile.step


def _export(profile: torch.profiler.profile, path: str) -> None:
    """Write the trace under another name first, so that a file of this name is whole."""
    unfinished = f"{path}.unfinished.gz" if path.endswith(".gz") else f"{path}.unfinished"
    try:
        profile.export_chrome_trace(unfinished)
        os.replace(unfinished, path)
    except (OSError, RuntimeError) as error:
        raise TrainerError(f"the trace cannot be written to {path}: {error}") from None
