"""Facts about the noise guard: which runs are called disturbed."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sysperf.host import Host
from sysperf.model.comparison import Conditions
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


# ---------------------------------------------------------------------- pairs whose runs met different conditions

EVEN = [(Conditions(gpu_mhz=1_980.0), Conditions(gpu_mhz=1_970.0))] * 4
met = st.builds(
    Conditions,
    cpu_waiting=st.none() | st.floats(0, 1),
    io_waiting=st.none() | st.floats(0, 1),
    cpu_mhz=st.none() | st.floats(0, 5_000),
    gpu_mhz=st.none() | st.floats(0, 3_000),
    gpu_celsius=st.none() | st.floats(20, 110),
    gpu_slowed=st.none() | st.floats(0, 1),
)
pairs = st.tuples(st.none() | met, st.none() | met)


@example((Conditions(gpu_mhz=3_000.0), Conditions(gpu_mhz=5e-324)), EVEN, [False] * 8, 1.0)
@given(pairs, st.lists(pairs, max_size=8), st.lists(st.booleans(), min_size=8, max_size=8), st.floats(0.01, 100))
def test_the_guard_is_blind_to_the_variant(pair: noise.Pair, earlier: list[noise.Pair], swapped: list[bool], shortest_s: float) -> None:
    """Exchange A and B in any pairs, this one and earlier ones: the same pairs are dropped, for the same reason."""
    exchanged = [(b, a) if swap else (a, b) for (a, b), swap in zip(earlier, swapped, strict=False)]

    assert noise.uneven(pair, earlier, shortest_s) == noise.uneven((pair[1], pair[0]), exchanged, shortest_s)


def test_a_pair_counts_when_its_runs_met_the_same() -> None:
    """A clock that is low in both runs harms no ratio; one that is low in one of them does."""
    low, high = Conditions(gpu_mhz=1_400.0), Conditions(gpu_mhz=1_980.0)

    assert not noise.uneven((low, low), EVEN, 10.0)
    assert noise.uneven((low, high), EVEN, 10.0) == "the GPUs' clock: 1400 MHz in one run, 1980 in the other"


def test_what_a_variant_does_itself_in_each_pair_is_usual() -> None:
    """B heats the GPU by 30 degrees each time: that is no disturbance, and 45 are."""
    earlier = [(Conditions(gpu_celsius=50.0), Conditions(gpu_celsius=80.0))] * 3

    assert not noise.uneven((Conditions(gpu_celsius=52.0), Conditions(gpu_celsius=81.0)), earlier, 10.0)
    assert "50 °C in one run, 95 in the other" in noise.uneven((Conditions(gpu_celsius=50.0), Conditions(gpu_celsius=95.0)), earlier, 10.0)


@pytest.mark.parametrize("field", [bound.field for bound in noise.BOUNDS])
def test_each_condition_can_disturb_a_pair_and_unknown_ones_do_not(field: str) -> None:
    """Waiting, slow-downs, clocks, temperatures; before two pairs nothing is usual yet."""
    usual, other = (100.0, 10.0) if field.endswith(("mhz", "celsius")) else (0.01, 0.9)
    same, apart = (msgspec.structs.replace(Conditions(), **{field: value}) for value in (usual, other))
    earlier = [(same, same)] * 2

    assert noise.uneven((same, apart), earlier, 10.0)
    assert not noise.uneven((same, apart), earlier[:1], 10.0)
    assert not noise.uneven((same, Conditions()), earlier, 10.0)
    assert not noise.uneven((same, None), earlier, 10.0)
    assert not noise.uneven((same, apart), [(same, Conditions())] * 5, 10.0)


def test_little_waiting_of_a_short_run_says_nothing() -> None:
    """A tenth of a second of a run of 0.2 s is half of it."""
    earlier = [(Conditions(io_waiting=0.0), Conditions(io_waiting=0.0))] * 3

    assert not noise.uneven((Conditions(io_waiting=0.0), Conditions(io_waiting=0.5)), earlier, 0.2)
    assert noise.uneven((Conditions(io_waiting=0.0), Conditions(io_waiting=0.5)), earlier, 2.0)


def test_a_short_run_excuses_no_clock() -> None:
    """Ticks are few in it; a clock is as exact as ever. Where a clock is 0, or two pairs do not tell it, nothing is said."""
    slow, fast, stopped = Conditions(gpu_mhz=1_400.0), Conditions(gpu_mhz=1_980.0), Conditions(gpu_mhz=0.0)
    earlier: list[noise.Pair] = [(slow, slow)] * 3

    assert noise.uneven((slow, fast), earlier, 0.2)
    assert not noise.uneven((stopped, fast), earlier, 0.2)
    assert not noise.uneven((slow, fast), [(slow, slow), (slow, None), (Conditions(), slow)], 0.2)


def test_others_on_its_gpus_disturb_a_run_beyond_what_is_usual() -> None:
    """Unknown does not."""
    alone, shared = Conditions(gpu_others=0.0), Conditions(gpu_others=0.3)

    assert noise.others_on_gpus(shared, [alone] * 6) == "others computed on its GPUs 30% of the time"
    assert not noise.others_on_gpus(shared, [shared] * 6)
    assert not noise.others_on_gpus(Conditions(), [alone] * 6)
    assert not noise.others_on_gpus(None, [alone] * 6)


def test_a_gpu_that_is_always_shared_disturbs_no_run() -> None:
    """Not the first ones either, of which nobody knows what is usual; the result says it once."""
    shared = Conditions(gpu_others=0.4)

    assert [noise.others_on_gpus(shared, [shared] * earlier) for earlier in range(8)] == [""] * 8
    assert noise.others_on_gpus(Conditions(gpu_others=0.8), [shared] * 6) == "others computed on its GPUs 80% of the time, usually 40%"


def test_who_is_there_all_the_time_is_said() -> None:
    """A busy core, a shared GPU; not what comes and goes, what is little, and what is not known."""
    assert noise.constant([1.0, 1.1, 0.9, 1.0, 1.0], [0.4] * 5, cpus=2) == [
        "others took 0.9 of 2 CPUs all the time: the result holds beside them",
        "others computed on its GPUs 40% of the time, all the time: the result holds beside them",
    ]
    assert noise.constant([0.0, 2.0, 2.0, 0.0, 2.0], [0.0, 0.9, 0.9, 0.9], cpus=2) == []
    assert noise.constant([0.5] * 9, [0.04] * 9, cpus=64) == []
    assert noise.constant([None] * 9, [None, None, 0.5], cpus=2) == []
