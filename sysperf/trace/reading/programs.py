"""The one of several programs in a Chrome trace that is analyzed: steps of two programs are no sequence of steps.

Kineto writes a file for each process; people put those of several ranks into one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from sysperf.trace.accounting.window import STEP_MARKS
from sysperf.trace.reading.part import named
from sysperf.trace.timeline import PYTHON, Timeline

NOBODY, MIXED = -1, -2
"""Instead of a process: no call launched an operation; calls of several programs can have."""
MIN_OWNED = 0.99
"""Clocks of host and device differ by moments, and a few operations may seem to begin before their launch."""
CLOCK_NS = 1_000


def keep_one(timeline: Timeline) -> None:
    """Keep the program that has most steps, and say how many others there were.

    A process is a program if it marks steps, or launches work as the one with most steps does.
    """
    steps = _steps(timeline)
    if not steps or len({process for process, _ in timeline.threads}) < 2:
        return
    chosen, launching = _most(steps), _launching(timeline)
    programs = steps.keys() | (launching if chosen in launching else set())
    if len(programs) < 2:
        return
    program_of = [process if process in programs else chosen for process, _ in timeline.threads]
    timeline.other_programs = len(programs) - 1
    owners = _owners(timeline, program_of)
    timeline.mixed = MIXED in owners
    ranges, calls = timeline.ranges, timeline.calls
    ranges.keep([index for index, thread in enumerate(ranges.thread) if program_of[thread] == chosen])
    calls.keep([index for index, thread in enumerate(calls.thread) if program_of[thread] == chosen])
    timeline.operations.keep([index for index, owner in enumerate(owners) if owner in (chosen, NOBODY, MIXED)])


def _launching(timeline: Timeline) -> set[int]:
    """The processes whose calls launched operations."""
    calls, wanted = timeline.calls, set(timeline.operations.correlation) - {-1}
    threads = {thread for thread, number in zip(calls.thread, calls.correlation, strict=True) if number in wanted}
    return {timeline.threads[thread][0] for thread in threads}


def _owners(timeline: Timeline, program_of: Sequence[int]) -> list[int]:
    """The program of each operation: the one that launched it, by its number and before it began. `NOBODY`: no call has its number.

    Programs that start counting anew have the same numbers. A device is the program's that can have launched all of its operations,
    if there is one such program. A number is that of one call, so what it launched on one device it launched on no other.
    """
    launched = _launches(timeline, program_of)
    rows, owners = timeline.operations, [NOBODY] * len(timeline.operations)
    left = defaultdict[int, list[int]](list)
    for index, (device, number) in enumerate(zip(rows.device, rows.correlation, strict=True)):
        left[device].append(index) if number in launched else None
    while left:
        chosen = {device: owner for device, indices in left.items() if (owner := _owner(timeline, indices, launched)) is not None}
        for device, owner in chosen.items():
            for index in left.pop(device):
                owners[index] = owner
                launched[rows.correlation[index]].pop(owner, None)
        if not chosen:
            break
    for indices in left.values():
        for index, owner in zip(indices, _each(timeline, indices, launched), strict=True):
            owners[index] = owner
    whole = {device: {owners[i] for i in range(len(owners)) if rows.device[i] == device} - {NOBODY} for device in set(rows.device)}
    alone = {device: found.pop() for device, found in whole.items() if len(found) == 1}
    return [alone.get(device, owner) if owner == NOBODY else owner for device, owner in zip(rows.device, owners, strict=True)]


def _launches(timeline: Timeline, program_of: Sequence[int]) -> dict[int, dict[int, int]]:
    """Return when each program's call of a number began, by number and program, of the numbers that operations have."""
    calls, wanted = timeline.calls, set(timeline.operations.correlation) - {-1}
    launched = dict[int, dict[int, int]]()
    for number, start, thread in zip(calls.correlation, calls.start, calls.thread, strict=True):
        if number in wanted:
            starts = launched.setdefault(number, {})
            program = program_of[thread]
            starts[program] = min(start, starts.get(program, start))
    return launched


def _owner(timeline: Timeline, indices: list[int], launched: Mapping[int, Mapping[int, int]]) -> int | None:
    """The one program that can have launched these operations of a device; None where several can, or none can have launched all."""
    rows = timeline.operations
    single = [rows.correlation[index] for index in indices if not rows.graph[index] and len(launched[rows.correlation[index]]) > 1]
    if len(single) - len(set(single)) > (1 - MIN_OWNED) * len(indices):
        return None  # a call launches one operation, but for graphs: there are several programs on this device
    able = Counter(program for index in indices for program in _able(timeline, index, launched))
    owners = [program for program, count in able.items() if count >= MIN_OWNED * len(indices)]
    return owners[0] if len(owners) == 1 else None


def _able(timeline: Timeline, index: int, launched: Mapping[int, Mapping[int, int]]) -> list[int]:
    """The programs that called this operation's number before it began."""
    rows = timeline.operations
    return [program for program, at in launched[rows.correlation[index]].items() if at <= rows.start[index] + CLOCK_NS]


def _each(timeline: Timeline, indices: list[int], launched: Mapping[int, Mapping[int, int]]) -> list[int]:
    """The program of each of these operations, where programs share a device; all are `MIXED` where too many can be those of several."""
    able = [_able(timeline, index, launched) for index in indices]
    if sum(len(programs) > 1 for programs in able) > (1 - MIN_OWNED) * len(indices):
        return [MIXED] * len(indices)
    return [programs[0] if programs else NOBODY for programs in able]


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
