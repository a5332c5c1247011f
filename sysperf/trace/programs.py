"""Of several programs in one Chrome trace, the one that is analyzed: steps of two programs are no sequence of steps.

Kineto writes a file for each process; people put those of several ranks into one.
"""

from __future__ import annotations

from collections import Counter

from sysperf.trace.part import named
from sysperf.trace.timeline import PYTHON, Timeline
from sysperf.trace.window import STEP_MARKS


def keep_one(timeline: Timeline) -> None:
    """Keep the program that has most steps, and say how many others there were. A process is a program if it marks steps."""
    steps = _steps(timeline)
    if len(steps) < 2:
        return
    chosen = _most(steps)
    others = {number for number, (process, _) in enumerate(timeline.threads) if process in steps and process != chosen}
    timeline.other_programs = len(steps) - 1
    ranges, calls, operations = timeline.ranges, timeline.calls, timeline.operations
    ranges.keep([index for index, thread in enumerate(ranges.thread) if thread not in others])
    launched = {number for number, thread in zip(calls.correlation, calls.thread, strict=True) if thread not in others}
    elsewhere = {number for number, thread in zip(calls.correlation, calls.thread, strict=True) if thread in others} - launched - {-1}
    calls.keep([index for index, thread in enumerate(calls.thread) if thread not in others])
    operations.keep([index for index, number in enumerate(operations.correlation) if number not in elsewhere])


def choose_one(timeline: Timeline) -> None:
    """Count the steps of the program that has most, where processes that share a job are in one file. Nothing is left out."""
    steps = _steps(timeline)
    if len(steps) > 1:
        timeline.program = _most(steps)


def _most(steps: Counter[int]) -> int:
    return max(steps, key=lambda process: (steps[process], -process))


def _steps(timeline: Timeline) -> Counter[int]:
    """How many steps each process marks, by the first kind of mark that any of them has."""
    rows = timeline.ranges
    for mark in STEP_MARKS:
        if names := named(timeline, mark):
            chosen = (i for i, name in enumerate(rows.name) if name in names and rows.kind[i] != PYTHON)
            if numbers := Counter(timeline.threads[rows.thread[i]][0] for i in chosen):
                return numbers
    return Counter()
