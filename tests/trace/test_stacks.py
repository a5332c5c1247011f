"""What call stacks name: functions and their lines, and waiting for another thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.trace.analysis import Finding

from .labelled import rules
from .synthetic import MS, Machine, steps, written

LOCK = "<built-in method acquire of _thread.lock object at 0x7f7cffdd{}>"


def pausing(folder: Path, pauses: list[str], *, caller: str = "server.py(18): serve") -> Result:
    """Six steps on the CPU of 40 operators and, after them, 4 ms in each of these functions, called by one that was open at the beginning."""
    machine = Machine()
    begin = machine.now
    machine.event("python_function", "torch/autograd/profiler.py(414): _start_trace", begin, 100)
    machine.think(200)
    number = 0

    def step(machine: Machine) -> None:
        nonlocal number
        for _ in range(40):
            machine.event("cpu_op", "aten::addmm", machine.now, 100)
            machine.think(105)
        for pause in pauses:
            number += 1
            machine.event("python_function", pause.format(f"{number:04x}"), machine.now, 4 * MS)
            machine.think(4 * MS)

    steps(machine, 6, step)
    machine.event("python_function", caller, begin - 5, machine.now - begin + 10)
    return analyze([written(folder, {"traceEvents": machine.events})], rules())


def pause_of(result: Result) -> Finding:
    (finding,) = [finding for finding in result.analysis.findings if finding.id == "trace.cpu-hole"]
    return finding


def test_a_function_that_was_open_when_the_recording_began_has_no_line(tmp_path: Path) -> None:
    """PyTorch writes the line that began the recording, as `profiler.step()`, for it; of one called later, the line of its `def`."""
    assert pause_of(pausing(tmp_path, ["<built-in function sleep>"])).where == ("server.py (serve)",)
    assert pause_of(pausing(tmp_path, ["server.py(7): save"])).where == ("server.py:7 (save)",)


def test_places_that_differ_by_an_address_alone_are_one(tmp_path: Path) -> None:
    """A lock is a new object in each step of a queue."""
    result = pausing(tmp_path, [LOCK])

    assert result.analysis.trace.ranks[0].hole.cause == "<built-in method acquire of _thread.lock>"
    assert len(pause_of(result).where) == 1


def test_a_collection_of_garbage_is_no_other_pause(tmp_path: Path) -> None:
    """`gc.collect()` in each step has a rule and a gain of its own, and its time is no part of the pause beside it."""
    result = pausing(tmp_path, ["<built-in function collect>", "<built-in function sleep>"], caller="train.py(18): train")
    costs = {finding.id: finding.exposed_pct for finding in result.analysis.findings}
    collections = next(finding for finding in result.analysis.findings if finding.id == "trace.gc-pauses")

    assert result.analysis.trace.verdict == "host-bound"
    assert costs == {"trace.gc-pauses": pytest.approx(32.8, abs=0.5), "trace.cpu-hole": pytest.approx(32.8, abs=0.5)}
    assert collections.predicted_gain is not None
    assert collections.predicted_gain.high == pytest.approx(32.8, abs=0.5)
    assert collections.where == ("train.py (train)",)


def test_a_place_counts_how_often_the_program_was_there(tmp_path: Path) -> None:
    """And not at how many moments it was looked for."""
    (site,) = pausing(tmp_path, ["<built-in function sleep>"]).analysis.trace.ranks[0].hole_sites

    assert site.count == 5


@pytest.mark.parametrize(("pauses", "least"), [([LOCK], 0), ([LOCK, "<built-in function sleep>"], 33), (["<built-in function sleep>"], 48)])
def test_waiting_for_another_thread_is_no_gain_that_is_promised(tmp_path: Path, pauses: list[str], least: float) -> None:
    """What the other thread did, and whether it could be done sooner, is not in the file."""
    gain = pause_of(pausing(tmp_path, pauses)).predicted_gain

    assert gain is not None
    assert gain.low == pytest.approx(least, abs=2)
    assert gain.high == pytest.approx(65 if len(pauses) == 2 else 48, abs=2)
