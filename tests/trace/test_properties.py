"""What must not change a figure: another clock, other names of streams, idle time behind the last step; and set arithmetic."""

from __future__ import annotations

import copy
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.model.record import plain
from sysperf.trace import account, read
from sysperf.trace.facts import Rank
from sysperf.trace.intervals import Interval, clip, intersect, length, subtract, union

from .synthetic import MS, Machine, steps

SPANS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)).map(lambda pair: (min(pair), max(pair))), max_size=12)


few = settings(max_examples=20)  # each example writes and reads a file


def moments(intervals: list[Interval]) -> set[int]:
    return {moment for start, end in intervals for moment in range(start, end)}


@given(SPANS, SPANS)
def test_sets_of_time_are_sets(left: list[Interval], right: list[Interval]) -> None:
    """Union, intersection and difference are those of the moments that they cover."""
    a, b = union(left), union(right)

    assert moments(a) == moments(left)
    assert length(a) == len(moments(left))
    assert moments(intersect(a, b)) == moments(a) & moments(b)
    assert moments(subtract(a, b)) == moments(a) - moments(b)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(a))


@given(SPANS, st.integers(0, 200), st.integers(0, 200))
def test_clipping_keeps_what_is_inside(spans: list[Interval], low: int, high: int) -> None:
    assert moments(clip(spans, (low, max(low, high)))) == moments(spans) & set(range(low, max(low, high)))


WORK = st.lists(
    st.tuples(st.sampled_from(["kernel", "think", "copy", "wait", "load", "nccl"]), st.integers(1, 3_000)), min_size=3, max_size=25
)


def program(work: list[tuple[str, int]], start: float = 1e9) -> Machine:
    """A program of these parts, in four steps."""

    def step(machine: Machine) -> None:
        machine.kernel(10)
        for kind, us in work:
            if kind == "kernel":
                machine.kernel(us)
            elif kind == "nccl":
                machine.kernel(us, "ncclDevKernel_AllReduce", stream=20)
            elif kind == "copy":
                machine.copy(us, "Memcpy HtoD (Pageable -> Device)", blocking=True)
            elif kind == "load":
                machine.load(us)
            elif kind == "wait":
                machine.synchronize()
            else:
                machine.think(us)

    return steps(Machine(start=start), 4, step)


def facts(trace: Any) -> Rank:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps(trace))
        return account(read(str(path)))


def figures(trace: Any) -> dict[str, Any]:
    values: dict[str, Any] = plain(facts(trace).figures)
    return values


def close(left: dict[str, Any], right: dict[str, Any]) -> None:
    for name, value in left.items():
        assert value == right[name] or value == pytest.approx(right[name], rel=1e-6, abs=1e-4), name


@few
@given(WORK)
def test_parts_add_up_and_gains_are_bounded(work: list[tuple[str, int]]) -> None:
    """Busy and the exposed shares are the whole window; no prediction is negative, or more than all."""
    rank = facts(program(work).trace())
    values = rank.figures
    if values.gpu_busy_pct_mean is not None:
        parts = (
            values.gpu_busy_pct_mean,
            values.dataloader_exposed_pct,
            values.sync_exposed_pct,
            values.copy_api_exposed_pct,
            values.host_exposed_pct,
        )
        assert sum(part or 0 for part in parts) == pytest.approx(100)
    assert all(0 <= prediction.low <= prediction.high <= 100 for prediction in rank.replay.predictions)


@few
@given(WORK, st.integers(-900_000_000, 900_000_000_000))
def test_another_clock_changes_nothing(work: list[tuple[str, int]], shift: int) -> None:
    """All times later or earlier by the same."""
    close(figures(program(work).trace()), figures(program(work, 1e9 + shift).trace()))


@few
@given(WORK)
def test_other_names_of_streams_and_threads_change_nothing(work: list[tuple[str, int]]) -> None:
    before = program(work).trace()
    after = copy.deepcopy(before)
    for event in after["traceEvents"]:
        if "stream" in event["args"]:
            event["args"]["stream"] = event["tid"] = event["tid"] * 31 + 5
        else:
            event["tid"] = 777
    close(figures(before), figures(after))


@few
@given(WORK, st.integers(1, 100))
def test_idle_time_after_the_last_step_changes_nothing(work: list[tuple[str, int]], pause: int) -> None:
    """A kernel long after the program is not in the window."""
    machine = program(work)
    before = figures(machine.trace())
    machine.think(pause * MS * 1_000)
    machine.kernel(100)
    close(before, figures(machine.trace()))


@few
@given(WORK)
def test_the_order_of_events_in_the_file_changes_nothing(work: list[tuple[str, int]]) -> None:
    """Kineto writes the host first, others by time."""
    before = program(work).trace()
    close(figures(before), figures({**before, "traceEvents": list(reversed(before["traceEvents"]))}))


@few
@given(WORK)
def test_each_rank_of_a_job_has_the_figures_that_it_has_alone(work: list[tuple[str, int]]) -> None:
    """Beside a second device in the same file, means are of both and the devices keep theirs."""
    first, second = program(work), program(work)
    for event in second.events:
        if "device" in event["args"]:
            event["args"]["device"] = event["pid"] = 1
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1_000_000
        event["tid"] += 500
    both = {**first.trace(), "traceEvents": [*first.events, *(event for event in second.events if event["cat"] != "user_annotation")]}
    alone, joint = facts(first.trace()), facts(both)

    for device in joint.devices if alone.devices else ():
        assert device.busy_pct == pytest.approx(alone.devices[0].busy_pct, rel=1e-6)
