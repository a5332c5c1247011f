"""Stages of a pipeline: what one rank sends to another is no collective of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sysperf.engine.analyze import analyze

from .labelled import rules
from .synthetic import MS, Machine, steps, written

BATCHES = 4
SENDS = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"

RCCL = "ncclDevKernel_Generic_2(ncclDevKernelArgsStorage<4096ul>)"
"""What RCCL calls all that it does."""


def stage(number: int, *, told: str, stages: int) -> Machine:
    """A stage that goes forward with each of four parts of a batch, and then backward: it waits while the pipeline fills and empties."""
    sequence = 0

    def exchange(machine: Machine, kind: str, us: float) -> None:
        nonlocal sequence
        more: dict[str, Any] = (
            {"Collective name": kind, "Process Group Name": "3", "Seq": sequence, "Group size": stages} if told == "description" else {}
        )
        start = machine.now
        machine.kernel(us, RCCL if told == "operator of RCCL" else SENDS, **more)
        machine.range("aten::copy_" if told == "times" else f"c10d::{kind}", start, "cpu_op")
        sequence += 1

    def step(machine: Machine) -> None:
        for is_back in (False, True):
            before = stages - 1 - number if is_back else number
            for part in range(BATCHES):
                if before:
                    exchange(machine, "recv", before * (2 if is_back else 1) * MS if part == 0 else 30)
                machine.kernel(2 * MS if is_back else MS)
                if before < stages - 1:
                    exchange(machine, "send", 30)
        machine.kernel(number * 2 * MS + 200, "multi_tensor_apply_kernel")
        machine.synchronize()

    return steps(Machine(), 6, step)


@pytest.mark.parametrize(
    ("told", "stages"), [("description", 2), ("description", 4), ("operator", 2), ("operator", 4), ("operator of RCCL", 2), ("times", 4)]
)
def test_no_stage_is_late_at_what_two_exchange(tmp_path: Path, told: str, stages: int) -> None:
    """The first and the last stage exchange half as often as those between them; of two, the first waits for what it gets back."""
    files = [
        written(
            tmp_path,
            stage(number, told=told, stages=stages).trace(distributedInfo={"rank": number, "world_size": stages}),
            f"rank{number}.json",
        )
        for number in range(stages)
    ]
    result = analyze(files, rules())

    verdicts = {rank.verdict for rank in result.analysis.trace.ranks}

    assert told != "description" or "comm-bound" not in verdicts
    assert (result.analysis.trace.skew.late, result.analysis.trace.skew.matched) == ((), 0)
    assert not [finding for finding in result.analysis.findings if finding.rule.startswith("ddp.unequal")]


@pytest.mark.parametrize(
    ("computing_ms", "late", "verdict", "says"),
    [
        ((4, 10, 4), (1,), "compute-bound", "the others wait 5"),
        ((6, 6, 6), (), "pipeline-bound", "each stage of a pipeline waits 3"),
        ((4, 10, 10), (), "compute-bound", "the device is busy"),
        ((4, 10, 10, 4), (1, 2), "compute-bound", "the others wait 5"),
    ],
    ids=["one is late", "even", "most are late", "two are late"],
)
@pytest.mark.parametrize("kernel", [SENDS, RCCL])
def test_the_stages_that_hardly_wait_are_late(
    tmp_path: Path, computing_ms: tuple[int, ...], late: tuple[int, ...], verdict: str, says: str, kernel: str
) -> None:
    """Stages of a step of 10 ms, by how long each computes: it waits for the rest in what it receives."""
    files = []
    for number, each in enumerate(computing_ms):

        def step(machine: Machine, each: int = each) -> None:
            begin = machine.now
            machine.kernel((10 - each) * MS + 60, kernel)
            machine.range("c10d::recv_", begin, "cpu_op")
            for _ in range(10):
                machine.kernel(each * MS / 10)
            begin = machine.now
            machine.kernel(60, kernel)
            machine.range("c10d::send", begin, "cpu_op")
            machine.synchronize()

        trace = steps(Machine(), 6, step).trace(distributedInfo={"rank": number, "world_size": 3})
        files.append(written(tmp_path, trace, f"rank{number}.json"))
    analysis = analyze(files, rules()).analysis
    told, found = analysis.trace, {finding.rule for finding in analysis.findings}

    assert (told.verdict, told.skew.late) == (verdict, late)
    assert says in told.why
    assert "ddp.communication" not in found
    assert ("ddp.pipeline-uneven" in found, "ddp.pipeline-waits" in found) == (bool(late), verdict == "pipeline-bound")


def test_what_two_exchange_is_no_part_of_the_time_that_ranks_wait_in(tmp_path: Path) -> None:
    """A collective of all behind twelve exchanges: the last stage waits in it 6 of 20 ms for the first one."""
    files = []
    for number in range(2):

        def step(machine: Machine, number: int = number) -> None:
            for _ in range(12):
                begin = machine.now
                machine.kernel(100, SENDS)
                machine.range("c10d::send" if number else "c10d::recv_", begin, "cpu_op")
                machine.kernel(MS)
            machine.kernel(6 * MS if number == 0 else 10)
            machine.kernel(200 if number == 0 else 6.2 * MS, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
            machine.synchronize()

        trace = steps(Machine(), 8, step).trace(distributedInfo={"rank": number, "world_size": 2})
        files.append(written(tmp_path, trace, f"rank{number}.json"))
    skew = analyze(files, rules()).analysis.trace.skew

    assert skew.late == (0,)
    assert skew.lost_pct == pytest.approx(100 * 6 / 19.4, abs=2)


@pytest.mark.parametrize(
    ("computing_ms", "late", "verdict"),
    [((4, 10, 4), (1,), "compute-bound"), ((6, 6, 6), (), "pipeline-bound")],
    ids=["one is late", "even"],
)
def test_stages_on_the_cpu_are_told_by_what_gloo_sends(
    tmp_path: Path, computing_ms: tuple[int, ...], late: tuple[int, ...], verdict: str
) -> None:
    """Each waits for the rest of a step of 10 ms in what it receives."""
    files = []
    for number, each in enumerate(computing_ms):

        def step(machine: Machine, each: int = each) -> None:
            begin = machine.now
            machine.think((10 - each) * MS + 60)
            machine.range("gloo:recv", begin)
            for _ in range(10):
                begin = machine.now
                machine.think(each * MS / 10)
                machine.range("aten::mm", begin, "cpu_op")
            begin = machine.now
            machine.think(60)
            machine.range("gloo:send", begin)

        trace = steps(Machine(), 6, step).trace(deviceProperties=[], distributedInfo={"rank": number, "world_size": 3})
        files.append(written(tmp_path, trace, f"rank{number}.json"))
    told = analyze(files, rules()).analysis.trace

    assert (told.verdict, told.skew.late) == (verdict, late)
