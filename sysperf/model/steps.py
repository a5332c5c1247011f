"""Steps that were counted in an unmodified program (`sysperf wrap --probe`)."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.model.record import Record, fact


class ProcessSteps(Record):
    """The steps of one process."""

    pid: Annotated[int, fact("its number while it ran")]
    steps: Annotated[int, fact("optimizer steps, or calls of its outermost model")]
    warm_up_steps: Annotated[int, fact("steps at the beginning, before the rate was steady")]
    steps_per_s: Annotated[float | None, fact("rate after the warm-up; null where too few steps are left")] = None
    instance: Annotated[int | None, fact("of --nproc; null without it")] = None


class CountedSteps(Record):
    """What a program did, most steps first."""

    counts: Annotated[Literal["optimizer", "forward"], fact("optimizer steps, or calls of the model")]
    exit_code: Annotated[int, fact("the program's; 128+n when signal n ended it")]
    processes: Annotated[tuple[ProcessSteps, ...], fact("those that made steps")] = ()
    loss: Annotated[float | None, fact("mean of the last losses that backward was called on; null where none was seen")] = None
