"""Facts about the noise guard: which runs are called disturbed."""

from __future__ import annotations

import time

from sysperf.host import Host
from sysperf.verify import noise
from sysperf.verify.noise import Clock, Load
from tests.conftest import make_machine


def usual(others: float, runs: int = 6) -> list[Load]:
    """A history in which others used so many CPUs."""
    return [Load(others, 0.0, 10.0)] * runs


def test_a_run_is_disturbed_by_more_than_is_usual_here() -> None:
    """Others that always take a CPU disturb nothing; one more does, and so does a hypervisor."""
    assert not noise.disturbance(Load(1.0, 0.0, 10.0), usual(1.0), cpus=8)
    assert "others took 2.0 CPUs, usually 1.0" in noise.disturbance(Load(2.0, 0.0, 10.0), usual(1.0), cpus=8)
    assert noise.disturbance(Load(0.0, 1.5, 10.0), usual(0.0), cpus=8)


def test_little_is_not_called_a_disturbance() -> None:
    """Less than a tenth of a large machine, a few ticks of a short run, and anything before the usual is known."""
    assert not noise.disturbance(Load(5.0, 0.0, 10.0), usual(0.0), cpus=64)
    assert noise.disturbance(Load(7.0, 0.0, 10.0), usual(0.0), cpus=64)
    assert not noise.disturbance(Load(1.5, 0.0, 0.1), usual(0.0), cpus=2)
    assert not noise.disturbance(Load(9.0, 0.0, 10.0), usual(0.0, runs=3), cpus=2)
    assert not noise.disturbance(None, usual(0.0), cpus=2)


def test_load_is_what_others_took_between_two_moments() -> None:
    """Of 4 s of CPU time in 2 s, the run itself used 3."""
    load = noise.between(Clock(10.0, 100.0, 1.0), Clock(12.0, 104.0, 1.5), 3.0)

    assert load == Load(0.5, 0.25, 2.0)
    assert noise.between(None, Clock(1.0, 1.0, 0.0), 0.0) is None


def test_an_unreadable_clock_is_unknown() -> None:
    """Absent, short or damaged text; the real one runs on."""
    for text in ("", "cpu 1 2 3", "cpu a b c d e f g h"):
        assert noise.read(make_machine({"/proc/stat": text})) is None
    first = noise.read(Host())
    time.sleep(0.02)
    second = noise.read(Host())

    assert first
    assert second
    assert second.at_s > first.at_s
    assert second.busy_s >= first.busy_s
