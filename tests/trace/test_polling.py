"""A host that asks again and again whether the device is done waits for it, and works not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.report.profiling import analysis as text

from .labelled import rules
from .synthetic import MS, Machine, steps, written

PLAIN = "volta_sgemm_128x64_nn"


def analyzed(folder: Path, machine: Machine) -> Result:
    return analyze([written(folder, machine.trace())], rules())


def poll(machine: Machine, call: str = "cudaEventQuery", pause: float = 3) -> None:
    """Ask until everything that was launched is done."""
    done = max(machine.free.values())
    while machine.now < done:
        machine.call(call, 2)
        machine.think(pause)
    machine.call(call, 2)


def device_bound(wait: Callable[[Machine], object]) -> Machine:
    """40 products of 500 µs a step, launched at once, and waited for."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(500, PLAIN)
        wait(machine)

    return steps(Machine(), 6, step)


def after_each(wait: Callable[[Machine], object]) -> Machine:
    """A wait after each of 40 kernels, and 150 µs of the host's own work before the next."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(200)
            wait(machine)
            machine.think(150)

    return steps(Machine(), 6, step)


def gain_of(folder: Path, machine: Machine) -> tuple[float, float]:
    """What faster kernels would give."""
    replay = analyzed(folder, machine).analysis.trace.ranks[0].replay
    assert replay.usable, replay.why
    assert replay.error_pct is not None
    assert replay.error_pct < 5
    (gain,) = [gain for gain in replay.predictions if gain.fix == "tensor-cores"]
    return gain.low, gain.high


@pytest.fixture(scope="module")
def gain_where_the_call_waits(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, float]:
    return gain_of(tmp_path_factory.mktemp("waits"), device_bound(Machine.synchronize))


@pytest.mark.parametrize("pause", [0, 3, 50, 1_050])
@pytest.mark.parametrize("call", ["cudaEventQuery", "cudaStreamQuery", "hipEventQuery", "cudaEventQuery_v3020"])
def test_a_device_bound_program_that_polls_gains_what_its_device_does(
    tmp_path: Path, call: str, pause: float, gain_where_the_call_waits: tuple[float, float]
) -> None:
    """Faster kernels end the wait sooner, as they do where the call waits itself."""
    polled = gain_of(tmp_path, device_bound(lambda machine: poll(machine, call, pause)))

    assert polled == pytest.approx(gain_where_the_call_waits, abs=6)


def test_what_the_device_misses_after_a_wait_is_the_same_however_the_host_waits(tmp_path: Path) -> None:
    """A queue that is empty after each wait: the findings and the verdict are those of the call that waits itself."""
    polled, waited = (analyzed(tmp_path, after_each(wait)) for wait in (poll, Machine.synchronize))

    assert {finding.rule for finding in polled.analysis.findings} == {finding.rule for finding in waited.analysis.findings}
    assert polled.analysis.trace.verdict == waited.analysis.trace.verdict
    assert "cudaEventQuery until done" in text.render(polled.analysis) + str(polled.analysis.trace.ranks[0].sync_sites)


def test_questions_around_work_of_the_host_are_no_wait(tmp_path: Path) -> None:
    """An allocator asks once at each request whether a block is free again, also while an operation happens to end."""

    def step(machine: Machine) -> None:
        for _ in range(10):
            machine.kernel(200)
            for _ in range(2):
                machine.call("cudaEventQuery", 2)
                machine.think(1.5 * MS)

    figures = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks[0].figures

    assert figures.sync_api_pct == 0
    assert (figures.host_starved_pct or 0) > 80


def test_questions_during_which_nothing_ends_are_no_wait(tmp_path: Path) -> None:
    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(20)
            machine.think(100)
            for _ in range(20):
                machine.call("cudaEventQuery", 2)

    assert analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks[0].figures.sync_api_pct == 0


@pytest.mark.parametrize("launched", [1, 40])
def test_questions_of_an_allocator_are_no_wait(tmp_path: Path, launched: int) -> None:
    """It asks once for each block that another stream used: while an idle device ends what it has, or a busy one works on."""

    def step(machine: Machine) -> None:
        for _ in range(20):
            for _ in range(launched):
                machine.kernel(10)
            for _ in range(14):
                machine.call("cudaEventQuery", 4)
                machine.think(14)
        machine.synchronize()

    (rank,) = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks

    assert "cudaEventQuery" not in str(rank.sync_sites)
    assert rank.host.refill_pct == pytest.approx(0, abs=1)
