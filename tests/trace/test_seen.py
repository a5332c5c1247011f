"""Classes of traces that were judged wrongly once: each is made small here, with its right answer."""

from __future__ import annotations

import json
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sysperf.cli import main
from sysperf.engine.analyze import analyze, subjects
from sysperf.model.errors import TraceError
from sysperf.report.profiling import tables, timeline
from sysperf.report.profiling.analysis import render
from sysperf.trace import kernels
from sysperf.trace.accounting.account import _bounded
from sysperf.trace.facts import Rank
from sysperf.trace.host_facts import HostWork
from sysperf.trace.output.drawing import draw

from .labelled import analyzed, found, rules
from .synthetic import Machine, exported, steps, written


def busy(machine: Machine, count: int = 40, name: str = "ampere_bf16_s16816gemm", us: float = 100, **args: Any) -> float:
    """A host that is ahead of its device; returns when the device is done."""
    end = 0.0
    for _ in range(count):
        machine.think(5)
        end = machine.kernel(us, name, **args)
    return end


# ---------------------------------------------------------------------- the end of a recording


@pytest.mark.parametrize("call", ["cudaDeviceSynchronize", "hipDeviceSynchronize", ""])
def test_idle_time_behind_the_last_operation_belongs_to_no_step(tmp_path: Path, call: str) -> None:
    """The profiler stops there: a last step of 54 ms, 50 of them empty, is one of 4 ms like the others."""
    machine = steps(Machine(), 5, lambda machine: (busy(machine), machine.synchronize()))
    start = machine.now
    busy(machine)
    if call:
        machine.call(call, 50_000)
    else:
        machine.think(50_000)
    machine.range("ProfilerStep#5", start)
    rank = analyzed(tmp_path, machine).analysis.trace.ranks[0]

    assert rank.verdict == "healthy"
    assert rank.steps.outlier is False


def test_work_of_the_host_at_the_end_of_a_step_stays_in_it(tmp_path: Path) -> None:
    """An operator behind the last kernel is the program's, and so is a range that begins there."""
    for cat, name in (("cpu_op", "aten::sort"), ("user_annotation", "save")):
        machine = steps(Machine(), 5, lambda machine: (busy(machine), machine.synchronize()))
        start = machine.now
        busy(machine)
        machine.synchronize()
        begin = machine.now
        machine.think(50_000)
        machine.range(name, begin, cat)
        machine.range("ProfilerStep#5", start)
        rank = analyzed(tmp_path, machine).analysis.trace.ranks[0]

        assert rank.steps.longest_ms == pytest.approx(54, abs=1)


def test_what_each_step_ends_with_stays_in_the_last_one(tmp_path: Path) -> None:
    """A program that pauses after its last kernel of each step is slow there, too."""
    machine = steps(Machine(), 6, lambda machine: (busy(machine), machine.synchronize(), machine.log(8_000)))
    rank = analyzed(tmp_path, machine).analysis.trace.ranks[0]

    assert rank.steps.longest_ms == pytest.approx(12, abs=1)
    assert rank.verdict == "host-bound"


def test_collectives_bound_the_only_step_of_a_device_that_is_behind(tmp_path: Path) -> None:
    """The host is done with three steps before the device is with one; a busy device does not wait for the host."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(100)
            machine.kernel(300, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")

    rank = analyzed(tmp_path, steps(Machine(), 3, step)).analysis.trace.ranks[0]

    assert (rank.window_rule, rank.verdict) == ("device_steps", "comm-bound")


# ---------------------------------------------------------------------- names

HASHED = "## Call CompiledFxGraph fb3en3pmdtsn2pziyq6jiyhnewghozxvyb5vy5kk6ejlfff7gc3n ##"


@pytest.mark.parametrize(
    ("name", "is_garbage"), [(HASHED, False), ("2gc", False), ("cfg_3gc5", False), ("gc", True), ("gc.collect", True), ("run_gc", True)]
)
def test_letters_of_a_hash_are_no_garbage_collection(tmp_path: Path, name: str, is_garbage: bool) -> None:
    def step(machine: Machine) -> None:
        start = machine.now
        busy(machine)
        machine.synchronize()
        machine.range(name, start)

    assert ("program.garbage-collection" in found(analyzed(tmp_path, steps(Machine(), 6, step)))) == is_garbage


COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void deep_ep::internode::combine<false>()",
    "void ::ep::internode::dispatch<false>()",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>()",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport()",
    "multimem_all_reduce_kernel<__nv_bfloat16>",
    "nvshmemi_alltoall_kernel",
    "two_shot_all_reduce_kernel",
    "void mscclpp::reduceScatter()",
    "void quickreduce::allreduce_prototype_twoshot<>()",
)
OTHERS = (
    "triton_poi_fused_all_gather_into_tensor_view_3",
    "void blockAllReduceSum<float>()",
    "void at::native::vectorized_elementwise_kernel<4, FillFunctor>",
    "void step_dispatch()",
    "nvjet_hsh_128x128",
)


@pytest.mark.parametrize(("name", "answer"), [*((name, True) for name in COLLECTIVES), *((name, False) for name in OTHERS)])
def test_collectives_are_known_whoever_wrote_them(name: str, answer: bool) -> None:
    assert kernels.is_collective(name.lower()) == answer


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int, char*)", "vectorized_elementwise_kernel"),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("ampere_bf16_s16816gemm_bf16_128x128", "ampere_bf16_s16816gemm_bf16_128x128"),
        ("<<<>>>", "<<<>>>"),
    ],
)
def test_a_kernel_has_a_name_for_people(name: str, short: str) -> None:
    assert kernels.short(name) == short


# ---------------------------------------------------------------------- devices


def test_few_blocks_of_collectives_are_no_unfilled_device(tmp_path: Path) -> None:
    """NCCL leaves the device to others on purpose, and so do persistent kernels of 112 blocks on 132 multiprocessors."""

    def step(machine: Machine) -> None:
        busy(machine, 20, COLLECTIVES[0], **{"blocks per SM": 16 / 132})
        busy(machine, 20, "deep_gemm", **{"blocks per SM": 112 / 132})

    assert "device.waves-small" not in found(analyzed(tmp_path, steps(Machine(), 6, step)))


def test_small_kernels_are_named(tmp_path: Path) -> None:
    result = analyzed(
        tmp_path, steps(Machine(), 6, lambda machine: busy(machine, 40, "void gemv2T<float, 128>(float*)", **{"blocks per SM": 0.1}))
    )
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "device.waves-small"]

    assert "gemv2T" in finding.message


@pytest.mark.parametrize(("capability", "over", "is_wrong"), [((9, 0), 2, False), ((8, 0), 2, True), ((9, 0), 60, True)])
def test_dependent_launches_overlap_their_predecessor(tmp_path: Path, capability: tuple[int, int], over: float, is_wrong: bool) -> None:
    """A kernel may start some µs before the one before it ends on a device that can launch so, and nothing is wrong with the clocks."""
    machine = steps(Machine(capability=capability), 6, lambda machine: (busy(machine), machine.synchronize()))
    ours = [event for event in machine.events if event["cat"] == "kernel"]
    for event in ours[::2]:
        event["dur"] += over
    severities = [finding.severity for finding in analyzed(tmp_path, machine).analysis.findings if finding.rule == "trust.clock-impossible"]

    assert severities == (["info"] if is_wrong else [])  # it changes no figure


# ---------------------------------------------------------------------- pauses and start-ups


@pytest.mark.parametrize("short", [0, 3, 12])
def test_a_pause_that_comes_back_is_found_among_short_ones(tmp_path: Path, short: int) -> None:
    """300 ms in every third of nine steps, while other programs take the CPU for some ms at the same place in others."""

    def step(machine: Machine) -> None:
        number = sum(event["name"].startswith("ProfilerStep") for event in machine.events)
        for _ in range(8):
            machine.event("cpu_op", "aten::mm", machine.now, 10_000)
            machine.think(10_000)
        machine.think(300_000 if number % 3 == 2 else short * 1_000 if number in (3, 4, 7) else 20)

    rank = analyzed(tmp_path, steps(Machine(), 9, step)).analysis.trace.ranks[0]

    assert rank.verdict == "host-bound"
    assert rank.hole.returns.endswith("every 3 steps")


def test_calls_of_a_start_up_that_come_back_are_no_iterations(tmp_path: Path) -> None:
    """A first pass loads code for every fourth operator: the device pauses at equal distances."""
    machine = Machine()
    for number in range(40):
        if number % 4 == 0:
            machine.call("cuModuleLoadData", 3_500)
        machine.kernel(70)
    trace = analyzed(tmp_path, machine).analysis.trace

    assert trace.verdict == "cannot-tell"
    assert "start-up" in trace.why


def test_kernels_that_are_shorter_than_their_launches_wait_for_the_host(tmp_path: Path) -> None:
    """Calls of 9 µs behind each other launch kernels of 4 µs: each is being launched when the one before it ends, and nothing else is."""
    machine = Machine()

    def step(machine: Machine) -> None:
        for _ in range(200):
            machine.kernel(4, cost=9, latency=11)
            machine.think(1)
        machine.synchronize()

    result = analyzed(tmp_path, steps(machine, 6, step))

    assert result.analysis.trace.verdict == "host-bound"
    assert "device.launch-bound" in found(result)
    assert "device.idle-although-queued" not in found(result)


# ---------------------------------------------------------------------- ranks


def wait_until(machine: Machine, end: float) -> None:
    """Be in a collective until this time, in µs."""
    machine.kernel(end - machine.now - 5, COLLECTIVES[0], stream=20)
    machine.now = end


def of_rank(folder: Path, machine: Machine, rank: int, world: int) -> str:
    """The path of the file of one of so many ranks."""
    info = {"backend": "nccl", "rank": rank, "world_size": world}
    return written(folder, machine.trace(distributedInfo=info), f"rank{rank}.json")


def late(folder: Path, *who: int, world: int = 4, in_turn: bool = False) -> list[str]:
    """These ranks are 3 ms late in one of ten collectives, together or one after the other, and all by 5 µs in turn."""
    paths = []
    for rank in range(world):
        machine = Machine()
        for number in range(6):
            begin, tardy = machine.now, (who[number % len(who)],) if in_turn else who
            for place in range(10):
                base, jitter = begin + place * 400 + (3_000 if place else 0), 5 if (number * 10 + place) % world == rank else 0
                machine.now = base
                machine.kernel(80)
                machine.now = base + 100 + (3_000 if rank in tardy and not place else 0) + jitter
                end = base + 200 + (0 if place else 3_000)
                wait_until(machine, end)
            machine.range(f"ProfilerStep#{number}", begin)
        paths.append(of_rank(folder, machine, rank, world))
    return paths


def test_the_late_rank_is_the_one_that_costs_most_and_not_the_one_that_is_last_most_often(tmp_path: Path) -> None:
    result = analyze(late(tmp_path, 1), rules())
    trace = result.analysis.trace

    assert (trace.skew.late, trace.skew.rotates) == ((1,), False)
    assert trace.skew.late_share == pytest.approx(100, abs=2)
    assert "for rank 1" in trace.why
    assert "ddp.unequal-ranks" in found(result)


@pytest.mark.parametrize(("who", "in_turn"), [((2, 5), False), ((2, 5), True), ((4, 5, 6, 7), False)])
def test_ranks_that_are_late_together_are_all_named(tmp_path: Path, who: tuple[int, ...], in_turn: bool) -> None:
    """Two of eight, also where one is late and then the other; and half of them, such as those of one node."""
    result = analyze(late(tmp_path, *who, world=8, in_turn=in_turn), rules())
    skew = result.analysis.trace.skew
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "ddp.unequal-ranks"]

    assert (set(skew.late), skew.rotates) == (set(who), False)
    assert skew.late_share == pytest.approx(100, abs=2)
    assert f"for ranks {', '.join(map(str, skew.late[:-1]))} and {skew.late[-1]}" in result.analysis.trace.why
    assert f"Ranks {', '.join(map(str, skew.late))} cause" in finding.message
    assert finding.gain.interval


@pytest.mark.parametrize(("slow", "who"), [([5, 5, 5, 5], (5,)), ([1, 5, 2, 7], ()), ([0, 5, 5], ())])
def test_a_rank_that_is_far_the_latest_in_each_of_few_steps_is_late(tmp_path: Path, slow: list[int], who: tuple[int, ...]) -> None:
    """Of eight ranks, which come within 0.5 ms of each other: chance makes the same one the latest by 6 ms in all three steps of one job of 64."""
    paths = []
    for rank in range(8):
        machine = Machine()
        for number, tardy in enumerate(slow):
            begin = machine.now
            machine.kernel(9_000 if rank == tardy else 3_000 + 70 * ((rank + 3 * number) % 8))
            at = machine.free[7]
            for place in range(3):
                end = begin + 10_000 + 1_000 * place
                machine.now = max(at, end - 1_000)
                machine.now = at if not place else machine.now
                wait_until(machine, end)
            machine.range(f"ProfilerStep#{number}", begin)
        paths.append(of_rank(tmp_path, machine, rank, 8))

    assert analyze(paths, rules()).analysis.trace.skew.late == who


@pytest.mark.parametrize(("world", "who", "told"), [(8, (1,), "for rank 1"), (2, (), "for whom most is not clear")])
def test_waiting_for_one_rank_is_no_communication(tmp_path: Path, world: int, who: tuple[int, ...], told: str) -> None:
    """Rank 1 computes about 34 ms in each of four steps, and the others 30: they wait a tenth of the time. Of two ranks chance may do that."""
    paths = []
    for rank in range(world):
        machine = Machine()
        for number in range(4):
            begin = machine.now
            for _ in range(10):
                machine.kernel((3_300, 3_400, 3_500)[number % 3] if rank == 1 else 3_000 + 5 * ((rank + number) % world))
            machine.now = machine.free[7]
            machine.kernel(begin + 36_000 - machine.now, COLLECTIVES[0], stream=20)
            machine.now = begin + 36_000
            machine.kernel(2_000, COLLECTIVES[0], stream=20)
            machine.now = begin + 38_010
            machine.kernel(200)
            machine.range(f"ProfilerStep#{number}", begin)
        paths.append(of_rank(tmp_path, machine, rank, world))
    trace = analyze(paths, rules()).analysis.trace

    assert (trace.skew.late, trace.skew.rotates) == (who, False)
    assert trace.verdict == "compute-bound"
    assert told in trace.why


@pytest.mark.parametrize(("times", "who"), [(1, ()), (3, (1,))])
def test_a_rank_that_is_late_once_is_not_the_late_one(tmp_path: Path, times: int, who: tuple[int, ...]) -> None:
    """One of two is 60 ms late once, as where something else has its CPU, or in three of six steps; both by some 5 ms in turn."""
    paths = []
    for rank in range(2):
        machine = Machine()
        for number in range(6):
            begin, longest = machine.now, 60_000 if number >= 6 - times else 5_000
            machine.kernel(80)
            late_by = longest if rank == 1 and number >= 6 - times else 5_000 if number % 2 == rank else 0
            machine.now = begin + 100 + late_by
            end = begin + 300 + max(longest, 5_000)
            wait_until(machine, end)
            machine.range(f"ProfilerStep#{number}", begin)
        paths.append(of_rank(tmp_path, machine, rank, 2))

    assert analyze(paths, rules()).analysis.trace.skew.late == who


@pytest.mark.parametrize(("times", "steps_of", "who"), [(1, 6, ()), (4, 6, (1,)), (4, 5, (1,))])
def test_the_collectives_of_one_step_are_late_together(tmp_path: Path, times: int, steps_of: int, who: tuple[int, ...]) -> None:
    """Of two ranks, the second is 20 ms late at each of three collectives of a step: once, and by 6 ms in another; in most; in all four."""
    paths = []
    for rank in range(2):
        machine = Machine()
        for number in range(steps_of):
            begin, late_by = machine.now, 20_000 if 0 < number <= times else 6_000 if number == 5 else 300
            for place in range(3):
                is_late = rank == (1 if late_by > 300 else (number + place) % 2)
                end = begin + (place + 1) * (late_by + 1_000)
                machine.kernel(end - machine.now - (600 if is_late else 600 + late_by))
                machine.now = machine.free[7]
                wait_until(machine, end)
            machine.range(f"ProfilerStep#{number}", begin)
        paths.append(of_rank(tmp_path, machine, rank, 2))

    assert analyze(paths, rules()).analysis.trace.skew.late == who


def test_the_page_of_several_ranks_shows_who_waits_and_who_is_late(tmp_path: Path) -> None:
    """Its timeline has the rank that waits most, with the times in which it does, and the late one."""
    result = analyze(files := late(tmp_path, 1), rules())
    drawing = draw(*subjects(result, files))
    most = max(result.analysis.trace.ranks, key=lambda rank: rank.collectives.waiting_pct or 0.0)
    (row,) = (row for row in drawing.rows if row.name == f"rank {most.rank}: waits for rank 1")

    waited = 100 * sum(event.duration for event in row.events) / ((most.window_ms or 0) * 1e6)
    assert waited == pytest.approx(most.collectives.waiting_pct, abs=0.5)
    assert any(row.name.startswith("rank 1: device") for row in drawing.rows)
    page = timeline.render(result.analysis, drawing)
    assert f"Timeline of rank {most.rank} and rank 1" in page
    assert "Where the time of kernels of rank 1 goes" in page


def test_one_that_waits_for_all_others_names_none_of_them(tmp_path: Path) -> None:
    """Whether two of three are slow or one is quick, the files do not tell."""
    result = analyze(late(tmp_path, 1, 2, world=3), rules())

    assert result.analysis.trace.skew.late == ()
    assert "ddp.unequal-ranks" not in found(result)


# ---------------------------------------------------------------------- scheduling

STATES = "CREATE TABLE ENUM_SAMPLING_THREAD_STATE (id, name, label)"
SCHEDULED = "CREATE TABLE SCHED_EVENTS (start, isSchedIn, globalTid, threadState)"


def scheduled(folder: Path, state: int, *more: str) -> float | None:
    """The wait for a CPU of a launching thread that leaves its CPU in this state for 90 of 105 µs."""
    machine = steps(Machine(), 6, busy)
    thread = 4_000 << 24 | 4_000
    rows = [
        (round((event["ts"] + at) * 1_000), on, thread, state)
        for event in machine.events
        if event["cat"] == "cuda_runtime"
        for at, on in ((5.0, 0), (9.0, 1))
    ]
    path = exported(folder, machine, changes=(SCHEDULED, *more))
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT INTO SCHED_EVENTS VALUES (?, ?, ?, ?)", rows)
    return analyze([path], rules()).analysis.trace.ranks[0].host.runnable_wait_pct


def test_a_thread_waits_for_a_cpu_where_the_file_says_so(tmp_path: Path) -> None:
    """State 0 is Unknown by the file's own table; without such a table nobody knows what a number means."""
    named = (STATES, "INSERT INTO ENUM_SAMPLING_THREAD_STATE VALUES (0, 'Unknown', ''), (1, 'Running', '')")

    assert scheduled(tmp_path, 0, *named) in (None, 0.0)
    assert scheduled(tmp_path, 0) is None
    waited = scheduled(tmp_path, 1, *named)
    assert waited is not None
    assert 5 < waited < 100


def test_no_share_of_a_whole_is_more_than_the_whole() -> None:
    """A figure that was counted wrongly is unknown."""
    rank = _bounded(Rank(file="", form="nsys", host=HostWork(runnable_wait_pct=4_170_128.0, gc_pct=100.2, gil_wait_pct=-3.0)))

    assert msgspec.to_builtins(rank.host)["runnable_wait_pct"] is None
    assert (rank.host.gc_pct, rank.host.gil_wait_pct) == (100.2, None)


# ---------------------------------------------------------------------- the host's own work


def test_a_few_long_kernels_are_enough(tmp_path: Path) -> None:
    """One kernel a step, for which the CPU makes random numbers: the operator is named, and the number of kernels is no reason to doubt."""

    def step(machine: Machine) -> None:
        start = machine.now
        machine.think(9_000)
        machine.range("aten::randn", start, "cpu_op")
        machine.kernel(6_000)

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    trace = result.analysis.trace

    assert trace.verdict == "host-bound"
    assert "`aten::randn` 100 % of the time" in trace.why
    assert "program.hole" in found(result)


@pytest.mark.parametrize(("us", "verdict"), [(15_000, "healthy"), (30, "cannot-tell")])
def test_a_device_that_is_busy_for_long_is_so_by_few_kernels_too(tmp_path: Path, us: float, verdict: str) -> None:
    """Five products behind each other, without steps: of 15 ms, or of 30 µs."""
    machine = Machine()
    for _ in range(5):
        machine.kernel(us)

    assert analyzed(tmp_path, machine).analysis.trace.verdict == verdict


@pytest.mark.parametrize(("count", "verdict"), [(7, "host-bound"), (4, "cannot-tell")])
def test_a_host_that_feeds_few_kernels_to_some_marked_steps_bounds_them(tmp_path: Path, count: int, verdict: str) -> None:
    """Three kernels in each, behind 8 ms in a range of the program."""

    def step(machine: Machine) -> None:
        machine.log(8_000)
        for _ in range(3):
            machine.kernel(100)

    assert analyzed(tmp_path, steps(Machine(), count, step)).analysis.trace.verdict == verdict


@pytest.mark.parametrize(
    ("call", "says"), [("cudaGetDeviceCount", "made 1 call and launched nothing"), ("cudaLaunchKernel", "nothing that the device did")]
)
def test_calls_alone_tell_whether_anything_was_launched(tmp_path: Path, call: str, says: str) -> None:
    machine = Machine()
    machine.call(call, 400)
    trace = analyzed(tmp_path, machine).analysis.trace

    assert trace.verdict == "cannot-tell"
    assert says in trace.why


def test_an_operator_on_the_cpu_decides_where_the_device_was_not_recorded(tmp_path: Path) -> None:
    """The calls are in the file, and none is in the operator; what to do is not to add an activity that was on."""

    def step(machine: Machine) -> None:
        start = machine.now
        machine.think(8_000)
        machine.range("aten::normal_", start, "cpu_op")
        machine.call("cudaLaunchKernel", 2_000)

    result = analyzed(tmp_path, steps(Machine(), 6, step))
    trace = result.analysis.trace
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "trust.device-events-missing"]

    assert (trace.verdict, "aten::normal_" in trace.why) == ("host-bound", True)
    assert "activities=" not in finding.fixes[0].title


def test_an_operator_that_may_start_the_device_decides_nothing(tmp_path: Path) -> None:
    """The first tensor of a program takes seconds, and no call in it is recorded."""

    def step(machine: Machine) -> None:
        start = machine.now
        machine.think(8_000)
        machine.range("aten::empty", start, "cpu_op")
        machine.call("cudaLaunchKernel", 2_000)

    assert analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.verdict == "cannot-tell"


def test_calls_without_their_kernels_are_no_matter_of_activities(tmp_path: Path) -> None:
    machine = steps(Machine(), 6, lambda machine: [machine.call("cudaLaunchKernel", 20) for _ in range(50)])
    result = analyzed(tmp_path, machine)

    assert result.analysis.trace.verdict == "cannot-tell"
    assert "could not observe" in result.analysis.trace.why


# ---------------------------------------------------------------------- captures, start-ups, single passes


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_a_graph_that_is_captured_does_not_run(tmp_path: Path, kind: str) -> None:
    """Launches into a capture are no late launches."""

    def step(machine: Machine) -> None:
        busy(machine, 40, us=10)
        machine.call(f"{kind}StreamBeginCapture", 1)
        for _ in range(400):
            machine.think(20)
            machine.call(f"{kind}LaunchKernel", 5)
        machine.call(f"{kind}StreamEndCapture", 5)
        machine.call(f"{kind}GraphInstantiate", 500)

    result = analyzed(tmp_path, steps(Machine(), 3, step))

    assert result.analysis.trace.verdict == "cannot-tell"
    assert "captured" in result.analysis.trace.why
    assert not found(result) & {"device.launch-bound", "program.hole"}


def test_a_capture_that_is_a_small_part_changes_nothing(tmp_path: Path) -> None:
    machine = Machine()
    machine.call("cudaStreamBeginCapture", 1)
    machine.call("cudaStreamEndCapture", 1)
    result = analyzed(tmp_path, steps(machine, 6, lambda machine: (busy(machine), machine.synchronize())))

    assert result.analysis.trace.verdict == "healthy"


def one_pass(machine: Machine, count: int = 300) -> Machine:
    """Short kernels of different names that the host launches too slowly, without any mark."""
    for number in range(count):
        machine.think(12)
        machine.kernel(8, f"kernel_{number}")
    return machine


def test_one_pass_without_a_start_up_is_host_bound(tmp_path: Path) -> None:
    """Quick launches, no call that loads or allocates, short gaps: that is what a steady pass looks like."""
    result = analyzed(tmp_path, one_pass(Machine()))

    assert result.analysis.trace.verdict == "host-bound"
    assert "device.launch-bound" in found(result)
    assert not any("?" in finding.message for finding in result.analysis.findings)


@pytest.mark.parametrize("call", ["cuLibraryLoadData", "hipModuleLoad", "cudaFree", "cudaStreamCreateWithPriority"])
def test_a_start_up_is_told_by_its_calls(tmp_path: Path, call: str) -> None:
    machine = one_pass(Machine())
    machine.call(call, 30_000)
    result = analyzed(tmp_path, one_pass(machine))

    assert result.analysis.trace.verdict == "cannot-tell"
    assert f"`{call}`" in result.analysis.trace.why


def test_a_launch_that_loads_its_kernel_is_a_start_up(tmp_path: Path) -> None:
    machine = one_pass(Machine())
    machine.kernel(8, "first", cost=40_000, latency=40_000)
    result = analyzed(tmp_path, one_pass(machine))

    assert result.analysis.trace.verdict == "cannot-tell"
    assert "`cudaLaunchKernel`" in result.analysis.trace.why


# ---------------------------------------------------------------------- what an iteration is

LAYER = ("rmsnorm", "Cijk_Alik_Bljk_BBS_MT32x32x256_MI16x16x1", "attention", "moe", "router", "gate", "up", "down", "add", "scale")


def decode(machine: Machine, layers: int = 24) -> None:
    """A step of a server: one graph, in which each layer launches the same kernels."""
    start = machine.now
    machine.call("hipGraphLaunch", 60)
    number, at = machine.events[-1]["args"]["correlation"], machine.now
    for layer in range(layers):
        for place, name in enumerate(LAYER):
            begin = at + (layer * len(LAYER) + place) * 100
            machine.event("kernel", name, begin, 100, tid=0, pid=0, device=0, stream=0, correlation=number)
    machine.now = at + layers * len(LAYER) * 100
    machine.range(f"execute_{len(machine.events)}_context_0(sq0)_generation_32(sq32)", start)


def test_layers_of_one_graph_are_no_iterations(tmp_path: Path) -> None:
    machine = Machine()
    decode(machine)
    for with_range in (True, False):
        machine.events = machine.events if with_range else machine.events[:-1]
        assert analyzed(tmp_path, machine).analysis.trace.ranks[0].steps.count == 0


def test_steps_of_a_server_are_those_that_say_so(tmp_path: Path) -> None:
    """Their names hold numbers of requests, which differ from step to step."""
    machine = Machine()
    for _ in range(6):
        decode(machine)
    steps_of = analyzed(tmp_path, machine).analysis.trace.ranks[0].steps

    assert (steps_of.by, steps_of.count) == ("NVTX", 5)


# ---------------------------------------------------------------------- what is healthy


def test_a_busy_device_that_multiplies_without_tensor_cores_is_not_healthy(tmp_path: Path) -> None:
    """The verdict does not contradict the warning, and a T4 is not told to use what it has not."""
    machine = steps(Machine(capability=(7, 5)), 6, lambda machine: (busy(machine, name="volta_sgemm_128x64_nn"), machine.synchronize()))
    result = analyzed(tmp_path, machine)
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "precision.tensor-cores-unused"]

    assert result.analysis.trace.verdict == "compute-bound"
    assert "precision.tensor-cores-unused" in result.analysis.trace.why
    assert "float16" in finding.fixes[0].title
    assert "dtype=torch.bfloat16" not in finding.fixes[0].title


def test_copies_back_count_as_copies(tmp_path: Path) -> None:
    """Nearly all of the time goes to copies into pageable memory: nothing of that is a matter of the loader's memory."""

    def step(machine: Machine) -> None:
        busy(machine, 10)
        machine.copy(3_000, "Memcpy DtoH (Device -> Pageable)")

    result = analyzed(tmp_path, steps(Machine(), 6, step))

    assert result.analysis.trace.verdict == "copy-bound"
    assert "dataloader.pin-memory-off" not in found(result)
    assert "transfer.back-pageable" in found(result)


def test_compiled_frames_are_counted_and_not_their_calls(tmp_path: Path) -> None:
    """One region for each layer is one frame, and an optimizer's own is no break."""

    def step(machine: Machine) -> None:
        for name in ["Torch-Compiled Region: 0/0"] * 24 + ["Torch-Compiled Region: 1/0"]:
            start = machine.now
            machine.kernel(20)
            machine.range(name, start)
        start = machine.now
        for number in range(12):
            inner = machine.now
            machine.kernel(20)
            machine.range(f"Torch-Compiled Region: {2 + number}/0", inner)
        machine.range("Optimizer.step#AdamW.step", start)

    result = analyzed(tmp_path, steps(Machine(), 6, step))

    assert result.analysis.trace.ranks[0].host.graph_breaks == 2
    assert "compile.graph-breaks" not in found(result)


# ---------------------------------------------------------------------- where the busy time goes

HALF = "c10::BFloat16"


def launched(machine: Machine, name: str, kernel: str, us: float, shapes: list[list[int]]) -> None:
    """An operator of 16-bit inputs that launches one kernel."""
    start = machine.now
    machine.kernel(us, kernel)
    described: dict[str, Any] = {"Input Dims": shapes, "Input type": [HALF] * len(shapes)}
    machine.event("cpu_op", name, start, machine.now - start, **described)


def products(machine: Machine) -> float:
    """Two products of 16-bit numbers, one with an odd dimension, and an addition, each launched by its operator."""
    launched(machine, "aten::mm", "nvjet_hsh_128x128_64x4", 200, [[4_096, 4_096], [4_096, 4_096]])
    launched(machine, "aten::mm", "nvjet_hsh_128x128_64x4", 2_600, [[4_096, 4_096], [4_096, 50_257]])
    kernel = "void at::native::vectorized_elementwise_kernel<4, AddFunctor>(int)"
    launched(machine, "aten::add", kernel, 100, [[4_096, 4_096], [4_096, 4_096]])
    return machine.synchronize()


def test_the_busy_time_is_told_by_operator_and_shape(tmp_path: Path) -> None:
    """A product's operations a second and what that is of the peak, and an elementwise operator's bytes a second, by their shapes."""
    result = analyzed(tmp_path, steps(Machine(), 6, products))
    rank = result.analysis.trace.ranks[0]
    odd, even, add = rank.busy
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "kernels.sizes-not-aligned"]

    assert (odd.operator, odd.shapes, odd.count) == ("aten::mm", "4096×4096, 4096×50257", 5)
    assert odd.share_pct == pytest.approx(100 * 2_600 / 2_900, abs=0.1)
    assert even.tflops == pytest.approx(2 * 4_096**3 / 200e-6 / 1e12, rel=0.01)
    assert (even.peak_pct, even.bound) == (None, "compute")  # more than the peak of an A100 is no share of it
    assert add.gb_per_s == pytest.approx(3 * 4_096 * 4_096 * 2 / 100e-6 / 1e9, rel=0.01)
    assert add.bound == "memory"
    assert "50257" in finding.message
    assert rank.work.misaligned_pct == pytest.approx(odd.share_pct, abs=0.1)


def test_collectives_are_told_by_kind_and_size_with_the_bandwidth_of_the_links(tmp_path: Path) -> None:
    """64 MB in 1 ms over 8 ranks: 2 · 7 / 8 of it crosses each link. The shortest counts: the others wait."""

    def step(machine: Machine) -> None:
        for us in (1_000, 1_500):
            sized: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 32_000_000, "dtype": "BFloat16", "Group size": 8}
            machine.kernel(us, COLLECTIVES[0], **sized)
        busy(machine)
        machine.synchronize()

    rank = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks[0]
    (row,) = rank.collectives.kinds

    assert (row.name, row.bytes, row.count) == ("allreduce", 64_000_000, 10)
    assert (row.shortest_ms, row.median_ms) == (1.0, 1.25)
    assert row.bus_gb_per_s == pytest.approx(64 * 2 * 7 / 8, rel=0.01)


def test_ranks_are_a_table_and_their_findings_one_line_a_rule(tmp_path: Path) -> None:
    text = render(analyze(late(tmp_path, 1), rules()).analysis)

    assert "waits %" in text
    assert text.count("ddp.communication") == 1
    assert "4 of 4 ranks" in text


def test_a_rank_that_waits_for_a_late_one_is_not_said_to_compute(tmp_path: Path) -> None:
    """Its collective is running, and so its device is busy. The late rank has its own verdict, and where nobody is late each has."""
    _, rows = tables.matrix(analyze(late(tmp_path, 1), rules()).analysis)

    assert [row[-1] == "Waits for rank 1" for row in rows] == [True, False, True, True]
    assert rows[1][-1].startswith("Late: ")
    assert not [row for row in tables.matrix(analyze(late(tmp_path, 0, 1, 2, 3, in_turn=True), rules()).analysis)[1] if "Waits" in row[-1]]


def test_a_rank_that_waits_more_for_its_loader_than_for_another_rank_is_bound_by_the_loader(tmp_path: Path) -> None:
    """All load for 5 ms of a step, and one for 2 ms more."""
    paths = []
    for rank in range(4):
        machine = Machine()
        for number in range(60):
            begin = machine.now
            machine.load(7_000 if rank == 1 else 5_000)
            machine.kernel(500)
            machine.now += 600
            wait_until(machine, begin + 7_800 + (5 if number % 4 == rank else 0))
            machine.range(f"ProfilerStep#{number}", begin)
        paths.append(of_rank(tmp_path, machine, rank, 4))
    result = analyze(paths, rules()).analysis

    assert result.trace.skew.late == (1,)
    assert {rank.verdict for rank in result.trace.ranks} == {"input-bound"}
    assert all((rank.collectives.waiting_pct or 0.0) > 15 for rank in result.trace.ranks if rank.rank != 1)
    assert {row[-1] for row in tables.matrix(result)[1]} == {"Input-bound", "Late: input-bound"}


JAX = """{"traceEvents":[{"ph":"M","pid":701,"name":"process_name","args":{"name":"/host:CPU"}},
{"ph":"X","pid":701,"tid":5,"ts":7.06,"dur":44.026,"name":"PjitFunction"}]}"""
ASCEND = """[{"name":"process_name","pid":3,"tid":0,"ph":"M","args":{"name":"Overlap Analysis"}},
{"name":"Computing","pid":3,"tid":2,"ts":"1773285899055563.748","dur":53.301,"ph":"X","args":{}},]"""
"""What the profilers of JAX and of torch_npu (trace_view.json) write."""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"traceEvents":[{"ph":"X","cat":"devtools.timeline","name":"x","pid":1,"tid":1,"ts":1,"dur":2}]}', "a browser's trace"),
        ('{"traceEvents":[{"ph":"X","cat":"tokio","name":"x","pid":1,"tid":1,"ts":1,"dur":2}]}', "another program"),
        (JAX, "XLA.* its processes are /host:CPU"),
        (ASCEND, "Ascend"),
        ('{"traceEvents":[{"ph":"X","name":"x","pid":1,"tid":1,"ts":1,"dur":2}]}', "another program"),
        ('{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 2, "inputs": {"values": []}}]}', "execution trace"),
        ('{"$schema":"https://www.speedscope.app/file-format-schema.json","profiles":[{"type":"sampled"}]}', "speedscope"),
        ("[[1795549221128681, 1795549221139494], [[0, 262144], [0, 1024]]]", "memory timeline"),
    ],
)
def test_a_trace_of_another_program_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        analyze([written(tmp_path, text)], rules())


def test_a_snapshot_of_memory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    with pytest.raises(TraceError, match="snapshot of memory"):
        analyze([str(path)], rules())


def test_a_profile_that_recorded_nothing_is_one_of_pytorch(tmp_path: Path) -> None:
    """torch 2.13 writes its own span, and nothing else."""
    text = (
        '{"schemaVersion":1,"traceEvents":[{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"P","ts":1,"dur":9}]}'
    )
    rank = analyze([written(tmp_path, text)], rules()).analysis.trace.ranks[0]

    assert (rank.verdict, "no operator" in rank.why) == ("cannot-tell", True)


def test_marks_that_old_versions_call_operators_are_none(tmp_path: Path) -> None:
    """In old files steps, loaders and optimizers are of the category of operators: what is between operators counts."""
    machine = Machine()

    def step(machine: Machine) -> None:
        for _ in range(20):
            machine.event("Operator", "aten::mm", machine.now, 200)
            machine.think(500)

    steps(machine, 6, step)
    for event in machine.events:
        event["cat"] = "Operator"
    rank = analyzed(tmp_path, machine).analysis.trace.ranks[0]

    assert rank.verdict == "host-bound"
    assert rank.cpu is not None
    assert rank.cpu.operator_pct == pytest.approx(40, abs=1)
    assert [site.what for site in rank.cpu.top] == ["aten::mm"]


def test_time_between_two_windows_of_a_schedule_belongs_to_none(tmp_path: Path) -> None:
    """With repeat=2 the profiler stops for five seconds, and its steps' numbers leap."""
    machine = steps(Machine(), 3, lambda machine: (busy(machine), machine.synchronize()))
    machine.think(5_000_000)
    for number in (10, 11, 12, 13):
        start = machine.now
        busy(machine)
        machine.synchronize()
        machine.range(f"ProfilerStep#{number}", start)
    rank = analyzed(tmp_path, machine).analysis.trace.ranks[0]

    assert rank.verdict in ("compute-bound", "healthy")
    assert (rank.steps.count, rank.step_count) == (3, 7)
    assert rank.window_ms == pytest.approx(3 * 4, rel=0.1)


@pytest.mark.parametrize("early_us", [0.0, 0.4])
def test_steps_that_rounded_times_make_overlap_are_steps(tmp_path: Path, early_us: float) -> None:
    """Ranges of a program follow each other without a gap; every third one holds an evaluation, so that no kernel comes back regularly."""
    machine = Machine()
    for number in range(9):
        start = machine.now
        for _ in range(3 if number % 3 == 2 else 1):
            busy(machine, 10, f"gemm_{number % 3}")
        machine.synchronize()
        machine.log(3_000)
        machine.range(f"step {number}", start - early_us)
    rank = analyze([exported(tmp_path, machine)], rules()).analysis.trace.ranks[0]

    assert (rank.steps.by, rank.steps.count, rank.verdict) == ("NVTX", 8, "host-bound")


def test_a_step_that_is_missing_among_others_is_no_pause(tmp_path: Path) -> None:
    """A mark that was lost leaves a leap of the number, and a gap as long as one step."""
    machine = steps(Machine(), 8, lambda machine: (busy(machine), machine.synchronize()))
    machine.events = [event for event in machine.events if event["name"] != "ProfilerStep#4"]
    rank = analyzed(tmp_path, machine).analysis.trace.ranks[0]

    assert rank.steps.count == 6


def test_a_file_in_utf_16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("{}", encoding="utf-16")
    with pytest.raises(TraceError, match="UTF-16"):
        analyze([str(path)], rules())


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("steps_of", [6, 60])
def test_a_second_trace_in_one_file_is_left_out_and_told(tmp_path: Path, steps_of: int, as_list: bool) -> None:
    """Two files that were joined; the first is read as it is alone."""
    machine = steps(Machine(), steps_of, lambda machine: (busy(machine), machine.synchronize()))
    text = json.dumps(machine.events if as_list else machine.trace())
    both, alone = (analyze([written(tmp_path, content)], rules()) for content in (text + text, text))

    assert "another trace" in both.analysis.trace.ranks[0].trust.truncated
    assert both.analysis.trace.ranks[0].figures == alone.analysis.trace.ranks[0].figures


def test_one_description_of_a_device_is_that_of_all(tmp_path: Path) -> None:
    """Kernels of device 2 beside the properties of device 0."""
    machine = steps(Machine(device=2), 6, busy)
    rank = analyzed(tmp_path, machine, deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X"}]).analysis.trace.ranks[0]

    assert rank.gpu == "AMD Instinct MI300X"


def test_modules_are_a_tree(tmp_path: Path) -> None:
    """Layers of one class in one place are one line, below the model that calls them."""

    def step(machine: Machine) -> float:
        model = machine.now
        for number in range(4):
            layer = machine.now
            machine.kernel(100)
            machine.range(f"nn.Module: Block_{number}", layer, "python_function")
        machine.kernel(200)
        machine.range("nn.Module: GPT_0", model, "python_function")
        return machine.synchronize()

    rows = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks[0].modules

    assert [(row.name, row.depth, row.calls) for row in rows] == [("GPT", 0, 5), ("Block", 1, 20)]
    assert rows[1].share_pct == pytest.approx(100 * 400 / 600, abs=0.1)


def test_as_many_traces_of_ranks_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each rank, and the whole of the one that changed most; two traces cannot be compared with one."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = late(tmp_path / "old", 1, world=2), late(tmp_path / "new", 0, world=2)

    assert main(["analyze", *new, "--against", *old]) == 0
    assert "which changed most" in capsys.readouterr().out
    assert main(["analyze", *new, "--against", *old, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ranks"]) == 2
    assert main(["analyze", *new, "--against", old[0]]) == 2
    assert main(["analyze", *new, "--against", *reversed(old)]) == 2
    assert "is of rank 1" in capsys.readouterr().err


def test_of_ranks_the_one_that_changed_itself_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where one was late, the steps of all were longer: what it does now, the others do not show."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = late(tmp_path / "old", 2), late(tmp_path / "new")

    assert main(["analyze", *new, "--against", *old]) == 0
    text = capsys.readouterr().out
    assert "rank 2, which changed most" in text
    assert "0.00 " not in text.partition("time of a step")[2]


def test_a_rank_whose_collectives_are_hidden_may_be_the_one_that_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others wait for it at the end of the step, and it never exchanges alone."""

    def job(folder: Path, slow_us: float) -> list[str]:
        folder.mkdir()
        paths = []
        for rank in range(3):
            machine, took = Machine(), slow_us if rank == 1 else 1_000
            for number in range(6):
                begin = machine.now
                machine.kernel(took)
                machine.now = begin + 500
                machine.kernel(slow_us - (520 if rank == 1 else 480), COLLECTIVES[0], stream=20)
                machine.now = begin + slow_us + 100
                machine.range(f"ProfilerStep#{number}", begin)
            paths.append(of_rank(folder, machine, rank, 3))
        return paths

    old, new = job(tmp_path / "old", 1_000), job(tmp_path / "new", 1_500)

    assert main(["analyze", *new, "--against", *old]) == 0
    assert "rank 1, which changed most" in capsys.readouterr().out


def test_modules_of_a_program_on_the_cpu_are_a_tree(tmp_path: Path) -> None:
    """By the time of the operators in them."""

    def step(machine: Machine) -> None:
        model = machine.now
        machine.think(1)
        for number in range(12):
            layer = machine.now
            machine.think(1_000)
            machine.range("aten::mm", layer, "cpu_op")
            machine.range(f"nn.Module: Block_{number}", layer, "python_function")
        machine.range("nn.Module: GPT_0", model, "python_function")
        machine.think(10)

    rows = analyzed(tmp_path, steps(Machine(), 6, step)).analysis.trace.ranks[0].modules

    assert [(row.name, row.depth, row.calls) for row in rows] == [("GPT", 0, 5), ("Block", 1, 60)]
    assert rows[1].share_pct == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize(("calls", "found_steps"), [(1, 0), (24, 23)])
def test_layers_within_one_call_of_the_model_are_no_iterations(tmp_path: Path, calls: int, found_steps: int) -> None:
    """The same kernels 24 times: of a model that is called once they are its layers, of one that is called 24 times its steps."""
    machine = Machine()
    for _ in range(calls):
        start = machine.now
        for _ in range(24 // calls):
            for name in LAYER:
                machine.think(5)
                machine.kernel(50, name)
        machine.synchronize()
        machine.range("nn.Module: Model_0", start, "python_function")

    assert analyzed(tmp_path, machine).analysis.trace.ranks[0].steps.count == found_steps


def on_gpu(machine: Machine, name: str, thread: int = 1) -> None:
    """An operator that launches one kernel of 50 µs, from a thread."""
    machine.think(5)
    start = machine.now
    machine.kernel(50, name)
    machine.events[-2]["tid"] = thread
    machine.event("cpu_op", f"aten::{name}", start, machine.now - start, tid=thread)


def on_cpu(machine: Machine, name: str, thread: int = 1) -> None:
    """An operator that computes for 50 µs."""
    machine.event("cpu_op", f"aten::{name}", machine.now, 50, tid=thread)
    machine.now += 51


def layers(machine: Machine, run: Any, count: int = 24, around: str = "", cat: str = "user_annotation") -> None:
    """Layers that do all the same, each in a range of this name."""
    for number in range(count):
        start = machine.now
        for name in LAYER:
            run(machine, name)
        if around:
            machine.range(around.format(number), start, cat)


@pytest.mark.parametrize("run", [on_gpu, on_cpu])
@pytest.mark.parametrize(("passes", "count"), [(1, 0), (6, 5)])
def test_modules_that_nothing_calls_are_layers(tmp_path: Path, run: Any, passes: int, count: int) -> None:
    """A loop over a ModuleList: each layer is a module by itself, and each pass begins with the first one."""
    machine = Machine()
    for _ in range(passes):
        layers(machine, run, around="nn.Module: Block_{}", cat="python_function")
    steps_of = analyzed(tmp_path, machine).analysis.trace.ranks[0].steps

    assert steps_of.by == ("modules" if count else "")
    assert steps_of.count == max(0, count - (run is on_gpu))  # the device's last one has no next one


@pytest.mark.parametrize("run", [on_gpu, on_cpu])
@pytest.mark.parametrize("name", ["TransformerLayer", "decoder_block", "model.layers.7", "block: forward"])
def test_ranges_that_are_named_after_a_layer_are_no_iterations(tmp_path: Path, run: Any, name: str) -> None:
    machine = Machine()
    run(machine, "embedding")
    layers(machine, run, around=name)

    assert analyzed(tmp_path, machine).analysis.trace.ranks[0].steps.by not in ("NVTX", "modules")


@pytest.mark.parametrize(("run", "thread"), [(on_gpu, 2), (on_cpu, 1)])
@pytest.mark.parametrize(("passes", "count"), [(1, 0), (6, 5)])
def test_layers_of_a_backward_pass_are_no_iterations(tmp_path: Path, run: Any, thread: int, passes: int, count: int) -> None:
    """Nobody marked steps: one forward and one backward pass are one step, whatever repeats in them."""
    machine = Machine()
    for _ in range(passes):
        layers(machine, run, 12)
        for _ in range(12):
            for name in LAYER:
                start = machine.now
                run(machine, f"{name}_backward", thread)
                machine.event("cpu_op", "autograd::engine::evaluate_function: X", start - 1, machine.now - start + 2, tid=thread)
                machine.think(4)
        run(machine, "update")

    assert analyzed(tmp_path, machine).analysis.trace.ranks[0].steps.count == count


@pytest.mark.parametrize("run", [on_gpu, on_cpu])
@pytest.mark.parametrize(("passes", "count"), [(2, 0), (3, 0), (6, 5)])
def test_what_repeats_between_rarer_operations_is_a_layer(tmp_path: Path, run: Any, passes: int, count: int) -> None:
    """Two or three passes have their own first and last kernels, which come too seldom to be iterations."""
    machine = Machine()
    for _ in range(passes):
        run(machine, "embedding")
        layers(machine, run)
        run(machine, "head")

    assert analyzed(tmp_path, machine).analysis.trace.ranks[0].steps.count == count
