"""Advice in the words of the device's own runtime: what is said of a trace of ROCm or XPU can be pasted there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sysperf.cli import main
from sysperf.engine.analyze import Result, analyze
from sysperf.model.finding import Finding, Remedy
from sysperf.model.rule import Advice
from sysperf.report.profiling.analysis import render
from sysperf.trace.output.words import of_runtime
from tests import shipped

from .labelled import analyzed, found, rules
from .synthetic import Machine, exported, steps

DEVICES = {"cuda": "NVIDIA A100-SXM4-80GB", "hip": "AMD Instinct MI300X", "xpu": "Intel(R) Data Center GPU Max 1550"}
CALLS = {
    "hip": {"cuda": "hip"},
    "xpu": {
        "cudaLaunchKernel": "urEnqueueKernelLaunch", "cudaMemcpyAsync": "urEnqueueUSMMemcpy", "cudaDeviceSynchronize": "urQueueFinish",
        "cudaMalloc": "urUSMDeviceAlloc", "cudaFree": "urUSMFree",
    },
}  # fmt: skip


def of(runtime: str, machine: Machine) -> Machine:
    """The same program on a device of another maker."""
    for event in machine.events:
        if event["cat"] == "cuda_runtime":
            for theirs, own in CALLS.get(runtime, {}).items():
                event["name"] = event["name"].replace(theirs, own)
    return machine


def said(folder: Path, runtime: str, step: Any) -> tuple[Result, str]:
    result = analyzed(folder, of(runtime, steps(Machine(), 6, step)), deviceProperties=[{"id": 0, "name": DEVICES[runtime]}])
    return result, render(result.analysis, verbose=True, width=1_000)


def small_kernels(machine: Machine) -> None:
    for _ in range(200):
        machine.think(25)
        machine.kernel(5, "vectorized_elementwise_kernel")
    machine.synchronize()


def allocating(machine: Machine) -> None:
    """New memory in each step, and copies that run alone."""
    machine.copy(3_000)
    for _ in range(40):
        machine.call("cudaMalloc", 300)
        machine.kernel(100)
    machine.call("cudaFree", 500)
    machine.synchronize()


@pytest.mark.parametrize(
    ("runtime", "there", "absent"),
    [
        ("cuda", ("CUDA graphs", "reduce-overhead"), ("HIP", "XPU", "hip.html")),
        ("hip", ("HIP graphs", "reduce-overhead", "notes/hip.html"), ("CUDA graph", "notes/cuda.html", "docs.nvidia.com")),
        ("xpu", ("XPU graphs", "torch.compile(model)", "get_start_xpu.html"), ("CUDA", "reduce-overhead", "docs.nvidia.com")),
    ],
)
def test_launches_are_advised_in_the_words_of_their_runtime(
    tmp_path: Path, runtime: str, there: tuple[str, ...], absent: tuple[str, ...]
) -> None:
    """On XPU, the mode reduce-overhead of torch.compile does nothing: it captures graphs of CUDA and HIP only."""
    result, text = said(tmp_path, runtime, small_kernels)

    assert result.analysis.trace.ranks[0].runtime == runtime
    assert "device.launch-bound" in found(result)
    assert [word for word in there if word not in text] == []
    assert [word for word in absent if word in text] == []


@pytest.mark.parametrize(("runtime", "stream", "call"), [("hip", "torch.cuda.Stream", "hipMalloc"), ("xpu", "torch.xpu.Stream", "urUSM")])
def test_allocations_and_streams_have_the_names_of_their_runtime(tmp_path: Path, runtime: str, stream: str, call: str) -> None:
    """PyTorch keeps the names of CUDA on GPUs of AMD, and has its own for Intel's. A call that allocates is one by any name."""
    result, text = said(tmp_path, runtime, allocating)

    assert {"device.allocator-stalls", "transfer.exposed"} <= found(result)
    assert stream in text
    assert call in text
    assert "cudaMalloc" not in text


@pytest.mark.parametrize(("runtime", "advice"), [("cuda", "NVreg_RestrictProfilingToAdminUsers"), ("hip", "rocprof"), ("xpu", "intel-pti")])
def test_a_device_that_was_not_recorded_is_one_of_its_runtime(tmp_path: Path, runtime: str, advice: str) -> None:
    """What keeps a profiler from seeing a device differs from maker to maker."""
    machine = steps(Machine(), 6, small_kernels)
    machine.events = [event for event in machine.events if event["cat"] != "kernel"]
    result = analyzed(tmp_path, of(runtime, machine), deviceProperties=[])
    (finding,) = (finding for finding in result.analysis.findings if finding.rule == "trust.device-events-missing")

    assert [fix for fix in finding.fixes if advice in fix.title]
    assert len(finding.fixes) == 1


def test_an_export_without_a_device_is_not_sent_to_another_profiler(tmp_path: Path) -> None:
    """Whoever has a report of Nsight Systems gets its options."""
    path = exported(tmp_path, Machine(), changes=["DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME"])
    findings = analyze([path], rules()).analysis.findings
    fixes = [fix.title for finding in findings if finding.rule == "trust.device-events-missing" for fix in finding.fixes]

    assert fixes
    assert not [fix for fix in fixes if "activities=" in fix]


NOT_THERE = {
    "hip": r"CUDA graph|cudaMalloc|CUPTI|nvidia-smi|PYTORCH_CUDA_ALLOC_CONF|\bNCCL\b",
    "xpu": r"CUDA graph|cudaMalloc|CUPTI|nvidia-smi|PYTORCH_CUDA_ALLOC_CONF|\bNCCL\b|torch\.cuda\.|torch\.xpu\.(?!Stream\b|empty_cache\b)|;\s*$",
}


@pytest.mark.parametrize("runtime", ["hip", "xpu"])
def test_no_cause_of_a_trace_names_what_is_not_there(runtime: str) -> None:
    """What a fix names exists in that build of PyTorch: torch.xpu has less than torch.cuda. What is CUDA's alone has a condition."""
    wrong = []
    for rule in (rule for rule in shipped.rules() if rule.scope == "trace"):
        fixes = tuple(Remedy("advice", fix.text, "manual") for fix in rule.fix if isinstance(fix, Advice) and not fix.when)
        finding = Finding("a.b", "finding", "info", "trace", rule.title, message=rule.message, why=rule.explain, fixes=fixes)
        told = of_runtime(finding, runtime)
        texts = [told.title, told.message, told.why, *(fix.title for fix in told.fixes)]
        wrong += [(rule.id, text) for text in texts if re.search(NOT_THERE[runtime], text)]

    assert not wrong


def test_modules_whose_kernels_run_later_have_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A host that is far ahead has called all of them before the device's first step ends."""

    def step(machine: Machine) -> None:
        model = machine.now
        for number in range(4):
            layer = machine.now
            for _ in range(5):
                machine.think(5)
                machine.kernel(500)
            machine.range(f"nn.Module: Block_{number}", layer, "python_function")
        machine.range("nn.Module: GPT_0", model, "python_function")

    path = tmp_path / "trace.json"
    path.write_text(json.dumps(steps(Machine(), 6, step).trace()))
    assert main(["analyze", str(path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["ranks"][0]["facts"]
    count = len(facts["modules"]) and facts["modules"][0]["calls"]

    assert facts["window_rule"] == "device_steps"
    assert count >= 3
    assert [(row["name"], row["calls"]) for row in facts["modules"]] == [("GPT", count), ("Block", 4 * count)]
