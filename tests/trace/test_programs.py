"""Programs of many kinds, made up so that the answer is known: what must be said of each, and what must not."""

from __future__ import annotations

import itertools
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.model.errors import TraceError
from sysperf.report.profiling import analysis as text
from sysperf.trace import account, read
from sysperf.trace.accounting.verdict import of_rank
from sysperf.trace.facts import Rank
from sysperf.trace.host_facts import Cpu, Hole, Steps
from sysperf.trace.replay.fixes import MEASURED

from .labelled import rules
from .synthetic import MS, Machine, steps, written

GEMM = "ampere_bf16_s16816gemm"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def analyzed(folder: Path, trace: Any) -> Result:
    return analyze([written(folder, trace)], rules())


def rank(result: Result) -> Rank:
    return result.analysis.trace.ranks[0]


def found(result: Result) -> set[str]:
    return {finding.rule for finding in result.analysis.findings if finding.severity in ("warning", "critical")}


def compute(machine: Machine, kernels: int, us: float = 300, name: str = GEMM) -> None:
    for _ in range(kernels):
        machine.think(4)
        machine.kernel(us, name)


def test_repeating_kernels_without_marks_are_iterations(tmp_path: Path) -> None:
    machine = Machine()
    for _ in range(12):
        for number in range(40):
            machine.kernel(400, f"gemm_{number}_16816")
        machine.kernel(100, "multi_tensor_apply_kernel")
    result = analyzed(tmp_path, machine.trace())

    assert (rank(result).verdict, rank(result).steps.by, rank(result).steps.count) == ("healthy", "kernels", 11)


def test_one_launch_of_a_graph_is_all_that_its_kernels_need(tmp_path: Path) -> None:
    def step(machine: Machine) -> None:
        machine.call("cudaGraphLaunch", 30)
        number, at = machine.events[-1]["args"]["correlation"], machine.now
        for node in range(200):
            args = {"device": 0, "stream": 7, "correlation": number, "graph node id": node + 1}
            machine.event("kernel", GEMM, at, 50, tid=7, pid=0, **args)
            at += 50.5
        machine.free[7] = at
        machine.synchronize("cudaStreamSynchronize")

    result = analyzed(tmp_path, steps(Machine(), 6, step).trace())

    assert rank(result).verdict == "healthy"
    assert rank(result).work.graph_share == 100
    assert not found(result)


def test_streams_that_work_side_by_side_are_no_sum(tmp_path: Path) -> None:
    def step(machine: Machine) -> None:
        for _ in range(60):
            machine.kernel(300, GEMM, stream=7)
            machine.kernel(280, "vectorized_elementwise_kernel", stream=20)
        machine.synchronize()

    busy = rank(analyzed(tmp_path, steps(Machine(), 6, step).trace())).figures.gpu_busy_pct_mean

    assert busy is not None
    assert 95 <= busy <= 100


@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("amd", [False, True])
def test_collectives_count_where_nothing_runs_beside_them(tmp_path: Path, exposed: bool, amd: bool) -> None:
    def step(machine: Machine) -> None:
        compute(machine, 40)
        if exposed:
            machine.free[30] = machine.free[7]
        machine.kernel(6_000, NCCL, stream=30)
        if exposed:
            machine.free[7] = machine.free[30]
        compute(machine, 25)
        machine.synchronize()

    trace = steps(Machine(), 6, step).trace()
    if amd:
        for event in trace["traceEvents"]:
            event["name"] = event["name"].replace("cudaLaunchKernel", "hipExtModuleLaunchKernel").replace("cuda", "hip")
        trace["deviceProperties"][0].update(name="AMD Instinct MI300X", computeMajor=9, computeMinor=4)
    result = analyzed(tmp_path, trace)

    assert ("ddp.communication" in found(result)) == exposed
    assert (rank(result).verdict == "comm-bound") == exposed
    assert rank(result).capability == (None if amd else 8.0)


def test_waits_that_drain_the_queue_are_found_though_they_cost_little_themselves(tmp_path: Path) -> None:
    """Three kernels, a wait, 0.4 ms of Python: the device idles after each wait; without it, it would not."""

    def step(machine: Machine) -> None:
        for _ in range(12):
            compute(machine, 3)
            machine.synchronize("cudaStreamSynchronize")
            machine.think(400)

    result = analyzed(tmp_path, steps(Machine(), 6, step).trace())
    (finding,) = [reported for reported in result.analysis.findings if reported.rule == "sync.per-step"]

    assert finding.cost_pct == pytest.approx(30, abs=2)
    assert finding.gain.interval
    assert finding.gain.high == pytest.approx(30, abs=2)


def test_an_optimizer_on_the_cpu_is_no_preparing_of_data(tmp_path: Path) -> None:
    """Parameters are copied back when it is done, as batches are."""

    def step(machine: Machine) -> None:
        compute(machine, 30)
        machine.copy(4_000, "Memcpy DtoH (Device -> Pinned)")
        machine.synchronize("cudaStreamSynchronize")
        start = machine.now
        machine.think(15 * MS)
        machine.range("Optimizer.step#DeepSpeedCPUAdam.step", start)
        machine.copy(4_000)

    result = analyzed(tmp_path, steps(Machine(), 6, step).trace())
    (hole,) = [finding for finding in result.analysis.findings if finding.rule == "program.hole"]

    assert rank(result).verdict == "host-bound"
    assert rank(result).hole.cause == "Optimizer.step#DeepSpeedCPUAdam.step"
    assert hole.gain.high is not None
    assert hole.cost_pct is not None
    assert hole.gain.high <= hole.cost_pct


@pytest.mark.parametrize(
    "kernel", ["nvjet_qqtst_128x256_128x6_1x2_h_bz_coopA_NTN", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "ampere_sgemm_128x64_nn"]
)
def test_tensor_cores_are_known_by_the_names_of_kernels(tmp_path: Path, kernel: str) -> None:
    def step(machine: Machine) -> None:
        compute(machine, 60, 600, kernel)
        machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(capability=(9, 0)), 6, step).trace())

    assert ("precision.tensor-cores-unused" in found(result)) == ("sgemm" in kernel)


def test_a_device_of_another_vendor_has_no_capability_of_nvidia(tmp_path: Path) -> None:
    def step(machine: Machine) -> None:
        for _ in range(200):
            machine.think(40)
            machine.kernel(20, "gemm_kernel")

    trace = steps(Machine(), 6, step).trace()
    for event in trace["traceEvents"]:
        if event["cat"] == "cuda_runtime":
            event.update(cat="xpu_runtime", name="urEnqueueKernelLaunch")
    trace["deviceProperties"][0]["name"] = "Intel(R) Data Center GPU Max 1550"
    result = analyzed(tmp_path, trace)

    assert rank(result).verdict == "host-bound"
    assert "device.launch-bound" in found(result)
    assert "precision.tensor-cores-unused" not in found(result)


def test_names_of_categories_of_old_files_are_known(tmp_path: Path) -> None:
    """Versions before 1.12 wrote them with capitals."""

    def step(machine: Machine) -> None:
        machine.load(20 * MS)
        compute(machine, 60, 300, "volta_sgemm_128x64_nn")
        machine.synchronize()

    trace = steps(Machine(), 6, step).trace()
    old = {"kernel": "Kernel", "cuda_runtime": "Runtime", "user_annotation": "Operator"}
    for event in trace["traceEvents"]:
        event["cat"] = old[event["cat"]]

    assert rank(analyzed(tmp_path, trace)).verdict == "input-bound"


def in_pairs(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same events as pairs of a begin and an end, in the order of their times."""
    pairs = []
    for event in events:
        begin = {key: value for key, value in event.items() if key != "dur"} | {"ph": "B"}
        end = {"ph": "E", "name": event["name"], "pid": event["pid"], "tid": event["tid"], "ts": event["ts"] + event["dur"]}
        pairs += [begin, end]
    return sorted(pairs, key=lambda event: float(event["ts"]))


def test_pairs_of_begin_and_end_are_events(tmp_path: Path) -> None:
    """Converters write B and E where Kineto writes X; an end without a begin, and a begin without an end, are nothing."""
    trace = loading_program().trace()
    whole = rank(analyzed(tmp_path, trace))
    loose = [{"ph": "E", "pid": 1, "tid": 1, "ts": 1, "name": "no begin"}, {"ph": "B", "pid": 1, "tid": 1, "ts": 2e9, "name": "no end"}]
    paired = rank(analyzed(tmp_path, {**trace, "traceEvents": [*in_pairs(trace["traceEvents"]), *loose]}))

    assert (paired.verdict, paired.figures, paired.replay) == (whole.verdict, whole.figures, whole.replay)


@pytest.mark.parametrize("shift", [0.0, -2e9])
def test_times_before_the_clocks_start_are_times(tmp_path: Path, shift: float) -> None:
    """Files with a base time count from it, and what ran before has negative times."""
    trace = loading_program().trace()
    for event in trace["traceEvents"]:
        event["ts"] = round(event["ts"] + shift, 3)
    shifted = rank(analyzed(tmp_path, trace))

    assert (shifted.verdict, shifted.trust.same_stream_overlaps) == ("input-bound", 0)
    assert shifted.figures.dataloader_exposed_pct == pytest.approx(75, abs=0.5)


def test_files_of_the_profiler_before_kineto_are_read(tmp_path: Path) -> None:
    """They have no categories: processes of two names tell what is an operator and what is a kernel."""
    events = []
    for number in range(240):
        event = {"name": f"aten::op{number % 30}", "ph": "X", "tid": 1, "args": {}}
        events.append({**event, "ts": number * 110, "dur": 100, "pid": "CPU functions"})
        events.append({**event, "ts": number * 110 + 50, "dur": 90, "tid": 0, "pid": "CUDA functions"})
    facts = rank(analyzed(tmp_path, {"traceEvents": events}))

    assert (facts.has_device, facts.figures.kernels, facts.trust.uncorrelated_pct) == (True, 240, 100)
    assert facts.figures.gpu_busy_pct_mean == pytest.approx(100 * 90 / 110, abs=0.5)


def test_a_single_kernel_is_no_healthy_program(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7, "args": {}}
    result = analyzed(tmp_path, {"traceEvents": [event]})

    assert rank(result).verdict == "cannot-tell"
    assert "device.healthy" not in {finding.rule for finding in result.analysis.findings}


def test_a_long_step_has_more_of_what_it_does_longer(tmp_path: Path) -> None:
    """An evaluation between two epochs keeps the device as busy as the other steps do: the host is not what takes longer."""
    machine = Machine()
    for number in range(10):
        for kernel in range(140 if number == 6 else 40):
            machine.think(5)
            machine.kernel(150)
            if kernel >= 40 and kernel % 20 == 0:
                machine.copy(3, "Memcpy DtoH (Device -> Pageable)", blocking=True)
        start = machine.now
        machine.kernel(100)
        machine.range("Optimizer.step#AdamW.step", start)
        machine.synchronize()
    steps_of = rank(analyzed(tmp_path, machine.trace())).steps

    assert (steps_of.outlier, steps_of.outlier_cause) == (True, "device busy")


def loading_program() -> Machine:
    """A quarter of each step's time in kernels, three quarters in the loader."""

    def body(machine: Machine) -> None:
        machine.load(30 * MS)
        for _ in range(20):
            machine.think(5)
            machine.kernel(500)
        machine.synchronize()

    return steps(Machine(), 6, body)


def cpu_program(pauses: list[float], operators: int = 40) -> dict[str, Any]:
    """Training on the CPU: steps of operators of 0.5 ms each, and a pause of so many ms in each step."""
    machine = Machine()

    def operate(machine: Machine, names: int) -> None:
        for number in range(names):
            start = machine.now
            machine.think(500)
            machine.range(f"aten::op{number}", start, "cpu_op")
            machine.think(3)

    for number, pause in enumerate(pauses):
        start = machine.now
        operate(machine, operators)
        machine.think(pause * MS)
        machine.range(f"ProfilerStep#{number}", start)
    return {"traceEvents": machine.events}


def test_no_time_is_the_cost_of_two_findings_on_the_cpu(tmp_path: Path) -> None:
    """Long pauses have a finding of their own, and what is left between operators is little."""
    costs = {finding.rule: finding.cost_pct for finding in analyzed(tmp_path, cpu_program([9.0] * 8)).analysis.findings}

    assert set(costs) == {"program.hole"}
    assert costs["program.hole"] == pytest.approx(100 * 9 / 29, abs=1)


def test_a_pause_that_comes_back_is_the_programs(tmp_path: Path) -> None:
    result = analyzed(tmp_path, cpu_program([9.0] * 8))

    assert rank(result).verdict == "host-bound"
    assert "program.hole" in found(result)


@pytest.mark.parametrize(
    ("where", "may_free"),
    [("train.py(88): step", True), ("<built-in function sleep>", False), ("<built-in method acquire of _thread.lock object>", False)],
)
def test_a_pause_in_no_other_function_may_be_tensors_that_are_freed(tmp_path: Path, where: str, may_free: bool) -> None:
    """Malloc can keep their memory; whoever sleeps or waits in that time frees nothing."""
    trace = cpu_program([9.0] * 8)
    for event in [event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep")]:
        pause = {"ts": event["ts"] + event["dur"] - 8_999, "dur": 8_998, "cat": "python_function", "name": where}
        trace["traceEvents"].append({**event, **pause})
    (hole,) = [finding for finding in analyzed(tmp_path, trace).analysis.findings if finding.rule == "program.hole"]

    assert any("sysperf wrap" in fix.title for fix in hole.fixes) is may_free


@pytest.mark.parametrize(
    "pauses",
    [[0, 0, 30.0, 0, 0, 30.0, 0, 0], [0.8, 0.8, 0.8, 0.8, 150.0, 1.1, 1.1, 0.8]],
    ids=["two of eight steps", "one beside what is nearly a pause"],
)
def test_a_pause_that_does_not_come_back_is_not_blamed_on_the_program(tmp_path: Path, pauses: list[float]) -> None:
    """Another program took the CPU: nothing that the user could move to another thread."""
    result = analyzed(tmp_path, cpu_program(pauses))

    assert rank(result).verdict == "compute-bound"
    assert all(finding.severity == "info" for finding in result.analysis.findings)
    assert (rank(result).hole.pct or 0) > 5


def test_pauses_at_another_place_in_each_step_are_other_programs(tmp_path: Path) -> None:
    """On a machine where others compute the kernel takes the CPU away for 4 ms in each step of 24 ms, wherever the program is then."""
    trace = cpu_program([0] * 8)
    for number in range(8):
        delayed(trace, f"ProfilerStep#{number}", f"aten::op{5 * number}", 4 * MS)
    result = analyzed(tmp_path, trace)

    assert (rank(result).verdict, found(result)) == ("compute-bound", set())
    assert rank(result).hole.recurring_pct == pytest.approx(0, abs=1)
    assert rank(result).hole.scattered_pct == pytest.approx(16.6, abs=1)
    assert "program.pauses-scattered" in {finding.rule for finding in result.analysis.findings}


@pytest.mark.parametrize(
    ("python_us", "others_ms", "verdict"), [(200, 15, "host-bound"), (3, 15, "compute-bound"), (200, 1_500, "cannot-tell")]
)
def test_what_others_leave_of_the_time_tells_what_a_program_does(tmp_path: Path, python_us: float, others_ms: int, verdict: str) -> None:
    """Others have the CPU two thirds of the time. Of the rest Python has 29 %, which is a tenth of the whole, or next to nothing.

    Where they have more than 99 %, what they leave tells nothing.
    """
    machine = Machine()
    for number in range(8):
        begin = machine.now
        for operator in range(40):
            start = machine.now
            machine.think(500)
            machine.range(f"aten::op{operator}", start, "cpu_op")
            machine.think(python_us)
        machine.range(f"ProfilerStep#{number}", begin)
    trace = {"traceEvents": machine.events}
    for number in range(8):
        for turn in range(4):
            delayed(trace, f"ProfilerStep#{number}", f"aten::op{3 + 4 * number + turn}", others_ms * MS)
    result = analyzed(tmp_path, trace)

    assert rank(result).verdict == verdict
    assert rank(result).hole.scattered_pct == pytest.approx(99.5 if others_ms > 15 else 70, abs=6)
    assert verdict != "compute-bound" or "in which something else had the CPU" in rank(result).why


def test_operators_that_are_little_of_what_others_leave_decide_nothing(tmp_path: Path) -> None:
    """Others have the CPU within operators, too, and nobody knows what is left of these."""
    trace = cpu_program([0] * 8)
    for number in range(8):
        for turn in range(4):
            delayed(trace, f"ProfilerStep#{number}", f"aten::op{3 + 4 * number + turn}", 30 * MS)
    for number, event in enumerate(event for event in trace["traceEvents"] if event["name"].startswith("aten::op")):
        if number % 40 not in range(3, 36) and number % 7:
            event["dur"] = 1
    result = analyzed(tmp_path, trace)

    assert rank(result).hole.scattered_pct == pytest.approx(86, abs=6)
    assert rank(result).verdict != "compute-bound"


@pytest.mark.parametrize(
    ("operators_pct", "interrupted_pct", "verdict"), [(36, 0, "compute-bound"), (28, 0, "cannot-tell"), (34, 20, "cannot-tell")]
)
def test_operators_bound_a_program_where_they_are_nearly_all_that_others_leave(
    operators_pct: float, interrupted_pct: float, verdict: str
) -> None:
    """Others leave 40 % of the time, of which operators have so much; what they were interrupted for is not theirs."""
    cpu = Cpu(operators=900, operator_pct=operators_pct, interrupted_pct=interrupted_pct, python_recurring_pct=3)
    word, why = of_rank(
        Rank(file="a", form="kineto", steps=Steps(steady=True), cpu=cpu, hole=Hole(pct=60, recurring_pct=0, scattered_pct=60))
    )

    assert word == verdict
    assert ("trace it again when the machine is quiet" in why) is (verdict == "cannot-tell")


def test_pauses_of_others_that_come_to_the_same_place_are_not_the_programs(tmp_path: Path) -> None:
    """A slice of the CPU that ends after each third step's time: four of eight steps stand at one place, and twelve times elsewhere."""
    trace = cpu_program([0] * 8)
    for number in (0, 1, 3, 6):
        delayed(trace, f"ProfilerStep#{number}", "aten::op7", 5 * MS)
    others = [(number, 11 + 3 * number + 2 * turn) for number in range(8) for turn in range(2)]
    for number, operator in others:
        delayed(trace, f"ProfilerStep#{number}", f"aten::op{operator}", 4 * MS)
    result = analyzed(tmp_path, trace)

    assert (rank(result).verdict, found(result)) == ("compute-bound", set())
    assert rank(result).hole.recurring_pct == pytest.approx(0, abs=1)


def test_a_pause_of_each_step_is_the_programs_though_others_have_the_cpu_too(tmp_path: Path) -> None:
    trace = cpu_program([5.0] * 8)
    for number, operator in [(number, 11 + 3 * number + 2 * turn) for number in range(8) for turn in range(2)]:
        delayed(trace, f"ProfilerStep#{number}", f"aten::op{operator}", 4 * MS)
    result = analyzed(tmp_path, trace)

    assert "program.hole" in found(result)
    assert rank(result).hole.recurring_pct == pytest.approx(100 * 5 / 33, abs=3)


@pytest.mark.parametrize("reads", [0, 10, 2_000])
def test_a_loop_over_elements_on_the_cpu_is_found(tmp_path: Path, reads: int) -> None:
    """Picking and reading one takes 6 µs; ten in a step are no loop."""
    machine = Machine()
    for number in range(6):
        begun = machine.now
        for _ in range(40):
            start = machine.now
            machine.think(500)
            machine.range("aten::mm", start, "cpu_op")
            machine.think(3)
        for _ in range(reads):
            for name in ("aten::select", "aten::item"):
                start = machine.now
                machine.think(2)
                machine.range(name, start, "cpu_op")
                machine.think(1)
        machine.range(f"ProfilerStep#{number}", begun)
    result = analyzed(tmp_path, {"traceEvents": machine.events})
    said = {finding.rule: finding for finding in result.analysis.findings}

    assert ("sync.per-step" in said) is (reads > 1_000)
    if reads > 1_000:
        assert said["sync.per-step"].cost_pct == pytest.approx(100 * 12 / 32, abs=3)
        assert "tolist" in said["sync.per-step"].fixes[0].title


def test_what_an_optimizer_reads_is_no_loop_of_the_program(tmp_path: Path) -> None:
    """Adam without foreach reads the number of its step for each parameter."""
    machine = Machine()
    for number in range(6):
        begun = machine.now
        for _ in range(40):
            start = machine.now
            machine.think(500)
            machine.range("aten::mm", start, "cpu_op")
        updating = machine.now
        for _ in range(2_000):
            start = machine.now
            machine.think(4)
            machine.range("aten::item", start, "cpu_op")
        machine.range("Optimizer.step#Adam.step", updating)
        machine.range(f"ProfilerStep#{number}", begun)

    assert "sync.per-step" not in found(analyzed(tmp_path, {"traceEvents": machine.events}))


def test_a_name_of_a_file_or_of_what_encloses_all_says_nothing_of_the_time(tmp_path: Path) -> None:
    """`step_and_gc` of `eval.py` computes for the most part; only the collector's own function is a collection."""
    trace = cpu_program([9.0] * 6)
    steps = [event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep")]
    for step in steps:
        around = {**step, "cat": "python_function", "name": "eval.py(7): step_and_gc"}
        inner = {**around, "name": "<built-in function collect>", "ts": step["ts"] + step["dur"] - 8 * MS, "dur": 7 * MS}
        trace["traceEvents"] += [around, inner]
    host = rank(analyzed(tmp_path, trace)).host

    assert host.gc_pct == pytest.approx(100 * 7 / 29, abs=2)
    assert host.evaluation_pct == 0


def delayed(trace: dict[str, Any], step: str, operator: str, us: float) -> None:
    """Let so much time pass behind this operator of this step."""
    events = trace["traceEvents"]
    (within,) = [event for event in events if event["name"] == step]
    span = within["ts"], within["ts"] + within["dur"]
    (behind,) = [event["ts"] + event["dur"] for event in events if event["name"] == operator and span[0] <= event["ts"] < span[1]]
    for event in events:
        if event["ts"] >= behind:
            event["ts"] += us
        elif event["ts"] + event["dur"] > behind:
            event["dur"] += us


@pytest.mark.parametrize("named", [True, False])
def test_what_a_program_does_in_every_third_step_is_its_own(tmp_path: Path, named: bool) -> None:
    """A checkpoint costs its share of the time, and not that of the median step, which has none; its operators may be in the file."""
    trace = cpu_program([0, 45.0, 0, 0, 45.0, 0, 0, 45.0, 0, 0])
    if named:
        trace = cpu_program([0, 0, 45.0, 0, 0, 45.0, 0])
        for number in (2, 5):
            (at,) = [event["ts"] + event["dur"] for event in trace["traceEvents"] if event["name"] == f"ProfilerStep#{number}"]
            detach = {"ph": "X", "cat": "cpu_op", "name": "aten::detach", "pid": 1, "tid": 1, "ts": at - 45_002, "dur": 1, "args": {}}
            trace["traceEvents"].append(detach)
    result = analyzed(tmp_path, trace)
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "program.hole"]
    share = 100 * 90 / (6 * 20.1 + 90) if named else 100 * 135 / (9 * 20.1 + 135)

    assert rank(result).verdict == "host-bound"
    assert finding.gain.interval
    bounds = finding.gain.low, finding.gain.high
    low, high = sorted((share, 100 * 15 / (20.1 + 15)))
    assert bounds == pytest.approx((MEASURED * low, high), abs=1)
    assert finding.cost_pct == bounds[1]
    assert "every 3 steps" in finding.message


def test_what_most_steps_have_and_what_only_some_have_are_shares_of_one_time(tmp_path: Path) -> None:
    """20 ms in each step, and 100 ms more in every third, where operators take 20: they are shares of what three steps take."""
    result = analyzed(tmp_path, cpu_program([20.0 + 100 * (number % 3 == 0) for number in range(10)]))
    hole = rank(result).hole

    assert hole.recurring_pct == pytest.approx(100 * 160 / 220, abs=1)
    assert hole.returns == "in most steps and every 3 steps"


def test_a_pause_of_a_single_iteration_is_not_said_to_come_back(tmp_path: Path) -> None:
    """The profiler's own start stands in such a trace, and everything else that happens once."""
    result = analyzed(tmp_path, cpu_program([9.0], operators=80))

    assert (rank(result).hole.pct or 0) > 5
    assert (rank(result).hole.recurring_pct, rank(result).replay.predictions) == (None, ())
    assert "program.hole" not in found(result)


def test_of_three_iterations_the_gain_is_between_the_least_and_the_median(tmp_path: Path) -> None:
    """The last of them took longer: what is won of it is no share of the others."""
    trace = cpu_program([60.0] * 4)
    delayed(trace, "ProfilerStep#3", "aten::op3", 40 * MS)
    max((event for event in trace["traceEvents"] if event["name"] == "aten::op3"), key=itemgetter("ts"))["dur"] += 40 * MS
    (finding,) = analyzed(tmp_path, trace).analysis.findings
    assert finding.gain.interval
    bounds = finding.gain.low, finding.gain.high

    assert bounds == pytest.approx((MEASURED * 100 * 60 / 120, 100 * 60 / 80), abs=1)


def test_a_verdict_has_a_finding(tmp_path: Path) -> None:
    """12 % between operators and 4 % in pauses are host-bound together, and the larger part says what to do."""
    trace = cpu_program([1.0] * 8)
    for number in range(8):
        for operator in range(5, 35, 5):
            delayed(trace, f"ProfilerStep#{number}", f"aten::op{operator}", 450)
    result = analyzed(tmp_path, trace)

    assert rank(result).verdict == "host-bound"
    assert "program.python-bound" in found(result)


@pytest.mark.parametrize(
    ("batch", "step", "finding"), [(0.6, 10, "dataloader.batches-too-small-for-workers"), (9, 20, "dataloader.inline")]
)
def test_a_worker_is_advised_where_it_gains(tmp_path: Path, batch: float, step: int, finding: str) -> None:
    """Taking a batch over from a worker costs more than making a small one."""
    machine = Machine()

    def train(machine: Machine) -> None:
        began = machine.now
        machine.think(batch * MS)
        machine.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", began)
        for _ in range(step):
            began = machine.now
            machine.think(1000)
            machine.range("aten::addmm", began, "cpu_op")

    steps(machine, 9, train)
    (only,) = analyzed(tmp_path, {"traceEvents": machine.events}).analysis.findings

    assert only.rule == finding
    assert (not only.gain.interval) == (finding != "dataloader.inline")


def test_of_two_iterations_only_what_both_have_comes_back(tmp_path: Path) -> None:
    result = analyzed(tmp_path, cpu_program([0.0, 30.0]))

    assert (rank(result).hole.pct or 0) > 5
    assert not found(result)


def test_what_a_closure_does_is_no_work_of_the_optimizer(tmp_path: Path) -> None:
    """Lightning gives each optimizer a closure with the whole step in it: forward and backward lie in the optimizer's range."""
    machine = Machine()
    for _ in range(8):
        start = machine.now
        for name, took in (("aten::linear", 8), ("autograd::engine::evaluate_function: AddmmBackward0", 8), ("aten::_foreach_add_", 1)):
            began = machine.now
            machine.think(took * MS)
            machine.range(name, began, "cpu_op")
        for _ in range(10):
            began = machine.now
            machine.think(10)
            machine.range("aten::add_", began, "cpu_op")
        machine.range("Optimizer.step#SGD.step", start)
    result = analyzed(tmp_path, {"traceEvents": machine.events})

    assert rank(result).steps.by == "optimizer"
    assert rank(result).cpu.optimizer_pct == pytest.approx(100 * 1.1 / 17.1, abs=0.2)  # type: ignore[union-attr]
    assert "optimizer.unfused" not in found(result)


def test_operators_a_step_and_the_cause_of_a_long_one_are_known_without_marks(tmp_path: Path) -> None:
    """Optimizer steps say where a step ends, so a message about steps leaves nothing open."""
    trace = cpu_program([5.0] * 6 + [60.0] + [5.0] * 5)
    for event in trace["traceEvents"]:
        if event["name"].startswith("ProfilerStep"):
            event.update(name="Optimizer.step#SGD.step", ts=event["ts"] + event["dur"] - 2, dur=1)
    result = analyzed(tmp_path, trace)

    assert rank(result).cpu.operators_per_step == 40  # type: ignore[union-attr]
    assert (rank(result).steps.outlier, rank(result).steps.outlier_cause) == (True, "Python between operators")


def test_repeating_operators_without_marks_are_iterations(tmp_path: Path) -> None:
    trace = cpu_program([0.2] * 12)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith("ProfilerStep")]
    result = analyzed(tmp_path, trace)

    assert (rank(result).steps.by, rank(result).steps.count, rank(result).verdict) == ("operators", 11, "compute-bound")


def test_of_two_programs_in_one_file_one_is_analyzed(tmp_path: Path) -> None:
    """Their steps are no sequence, and their operators no sum; the page says that there is another."""

    def step(machine: Machine) -> None:
        machine.load(2 * MS)
        for _ in range(10):
            machine.kernel(200)
        machine.synchronize()

    first, other = steps(Machine(device=0), 6, step).trace(), steps(Machine(device=1, start=1e9 + 300), 5, step).trace()
    for event in other["traceEvents"]:
        event["pid"] = 2 if event["cat"] not in ("kernel", "gpu_memcpy") else event["pid"]
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1_000_000
    alone = rank(analyzed(tmp_path, first))
    result = analyzed(tmp_path, {**first, "traceEvents": [*other["traceEvents"], *first["traceEvents"]]})

    assert rank(result).step_count == alone.step_count == 6
    assert rank(result).figures == alone.figures
    assert (rank(result).dataloader_calls, len(rank(result).devices)) == (6, 1)
    assert (rank(result).other_programs, alone.other_programs) == (1, 0)
    assert "one of 2 programs in the file" in " ".join(text.render(result.analysis).split())


def test_four_ranges_that_say_that_they_are_steps_are_enough(tmp_path: Path) -> None:
    """Three times from one to the next, in each of which the host works for 6 of 10 ms. Other names need five."""

    def named(name: str) -> Rank:
        machine = Machine()
        for number in range(4):
            start = machine.now
            machine.work(40)
            machine.log(6 * MS)
            machine.range(name.format(number), start)
        return rank(analyzed(tmp_path, machine.trace()))

    step, other = named("train_step {}"), named("work")

    assert (step.verdict, step.steps.by, step.steps.count) == ("host-bound", "NVTX", 3)
    assert (other.verdict, other.steps.by) == ("cannot-tell", "")


def test_a_start_leaves_too_few_of_four_ranges_that_say_that_they_are_steps(tmp_path: Path) -> None:
    """The first one takes 20 times as long: two times from one to the next are left, and three are the fewest."""
    machine = Machine()
    for number in range(4):
        start = machine.now
        machine.think(0 if number else 200 * MS)
        machine.work(40)
        machine.think(6 * MS)
        machine.range(f"train_step {number}", start)

    found = rank(analyzed(tmp_path, machine.trace()))

    assert (found.verdict, found.steps.by) == ("cannot-tell", "")


def test_a_process_that_launches_for_the_one_with_steps_belongs_to_it(tmp_path: Path) -> None:
    """A server computes what a process asks for that launches nothing itself: its device is the program's."""
    asks, serves = Machine(), Machine(start=1e9 + 100)
    for number in range(6):
        start = asks.now
        asks.load(2 * MS)
        asks.think(5 * MS)
        asks.range(f"ProfilerStep#{number}", start)
        for _ in range(40):
            serves.kernel(50)
        serves.synchronize()
        serves.think(5 * MS)
    for event in serves.events:
        event["pid"] = 2 if event["cat"] != "kernel" else event["pid"]
    found = rank(analyzed(tmp_path, {**asks.trace(), "traceEvents": asks.events + serves.events}))

    assert (found.other_programs, found.has_device, found.verdict) == (0, True, "host-bound")


def test_a_process_without_steps_that_has_a_device_of_its_own_is_another_program(tmp_path: Path) -> None:
    """Its device is idle most of the time that the first one trains, and its helpers, which launch nothing, belong to the first one."""

    def step(machine: Machine) -> None:
        machine.load(2 * MS)
        for _ in range(40):
            machine.kernel(200)
        machine.synchronize()

    first, other = steps(Machine(device=0), 6, step).trace(), Machine(device=1, start=1e9 + 300)
    for _ in range(40):
        other.kernel(50)
    other.synchronize()
    for event in other.events:
        event["pid"] = 2 if event["cat"] != "kernel" else event["pid"]
        event["args"]["correlation"] += 1_000_000
    helper = {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 3, "tid": 3, "ts": 1e9, "dur": 50, "args": {}}
    asks = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGetDevice", "pid": 3, "tid": 3, "ts": 1e9 + 90, "dur": 1, "args": {}}
    unlaunched = {**first["traceEvents"][2], "name": "set", "cat": "gpu_memset", "args": {"device": 0, "stream": 7}}
    first["traceEvents"] += [unlaunched]
    alone = rank(analyzed(tmp_path, first))
    both = rank(analyzed(tmp_path, {**first, "traceEvents": [*other.events, *first["traceEvents"], helper, asks]}))

    assert (both.other_programs, len(both.devices)) == (1, 1)
    assert both.figures == alone.figures
    assert both.verdict == alone.verdict


def test_a_loader_with_workers_is_not_told_to_have_one(tmp_path: Path) -> None:
    """And what more workers gain has no lower bound: there may be no CPU for them."""
    trace = cpu_program([0] * 6)
    for event in [event for event in trace["traceEvents"] if event["name"] == "aten::op0"]:
        event.update(
            name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
            cat="user_annotation",
            dur=6 * MS,
            ts=event["ts"] - 5.4 * MS,
        )
    result = analyzed(tmp_path, trace)
    (finding,) = [reported for reported in result.analysis.findings if reported.rule.startswith("dataloader.")]

    assert finding.rule == "dataloader.program-waits"
    assert finding.gain.interval
    assert finding.gain.low == 0


@pytest.mark.parametrize(
    "operator", ["aten::cudnn_convolution", "aten::_mps_convolution", "aten::_scaled_dot_product_flash_attention", "nccl:all_reduce"]
)
def test_a_program_of_a_device_that_was_not_profiled_is_no_program_on_the_cpu(tmp_path: Path, operator: str) -> None:
    """Its operators only submit work, or wait for it: no share of them says what the time was lost to."""
    trace = cpu_program([9.0] * 8)
    for event in [event for event in trace["traceEvents"] if event["name"] == "aten::op0"]:
        event["name"] = operator
    result = analyzed(tmp_path, trace)

    assert (rank(result).verdict, rank(result).cpu) == ("cannot-tell", None)
    assert operator in rank(result).why
    assert found(result) == {"trust.device-events-missing"}


@pytest.mark.parametrize("operator", ["aten::_scaled_dot_product_flash_attention_for_cpu", "aten::cudnn_is_acceptable", "gloo:all_reduce"])
def test_operators_that_the_cpu_has_too_are_no_sign_of_another_device(tmp_path: Path, operator: str) -> None:
    trace = cpu_program([9.0] * 8)
    for event in [event for event in trace["traceEvents"] if event["name"] == "aten::op0"]:
        event["name"] = operator

    assert rank(analyzed(tmp_path, trace)).verdict == "host-bound"


def test_a_loader_that_computes_in_the_main_thread_is_its_own_time(tmp_path: Path) -> None:
    """Decoding and collating with operators, no workers: input-bound, and none of these operators is one of the step's."""
    trace = cpu_program([0] * 8, operators=10)
    for event in [event for event in trace["traceEvents"] if event["name"] in ("aten::op0", "aten::op1", "aten::op2", "aten::op3")]:
        event["name"] = "aten::copy_"
    firsts = [event["ts"] for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep")]
    trace["traceEvents"] += [
        {
            "ph": "X", "cat": "user_annotation", "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            "pid": 1, "tid": 1, "ts": start, "dur": 2.1 * MS, "args": {},
        }
        for start in firsts
    ]  # fmt: skip
    cpu = rank(analyzed(tmp_path, trace)).cpu

    assert rank(analyzed(tmp_path, trace)).why.startswith("the main thread makes batches")
    assert cpu is not None
    assert (cpu.copy_pct, cpu.own_copy_pct) == (0, 0)
    assert cpu.loader_operator_pct > 30
    assert cpu.operator_pct + cpu.loader_pct + cpu.compile_pct + cpu.communication_pct + cpu.python_pct == pytest.approx(100)
    assert "dataloader.inline" in found(analyzed(tmp_path, trace))


def test_the_next_step_fits_what_is_not_known(tmp_path: Path) -> None:
    """Another profile of the same kind says nothing new where work waited on the device for something that is not in the file."""

    def late(machine: Machine) -> None:
        for _ in range(40):
            machine.free[7] = machine.kernel(100) + 300
        machine.synchronize()

    def next_step(trace: Any) -> str:
        return " ".join(text.render(analyzed(tmp_path, trace).analysis).split()).partition("Next: ")[2]

    without = cpu_program([9.0] * 8)
    without["traceEvents"][0]["name"] = "aten::cudnn_convolution"

    assert next_step(steps(Machine(), 6, late).trace()).startswith("analyze the traces of all ranks together")
    assert next_step(without).startswith("profile with the device's activity, too")
    assert next_step(cpu_program([2.0], operators=10)).startswith("profile 5 steps or more")
    assert next_step(nothing_stands_out()).startswith("another trace says the same")


def nothing_stands_out() -> dict[str, Any]:
    """Seven steps on the CPU: operators three quarters of the time, the loader and Python an eighth each."""
    machine = Machine()
    for number in range(7):
        began = machine.now
        machine.load(2_500)
        for _ in range(20):
            start = machine.now
            machine.think(750)
            machine.range("aten::mm", start, "cpu_op")
            machine.think(125)
        machine.range(f"ProfilerStep#{number}", began)
    return machine.trace()


def test_calls_of_sycl_are_told_apart(tmp_path: Path) -> None:
    """Kineto writes what Intel's runtime calls them: a finish waits, and what the queue misses after it is found."""

    def step(machine: Machine) -> None:
        machine.copy(2_000, "Memcpy M2D")
        for _ in range(40):
            machine.kernel(200, "gemm_kernel")
            machine.synchronize("urQueueFinish")
            machine.think(150)

    trace = steps(Machine(), 6, step).trace(deviceProperties=[{"id": 0, "name": "Intel(R) Data Center GPU Max 1550"}])
    for event in [event for event in trace["traceEvents"] if event["cat"] == "cuda_runtime"]:
        calls = {"cudaLaunchKernel": "urEnqueueKernelLaunch", "cudaMemcpyAsync": "urEnqueueMemBufferWrite"}
        event.update(cat="xpu_runtime", name=calls.get(event["name"], event["name"]))
    result = analyzed(tmp_path, trace)
    figures = rank(result).figures

    assert (figures.sync_api_pct or 0) > 40
    assert (figures.launch_api_pct or 0) > 1
    assert (figures.h2d_exposed_pct or 0) > 10
    assert "sync.per-step" in found(result)


def test_no_gain_is_larger_than_the_time_that_its_finding_is_about(tmp_path: Path) -> None:
    """Without the waits the whole queue fills; a finding about one part of the lost time promises only that."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(200)
            machine.synchronize()
            machine.think(150)

    findings = [finding for finding in analyzed(tmp_path, steps(Machine(), 6, step).trace()).analysis.findings if finding.gain.interval]

    assert findings
    for finding in findings:
        assert finding.gain.high is not None
        assert finding.gain.high <= (finding.cost_pct or finding.work_pct or 0)


def test_operations_without_launches_leave_the_cause_open(tmp_path: Path) -> None:
    """A file of the device's work alone: busy and idle are known, and why it was idle is not."""

    def step(machine: Machine) -> None:
        for _ in range(60):
            machine.think(400)
            machine.kernel(200)

    trace = steps(Machine(), 6, step).trace()
    result = analyzed(tmp_path, {**trace, "traceEvents": [event for event in trace["traceEvents"] if event["cat"] == "kernel"]})

    assert (rank(result).verdict, found(result)) == ("cannot-tell", set())
    assert "launched" in rank(result).why
    assert "idle 5" in text.render(result.analysis)
    assert "host" not in text.render(result.analysis).partition("Cannot")[0].replace(str(tmp_path), "")


def test_a_trace_without_categories_is_one_of_another_program(tmp_path: Path) -> None:
    """XLA writes the same form without categories that say what an event is."""
    events = [{"ph": "X", "pid": 7, "tid": 1, "name": f"fusion.{number}", "ts": 1000 + number * 10, "dur": 8} for number in range(300)]

    with pytest.raises(TraceError, match="another program than PyTorch"):
        analyzed(tmp_path, {"traceEvents": events})


def test_what_lightning_names_itself_is_no_part_of_the_users_program(tmp_path: Path) -> None:
    def step(machine: Machine) -> None:
        start = machine.now
        compute(machine, 40)
        machine.synchronize()
        machine.range("[pl][profile]run_training_batch", start)

    assert rank(analyzed(tmp_path, steps(Machine(), 6, step).trace())).host.region == ""


def turns(updates: list[int], count: int, *, batches: bool) -> Machine:
    """Optimizers of one class in turn, whose steps have so many operators; a new batch for the first of each turn, where wished."""
    machine = Machine()
    for _ in range(count):
        if batches:
            machine.load(200)
        for operators in updates:
            compute(machine, 12, 20)
            began = machine.now
            for _ in range(operators):
                machine.kernel(20)
            machine.range("Optimizer.step#Adam.step", began)
        machine.synchronize()
    return machine


@pytest.mark.parametrize(("updates", "batches"), [([8, 12], False), ([8, 8], True), ([8, 8, 8, 20], False), ([8], True), ([8], False)])
def test_optimizers_that_take_turns_are_one_iteration(tmp_path: Path, updates: list[int], batches: bool) -> None:
    """A GAN has two of one class: they differ by what they update, or by the batch that only the first of them needs."""
    steps_of = rank(analyzed(tmp_path, turns(updates, 10, batches=batches).trace())).steps

    assert (steps_of.by, steps_of.count) == ("optimizer", 8)  # from one to the next, without the first


def test_accumulated_gradients_are_one_iteration_also_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    """Four batches a step, and two at the end of each epoch: an iteration is a step, and not an epoch."""
    machine = Machine()
    for batches in (4, 4, 2) * 4:
        for _ in range(batches):
            machine.load(200)
            compute(machine, 4, 20)
        began = machine.now
        compute(machine, 8, 20)
        machine.range("Optimizer.step#Adam.step", began)
    steps_of = rank(analyzed(tmp_path, machine.trace())).steps

    assert (steps_of.by, steps_of.count) == ("optimizer", 11)  # all between two steps: the window begins with the second batch


def test_steps_by_optimizer_are_those_of_the_window(tmp_path: Path) -> None:
    """Of five batches the window has three: from the second request to the last one. Each of its steps waits for the loader."""
    machine = Machine()
    for _ in range(5):
        machine.load(50_000)
        for name in ("aten::addmm", "aten::relu", "aten::mm") * 6:
            machine.event("cpu_op", name, machine.now, 50)
            machine.now += 52
        began = machine.now
        machine.event("cpu_op", "aten::add_", machine.now, 200)
        machine.now += 210
        machine.range("Optimizer.step#SGD.step", began)
        machine.now += 20
    of_rank = rank(analyzed(tmp_path, machine.trace(deviceProperties=[])))

    assert (of_rank.window_rule, of_rank.steps.by, of_rank.steps.count) == ("loader", "optimizer", 3)
    assert of_rank.loader_recurring_pct == pytest.approx(97.7, abs=0.5)
    assert of_rank.verdict == "input-bound"


def test_a_step_of_an_optimizer_within_another_ones_is_no_step_of_its_own(tmp_path: Path) -> None:
    """Optimizers that wrap another one call it in their own step."""
    machine = Machine()
    for _ in range(10):
        compute(machine, 12, 20)
        began = machine.now
        machine.think(5)
        inner = machine.now
        compute(machine, 8, 20)
        machine.range("Optimizer.step#SGD.step", inner)
        machine.range("Optimizer.step#Lookahead.step", began)
        machine.synchronize()

    assert rank(analyzed(tmp_path, machine.trace())).steps.count == 8


def test_findings_are_ranked_by_what_they_gain(tmp_path: Path) -> None:
    """An optimizer that takes half of the time gains more than a pause does, however mild its rule, and is shown as whole."""
    trace = cpu_program([2.0] * 8)
    for number in range(8):
        (step,) = [event for event in trace["traceEvents"] if event["name"] == f"ProfilerStep#{number}"]
        trace["traceEvents"].append({**step, "name": "Optimizer.step#AdamW.step", "ts": step["ts"] + 10 * MS, "dur": 10 * MS})
    result = analyzed(tmp_path, trace)
    gains = [finding.gain.middle for finding in result.analysis.findings if finding.gain.middle is not None]
    page = text.render(result.analysis)

    assert [finding.rule for finding in result.analysis.findings[:2]] == ["optimizer.unfused", "program.hole"]
    assert gains == sorted(gains, reverse=True)
    assert "optimizer.unfused  busy with it 45.2 %  gains 5 to 41 %" in page


def test_nothing_behind_a_cut_is_part_of_the_window(tmp_path: Path) -> None:
    """A function that was open all the time is kept whole, and of the operators those of the first part."""
    machine = Machine()
    begun = machine.now
    for _ in range(400):
        start = machine.now
        machine.think(600)
        machine.range("aten::mm", start, "cpu_op")
        machine.think(400)
    machine.range("serve.py(7): serve", begun, "python_function")
    timeline = read(written(tmp_path, machine.trace()))
    timeline.cut = round(begun * 1_000 + 100 * MS * 1_000)
    timeline.ranges.keep([index for index, start in enumerate(timeline.ranges.start) if start <= timeline.cut])
    cpu = account(timeline).cpu

    assert cpu is not None
    assert cpu.operator_pct == pytest.approx(60, abs=1)


def two_programs(delay_us: float, *, device: int = 1, numbers_from: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the first of two programs alone, both in one file): the second begins so much later, on this device, and so are its calls numbered."""

    def step(machine: Machine) -> None:
        machine.load(2 * MS)
        for _ in range(10):
            machine.kernel(200)
        machine.synchronize()

    first, other = steps(Machine(device=0), 6, step).trace(), steps(Machine(device=device, start=1e9 + delay_us), 5, step).trace()
    for event in other["traceEvents"]:
        event["pid"] = 2 if event["cat"] not in ("kernel", "gpu_memcpy") else event["pid"]
        if "correlation" in event["args"]:
            event["args"]["correlation"] += numbers_from
    return first, {**first, "traceEvents": [*other["traceEvents"], *first["traceEvents"]]}


@pytest.mark.parametrize(
    ("delay_us", "device", "numbers_from"),
    [(1_500, 1, 0), (-1_500, 1, 0), (100 * MS, 1, 0), (-100 * MS, 1, 0), (300, 1, 5), (100 * MS, 0, 1_000)],
)
def test_operations_are_the_programs_whose_calls_precede_them(tmp_path: Path, delay_us: float, device: int, numbers_from: int) -> None:
    """Two programs that number their calls alike, or overlapping: figures are those of the one alone, also where the other one ran at
    another time; on one device where the numbers differ."""
    first, both = two_programs(delay_us, device=device, numbers_from=numbers_from)
    alone, found_in_both = rank(analyzed(tmp_path, first)), rank(analyzed(tmp_path, both))

    assert not found_in_both.trust.mixed_programs
    assert (found_in_both.other_programs, found_in_both.step_count) == (1, 6)
    assert found_in_both.figures == alone.figures
    assert found_in_both.replay == alone.replay


def test_programs_on_one_device_whose_calls_are_numbered_alike_are_mixed(tmp_path: Path) -> None:
    """The first program's calls precede the operations of both."""
    result = analyzed(tmp_path, two_programs(100 * MS, device=0)[1])

    assert (rank(result).verdict, found(result)) == ("cannot-tell", {"trust.programs-mixed"})


def test_of_programs_that_cannot_be_told_apart_nothing_is_said_about_the_device(tmp_path: Path) -> None:
    """Two ranks that launch at the same time, with the same numbers, ahead of their devices."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.kernel(500)

    first, other = steps(Machine(device=0), 6, step).trace(), steps(Machine(device=1), 6, step).trace()
    for event in other["traceEvents"]:
        event["pid"] = 2 if event["cat"] not in ("kernel", "gpu_memcpy") else event["pid"]
    result = analyzed(tmp_path, {**first, "traceEvents": [*other["traceEvents"], *first["traceEvents"]]})
    page = " ".join(text.render(result.analysis).split())

    assert (rank(result).verdict, found(result)) == ("cannot-tell", {"trust.programs-mixed"})
    assert rank(result).figures.gpu_busy_pct_mean is None
    assert not rank(result).replay.predictions
    assert "number their calls alike" in page
    assert "analyze the file that the profiler wrote for each program" in page


def test_a_graph_among_other_kernels_counts_as_one_launch(tmp_path: Path) -> None:
    """40 kernels that the host launches late, and a graph of 30 nodes: 70 kernels, and 41 launches a step."""

    def step(machine: Machine) -> None:
        for _ in range(40):
            machine.think(80)
            machine.kernel(60)
        machine.call("cudaGraphLaunch", 30)
        number, at = machine.events[-1]["args"]["correlation"], max(machine.now, machine.free[7])
        for node in range(30):
            machine.event("kernel", GEMM, at, 5, tid=7, pid=0, device=0, stream=7, correlation=number, **{"graph node id": node + 1})
            at += 5.5
        machine.free[7] = at
        machine.synchronize()

    result = analyzed(tmp_path, steps(Machine(), 6, step).trace())
    (finding,) = [finding for finding in result.analysis.findings if finding.rule == "device.launch-bound"]

    assert (rank(result).figures.kernels_per_step, rank(result).work.launches_per_step) == (70, 41)
    assert "41 launches of kernels a step" in finding.message


def loading(first_ms: float, later_ms: float, count: int, *, device: bool, number: int = 0, workers: bool = True) -> dict[str, Any]:
    """Steps of 6 ms beside the loader, which takes longer in the first."""
    machine = Machine()
    for step in range(number, number + count):
        began = machine.now
        machine.load((first_ms if step == number else later_ms) * MS, workers=workers)
        if device:
            compute(machine, 40, 150)
            machine.synchronize()
        else:
            for _ in range(60):
                start = machine.now
                machine.think(100)
                machine.range("aten::mm", start, "cpu_op")
        machine.range(f"ProfilerStep#{step}", began)
    return machine.trace()


@pytest.mark.parametrize("device", [True, False])
@pytest.mark.parametrize(
    ("count", "number", "later_ms", "share"), [(1, 0, 0, None), (2, 0, 0.1, 1.6), (2, 0, 3, 33), (1, 2, 0, 87), (6, 0, 3, 33)]
)
def test_the_first_batch_is_no_measure_of_a_loader(
    tmp_path: Path, device: bool, count: int, number: int, later_ms: float, share: float | None
) -> None:
    """Workers start for it: of two steps what both have counts, and of the first one alone nothing is said."""
    result = analyzed(tmp_path, loading(40, later_ms, count, device=device, number=number))
    reported = [finding for finding in result.analysis.findings if finding.rule.startswith("dataloader.")]

    assert rank(result).loader_recurring_pct == (None if share is None else pytest.approx(share, abs=1.5))
    assert [finding.cost_pct for finding in reported] == ([pytest.approx(share, abs=1.5)] if share and share > 5 else [])
    assert (rank(result).verdict == "input-bound") is bool(reported)
    if share is None:
        assert (rank(result).verdict, rank(result).why.startswith("of a first step, or of one batch, alone")) == ("cannot-tell", True)


def test_of_a_single_step_that_the_device_does_later_nothing_is_reported(tmp_path: Path) -> None:
    """The verdict is that nobody can tell, and no finding says otherwise."""

    def step(machine: Machine) -> None:
        machine.load(3 * MS)
        compute(machine, 40, 500)

    result = analyzed(tmp_path, steps(Machine(), 1, step).trace())

    assert (rank(result).verdict, result.analysis.findings) == ("cannot-tell", ())


def test_what_a_compiler_does_is_no_computation(tmp_path: Path) -> None:
    """torch.compile that compiles in each step writes ranges within each other, and operators of tensors without data."""
    trace = cpu_program([0.0] * 8)
    compiled = [event for event in trace["traceEvents"] if event["name"] == "aten::op10"]
    for event in compiled:
        delayed(trace, f"ProfilerStep#{compiled.index(event)}", "aten::op10", 80 * MS)
        for name in ("entire_frame_compile", "_compile.compile_inner (dynamo_timed)"):
            trace["traceEvents"].append({**event, "name": name, "ts": event["ts"] + 500, "dur": 80 * MS})
        trace["traceEvents"].append({**event, "name": "aten::mm", "ts": event["ts"] + 700, "dur": 70 * MS})
    result = analyzed(tmp_path, trace)
    cpu = rank(result).cpu
    assert cpu is not None

    assert (rank(result).verdict, rank(result).host.recompiles) == ("host-bound", 7)
    assert "torch.compile compiles 80 %" in rank(result).why
    assert (cpu.compile_pct, cpu.operator_pct) == pytest.approx((80, 20), abs=1)
    assert "aten::mm" not in {site.what for site in cpu.top}
    (finding,) = [finding for finding in result.analysis.findings if finding.severity == "warning"]
    assert finding.rule == "compile.recompiles"
    assert finding.cost_pct == pytest.approx(80, abs=1)
    assert finding.gain.interval


def serving(requests: list[int], pause_ms: float, *, everywhere: bool = False) -> dict[str, Any]:
    """An inference loop that nobody marked: so many alike calls of three operators a request, and a pause behind each request.

    Where `everywhere`, the pause comes behind another operator each time: another program takes the CPU.
    """
    machine = Machine()
    number = 0
    for request, calls in enumerate(requests):
        for _ in range(calls):
            for name in ("aten::linear", "aten::relu", "aten::linear"):
                start = machine.now
                machine.think(500)
                machine.range(name, start, "cpu_op")
                machine.think(10)
                number += 1
                if everywhere and number % 17 == request % 5:
                    machine.think(pause_ms * MS)
        machine.think(0 if everywhere else pause_ms * MS)
    return machine.trace()


@pytest.mark.parametrize("requests", [[4] * 11, [4, 7, 5, 9, 4, 6, 8, 5, 4, 7, 6]])
def test_pauses_delimit_the_requests_of_a_server_that_nobody_marked(tmp_path: Path, requests: list[int]) -> None:
    """Of alike calls the operators do not tell where a request ends, and of requests of many lengths nothing is periodic."""
    trace = serving(requests, 8)
    if requests[0] != requests[1]:  # what begins a request begins no other call
        events, firsts = trace["traceEvents"], itertools.accumulate([0, *requests[:-1]])
        for first in firsts:
            events[3 * first]["name"] = "aten::embedding"
    result = analyzed(tmp_path, trace)
    share = 100 * 8 * 9 / (sum(3 * 0.51 * calls for calls in requests[1:-1]) + 8 * 9)

    assert (rank(result).verdict, rank(result).steps.by, rank(result).steps.count) == ("host-bound", "pauses", 9)
    assert rank(result).hole.recurring_pct == pytest.approx(share, abs=6)
    assert "program.hole" in found(result)


def test_pauses_anywhere_delimit_nothing(tmp_path: Path) -> None:
    """What takes the CPU away from a program makes no iterations of it, and no pauses of its own."""
    result = analyzed(tmp_path, serving([4] * 20, 4, everywhere=True))

    assert (rank(result).steps.by, found(result)) == ("", set())


@pytest.mark.parametrize("requests", [[15] * 14, [15] * 6, [7, 12, 9, 15, 8, 11, 13, 10, 9, 12]])
def test_a_server_on_a_device_whose_kernels_all_repeat_has_iterations(tmp_path: Path, requests: list[int]) -> None:
    """A copy to the device, two kernels in turn, so many times a request; then a copy to the host and 3 ms of Python. Lengths may differ."""
    machine = Machine()
    for pairs in requests:
        machine.copy(3)
        for _ in range(pairs):
            machine.kernel(60, "gemm_16816")
            machine.kernel(40, "elementwise_kernel")
        machine.copy(5, "Memcpy DtoH (Device -> Pinned)", blocking=True)
        machine.think(3 * MS)
    result = analyzed(tmp_path, machine.trace())

    assert rank(result).steps.by == ("operations" if requests[0] == requests[1] else "pauses")
    assert rank(result).verdict == "cannot-tell"  # it may wait for requests, too
    assert "program.hole" in found(result)


def test_a_gap_of_several_parts_costs_and_gains_what_the_host_takes_of_it(tmp_path: Path) -> None:
    """0.4 ms of the loader and 0.8 ms of Python are one gap of 1.2 ms: the Python in it can be won, although it is shorter."""

    def step(machine: Machine) -> None:
        machine.load(400)
        machine.think(800)
        compute(machine, 20, 100)
        machine.synchronize()

    (finding,) = [
        finding for finding in analyzed(tmp_path, steps(Machine(), 8, step).trace()).analysis.findings if finding.rule == "program.hole"
    ]

    assert finding.cost_pct == pytest.approx(100 * 0.8 / 3.2, abs=2)
    assert finding.gain.interval
    assert finding.gain.high == pytest.approx(100 * 0.8 / 3.2, abs=2)


@pytest.mark.parametrize("inner", [True, False])
def test_a_hook_in_the_backward_pass_is_no_operator(tmp_path: Path, inner: bool) -> None:
    """Autograd's engine calls hooks between the operators of its own ranges; a range without any operator may compute itself."""
    trace = cpu_program([0.0] * 8)
    for number, event in enumerate([event for event in trace["traceEvents"] if event["name"] == "aten::op10"]):
        delayed(trace, f"ProfilerStep#{number}", "aten::op10", 9 * MS)
        engine = {**event, "name": "autograd::engine::evaluate_function: MulBackward0", "ts": event["ts"] - (1 if inner else -501)}
        trace["traceEvents"].append({**engine, "dur": 9 * MS + (503 if inner else 0)})
    result = analyzed(tmp_path, trace)

    assert rank(result).verdict == ("host-bound" if inner else "compute-bound")
    assert found(result) == ({"program.hole"} if inner else set())
    if inner:
        assert rank(result).hole.recurring_pct == pytest.approx(100 * 9 / 29.1, abs=1)


def test_what_a_hook_does_in_the_optimizer_is_not_won_twice(tmp_path: Path) -> None:
    trace = cpu_program([9.0] * 8)
    for number in range(8):
        (step,) = [event for event in trace["traceEvents"] if event["name"] == f"ProfilerStep#{number}"]
        trace["traceEvents"].append({**step, "name": "Optimizer.step#SGD.step", "ts": step["ts"] + step["dur"] - 14 * MS, "dur": 14 * MS})
    cpu = rank(analyzed(tmp_path, trace)).cpu

    assert cpu is not None
    assert cpu.optimizer_pct == pytest.approx(100 * 5 / 29.1, abs=1)


@pytest.mark.parametrize(
    ("count", "verdict"), [(1, "cannot-tell"), (2, "input-bound"), (3, "input-bound"), (4, "input-bound"), (5, "input-bound")]
)
def test_a_few_batches_without_any_marks_tell_of_a_loader(tmp_path: Path, count: int, verdict: str) -> None:
    """A program that is traced while it runs, and gets through few batches meanwhile: two are enough, one is not."""
    trace = loading(40, 40, count, device=False, workers=False)
    trace["traceEvents"] = [event for event in trace["traceEvents"] if not event["name"].startswith("ProfilerStep")]
    result = analyzed(tmp_path, trace)

    assert rank(result).verdict == verdict
    assert ("dataloader.inline" in {finding.rule for finding in result.analysis.findings}) is (count > 1)


def test_a_checkpoint_is_found_beside_the_same_operators_in_the_backward_pass(tmp_path: Path) -> None:
    """Saving detaches tensors, and so does autograd's engine in each step; of nine steps the last one ends with a checkpoint, too."""
    machine = Machine()

    def operate(name: str, ms: float) -> None:
        start = machine.now
        machine.think(ms * MS)
        machine.range(name, start, "cpu_op")

    for number in range(9):
        for _ in range(10):
            operate("aten::addmm", 1)
        for _ in range(6):
            start = machine.now
            operate("aten::detach", 0.1)
            machine.think(10)
            machine.range("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", start, "cpu_op")
        start = machine.now
        operate("aten::_foreach_add_", 1)
        machine.range("Optimizer.step#SGD.step", start)
        if number % 3 == 2:
            for _ in range(6):
                operate("aten::detach", 0.1)
            machine.think(20 * MS)
    operate("aten::addmm", 1)
    hole = rank(analyzed(tmp_path, {"traceEvents": machine.events})).hole

    assert (hole.recurring_pct or 0) > 30
    assert hole.scattered_pct == pytest.approx(0, abs=1)
