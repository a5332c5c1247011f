"""Each cause of lost time in a trace of which the answer is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Sequence
from pathlib import Path

import msgspec
import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.model.errors import TraceError
from sysperf.model.finding import Gain
from sysperf.report.profiling.analysis import render
from sysperf.trace import read
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.accounting.causes import rival_of
from sysperf.trace.accounting.job_verdict import of_job
from sysperf.trace.device_facts import CollectiveFacts, Figures
from sysperf.trace.facts import Held, Rank, Replay, Skew, Trace
from sysperf.trace.host_facts import Cpu, Hole
from sysperf.trace.rank_summary import Entry, RankSummary
from sysperf.trace.ranks import compare
from sysperf.trace.replay import fixes
from sysperf.trace.replay.fixes import BY_NAME, CPU_WORDS, FIXES, STRAGGLER, Batches, Replayer, predict_cpu, together_cpu

from .labelled import analyzed, detected, rules
from .synthetic import MS, Machine, exported, steps, written


def gain(result: Result, fix: str) -> tuple[float, float]:
    """The predicted interval of a fix."""
    replay = result.analysis.trace.ranks[0].replay
    assert replay.usable, replay.why
    return next(((prediction.low, prediction.high) for prediction in replay.predictions if prediction.fix == fix), (0.0, 0.0))


def busy_step(machine: Machine) -> float:
    """The host is ahead of the device all the time; returns when the device is done."""
    end = 0.0
    for _ in range(40):
        machine.think(5)
        end = machine.kernel(100)
    return end


def test_a_busy_device_is_healthy(tmp_path: Path) -> None:
    """Kernels back to back: nothing to advise but what is in the kernels."""
    result = analyzed(tmp_path, steps(Machine(), 6, lambda machine: (busy_step(machine), machine.synchronize())))

    assert result.analysis.trace.verdict == "healthy"
    assert "T29" in detected(result)
    assert not detected(result) & {"T1", "T2", "T3", "T4", "T5", "T6", "T7", "T16", "T17"}


def test_exposed_synchronisation_is_found(tmp_path: Path) -> None:
    """T4: the device idles while the host waits; no other cause takes the blame for it."""
    result = analyzed(
        tmp_path,
        steps(
            Machine(),
            6,
            lambda machine: (machine.kernel(50), machine.call("cudaStreamSynchronize", 900), busy_step(machine), machine.synchronize()),
        ),
    )

    assert "T4" in detected(result)
    assert not detected(result) & {"T1", "T5", "T16", "T17", "T29"}


@pytest.mark.parametrize("blocking", [True, False])
def test_a_copy_ahead_is_not_waited_for_by_the_host(tmp_path: Path, blocking: bool) -> None:
    """`.to("cuda")` waits for its copy by a synchronisation of its own; 5 of 11 ms a step are won where it does not, on a stream of its own."""

    def step(machine: Machine) -> None:
        machine.copy(5 * MS)
        if blocking:
            machine.synchronize("cudaStreamSynchronize")
        for _ in range(60):
            machine.kernel(100)
        machine.synchronize()

    low, high = gain(analyzed(tmp_path, steps(Machine(), 6, step)), "h2d")

    assert high == pytest.approx(100 * 5 / 11, abs=3)
    assert low == pytest.approx(high / 2, abs=2)


def copies_that_hold_nothing_up(machine: Machine) -> None:
    """One a step, which takes as long as the host takes for the launches meanwhile."""
    machine.copy(350)
    for _ in range(60):
        machine.think(20)
        machine.kernel(20)
    machine.synchronize()


def test_copies_that_hold_nothing_up_do_not_bound_a_program(tmp_path: Path) -> None:
    """They run alone a fifth of the time, and the host takes as long for its launches as the device for all of it."""
    result = analyzed(tmp_path, steps(Machine(), 8, copies_that_hold_nothing_up)).analysis

    assert result.trace.ranks[0].figures.h2d_exposed_pct == pytest.approx(22, abs=3)
    assert (result.trace.verdict, result.trace.ranks[0].verdict) == ("compute-bound", "compute-bound")
    assert "without copies that run alone it would gain" in result.trace.why
    assert "transfer.exposed" in {finding.rule for finding in result.findings}


def test_a_replay_that_is_off_does_not_say_that_copies_hold_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program, where the unchanged replay is not the measured time."""
    monkeypatch.setattr(fixes, "MAX_ERROR_PCT", -1.0)
    trace = analyzed(tmp_path, steps(Machine(), 8, copies_that_hold_nothing_up)).analysis.trace

    assert not trace.ranks[0].replay.usable
    assert trace.verdict == "copy-bound"


def test_copies_that_the_host_makes_bound_a_program_that_waits_for_nothing_else(tmp_path: Path) -> None:
    """From pageable memory the call returns when the last part is on its way, a moment before the copy ends: without it nobody waits."""

    def step(machine: Machine) -> None:
        start = machine.now
        machine.copy(350, "Memcpy HtoD (Pageable -> Device)")
        machine.events[-2]["dur"], machine.now = 345.0, start + 345
        for _ in range(60):
            machine.think(20)
            machine.kernel(20)
        machine.synchronize()

    trace = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace

    assert trace.ranks[0].figures.h2d_exposed_pct == pytest.approx(19, abs=2)
    assert trace.verdict == "copy-bound"


def test_a_call_that_copies_back_while_the_device_is_idle_is_what_the_host_waits_for(tmp_path: Path) -> None:
    """3 of 7 ms a step, of which the copy itself takes 10 µs."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(100)
        machine.synchronize()
        start = machine.now
        machine.copy(10, "Memcpy DtoH (Device -> Pageable)")
        machine.events[-2]["dur"], machine.now = 3 * MS, start + 3 * MS

    (rank,) = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.ranks

    assert rank.figures.blocked_pct == pytest.approx(100 * 3 / 7, abs=1)
    assert (rank.figures.sync_exposed_pct or 0) < 1
    assert rank.verdict == "sync-bound"


@pytest.mark.parametrize(
    ("name", "verdict"), [("Memcpy HtoD (Pinned -> Device)", "copy-bound"), ("ncclDevKernel_AllGather_RING_LL", "comm-bound")]
)
def test_what_has_a_stream_of_its_own_and_takes_longest_bounds_a_program(tmp_path: Path, name: str, verdict: str) -> None:
    """Weights that come from the host or from other ranks, layer by layer: 450 µs beside kernels of 300 µs. Without them a third is won."""

    def step(machine: Machine) -> None:
        for _ in range(16):
            machine.copy(450, name, stream=13) if name.startswith("Memcpy") else machine.kernel(450, name, stream=13)
            for _ in range(3):
                machine.kernel(100)
        machine.synchronize()

    assert analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.verdict == verdict


@pytest.mark.parametrize("loads", [True, False])
def test_copies_beside_a_host_that_is_slower_do_not_bound_a_program(tmp_path: Path, loads: bool) -> None:
    """They run alone longer than the device waits for the host, which takes longer than the device for all of its work."""

    def step(machine: Machine) -> None:
        machine.load(6 * MS) if loads else machine.log(6 * MS)
        machine.copy(2 * MS)
        for _ in range(24):
            machine.kernel(100, cost=10)
        machine.range("Optimizer.step#SGD.step", machine.now - 100)

    trace = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace

    assert trace.ranks[0].figures.h2d_exposed_pct == pytest.approx(33, abs=3)
    assert trace.verdict == ("input-bound" if loads else "host-bound")
    assert "without that a replay gains up to" in trace.why


@pytest.mark.parametrize(("workers", "verdict"), [(True, "input-bound"), (False, "copy-bound")])
def test_workers_that_are_waited_for_make_a_batch_no_sooner_where_copies_are_gone(tmp_path: Path, workers: bool, verdict: str) -> None:
    """Copies run alone longer than the device waits for the loader. Workers make batches meanwhile, and the main thread does not."""

    def step(machine: Machine) -> None:
        machine.load(6 * MS, workers=workers)
        machine.copy(9 * MS, blocking=True)
        machine.work(24)

    (rank,) = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.ranks
    held = {each.verdict: each.gain for each in rank.replay.held}

    assert rank.verdict == verdict
    assert (held["copy-bound"] > 10) == (not workers)


def test_a_launch_that_waits_for_room_in_the_queue_is_no_cause_of_its_own(tmp_path: Path) -> None:
    """The queue is full until a copy of 9 ms is done, and the launch that waited for that is followed by its kernel at once."""

    def step(machine: Machine) -> None:
        copied = machine.copy(9 * MS, stream=13)
        for _ in range(20):
            machine.kernel(4)
        machine.kernel(4, cost=copied + 4 - machine.now, latency=copied + 6 - machine.now)
        machine.synchronize()

    (rank,) = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.ranks

    assert rank.verdict == "copy-bound"
    assert {each.verdict: each.gain for each in rank.replay.held}["copy-bound"] > 80


def test_a_call_that_seems_to_begin_before_the_last_one_ended_follows_it(tmp_path: Path) -> None:
    """Times are rounded. What waits for a copy to the host, and for nothing, is no part of the call that copied."""

    def step(machine: Machine) -> None:
        machine.work(12)
        machine.copy(5 * MS, "Memcpy DtoH (Device -> Pageable)", blocking=True)
        machine.now -= 0.4
        machine.call("cudaStreamSynchronize", 2)

    (rank,) = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.ranks

    assert rank.verdict == "copy-bound"
    assert {each.verdict: each.gain for each in rank.replay.held}["copy-bound"] > 60


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


@pytest.mark.parametrize(
    ("host_ms", "exchange_ms", "loads", "waits", "verdict"),
    [
        pytest.param(6, 2, False, False, "host-bound", id="a slower host"),
        pytest.param(6, 2, True, False, "input-bound", id="a slower loader"),
        pytest.param(0.5, 2, False, False, "comm-bound", id="a faster host"),
        pytest.param(0.5, 2, True, False, "comm-bound", id="a faster loader"),
        pytest.param(1, 4, False, True, "comm-bound", id="a host that waits for them, and takes less"),
        pytest.param(4.2, 2, False, False, "compute-bound", id="a host that is as slow as the device: neither gains"),
        pytest.param(6.2, 4, False, False, "cannot-tell", id="a host that is as slow as the device, which does little else"),
    ],
)
def test_collectives_that_run_alone_bound_a_program_only_beside_a_faster_host(
    tmp_path: Path, host_ms: float, exchange_ms: float, loads: bool, waits: bool, verdict: str
) -> None:
    """Kernels of 2.4 ms and a collective behind them, on a stream of its own; no step is done before both."""

    def step(machine: Machine) -> None:
        machine.load(host_ms * MS) if loads else machine.log(host_ms * MS)
        for _ in range(24):
            machine.kernel(100, cost=10)
        machine.free[20] = max(machine.free.get(20, 0.0), machine.free[7])
        machine.free[7] = machine.kernel(exchange_ms * MS, ALL_REDUCE, stream=20)
        if waits:
            machine.synchronize()
        machine.range("Optimizer.step#SGD.step", machine.now - 100)

    (rank,) = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.ranks
    held = {each.verdict: each.gain for each in rank.replay.held}

    assert (rank.figures.nccl_exposed_pct or 0) > 30
    assert rank.verdict == verdict
    assert (held["comm-bound"] > 35) == (verdict == "comm-bound")
    assert ("without that a replay gains up to" in rank.why) == (verdict in ("host-bound", "input-bound"))


@pytest.mark.parametrize(("starved_pct", "rival"), [(13, ""), (20, "host-bound")])
def test_a_host_that_costs_too_little_takes_no_verdict_from_collectives(starved_pct: float, rival: str) -> None:
    """However much a replay gains without it: of a file of one rank, it does not tell how long the others let it wait."""
    held = (Held(verdict="comm-bound", gain=4), Held(verdict="host-bound", gain=26))
    rank = Rank(
        file="a.json",
        form="kineto",
        replay=Replay(held=held),
        figures=Figures(nccl_exposed_pct=20, host_starved_pct=starved_pct),
        has_device=True,
    )

    assert rival_of(rank, "comm-bound") == rival


@pytest.mark.parametrize(("think_us", "verdict"), [(5, "comm-bound"), (100, "comm-bound"), (150, "compute-bound"), (200, "host-bound")])
def test_collectives_of_buckets_bound_a_program_as_far_as_the_host_is_ahead(tmp_path: Path, think_us: float, verdict: str) -> None:
    """A bucket takes the device 500 µs, of which 200 are a collective alone; the host takes three times its thought, and 20 µs."""

    def step(machine: Machine) -> None:
        for _ in range(8):
            for _ in range(3):
                machine.think(think_us)
                machine.kernel(100)
            machine.free[20] = max(machine.free.get(20, 0.0), machine.free[7])
            machine.free[7] = machine.kernel(200, ALL_REDUCE, stream=20)
        machine.range("Optimizer.step#SGD.step", machine.now - 50)

    (rank,) = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.ranks

    assert rank.verdict == verdict
    assert (rank.figures.nccl_exposed_pct or 0) > 30


def test_collectives_that_hold_nothing_up_do_not_bound_a_program(tmp_path: Path) -> None:
    """They run alone a fifth of the time, while the host makes the next launches, which takes it as long."""

    def step(machine: Machine) -> None:
        machine.kernel(350, ALL_REDUCE)
        for _ in range(60):
            machine.think(20)
            machine.kernel(20)
        machine.synchronize()

    trace = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace

    assert trace.ranks[0].figures.nccl_exposed_pct == pytest.approx(22, abs=3)
    assert trace.verdict == "compute-bound"
    assert "without collectives that run alone it would gain" in trace.why


def test_what_a_host_does_at_the_end_of_a_step_stays_in_it_where_a_cut_file_lost_the_next_ones(tmp_path: Path) -> None:
    """Behind the last step that is whole the recording did not end: the file has more of them, without what their devices did."""

    def step(machine: Machine) -> None:
        for _ in range(20):
            machine.kernel(100)
        machine.synchronize()
        machine.think(4 * MS)

    machine = steps(Machine(), 5, step)
    machine.events.sort(key=lambda event: event["cat"] == "kernel")  # as Kineto writes them
    text = json.dumps(machine.trace())
    cut = [index for index in range(len(text)) if text.startswith('{"ph": "X", "cat": "kernel"', index)][45]
    (rank,) = analyze([str(written(tmp_path, text[:cut]))], rules()).analysis.trace.ranks

    assert rank.steps.count == 1
    assert rank.verdict != "healthy"
    assert rank.figures.gpu_busy_pct_mean == pytest.approx(33, abs=3)


@pytest.mark.parametrize(("waits", "severity"), [(False, "info"), (True, "warning")])
def test_what_gains_nothing_by_replay_is_no_warning(tmp_path: Path, waits: bool, severity: str) -> None:
    """Copies of 300 µs run alone, and a host that takes twice as long as its device would be no sooner without them."""

    def step(machine: Machine) -> None:
        machine.copy(300)
        for _ in range(30):
            machine.think(100)
            machine.kernel(40)
        if waits:
            machine.copy(600, stream=7)
            machine.synchronize()

    found = analyzed(tmp_path, steps(Machine(), 8, step)).analysis.findings
    (copies,) = [finding for finding in found if finding.rule == "transfer.exposed"]

    assert (copies.cost_pct or 0) > 5
    assert copies.severity == severity


@pytest.mark.parametrize("name", ["Memcpy DtoH (Device -> Host)", "Memcpy DtoH (Device -> Pinned)", "Memcpy D2M(Device -> Memory)"])
def test_copies_to_the_host_that_run_alone_are_named(tmp_path: Path, name: str) -> None:
    """As where activations are offloaded on the stream of the kernels; no file of ROCm or XPU tells the kind of memory."""

    def step(machine: Machine) -> None:
        for _ in range(20):
            machine.kernel(100)
        machine.copy(1.5 * MS, name)
        machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(), 8, step)).analysis

    assert result.trace.verdict == "copy-bound"
    assert "transfer.back-exposed" in {finding.rule for finding in result.findings}


@pytest.mark.parametrize("count", [4, 5])
def test_few_batches_that_the_host_is_ahead_of_tell_that_a_device_is_busy(tmp_path: Path, count: int) -> None:
    """Nobody marked steps. Of four batches devices do one step whole, and begin the next one as soon as it is done."""
    machine = Machine()
    for _ in range(count):
        machine.load(100, workers=True)
        for _ in range(30):
            machine.kernel(200)

    assert analyzed(tmp_path, machine).analysis.trace.verdict in ("healthy", "compute-bound")


def test_copies_of_the_next_batches_do_not_begin_the_steps_of_a_device(tmp_path: Path) -> None:
    """On a stream of their own they run when the host asks for them, steps before the kernels that need them."""

    def step(machine: Machine) -> None:
        copied = machine.copy(40, stream=20)
        machine.free[7] = max(machine.free.get(7, 0.0), copied)
        for _ in range(8):
            machine.kernel(400)
        machine.kernel(3 * MS, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")

    (rank,) = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks

    assert rank.window_rule == "device_steps"
    assert rank.steps.median_ms == pytest.approx(6.2, abs=0.1)
    assert rank.figures.nccl_exposed_pct == pytest.approx(48, abs=1)


def test_graphs_gain_where_kernels_are_shorter_than_their_launches(tmp_path: Path) -> None:
    """Each arrives as soon as its launch is there: the device is idle 4 of 9 µs, though the next launch had begun before."""

    def step(machine: Machine) -> None:
        for _ in range(200):
            machine.kernel(5, cost=9)
        machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    (rank,) = result.analysis.trace.ranks

    assert (rank.figures.host_late_pct or 0) > 30
    assert (rank.figures.idle_between_pct or 0) < 5
    assert gain(result, "launch")[1] == pytest.approx(100 * 4 / 9, abs=5)


def metrics_of_each_batch(trains: bool, times: int) -> Machine:
    """The host reads a result and computes 7 ms with it, so many times a step; the next batch is copied then."""

    def step(machine: Machine) -> None:
        for _ in range(times):
            machine.copy(30)
            for _ in range(60):
                start = machine.now
                machine.kernel(100)
                machine.range("MmBackward0" if trains else "aten::mm", start, "cpu_op")
            machine.copy(10, "Memcpy DtoH (Device -> Pageable)", blocking=True)
            machine.think(7 * MS)

    return steps(Machine(), 6, step)


@pytest.mark.parametrize(
    ("trains", "times", "is_told"),
    [
        pytest.param(True, 1, True, id="metrics of each batch"),
        pytest.param(False, 1, False, id="the next token depends on it"),
        pytest.param(True, 8, False, id="an environment acts on it"),
    ],
)
def test_who_waits_for_the_device_and_then_computes_is_told_to_launch_first(
    tmp_path: Path, trains: bool, times: int, is_told: bool
) -> None:
    """The copy that ends the gap is no wait of its own."""
    result = analyzed(tmp_path, metrics_of_each_batch(trains, times))
    (rank,) = result.analysis.trace.ranks
    said = {finding.rule: finding for finding in result.analysis.findings}

    gaps = 5 * times - 1  # nothing ends the last one
    assert rank.host.refill_pct == pytest.approx(100 * 7 / 13.1 * gaps / (5 * times), abs=2)
    assert rank.host.works_after_wait == pytest.approx(times, abs=0.3 * times)
    assert "program.hole" in said
    assert ("sync.per-step" in said) is is_told
    if is_told:
        assert "launch the next step" in said["sync.per-step"].fixes[0].title
        assert 100 * 6 / 13.1 * 4 / 5 <= gain(result, "sync")[1] <= (rank.host.work_after_wait_pct or 0) + 0.1  # both work at the same time


def test_a_wait_before_a_gap_is_not_what_that_gap_waits_for(tmp_path: Path) -> None:
    """After one wait a step, forty launches are late one by one: only the first of them fills the queue again."""

    def step(machine: Machine) -> None:
        machine.kernel(300)
        machine.synchronize()
        for _ in range(40):
            machine.think(60)
            machine.kernel(30)

    (rank,) = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks

    assert rank.host.refill_pct == pytest.approx(100 * 0.065 / 2.97, abs=0.5)
    assert rank.figures.host_starved_pct == pytest.approx(100 * 40 * 0.035 / 2.97, abs=4)


@pytest.mark.parametrize("between", [1.0, 40.0])
def test_a_wait_while_short_kernels_are_queued_holds_nothing_up(tmp_path: Path, between: float) -> None:
    """A graph of 300 kernels of 3 µs: the device goes on after 1 µs each. After 40 µs each something holds it back that is no wait."""

    def step(machine: Machine) -> None:
        launch, at = machine.graph(3), machine.now
        for _ in range(300):
            launch += between
            args = {"device": 0, "stream": 7, "correlation": machine.events[-1]["args"].get("correlation"), "graph node id": 1}
            machine.event("kernel", "captured_gemm", launch, 3, tid=7, pid=0, **args)
            launch += 3
        machine.free[7] = launch
        assert at < launch
        machine.synchronize("cudaStreamSynchronize")

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    (rank,) = result.analysis.trace.ranks

    assert rank.figures.blocked_pct == pytest.approx(0, abs=2)
    assert (rank.figures.sync_exposed_pct or 0.0) > 5
    assert "sync.per-step" not in {finding.rule for finding in result.analysis.findings}
    assert rank.verdict == ("compute-bound" if between == 1 else "cannot-tell")
    assert ("goes on from one short operation to the next" in rank.why) == (between == 1)


@pytest.mark.parametrize(("host", "device"), [(30, 90), (90, 30), (60, 60)])
def test_removing_a_synchronisation_gains_the_smaller_of_host_and_device(tmp_path: Path, host: int, device: int) -> None:
    """T31: with a wait after each kernel a step takes host + device, without it the larger of both; the wait's length is no answer."""

    def step(machine: Machine) -> None:
        for _ in range(50):
            machine.think(host - 5)
            machine.kernel(device, latency=0)
            machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    expected = 100 * min(host, device) / (host + device + 3)
    low, high = gain(result, "sync")
    replayed = replayed_gain(tmp_path / "trace.json")

    assert replayed == pytest.approx(expected, abs=4)
    assert 0 <= low <= high <= expected + 4


def replayed_gain(path: Path) -> float:
    """The gain without any wait, before it is bounded by exposed time."""
    accounting = Accounting(read(str(path)))
    assert accounting.window is not None
    fix = BY_NAME["sync"]
    return Replayer(accounting.timeline, accounting.window, accounting.times, accounting.launches).gain([(fix.cautious, fix.full)])[1]


def test_half_of_what_waits_cost_is_promised_for_sure_alone_and_together(tmp_path: Path) -> None:
    """Some waits stay, so the lower end is not the upper one; several fixes at once promise no more for sure than each part of them."""

    def step(machine: Machine) -> None:
        for _ in range(50):
            machine.think(60)
            machine.kernel(60, latency=0)
            machine.synchronize()
        machine.call("cudaFree", 900)
        machine.call("cudaMalloc", 900)

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    (wait_low, wait_high), (free_low, free_high) = gain(result, "sync"), gain(result, "allocation")

    assert wait_low == pytest.approx(wait_high / 2, rel=0.2)
    assert free_low == pytest.approx(free_high / 2, rel=0.2)
    assert result.analysis.together is not None
    assert result.analysis.together.low <= 0.6 * result.analysis.together.high


def test_allocator_stalls_are_found(tmp_path: Path) -> None:
    """T16: cudaFree and cudaMalloc in steady steps, while the device has nothing to do."""

    def step(machine: Machine) -> None:
        busy_step(machine)
        machine.synchronize()
        machine.call("cudaFree", 400)
        machine.call("cudaMalloc", 300)

    result = analyzed(tmp_path, steps(Machine(), 6, step))

    assert "T16" in detected(result)
    low, high = gain(result, "allocation")
    assert low <= 100 * 700 / (40 * 100 + 20 + 700) <= high + 1.5


@pytest.mark.parametrize("module", [False, True])
def test_what_the_host_does_in_calls_with_a_finding_of_their_own_is_no_hole(tmp_path: Path, module: bool) -> None:
    """Allocation, and the loading of device code: gaps of 2 ms, of which 0.3 ms are Python."""

    def step(machine: Machine) -> None:
        for _ in range(4):
            for _ in range(10):
                machine.kernel(100)
            machine.synchronize()
            machine.think(300)
            machine.call("cuModuleLoadData" if module else "cudaMalloc", 1_700)

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    rank = result.analysis.trace.ranks[0]

    assert ("T15" if module else "T16") in detected(result)
    assert rank.hole.pct == pytest.approx(100 * 300 / 3_000, abs=1)
    assert rank.figures.host_exposed_pct == pytest.approx(100 * 2_000 / 3_000, abs=1)


def test_a_hole_that_a_call_covers_names_the_call(tmp_path: Path) -> None:
    """The host is not in Python there; in an operator, both are named."""

    def step(machine: Machine) -> None:
        busy_step(machine)
        machine.synchronize()
        machine.call("cudaHostRegister", 4_000)

    def within(machine: Machine) -> None:
        busy_step(machine)
        machine.synchronize()
        start = machine.now
        machine.call("cudaHostRegister", 4_000)
        machine.range("aten::pin_memory", start, "cpu_op")

    alone, inside = (analyzed(tmp_path, steps(Machine(), 6, body)).analysis.trace.ranks[0] for body in (step, within))

    assert alone.hole.cause == "cudaHostRegister"
    assert inside.hole.cause == "aten::pin_memory (cudaHostRegister)"


@pytest.mark.parametrize("workers", [False, True])
def test_an_exposed_loader_is_found(tmp_path: Path, workers: bool) -> None:
    """And whether there are workers."""
    result = analyzed(
        tmp_path, steps(Machine(), 6, lambda machine: (machine.load(2 * MS, workers=workers), busy_step(machine), machine.synchronize()))
    )

    assert result.analysis.trace.verdict == "input-bound"
    assert [finding.rule for finding in result.analysis.findings if finding.rule.startswith("dataloader.")] == [
        "dataloader.program-waits" if workers else "dataloader.inline"
    ]
    assert gain(result, "loader")[1] == pytest.approx(33, abs=2)


@pytest.mark.parametrize(("slow", "verdict"), [((5,), "compute-bound"), ((2, 5, 8), "input-bound"), (range(10), "input-bound")])
def test_a_batch_that_takes_long_once_is_no_slow_loader(tmp_path: Path, slow: Container[int], verdict: str) -> None:
    """One that takes 40 ms, while something else has the CPU; every third, as one that reads a file; and each of ten."""

    def step(machine: Machine) -> None:
        number = sum(event["name"].startswith("ProfilerStep") for event in machine.events)
        machine.load(40 * MS if number in slow else 20)
        for _ in range(10):
            machine.event("cpu_op", "aten::mm", machine.now, MS)
            machine.think(MS)

    assert analyzed(tmp_path, steps(Machine(), 10, step)).analysis.trace.verdict == verdict


def test_of_few_batches_each_one_counts_that_lies_in_the_window(tmp_path: Path) -> None:
    """Five unmarked steps by an optimizer: the last one begins within the window, and its batch is asked for behind it."""
    machine = Machine()
    for _ in range(5):
        machine.load(3 * MS, workers=True)
        machine.copy(20)
        busy_step(machine)
        start = machine.now
        machine.think(50)
        machine.range("Optimizer.step#AdamW.step", start)
        machine.synchronize()

    assert analyzed(tmp_path, machine).analysis.trace.verdict == "input-bound"


def test_a_hidden_loader_is_not_reported(tmp_path: Path) -> None:
    """The same 2 ms of loading cost nothing while kernels run."""
    result = analyzed(tmp_path, steps(Machine(), 6, lambda machine: (busy_step(machine), machine.load(2 * MS), machine.synchronize())))

    assert "T1" not in detected(result)


def test_late_launches_are_found_and_a_graph_is_predicted_to_help(tmp_path: Path) -> None:
    """T2 and T3: 8 µs kernels, 20 µs of host time for each."""

    def step(machine: Machine) -> None:
        for _ in range(200):
            machine.think(15)
            machine.kernel(8, "vectorized_elementwise_kernel")

    result = analyzed(tmp_path, steps(Machine(), 6, step))

    assert result.analysis.trace.verdict == "host-bound"
    assert {"T2", "T3"} <= detected(result)
    low, high = gain(result, "launch")
    assert 40 <= low <= 60 <= high + 1


@pytest.mark.parametrize(
    ("pause", "is_seen"),
    [
        ("nothing", False),
        ("only results are copied", True),
        ("a copy behind it", False),
        ("a copy in an operator behind it", False),
        ("the range of the step", False),
        ("a range", True),
        ("a loader", True),
        ("layers", True),
        ("a server's step", True),
    ],
)
def test_a_pause_in_which_the_file_shows_nothing_may_be_a_loader_without_ranges(tmp_path: Path, pause: str, is_seen: bool) -> None:
    """The host does something for 8 ms a step, between steps or by 2 ms between layers; there is a DataLoader, and it is quick, or none.

    Nothing was loaded where nothing is copied to the device: a program that generates reads its results.
    """

    def step(machine: Machine) -> None:
        start = machine.now
        machine.copy(2, "Memcpy DtoH (Device -> Pinned)" if pause == "only results are copied" else "Memcpy HtoD (Pinned -> Device)")
        if pause == "a loader":
            machine.load(20)
        for _ in range(4):
            machine.think(2 * MS)
            if pause == "layers":
                machine.work(10)
        machine.range("make_targets", start) if pause == "a range" else None
        begin = machine.now
        machine.copy(20) if pause.startswith("a copy") else None
        if pause == "a copy in an operator behind it":
            machine.events[-1]["ts"] += 5  # it begins when its call is over
            machine.think(10)
            machine.range("aten::copy_", begin, "cpu_op")
        machine.work(40)
        machine.range("train_step", start) if pause == "the range of the step" else None
        machine.range("execute_context_0(0)_generation_8(8)", begin) if pause == "a server's step" else None

    result = analyzed(tmp_path, steps(Machine(), 8, step)).analysis

    assert result.trace.verdict == ("host-bound" if is_seen else "cannot-tell")
    assert ("a loader that leaves no ranges" in result.trace.why) == (not is_seen)
    assert "program.hole" in {finding.rule for finding in result.findings}


def test_many_kernels_in_no_time_tell_nothing(tmp_path: Path) -> None:
    """A thousand kernels at one time, of one graph maybe, in 3 µs, and no steps."""
    machine = Machine()
    machine.graph(3)
    machine.events += [machine.events[-1] | {"dur": 1 + place % 3} for place in range(1_000)]

    assert analyzed(tmp_path, machine).analysis.trace.verdict == "cannot-tell"


@pytest.mark.parametrize(("apart", "verdict"), [(True, "pipeline-bound"), (False, "healthy")])
def test_devices_that_work_one_after_the_other_wait_for_each_other(tmp_path: Path, apart: bool, verdict: str) -> None:
    """Layers on two devices of one program, or a batch on each."""

    def step(machine: Machine) -> None:
        for device in range(2):
            machine.device = device
            if apart:
                machine.free[device] = max(machine.free.values(), default=0)
            for _ in range(10):
                machine.kernel(200, stream=device)

    result = analyzed(tmp_path, steps(Machine(), 8, step)).analysis
    rules_found = {finding.rule for finding in result.findings}

    assert (result.trace.verdict, "device.in-turn" in rules_found) == (verdict, apart)
    assert result.trace.ranks[0].in_turn_pct == pytest.approx(100 if apart else 0, abs=10)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_host_that_is_late_with_graphs_has_advice_of_its_own(tmp_path: Path, numbered: bool) -> None:
    """Graphs of 400 µs, and 300 µs of the host between two of them; older files do not number what a graph consists of."""

    def step(machine: Machine) -> None:
        for _ in range(4):
            machine.think(300)
            machine.graph(200)
            launch, first = machine.events[-2:]
            for place in range(1, 5):
                machine.events.append(first | {"ts": first["ts"] + 50 * place})
            first["args"] = first["args"] if numbered else {key: first["args"][key] for key in ("device", "stream", "correlation")}
            for event in machine.events[-5:]:
                event["dur"], event["args"] = 49, first["args"]
            machine.free[7] = machine.events[-1]["ts"] + 49
            machine.synchronize("cudaEventSynchronize")
            assert launch["name"] == "cudaGraphLaunch"

    result = analyzed(tmp_path, steps(Machine(), 8, step)).analysis
    first, (rank,) = result.findings[0], result.trace.ranks

    assert (rank.verdict, rank.work.graph_share, first.rule) == ("host-bound", 100, "program.hole")
    assert "CUDA graphs" in first.message
    assert "asynchronous scheduling" in first.fixes[0].title


def test_a_long_hole_outside_the_loader_names_its_place(tmp_path: Path) -> None:
    """N1, N2: 5 ms of the program's own, with the function that it was in."""

    def step(machine: Machine) -> None:
        start = machine.now
        machine.think(5 * MS)
        machine.event("python_function", "train.py(31): read_pictures", start, 5 * MS)
        machine.copy(100, "Memcpy HtoD (Pageable -> Device)", blocking=True)
        busy_step(machine)
        machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    (hole,) = [finding for finding in result.analysis.findings if finding.rule == "program.hole"]

    assert result.analysis.trace.verdict == "input-bound"
    assert [place.text for place in hole.places] == ["train.py:31 (read_pictures)"]
    assert hole.cost_pct == pytest.approx(55, abs=2)
    low, high = gain(result, "hole")
    assert low == pytest.approx(high / 2, rel=0.1), "the least that is promised is not the best case"


@pytest.mark.parametrize(
    ("copy", "place", "verdict"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "train.py(31): next_batch", "input-bound"),
        ("Memcpy HtoD (Pageable -> Device)", "train.py(90): on_step_end", "host-bound"),
        ("Memcpy DtoH (Device -> Pageable)", "train.py(31): next_batch", "host-bound"),
        ("Memcpy HtoD (Pageable -> Device)", "serve.py(31): decode_jpeg", "input-bound"),
        ("Memcpy HtoD (Pageable -> Device)", "serve.py(31): decode_step", "host-bound"),
        ("Memcpy HtoD (Pageable -> Device)", "detokenizer.py(31): send_batch", "host-bound"),
        ("Memcpy HtoD (Pageable -> Device)", "diffusion.py(31): p_sample_loop", "host-bound"),
        ("Memcpy HtoD (Pageable -> Device)", "backends/attention.py(31): update_metadata", "host-bound"),
    ],
)
def test_a_copy_to_the_device_and_a_place_say_that_data_was_prepared(tmp_path: Path, copy: str, place: str, verdict: str) -> None:
    """Python for 3 ms, then a copy: one to the host, as `.item()` makes, brings no data, and of a callback's end the next batch's comes next."""

    def step(machine: Machine) -> None:
        busy_step(machine)
        machine.synchronize()
        machine.event("python_function", place, machine.now, 3 * MS)
        machine.think(3 * MS)
        machine.copy(20, copy, blocking=True)

    assert analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.verdict == verdict


@pytest.mark.parametrize("which", ["before the loader", "in one step", "a collection"])
def test_not_all_that_precedes_a_copy_prepares_its_data(tmp_path: Path, which: str) -> None:
    """Logging at a step's end, before its loader is asked for the next batch; a pause of one step in seven; and a collection of garbage."""

    def step(machine: Machine) -> None:
        if which == "before the loader":
            machine.think(5 * MS)
            machine.load(20)
        elif which == "a collection":
            start = machine.now
            machine.think(5 * MS)
            machine.range("<built-in function collect>", start, "python_function")
        elif len(machine.free) and machine.events[-1]["name"] == "ProfilerStep#4":
            machine.log(25 * MS)
        machine.copy(20)
        busy_step(machine)
        machine.synchronize()

    assert analyzed(tmp_path, steps(Machine(), 8, step)).analysis.trace.verdict == "host-bound"


def test_of_exposed_copies_half_is_promised_for_sure(tmp_path: Path) -> None:
    """Copies of batches in the stream of the kernels, from pinned memory: a stream of their own hides all of them at best."""

    def step(machine: Machine) -> None:
        machine.copy(2_000)
        busy_step(machine)
        machine.synchronize()

    low, high = gain(analyzed(tmp_path, steps(Machine(), 6, step)), "h2d")

    assert 20 < high < 40
    assert low == pytest.approx(high / 2, rel=0.1)


def test_the_longest_gaps_have_their_kind_and_cause(tmp_path: Path) -> None:
    """Longest first: the device waited while the host waited for it, or asked the loader for a batch."""

    def step(machine: Machine) -> None:
        machine.load(1 * MS)
        machine.kernel(100)
        machine.synchronize()
        machine.think(3 * MS)
        machine.kernel(100, latency=8 * MS)
        machine.synchronize()

    (device,) = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks[0].devices
    kinds = {(gap.kind, gap.cause): gap.ms for gap in reversed(device.longest_gaps)}

    assert device.gaps == len(device.longest_gaps)
    assert [gap.ms for gap in device.longest_gaps] == sorted((gap.ms for gap in device.longest_gaps), reverse=True)
    assert ("starved", "loader") in kinds
    assert max(kinds, key=kinds.__getitem__) == ("starved", "synchronisation")


def test_pageable_and_pinned_copies_are_told_apart(tmp_path: Path) -> None:
    """T5 for one, T6 for the other."""
    pageable = analyzed(
        tmp_path,
        steps(
            Machine(),
            6,
            lambda machine: (
                machine.copy(800, "Memcpy HtoD (Pageable -> Device)", blocking=True),
                busy_step(machine),
                machine.synchronize(),
            ),
        ),
    )
    pinned = analyzed(tmp_path, steps(Machine(), 6, lambda machine: (machine.copy(800), busy_step(machine), machine.synchronize())))

    assert "T5" in detected(pageable)
    assert "T6" not in detected(pageable)
    assert "T6" in detected(pinned)
    assert "T5" not in detected(pinned)


def test_exposed_communication_is_found_and_hidden_is_not(tmp_path: Path) -> None:
    """T17: the same all-reduce after and beside the computation."""

    def after(machine: Machine) -> None:
        busy_step(machine)
        machine.synchronize()
        machine.kernel(900, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", stream=20)
        machine.synchronize()

    def beside(machine: Machine) -> None:
        machine.kernel(900, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", stream=20)
        busy_step(machine)
        machine.synchronize()

    assert "T17" in detected(analyzed(tmp_path, steps(Machine(), 6, after)))
    assert "T17" not in detected(analyzed(tmp_path, steps(Machine(), 6, beside)))


def test_collectives_bound_a_program_without_marks_whose_host_is_done_long_before(tmp_path: Path) -> None:
    """The file ends with the device's work: of the host, nobody knows that it does anything meanwhile."""
    machine = Machine()
    for _ in range(8):
        for _ in range(12):
            machine.kernel(300)
        machine.free[20] = machine.free[7]
        machine.free[7] = machine.kernel(2_000, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", stream=20)
    result = analyzed(tmp_path, machine)

    assert result.analysis.trace.verdict == "comm-bound"
    assert gain(result, "communication")[1] == pytest.approx(100 * 2 / 5.6, abs=4)


@pytest.mark.parametrize(("again", "verdict"), [(False, "cannot-tell"), (True, "host-bound")])
def test_what_is_compiled_first_is_a_start_up(tmp_path: Path, again: bool, verdict: str) -> None:
    """A plain profile from the first batch's copy on: one compilation of 9 s, or one of 300 ms in each of eight steps."""
    machine = Machine()
    machine.copy(900, "Memcpy HtoD (Pageable -> Device)", blocking=True)
    for number in range(8):
        if again or not number:
            start = machine.now
            machine.think((300 if again else 9_000) * MS)
            machine.range("_compile.compile_inner (dynamo_timed)", start, "cpu_op")
        for _ in range(40):
            machine.kernel(300)
        start = machine.now
        machine.kernel(100, "multi_tensor_apply_kernel")
        machine.range("Optimizer.step#AdamW.step", start)
    result = analyzed(tmp_path, machine)
    (rank,) = result.analysis.trace.ranks
    rules_of = {finding.rule for finding in result.analysis.findings}

    assert rank.verdict == verdict
    assert ("compile.recompiles" in rules_of) is again
    assert again or ("the file has a start-up" in rank.why and not rules_of & {"program.hole", "device.launch-bound"})


@pytest.mark.parametrize(("first", "recompiles"), [(0, 4), (2, 3), (7, 1)])
def test_a_start_ends_before_the_first_iteration_or_with_it(tmp_path: Path, first: int, recompiles: int) -> None:
    """Steps from the given one to number 5 compile, or it alone. Number 2 is the first iteration: a start-up is before it, else in it."""
    machine = Machine()
    machine.kernel(300)
    for number in range(8):
        if first <= number < 6 or number == first:
            start = machine.now
            machine.think(300 * MS)
            machine.range("_compile.compile_inner (dynamo_timed)", start, "cpu_op")
        for _ in range(40):
            machine.kernel(300)
        start = machine.now
        machine.kernel(100, "multi_tensor_apply_kernel")
        machine.range("Optimizer.step#AdamW.step", start)
    (rank,) = analyzed(tmp_path, machine).analysis.trace.ranks

    assert rank.host.recompiles == recompiles


def compiling_on_the_cpu(first_ms: float, *, is_marked: bool) -> Machine:
    """Eight steps with 40 operators of 0.5 ms, which compile for 5 ms each; the first one for so long."""
    machine = Machine()
    for number in range(8):
        begun = start = machine.now
        machine.think(5 * MS if number else first_ms * MS)
        if machine.now > start:
            machine.range("_compile.compile_inner (dynamo_timed)", start, "cpu_op")
        for operator in range(40):
            start = machine.now
            machine.think(500)
            machine.range(f"aten::op{operator}", start, "cpu_op")
        start = machine.now
        machine.think(500)
        machine.range(f"ProfilerStep#{number + 3}" if is_marked else "Optimizer.step#AdamW.step", begun if is_marked else start)
    return machine


@pytest.mark.parametrize(("first_ms", "is_marked", "recompiles"), [(400, False, 6), (0, True, 7)])
def test_what_is_compiled_again_is_a_share_of_the_time_behind_the_start(
    tmp_path: Path, first_ms: float, is_marked: bool, recompiles: int
) -> None:
    """5 of 25.5 ms in each step: a start of 400 ms does not make it less, and steps of a schedule have no start."""
    (rank,) = analyzed(tmp_path, compiling_on_the_cpu(first_ms, is_marked=is_marked)).analysis.trace.ranks
    assert rank.cpu is not None

    assert rank.cpu.compile_recurring_pct == pytest.approx(100 * 5 / 25.5, abs=1)
    assert rank.host.recompiles == recompiles
    assert rank.verdict == "host-bound"


def test_a_step_that_takes_longer_is_named(tmp_path: Path) -> None:
    """T21: the fourth of eight steps, with what it has more of."""
    machine = Machine()
    for number in range(8):
        start = machine.now
        machine.load(4 * MS if number == 4 else 100)
        busy_step(machine)
        machine.synchronize()
        machine.range(f"ProfilerStep#{number}", start)
    result = analyzed(tmp_path, machine)

    assert "T21" in detected(result)
    assert result.analysis.trace.ranks[0].steps.outlier_cause == "loader"


def test_plain_products_on_a_device_with_tensor_cores(tmp_path: Path) -> None:
    """T7 on a device that has them, not on one that has none, unknown where nobody knows which it is."""

    def plain(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(100, "ampere_sgemm_128x64_tn")
        machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(), 6, plain))
    assert "T7" in detected(result)
    assert "T7" not in detected(analyzed(tmp_path, steps(Machine(capability=(6, 1)), 6, plain)))
    unknown = analyzed(tmp_path, steps(Machine(), 6, plain), deviceProperties=[])
    assert "precision.tensor-cores-unused" in unknown.analysis.unknown
    low, high = gain(result, "tensor-cores")
    assert low == pytest.approx(33, abs=2)
    assert high == pytest.approx(75, abs=2)


def test_data_parallel_and_recompiles(tmp_path: Path) -> None:
    """T20 and T24, by the ranges that PyTorch writes."""

    def step(machine: Machine) -> None:
        start = machine.now
        busy_step(machine)
        machine.range("DataParallel.forward", start)
        start = machine.now
        machine.think(800)
        machine.range("_compile.compile_inner (dynamo_timed)", start)
        machine.synchronize()

    assert {"T20", "T24"} <= detected(analyzed(tmp_path, steps(Machine(), 6, step)))


def test_a_straggler_is_named_without_clocks_that_agree(tmp_path: Path) -> None:
    """T19: rank 2 computes 2 ms longer; the others' collectives are longer by as much, whatever their clocks say."""
    files = []
    for rank in range(4):

        def step(machine: Machine, late: bool = rank == 2) -> None:
            for _ in range(20):
                machine.kernel(200 if late else 100)
            machine.synchronize()
            machine.kernel(300 if late else 2_300, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
            machine.synchronize()

        machine = steps(Machine(start=1e9 + 7e6 * rank), 6, step)
        files.append(written(tmp_path, machine.trace(distributedInfo={"rank": rank, "world_size": 4}), f"rank{rank}.json"))
    result = analyze(files, rules())
    skew = result.analysis.trace.skew

    assert "T19" in detected(result)
    assert (skew.late, skew.late_share, skew.cause) == ((2,), 100.0, "kernel time")
    assert skew.lost_pct == pytest.approx(46, abs=3)
    assert "T33" in detected(result)
    assert skew.slow_rank == 2


def test_ranks_wait_no_longer_than_their_devices_work(tmp_path: Path) -> None:
    """Hosts that are ahead launch steps of 9 ms of which devices do a third later, and these wait 6 of 14 ms."""
    files = []
    for rank in range(3):

        def step(machine: Machine, late: bool = rank == 0) -> None:
            machine.think(14 * MS if late else 9 * MS)
            for _ in range(20):
                machine.kernel(100 if late else 300)
            machine.kernel(300 if late else 8 * MS, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")

        machine = steps(Machine(), 8, step)
        files.append(written(tmp_path, machine.trace(distributedInfo={"rank": rank, "world_size": 3}), f"rank{rank}.json"))
    trace = analyze(files, rules()).analysis.trace

    assert trace.skew.late == (0,)
    assert trace.skew.lost_pct == pytest.approx(100 * 7.7 / 14, abs=3)
    assert all(row.share_pct <= 100 for rank in trace.ranks for row in rank.collectives.kinds)


def ranks(folder: Path, late: Callable[[int, int], float], number: int = 4, *, each: int = 1, steps: int = 8) -> Result:
    """The analysis of ranks whose collectives end together; `late` says for how long a rank computes more in a step, in µs.

    There are so many collectives in `each` step, and it is late at all of them.
    """
    files = []
    for rank in range(number):
        machine = Machine()
        for count in range(steps):
            start = machine.now
            for _ in range(20):
                machine.kernel(100)
            last = max(late(other, count) for other in range(number))
            for _ in range(each):
                machine.kernel(1 + late(rank, count) / each)
                machine.synchronize()
                machine.kernel(300 + (last - late(rank, count)) / each, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
                machine.synchronize()
            machine.range(f"ProfilerStep#{count}", start)
        files.append(written(folder, machine.trace(distributedInfo={"rank": rank, "world_size": number}), f"rank{rank}.json"))
    return analyze(files, rules())


def test_even_ranks_have_no_straggler(tmp_path: Path) -> None:
    """Nobody is last where all come at the same time."""
    skew = ranks(tmp_path, lambda *_: 0.0).analysis.trace.skew

    assert (skew.late, skew.late_share, skew.cause, skew.rotates) == ((), None, "", False)
    assert skew.lost_pct == pytest.approx(0, abs=0.01)


def end_together(machines: Sequence[Machine], began: Sequence[float], step: int, took_us: float) -> None:
    """The last kernel of all is one collective, which ends so long after the last rank has come; their steps end behind it."""
    end = max(machine.events[-1]["ts"] for machine in machines) + took_us
    for machine, start in zip(machines, began, strict=True):
        machine.events[-1]["dur"] = round(end - machine.events[-1]["ts"], 3)
        machine.free[7] = end
        machine.synchronize()
        machine.range(f"ProfilerStep#{step}", start)


def files_of_job(folder: Path, machines: Sequence[Machine]) -> list[str]:
    """The trace of each rank."""
    return [
        written(folder, machine.trace(distributedInfo={"rank": number, "world_size": len(machines)}), f"rank{number}.json")
        for number, machine in enumerate(machines)
    ]


@pytest.mark.parametrize(
    ("first_us", "each_us", "count", "waits", "late"),
    [
        (600, 0, 10, "", ()),
        (0, 150, 10, "", (1,)),
        (0, 150, 6, "", (1,)),
        (0, 600, 10, "at the end", (1,)),
        (600, 150, 10, "", (1,)),
        (0, 600, 10, "within the step", (1,)),
    ],
)
def test_a_rank_is_late_by_what_it_does_anew(
    tmp_path: Path, first_us: float, each_us: float, count: int, waits: str, late: tuple[int, ...]
) -> None:
    """Hosts of three ranks are slower than their devices. Where none waits, what delayed one at first delays it in all steps, and costs nothing.

    Where hosts wait within a step, a rank that does more at its end begins all steps as late, and that costs as much in each.
    """
    machines = [Machine(device=number, start=1e9 + number * 1e5) for number in range(3)]
    for step in range(count):
        collectives = []
        for number, machine in enumerate(machines):
            start = machine.now
            is_late = number == 1
            more = each_us * (1.2 - 0.4 * (step % 2)) if is_late else 0
            machine.log((first_us if is_late and step == 0 else 0) + (0 if waits == "within the step" else more) + 10)
            for kernel in range(40):
                if waits == "within the step" and kernel == 10:
                    machine.synchronize()
                machine.kernel(20, cost=50)
            machine.kernel(1, ALL_REDUCE)
            collectives.append(machine.events[-1])
            if waits == "within the step":
                machine.log(more + 10)
            machine.range(f"ProfilerStep#{step}", start)
        end = max(event["ts"] - number * 1e5 for number, event in enumerate(collectives)) + 100
        for number, machine in enumerate(machines):
            collectives[number]["dur"] = round(end + number * 1e5 - collectives[number]["ts"], 3)
            machine.free[7] = end + number * 1e5
            if waits == "at the end":
                machine.synchronize()
    files = files_of_job(tmp_path, machines)
    skew = analyze(files, rules()).analysis.trace.skew

    assert skew.late == late
    assert (skew.lost_pct or 0.0) > 5


@pytest.mark.parametrize(("later_us", "waits", "late"), [((60, 0), True, (0,)), ((60, 0), False, ()), ((0, 0, 90, 120), False, ())])
def test_a_host_that_is_hardly_later_than_others_as_slow_gains_little(
    tmp_path: Path, later_us: tuple[float, ...], waits: bool, late: tuple[int, ...]
) -> None:
    """The collectives of ranks that are a little ahead wait, one after the other, for launches of another one, which is as quick.

    It is later in each step, or once, where no host waits for its device.
    """
    machines = [Machine(device=number) for number in range(len(later_us))]
    for step in range(6):
        began = [machine.now for machine in machines]
        for machine, later in zip(machines, later_us, strict=True):
            machine.log(100 + (later if waits or step == 0 else 0))
        for _ in range(20):
            for machine in machines:
                for _ in range(3):
                    machine.event("cpu_op", "aten::add", machine.now, 30)
                    machine.kernel(4, cost=30)
                machine.kernel(1, ALL_REDUCE)
            end = max(machine.events[-1]["ts"] for machine in machines) + 8
            for machine in machines:
                machine.events[-1]["dur"] = round(end - machine.events[-1]["ts"], 3)
                machine.free[7] = end
        for machine, start in zip(machines, began, strict=True):
            if waits:
                machine.synchronize()
            machine.range(f"ProfilerStep#{step}", start)
    result = analyze(files_of_job(tmp_path, machines), rules())
    trace = result.analysis.trace

    assert (trace.verdict, trace.skew.late, trace.skew.rotates) == ("host-bound", late, False)
    if late:
        assert (trace.skew.lost_pct or 0) > 15
        assert (trace.skew.gain_pct or 99) < 6
        assert result.analysis.findings[0].rule == "device.launch-bound"


def test_who_waits_for_a_late_rank_gains_nothing_for_sure_by_quicker_collectives(tmp_path: Path) -> None:
    """Collectives of 1 ms, and a rank that comes 3 ms later to each: it wins them, and the other one waits the longer."""
    machines = [Machine(device=number) for number in range(2)]
    for step in range(8):
        began = [machine.now for machine in machines]
        for number, machine in enumerate(machines):
            machine.log(3 * MS * number + 20)
            for _ in range(20):
                machine.kernel(200)
            machine.kernel(1, ALL_REDUCE)
        end_together(machines, began, step, MS)
    files = files_of_job(tmp_path, machines)
    analysis = analyze(files, rules()).analysis
    gains = {finding.subject.text: finding.gain.low for finding in analysis.findings if finding.rule == "ddp.communication"}

    assert analysis.trace.skew.late == (1,)
    assert [gain == 0 for _, gain in sorted(gains.items())] == [True, False]


@pytest.mark.parametrize(
    ("loading_ms", "workers", "late"), [((30, 30, 42), True, ()), ((30, 30, 42), False, (2,)), ((1, 1, 42), True, (2,))]
)
def test_a_rank_whose_loader_is_as_slow_as_the_others_is_not_late(
    tmp_path: Path, loading_ms: tuple[float, ...], workers: bool, late: tuple[int, ...]
) -> None:
    """Workers of quicker loaders would have the next batch ready: ranks that wait 30 ms for their own are as slow as one that waits 42 ms."""
    machines = [Machine(device=number) for number in range(3)]
    for step in range(8):
        began = [machine.now for machine in machines]
        for machine, load in zip(machines, loading_ms, strict=True):
            machine.load(load * MS, workers=workers)
            machine.kernel(10 * MS)
            machine.kernel(1, ALL_REDUCE)
        end_together(machines, began, step, 100)
    files = files_of_job(tmp_path, machines)
    trace = analyze(files, rules()).analysis.trace

    assert (trace.verdict, trace.skew.late) == ("input-bound", late)


def test_a_rank_that_does_something_once_is_not_the_late_one(tmp_path: Path) -> None:
    """Of two ranks one writes a file in one of eight steps: four collectives of that step come late, and none of another one."""
    late = two_ranks_by_buckets(tmp_path, lambda rank, step: 20 * MS if (rank, step) == (1, 4) else 0.0)
    often = two_ranks_by_buckets(tmp_path, lambda rank, step: 9 * MS if rank == 1 and step in (2, 4, 5) else 0.0)

    assert (late.skew.late, late.skew.rotates, late.skew.once, late.verdict) == ((), False, True, "compute-bound")
    assert "for what one of them did once" in late.why
    assert late.why.endswith("`program.hole` is about 23 % of the time of rank 1")
    assert often.skew.late == (1,)


def two_ranks_by_buckets(folder: Path, more: Callable[[int, int], float]) -> Trace:
    """The facts of two ranks, each of whose four collectives a step ends when that of the other does; one has so much more Python."""
    machines = [Machine(device=number) for number in range(2)]
    for step in range(8):
        began = [machine.now for machine in machines]
        for number, machine in enumerate(machines):
            machine.log(more(number, step))
            for _ in range(40):
                machine.kernel(200)
        for _ in range(4):
            for machine in machines:
                machine.kernel(400)
                machine.kernel(1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", stream=20)
                machine.events[-1]["ts"] = machine.free[20] = machine.free[7]
            end = max(machine.free[7] for machine in machines) + 100
            for machine in machines:
                machine.events[-1]["dur"] = round(end - machine.events[-1]["ts"], 3)
                machine.free[20] = end
        for machine, start in zip(machines, began, strict=True):
            machine.synchronize()
            machine.range(f"ProfilerStep#{step}", start)
    files = [
        written(folder, machine.trace(distributedInfo={"rank": number, "world_size": 2}), f"rank{number}.json")
        for number, machine in enumerate(machines)
    ]
    return analyze(files, rules()).analysis.trace


def test_a_rank_that_pauses_in_each_step_is_late_though_others_were_interrupted() -> None:
    """Six collectives of ten that it is late at may be chance, and a quarter of its time that the other one does not spend so is none."""
    causes = [19.6, 27.6, -0.1, -13.9, 15.0, 62.6, 0.1, 24.5, -7.0, 0.0]
    first, second = (
        [Entry(f"{at}#0", 0, round((50 + part) * MS * 1_000), []) for at, part in enumerate(each)]
        for each in zip(*((max(0.0, ms), max(0.0, -ms)) for ms in causes), strict=True)
    )
    each = [
        RankSummary(number, 10**9, [entry._replace(alone=[(0, entry.end)]) for entry in entries], {})
        for number, entries in enumerate((first, second))
    ]
    pausing = {"time between operators": 26.0, "time in operators": 40.0}

    assert compare(each, [{"time between operators": 4.0, "time in operators": 55.0}, pausing]).late == (1,)
    assert compare(each, [{"time between operators": 24.0, "time in operators": 35.0}, pausing]).late == ()


@pytest.mark.parametrize(("causes", "who"), [([60.0, -3.0, 2.0, -4.0, 3.0, -2.0, 4.0, -1.0], ()), ([9.0, 8.0, 11.0, 7.0, 10.0, 9.0], (1,))])
def test_in_files_without_steps_each_collective_tells_who_is_late(causes: list[float], who: tuple[int, ...]) -> None:
    """All of it may be one step. Of two ranks one is late by 60 ms once, as may be chance, and both by some ms in turn; or one always is."""
    pairs = zip(*((max(0.0, ms), max(0.0, -ms)) for ms in causes), strict=True)
    each = [
        RankSummary(
            number, 10**9, [Entry(f"{at}#0", 0, end, [(0, end)]) for at, end in enumerate(round((80 + ms) * 1e6) for ms in late)], {}
        )
        for number, late in enumerate(pairs)
    ]

    assert compare(each, [{"time between operators": 4.0}, {"time between operators": 4.0}]).late == who


def test_of_files_of_one_rank_the_verdict_names_the_file() -> None:
    """Which of them is meant is not told by the number that both have."""
    ranks = tuple(
        Rank(file=f"/runs/{name}.json", form="kineto", rank=0, verdict=word, why="why")
        for name, word in (("first", "host-bound"), ("second", "compute-bound"))
    )

    assert of_job(ranks, Skew(doubles=(0,))) == ("compute-bound", "of /runs/second.json, why")
    assert of_job(ranks, Skew()) == ("compute-bound", "of rank 0, why")


def test_ranks_that_wait_long_for_nobody_knows_whom_are_not_called_busy() -> None:
    """A device is busy with a collective, too, while it waits in it."""
    ranks = tuple(Rank(file="f", form="kineto", verdict="compute-bound", why="why") for _ in range(2))
    assert of_job(ranks, Skew(lost_pct=20.0))[0] == "cannot-tell"
    exchanging = tuple(msgspec.structs.replace(rank, verdict="comm-bound") for rank in ranks)
    assert of_job((*exchanging, ranks[0]), Skew(lost_pct=20.0))[0] == "comm-bound"
    assert of_job((*exchanging, ranks[0]), Skew(lost_pct=12.0, gain_pct=9.0, late=(2,)))[0] == "compute-bound"
    assert of_job(ranks, Skew(lost_pct=20.0, once=True))[0] == of_job(ranks, Skew(lost_pct=5.0))[0] == "compute-bound"


def test_files_of_one_rank_are_not_compared(tmp_path: Path) -> None:
    """Two windows of rank 0: it waited for others in the first one, and that the second one was late is no news."""
    files = ranks_of_a_job(tmp_path, 3 * MS)[:2]
    for file in files:
        Path(file).write_text(Path(file).read_text().replace('"distributedInfo": {"rank": 1}', '"distributedInfo": {"rank": 0}'))
    result = analyze(files, rules()).analysis
    text = " ".join(render(result).split())

    assert (result.trace.skew.doubles, result.trace.skew.late, result.trace.skew.matched) == ((0,), (), 0)
    assert {(rank.collectives.own_pct, rank.collectives.waiting_pct) for rank in result.trace.ranks} == {(None, None)}
    assert "Several files say that they are rank 0" in text
    assert re.search(rf"0 {Path(files[0]).name} .* 0 {Path(files[1]).name} ", text)
    found = {finding.rule for finding in result.findings}
    assert "trust.rank-twice" in found
    assert "ddp.unequal-ranks" not in found


def test_of_three_ranks_two_of_which_are_late_in_turn_none_is_far_the_latest(tmp_path: Path) -> None:
    """Rank 1 is late in four of seven steps and causes 55 % of the waiting, rank 0 the rest."""
    late_by = {0: 3_300.0, 1: 3_000.0, 2: 0.0}
    skew = ranks(tmp_path, lambda rank, count: late_by[rank] * (count % 2 == rank), 3).analysis.trace.skew

    assert (skew.late, skew.rotates) == ((), True)


def test_ranks_that_are_late_once_each_are_not_late_together(tmp_path: Path) -> None:
    """Each of four ranks of eight is late in one step, at all of its four collectives; where they are so in two steps each, they are."""

    def job(folder: Path, times: int) -> Trace:
        folder.mkdir()
        return ranks(
            folder, lambda rank, count: 3_000.0 * (1 <= count <= 4 * times and (count - 1) % 4 == rank), 8, each=4, steps=9
        ).analysis.trace

    once, twice = job(tmp_path / "once", 1), job(tmp_path / "twice", 2)

    assert (once.skew.late, once.skew.rotates) == ((), True)
    assert once.verdict == "comm-bound"
    assert sorted(twice.skew.late) == [0, 1, 2, 3]


def test_ranks_without_known_steps_are_late_together_at_several_collectives() -> None:
    """Two of four are so at all of eight; where each is at one of them, chance made them late."""

    def late(is_late: Callable[[int, int], bool]) -> tuple[int, ...]:
        times = [[(50 if is_late(number, at) else 60) * 1_000_000 for at in range(8)] for number in range(4)]
        each = [
            RankSummary(number, 10**9, [Entry(f"{at}#0", 0, took, [(0, took)]) for at, took in enumerate(of_rank)], {})
            for number, of_rank in enumerate(times)
        ]
        return compare(each, [{} for _ in each]).late

    assert late(lambda number, _: number < 2) == (0, 1)
    assert late(lambda number, at: number < 2 and at == 3 + number) == ()


def test_of_ranks_that_take_turns_the_report_says_so_where_it_costs_little(tmp_path: Path) -> None:
    """Each is 0.25 or 0.06 ms late at every fourth collective of 2.4 ms: where the device computes otherwise, that bounds the job."""

    def job(us: float) -> Trace:
        return ranks(tmp_path, lambda rank, count: us * (count % 4 == rank)).analysis.trace

    little, less = job(250.0), job(60.0)

    assert little.skew.rotates
    assert less.skew.rotates
    assert "for each other, for one and then for another" in little.why
    assert "for each other, for one and then for another" in less.why
    assert (little.verdict, less.verdict) == ("comm-bound", "compute-bound")


def test_ranks_that_take_turns_have_no_straggler_and_no_cause(tmp_path: Path) -> None:
    """Each is 3 ms late at every fourth collective."""
    trace = ranks(tmp_path, lambda rank, count: 3_000.0 * (count % 4 == rank)).analysis.trace
    skew = trace.skew

    assert (skew.late, skew.cause, skew.rotates) == ((), "", True)
    assert skew.lost_pct == pytest.approx(100 * 0.75 * 3_000 / 5_300, abs=4)
    assert trace.verdict == "comm-bound"
    assert "for each other" in trace.why


def test_one_file_is_not_taken_for_two_ranks(tmp_path: Path) -> None:
    """Also by another name."""
    path, link = written(tmp_path, steps(Machine(), 6, busy_step).trace()), tmp_path / "rank1.json"
    link.symlink_to(path)

    for other in (path, str(link)):
        with pytest.raises(TraceError, match="same file"):
            analyze([path, other], rules())


def test_every_gain_that_a_rule_asks_for_is_one_that_somebody_predicts() -> None:
    """A name that nobody knows would be a finding without a gain."""
    asked = {rule.predict for rule in rules().rules if rule.predict}

    assert asked <= {*BY_NAME, *CPU_WORDS, STRAGGLER}
    assert len(BY_NAME) == len(FIXES)


def test_several_fixes_are_replayed_together_and_not_added_up(tmp_path: Path) -> None:
    """Loader and launches at once gain no more than the step has to give."""

    def step(machine: Machine) -> None:
        machine.load(3 * MS)
        for _ in range(100):
            machine.think(25)
            machine.kernel(8, "vectorized_elementwise_kernel")
        machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    together = result.analysis.together

    assert together is not None
    assert max(gain(result, "loader")[1], gain(result, "launch")[1]) - 0.5 <= together.high <= 100


@pytest.mark.parametrize(("load", "step_ms", "high"), [(40, 1e9, 40), (80, 1e9, 80), (40, 10, 29), (40, 5, 18)])
def test_what_a_loader_on_the_cpu_hides_is_bounded(load: float, step_ms: float, high: float) -> None:
    """Taking batches over is much of a short step. A file does not say whether a CPU is free for workers: they may gain nothing."""
    cpu = Cpu(loader_pct=load, operator_pct=100 - load)
    (predicted,) = [prediction for prediction in predict_cpu(cpu, Hole(), Batches("0", step_ms)).predictions if prediction.fix == "loader"]

    assert (predicted.low, predicted.high) == pytest.approx((0, high), abs=1e-5)
    assert "low: the computing threads use all CPUs" in predicted.assumes


def test_several_fixes_on_the_cpu_add_up_where_they_are_of_different_times(tmp_path: Path) -> None:
    """A loader and a pause are two times; copies within the optimizer are one."""
    bounds = {"loader": (10.0, 40.0), "hole": (20.0, 25.0), "cast": (5.0, 12.0), "optimizer": (3.0, 15.0), "launch": (60.0, 90.0)}
    gains = {fix: Gain("replay", low=low, high=high) for fix, (low, high) in bounds.items()}
    both = together_cpu({fix: gain for fix, gain in gains.items() if fix != "launch"})

    assert (both.low, both.high) == (10 + 20 + 5, 40 + 25 + 15)
    assert together_cpu(gains).high == 100


def test_an_unexplained_wait_forbids_predictions(tmp_path: Path) -> None:
    """Operations that start long after they could: the replay is off by more than 5 %, so no figure is given."""

    def step(machine: Machine) -> None:
        for _ in range(20):
            machine.kernel(100, latency=2 * MS)
            machine.think(10)
        machine.synchronize()
        machine.think(10)

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    replay = result.analysis.trace.ranks[0].replay

    assert replay.usable is (replay.error_pct is not None and replay.error_pct <= 5)
    assert replay.usable or not any(finding.gain.interval for finding in result.analysis.findings)


def test_steps_that_the_device_does_after_the_host_are_the_devices(tmp_path: Path) -> None:
    """A host that waits for nothing has marked all steps while the device is at the first: 3 of 11 ms are a collective alone."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(200)
        machine.kernel(3 * MS, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    (rank,) = result.analysis.trace.ranks

    assert (rank.verdict, rank.window_rule, rank.steps.by, rank.steps.count) == ("comm-bound", "device_steps", "ProfilerStep", 4)
    assert rank.figures.nccl_exposed_pct == pytest.approx(100 * 3 / 11, abs=0.1)
    assert rank.figures.kernels_per_step == 41
    assert rank.steps.median_ms == pytest.approx(11, abs=0.01)
    assert "T29" not in detected(result)


def test_of_one_step_that_the_device_does_later_nobody_knows_the_next_one(tmp_path: Path) -> None:
    """The loader's 8 ms would run beside the device's 6 ms of the step before: neither healthy nor bound by the loader."""

    def step(machine: Machine) -> None:
        machine.load(8 * MS)
        for _ in range(60):
            machine.kernel(400, cost=2)

    one, three = (analyzed(tmp_path, steps(Machine(), count, step)).analysis for count in (1, 4))

    assert one.trace.verdict == "cannot-tell"
    assert "device.healthy" not in {finding.rule for finding in one.findings}
    assert three.trace.ranks[0].figures.gpu_busy_pct_mean == pytest.approx(100, abs=1)
    assert three.trace.ranks[0].steps.median_ms == pytest.approx(24, abs=0.1)


@pytest.mark.parametrize("count", [2, 3, 4, 20])
def test_one_worker_gains_as_much_however_short_the_trace_is(tmp_path: Path, count: int) -> None:
    """It makes a batch in 8 ms, so no step takes less: of 10.6 ms that is a quarter, of which four fifths are counted on."""

    def step(machine: Machine) -> None:
        machine.load(8 * MS)
        for _ in range(26):
            machine.kernel(100)
        machine.synchronize()

    low, high = gain(analyzed(tmp_path, steps(Machine(), count, step)), "loader")

    assert low == pytest.approx(0.8 * 25, abs=1.5)
    assert high > 70


def test_taking_batches_over_from_a_worker_is_no_gain(tmp_path: Path) -> None:
    """Batches that are made in 3 ms may take as long to take over."""

    def step(machine: Machine) -> None:
        machine.load(3 * MS)
        for _ in range(40):
            machine.kernel(100)
        machine.synchronize()

    low, high = gain(analyzed(tmp_path, steps(Machine(), 8, step)), "loader")

    assert (low, high) == pytest.approx((0, 100 * 3 / 7), abs=1)


def test_each_rank_of_one_export_has_its_own_loader(tmp_path: Path) -> None:
    """One process waits 8 ms a step for its loader, the other one is 8 ms in Python: half of both is the mean, and six steps are six."""

    def step(machine: Machine, wait: str) -> None:
        if wait == "loader":
            machine.load(8 * MS)
        else:
            machine.think(8 * MS)
        for _ in range(40):
            machine.kernel(60)
        machine.synchronize()

    ranks = [
        steps(Machine(device=device), 6, lambda machine, wait=wait: step(machine, wait)) for device, wait in enumerate(("loader", "Python"))
    ]
    (both,) = analyze([exported(tmp_path, *ranks)], rules()).analysis.trace.ranks

    assert (both.step_count, both.figures.kernels_per_step, both.dataloader_calls) == (6, 40, 6)
    assert both.figures.dataloader_exposed_pct == pytest.approx(both.figures.host_starved_pct, abs=1)
    assert both.figures.dataloader_exposed_pct == pytest.approx(38, abs=3)
    assert both.hole.cause == "Python between operators"


def ranks_of_a_job(folder: Path, late_us: float) -> list[str]:
    """Four ranks that end each AllReduce of 0.3 ms together; rank 1 has so much more Python before it."""
    ranks = [Machine(device=number) for number in range(4)]
    for step in range(8):
        began = [machine.now for machine in ranks]
        for number, machine in enumerate(ranks):
            machine.log(late_us if number == 1 else 0)
            for _ in range(40):
                machine.kernel(100)
            machine.kernel(1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        end = max(machine.free[7] for machine in ranks) + 300
        for machine, start in zip(ranks, began, strict=True):
            collective = machine.events[-1]
            collective["dur"], machine.free[7] = end - collective["ts"], end
            machine.synchronize()
            machine.range(f"ProfilerStep#{step}", start)
    return [written(folder, machine.trace(distributedInfo={"rank": number}), f"rank{number}.json") for number, machine in enumerate(ranks)]


def test_waiting_for_a_late_rank_is_no_cost_of_collectives(tmp_path: Path) -> None:
    """Overlapping collectives gains nothing where they wait: the late rank's lateness does, and bounds the job."""
    result = analyze(ranks_of_a_job(tmp_path, 3 * MS), rules()).analysis
    (straggler,) = [finding for finding in result.findings if finding.rule == "ddp.unequal-ranks"]

    assert "ddp.communication" not in {finding.rule for finding in result.findings}
    assert result.trace.verdict == "host-bound"
    assert "for rank 1; there," in result.trace.why
    assert result.trace.ranks[0].figures.nccl_exposed_pct == pytest.approx(100 * 3.3 / 7.3, abs=1)
    assert result.trace.ranks[0].collectives.own_pct == pytest.approx(100 * 0.3 / 7.3, abs=0.5)
    assert straggler.gain.interval
    assert straggler.gain.low == pytest.approx(100 * 3 / 7.3, abs=1)


def test_collectives_of_even_ranks_cost_what_they_take(tmp_path: Path) -> None:
    result = analyze(ranks_of_a_job(tmp_path, 0), rules()).analysis

    assert {finding.rule for finding in result.findings} >= {"ddp.communication"}
    assert all(rank.collectives.own_pct == pytest.approx(100 * 0.3 / 4.3, abs=0.5) for rank in result.trace.ranks)
    assert result.trace.verdict in ("compute-bound", "healthy")


def test_a_wait_for_the_device_waits_for_what_was_moved_to_another_stream(tmp_path: Path) -> None:
    """Before `cudaDeviceSynchronize`, a collective has a kernel of 0.1 ms that it could run beside: a stream of its own gains no more."""

    def step(machine: Machine) -> None:
        machine.kernel(3 * MS, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
        machine.kernel(100)
        machine.synchronize()
        busy_step(machine)
        machine.synchronize()

    _, high = gain(analyzed(tmp_path, steps(Machine(), 6, step)), "communication")

    assert high == pytest.approx(100 * 0.1 / 7.1, abs=0.5)


def test_calls_belong_to_the_device_where_an_old_export_does_not_name_its_process(tmp_path: Path) -> None:
    """Without `globalPid`, operations are of the only process that there is."""

    def step(machine: Machine) -> None:
        machine.load(8 * MS)
        busy_step(machine)
        machine.synchronize()

    machine = steps(Machine(), 6, step)
    today = analyze([exported(tmp_path, machine)], rules()).analysis.trace.ranks[0]
    (tmp_path / "export.sqlite").unlink()
    old = exported(tmp_path, machine, changes=["ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid"])

    assert analyze([old], rules()).analysis.trace.ranks[0].figures == today.figures
    assert today.figures.dataloader_exposed_pct == pytest.approx(100 * 8 / 12.2, abs=2)


def ranks_on_the_cpu(folder: Path, late_us: float, count: int = 3) -> list[str]:
    """Ranks that exchange two buckets by gloo, on two threads beside each other, for 2 ms together; the last rank has so much more Python."""
    ranks = [Machine() for _ in range(count)]
    for step in range(8):
        began = [machine.now for machine in ranks]
        for number, machine in enumerate(ranks):
            machine.think(late_us if number == count - 1 else 0)
            for _ in range(20):
                start = machine.now
                machine.think(200)
                machine.range("aten::mm", start, "cpu_op")
        end = max(machine.now for machine in ranks) + 2 * MS
        for machine, start in zip(ranks, began, strict=True):
            for thread in (2, 3):
                machine.event("user_annotation", "gloo:all_reduce", machine.now + thread, end - machine.now - thread, tid=thread)
            machine.now = end
            machine.range(f"ProfilerStep#{step}", start)
    return [written(folder, machine.trace(distributedInfo={"rank": number}), f"rank{number}.json") for number, machine in enumerate(ranks)]


def test_a_late_rank_on_the_cpu_is_named(tmp_path: Path) -> None:
    """Collectives of gloo match by their order; two beside each other are waited for once."""
    result = analyze(ranks_on_the_cpu(tmp_path, 10 * MS), rules()).analysis
    (straggler,) = [finding for finding in result.findings if finding.rule == "ddp.unequal-ranks"]

    assert result.trace.verdict == "host-bound"
    assert "for rank 2; there," in result.trace.why
    assert result.trace.skew.matched == 14
    assert result.trace.skew.cause == "time between operators"
    assert straggler.cost_pct == pytest.approx(100 * 10 / 16, abs=1)
    assert straggler.gain.interval
    assert straggler.gain.low == pytest.approx(100 * 10 / 16, abs=1)
    assert result.trace.ranks[0].collectives.own_pct == pytest.approx(100 * 2 / 16, abs=1)


def two_ranks(folder: Path, *, more_us: float, interrupted_us: float, within: bool) -> list[str]:
    """Two ranks that exchange by gloo. The second works so much longer in each operator, and in seven of twelve steps it stands for so
    long, in an operator or before one, at another place each time; the first does so in two.
    """
    ranks = Machine(), Machine()
    for step in range(12):
        began = [machine.now for machine in ranks]
        for number, machine in enumerate(ranks):
            stands = step % 5 < 3 if number else step in (1, 6)
            for place in range(20):
                stood = interrupted_us if stands and (7 * step + place) % 20 == 3 else 0
                machine.think(0 if within else stood)
                start = machine.now
                machine.think(200 + number * more_us + (stood if within else 0))
                machine.range("aten::mm", start, "cpu_op")
        end = max(machine.now for machine in ranks) + MS
        for machine, start in zip(ranks, began, strict=True):
            machine.event("user_annotation", "gloo:all_reduce", machine.now, end - machine.now, tid=2)
            machine.now = end
            machine.range(f"ProfilerStep#{step}", start)
    return [written(folder, machine.trace(distributedInfo={"rank": number}), f"rank{number}.json") for number, machine in enumerate(ranks)]


@pytest.mark.parametrize(
    ("more_us", "interrupted_us", "within", "cause", "verdict"),
    [
        pytest.param(0, 12 * MS, True, "time in interruptions", "host-bound", id="even ranks, of which one has less of the CPUs"),
        pytest.param(0, 12 * MS, False, "time in interruptions", "host-bound", id="pauses of its own, as for a lock"),
        pytest.param(150, 0, True, "time in operators", "compute-bound", id="more work"),
        pytest.param(150, 4 * MS, True, "time in operators", "compute-bound", id="more work, which is interrupted more often"),
    ],
)
def test_a_rank_that_stands_now_and_then_is_told_from_one_with_more_work(
    tmp_path: Path, more_us: float, interrupted_us: float, within: bool, cause: str, verdict: str
) -> None:
    """What interrupts a rank comes at another place each time, and is won only where the others leave it a CPU."""
    result = analyze(two_ranks(tmp_path, more_us=more_us, interrupted_us=interrupted_us, within=within), rules()).analysis
    (straggler,) = [finding for finding in result.findings if finding.rule == "ddp.unequal-ranks"]
    is_interrupted = cause == "time in interruptions"

    assert (result.trace.skew.late, result.trace.skew.cause, result.trace.verdict) == ((1,), cause, verdict)
    assert (straggler.gain.low == 0) is is_interrupted
    assert ("nobody else uses" in straggler.fixes[0].title) is is_interrupted
    assert ("operators and pauses that take long now and then are" in result.trace.why) is is_interrupted


def test_collectives_on_the_cpu_cost_what_they_take(tmp_path: Path) -> None:
    """Of even ranks the exchange alone; one rank's file does not tell it from waiting, and promises nothing."""
    paths = ranks_on_the_cpu(tmp_path, 0)
    even, single = analyze(paths, rules()).analysis, analyze(paths[:1], rules()).analysis

    for result in (even, single):
        finding = next(finding for finding in result.findings if finding.rule == "ddp.communication")
        assert result.trace.verdict == "comm-bound"
        assert finding.cost_pct == pytest.approx(100 * 2 / 6, abs=1)
        assert finding.gain.interval
        assert (finding.gain.low, finding.gain.high) == (0, finding.cost_pct)
    assert "or for other ranks" in single.trace.why
    assert "or for other ranks" not in even.trace.why


def test_collectives_beside_operators_cost_nothing_on_the_cpu(tmp_path: Path) -> None:
    def step(machine: Machine) -> None:
        machine.event("user_annotation", "gloo:all_reduce", machine.now + 10, 8 * MS, tid=2)
        start = machine.now
        machine.think(10 * MS)
        machine.range("aten::mm", start, "cpu_op")

    machine = steps(Machine(), 60, step)

    assert "ddp.communication" not in {finding.rule for finding in analyzed(tmp_path, machine).analysis.findings}


@pytest.mark.parametrize(("waits", "verdict"), [(0.2, "host-bound"), (3.0, "cannot-tell")])
def test_who_waits_for_none_sets_the_pace(waits: float, verdict: str) -> None:
    """Where each of them waits for another one, nobody is known to."""
    busy = Rank(file="", form="kineto", verdict="compute-bound", why="", collectives=CollectiveFacts(waiting_pct=20.0))
    least = Rank(file="", form="kineto", verdict="host-bound", why="", collectives=CollectiveFacts(waiting_pct=waits))

    assert of_job((busy, busy, least), Skew(ranks=3, lost_pct=20.0))[0] == verdict
