"""The rules about GPUs of AMD and Intel, judged on whole machines: the healthy ones stay silent, the sick ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.collect.machine_facts import MachineFacts
from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.compare import compare
from sysperf.evaluate.ruleset import load
from sysperf.model.finding import Report
from sysperf.report.words import verdict
from tests.collect.environments import python_at, site_of, torch_in
from tests.collect.programs import LIBTORCH, VERSION, process
from tests.conftest import Files, make_machine
from tests.gpus import RTX
from tests.gpus import calls as nvml_calls
from tests.gpus import files as nvidia_files
from tests.other_gpus import MI300X, NODES, RX7900, amd, bus_id, divided, intel, metrics, processor_of_amd
from tests.rules.test_gpu_rules import AREAS, BASE, LAPTOP, VENV, found

RULES = [path for path in judging.rule_files() if Path(path).stem in ("gpu", "driver", "torch", "releases", "xids")]
TERMS = judging.Terms(load(RULES, judging.schema()))
OPEN = {"access:/dev/kfd": True, **{f"access:/dev/dri/renderD{128 + index}": True for index in range(8)}}
GFX = {f"gpu-code:{site_of(VENV)}/torch/lib/libtorch_python.so": ["gfx90a", "gfx942"]}


def shell(version: str, cuda: str = "", hip: str = "") -> Files:
    """A shell in an environment with this torch."""
    header = {"/usr/include/python3.11/Python.h": ""}
    return {"/proc/self/environ": f"VIRTUAL_ENV={VENV}\0", **header, **python_at(VENV), **torch_in(site_of(VENV), version, cuda, hip)}


def judge(machine: tuple[Files, dict[str, str]], torch: Files, **calls: object) -> Report:
    files, links = machine
    answers = {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **OPEN, **GFX, **calls}
    return audit(make_machine({**BASE, **files, **torch}, links, answers), TERMS, areas=AREAS)


def _for_intel() -> Files:
    version, files = f"{site_of(VENV)}/torch/version.py", shell("2.14.0+xpu")
    return {**files, version: str(files[version]).replace("xpu: Optional[str] = None", "xpu: Optional[str] = '20250301'")}


ROCM = shell("2.14.0+rocm7.2", hip="7.2.0")


def test_eight_healthy_mi300x_are_silent() -> None:
    """With the build for them, nodes that may be opened, and nothing wrong."""
    report = judge(amd(*[MI300X] * 8, hive=77), ROCM)

    assert found(report) == {}
    assert "did not answer" not in verdict(report)


def test_a_card_of_intels_that_its_driver_did_not_start_is_no_clean_bill() -> None:
    """Firmware that is missing, or survivability mode: xe holds it, and there is no card."""
    own, (files, links) = "/0000:03:00.0/drm/", intel()
    bare = {path: text for path, text in files.items() if own not in path and path != "/dev/dri/renderD128"}
    report = judge((bare, {path: to for path, to in links.items() if own not in path and not path.endswith("/card1")}), CUDA)

    assert verdict(report).startswith("Cannot tell: 1 GPU did not answer (0000:03:00.0 has a driver and is no card).")
    assert "did not answer" not in verdict(judge((files, links), CUDA))


@pytest.mark.parametrize(
    ("version", "cuda", "rule"),
    [("2.14.0+cpu", "", "torch.cpu-wheel-on-gpu-host"), ("2.14.0+cu130", "13.0", "torch.wheel-of-another-vendor")],
)
def test_a_build_for_others_is_an_error(version: str, cuda: str, rule: str) -> None:
    """Eight MI300X with PyPI's wheel are not healthy: they do nothing."""
    for machine in (amd(*[MI300X] * 8, hive=77), intel()):
        findings = found(judge(machine, shell(version, cuda)))
        assert rule in findings
        assert findings[rule][0].severity == "error"
        assert any("download.pytorch.org/whl/" in fix.command for fix in findings[rule][0].fixes)


def test_a_build_without_this_target_is_an_error() -> None:
    assert "torch.gfx-missing" in found(judge(amd({**MI300X, "target": 90500}), ROCM))


def test_nodes_of_intels_gpus_that_may_not_be_opened_are_an_error_beside_a_build_for_them() -> None:
    xpu = _for_intel()
    closed = judge(intel(), xpu, **{"access:/dev/dri/renderD128": False})

    assert "gpu.intel-node-closed" in found(closed)
    assert "gpu.intel-node-closed" not in found(judge(intel(), xpu))
    assert "gpu.intel-node-closed" not in found(judge(intel(), shell("2.14.0+cpu"), **{"access:/dev/dri/renderD128": False}))


def test_two_radeons_of_which_one_shows_a_small_window() -> None:
    """The processor, and the other GPU, see 256 MiB of its memory."""
    files, links = amd(RX7900, RX7900)
    for index, size in ((0, 256 << 20), (1, 24 << 30)):
        own = next(path for path in files if path.endswith(f"{bus_id(index)}/mem_info_vram_used")).rpartition("/")[0]
        files[f"{own}/mem_info_vis_vram_total"] = f"{size}\n"

    findings = found(judge((files, links), shell("2.14.0+rocm7.2", hip="7.2.0")))

    assert [finding.about for finding in findings["gpu.bar1-small"]] == ["GPU 0 (AMD Radeon RX 7900)"]


def test_a_gpu_none_of_whose_sensors_answers() -> None:
    """One that answers to a part is not meant, nor one that sleeps, whose files are not read."""
    files, links = amd(RX7900)
    own = next(path for path in files if path.endswith("/gpu_busy_percent")).rpartition("/")[0]
    busy = {f"{own}/gpu_busy_percent": ""}
    silent = busy | {path: "" for path in files if path.endswith(("/temp1_input", "/power1_average", "/power1_input"))}

    assert len(silent) > 2
    assert "gpu.answers-broken" in found(judge(({**files, **silent}, links), ROCM))
    assert "gpu.answers-broken" not in found(judge(({**files, **busy}, links), ROCM))
    assert "gpu.answers-broken" not in found(judge(({**files, **silent, f"{own}/power/runtime_status": "suspended\n"}, links), ROCM))


def test_rocm_on_a_card_that_its_driver_does_not_list_is_an_error() -> None:
    """A small card of which kfd knows nothing."""
    files, links = amd({**RX7900, "vram": 2 << 30})
    files = {path: text for path, text in files.items() if f"{NODES}/1/" not in path}
    rocm = {"/opt/rocm/.info/version": "6.4.0\n"}

    assert "gpu.kfd-empty" in found(judge(({**files, **rocm}, links), shell("2.14.0+cpu")))
    assert "gpu.kfd-empty" not in found(judge((files, links), shell("2.14.0+cpu")))
    assert "gpu.kfd-empty" not in found(judge(({**amd(RX7900)[0], **rocm}, amd(RX7900)[1]), ROCM))


def test_closed_nodes_are_an_error() -> None:
    """Who is not in the groups sees no GPU."""
    assert set(found(judge(amd(MI300X), ROCM, **{"access:/dev/kfd": False}))) == {"gpu.amd-node-closed"}


def test_a_sick_instinct_is_named_by_every_sickness() -> None:
    """A brake on an idle GPU, a lowered limit, uncorrected errors, pages that wait, held clocks, a missing link."""
    files, links = amd(*[MI300X] * 2, hive=77)
    own = next(path for path in files if path.endswith("/gpu_metrics") and "0c:00.0" in path).rpartition("/")[0]
    sensors = next(path for path in files if path.startswith(f"{own}/hwmon") and path.endswith("power1_cap"))
    link = next(path for path, text in files.items() if "/1/io_links" in path and "node_to 2\n" in str(text))
    sick: Files = {
        f"{own}/gpu_metrics": metrics(1 << 47), sensors: "500000000\n", f"{own}/ras/umc_err_count": "ue: 2\nce: 9\n",
        f"{own}/ras/gpu_vram_bad_pages": "0x1 : 0x1000 : P\n", f"{own}/power_dpm_force_performance_level": "low\n",
        link: "type 2\nnode_to 2\n",
    }  # fmt: skip

    findings = found(judge(({**files, **sick}, links), ROCM))

    assert set(findings) == {
        "gpu.throttle-hw", "gpu.power-limit-lowered", "gpu.ecc-uncorrectable", "gpu.remap-pending", "gpu.performance-level", "gpu.xgmi-missing",
    }  # fmt: skip
    commands = [fix.command for findings_ in findings.values() for finding in findings_ for fix in finding.fixes]
    assert not any("nvidia" in command for command in commands)


def test_a_healthy_arc_is_silent_and_a_small_window_is_not() -> None:
    xpu = _for_intel()
    xpu |= dict.fromkeys((f"/usr/lib/x86_64-linux-gnu/{name}.so.1" for name in ("libze_loader", "libze_intel_gpu")), "")
    small = "0x0 0x0 0x0\n0x0 0x0 0x0\n0x0000004000000000 0x000000400fffffff 0x000000000014220c\n"

    assert found(judge(intel(), xpu)) == {}
    assert set(found(judge(intel(resource=small), xpu))) == {"gpu.arc-small-bar"}


def reasons(report: Report) -> dict[str, str]:
    """Why facts of GPUs are unknown, by the name of the fact."""
    return {gap.fact: gap.reason for outcome in report.outcomes for gap in outcome.unknown if gap.fact.startswith("gpu.")}


def test_why_a_fact_is_unknown_is_said_in_the_words_of_its_own_driver() -> None:
    """That there is no driver of NVIDIA's is no reason, and to install it no cure."""
    files, links = amd(MI300X)
    files = {path: text for path, text in files.items() if not path.endswith(("gpu_busy_percent", "gpu_metrics", "power1_cap"))}

    report = judge((files, links), ROCM)

    at = "/sys/class/drm/card1/device"
    assert reasons(report)["gpu.utilization_percent"] == f"{at}/gpu_busy_percent: No such file or directory"
    assert reasons(report)["gpu.clocks.events"] == f"{at}/gpu_metrics: No such file or directory"
    assert reasons(report)["gpu.power.limit_watts"] == f"{at}/hwmon/hwmon3/power1_cap: No such file or directory"
    gaps = [gap for outcome in (*report.outcomes, *judge(intel(), CUDA).outcomes) for gap in outcome.unknown]
    assert not [gap for gap in gaps if "NVIDIA" in gap.reason + gap.remedy]
    assert reasons(judge(intel(), CUDA))["gpu.utilization_percent"] == (
        f"{at}/tile0/gt0/gtidle/idle_residency_ms: No such file or directory"
    )
    asleep = next(path for path in files if path.endswith("0c:00.0/local_cpulist")).replace("local_cpulist", "power/runtime_status")
    assert "sleeps" in reasons(judge(({**files, asleep: "suspended\n"}, links), ROCM))["gpu.clocks.events"]


def test_two_machines_differ_in_what_was_set_on_a_gpu() -> None:
    """Clocks, partition, limit and firmware, as for NVIDIA's GPUs; the number of a card is no difference."""
    files, links = amd(*[MI300X] * 2, hive=77)
    own = next(path for path in files if path.endswith("0c:00.0/vbios_version")).rpartition("/")[0]
    limit = next(path for path in files if path.startswith(f"{own}/hwmon") and path.endswith("power1_cap"))
    changed: Files = {
        f"{own}/vbios_version": "113-OLD\n", f"{own}/power_dpm_force_performance_level": "low\n", limit: "500000000\n",
        f"{own}/current_compute_partition": "CPX\n", f"{own}/current_memory_partition": "NPS4\n",
    }  # fmt: skip
    ruleset = load(judging.rule_files(), judging.schema())
    machines = [judge((some, links), ROCM).snapshot for some in (files, {**files, **changed})]

    differences = {difference.fact: difference.values for difference in compare(machines, ruleset.tables["matters"])}

    assert differences == {
        "gpu.devices[0].power.limit_watts": ("750.0", "500.0"),
        "gpu.devices[0].performance_level": ("auto", "low"),
        "gpu.devices[0].compute_partition": ("SPX", "CPX"),
        "gpu.devices[0].memory_partition": ("NPS1", "NPS4"),
        "gpu.devices[0].vbios": ("113-M3000100-103", "113-OLD"),
    }


# ---------------------------------------------------------------------- several kinds in one machine

SM = {f"gpu-code:{site_of(VENV)}/torch/lib/libtorch_python.so": ["sm_80", "sm_86", "sm_89", "sm_90"]}
CUDA = shell("2.14.0+cu130", "13.0")


def beside_nvidia(others: tuple[Files, dict[str, str]], count: int = 1) -> tuple[Files, dict[str, str]]:
    """A machine with GPUs of NVIDIA's and these."""
    files, links = nvidia_files(count)
    return {**others[0], **files}, {**others[1], **links}


def graphics_of_intel() -> tuple[Files, dict[str, str]]:
    """The GPU inside of a Core processor alone."""
    files, links = intel()
    outside = ("0000:03:00.0", "0000:00:01.0", "card1", "renderD128")
    kept = ({path: text for path, text in some.items() if not any(word in path for word in outside)} for some in (files, links))
    plain, linked = kept
    return {str(path): text for path, text in plain.items()}, {path: str(text) for path, text in linked.items()}


@pytest.mark.parametrize(
    "graphics", [processor_of_amd(), processor_of_amd(driver=""), graphics_of_intel()], ids=["Ryzen", "its driver is off", "Core"]
)
def test_a_hybrid_laptop_is_silent(graphics: tuple[Files, dict[str, str]]) -> None:
    """The processor's graphics draw the screen, and NVIDIA's GPU computes."""
    chassis: Files = {"/sys/class/dmi/id/chassis_type": "10\n"}

    report = judge(beside_nvidia(graphics), {**CUDA, **chassis}, **nvml_calls(LAPTOP), **SM)

    assert found(report) == {}


@pytest.mark.parametrize("torch", [CUDA, shell("2.14.0+cpu")], ids=["CUDA", "CPU"])
def test_a_laptop_with_a_ryzen_alone_is_silent(torch: Files) -> None:
    """Its graphics are no GPU for computing, however much memory the firmware gives them."""
    assert found(judge(processor_of_amd(), torch)) == {}


def test_a_processors_graphics_that_hung_concern_nobody_who_computes() -> None:
    """Beside NVIDIA's GPU, whose hang counts."""
    hung = "2026-11-20T12:00:00,000001+00:00 host kernel: "
    log = f"{hung}i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:85dffffb, in chrome [4242]\n{hung}amdgpu 0000:c4:00.0: amdgpu: ring gfx timeout\n"
    files, links = beside_nvidia(processor_of_amd())

    def judged(text: str) -> Report:
        answers = {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **nvml_calls(LAPTOP), "run:dmesg": text}
        host = make_machine({**BASE, **files, "/sys/class/dmi/id/chassis_type": "10\n"}, links, answers, deep=True)
        return audit(host, TERMS, areas=AREAS)

    assert "gpu.reset-in-log" not in found(judged(log))
    assert "gpu.reset-in-log" in found(judged(f"{log}{hung}NVRM: GPU0 krcWatchdog_IMPL: RC watchdog: GPU is probably locked!\n"))


@pytest.mark.parametrize(("torch", "named"), [(ROCM, True), (CUDA, False), (shell("2.14.0+cpu"), False)], ids=["ROCm", "CUDA", "CPU"])
def test_a_processors_graphics_that_hung_concern_a_pytorch_that_brings_rocm(torch: Files, named: bool) -> None:
    """Wheels for ROCm need nothing in /opt; without one the graphics draw a screen."""
    log = "2026-11-20T12:00:00,000001+00:00 amdgpu 0000:c4:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=2\n"
    files, links = processor_of_amd()
    host = make_machine({**BASE, **files, **torch}, links, {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], "run:dmesg": log}, deep=True)

    assert ("gpu.reset-in-log" in found(audit(host, TERMS, areas=AREAS))) is named


def test_a_card_without_driver_is_named_beside_a_processors_graphics() -> None:
    files, links = amd(RX7900)
    graphics, more = processor_of_amd()
    without = {
        path: target for path, target in links.items() if not path.endswith("/driver") and "/drm/" not in path and "/class/drm" not in path
    }

    findings = found(judge(({**files, **graphics}, {**without, **more}), CUDA))

    assert [finding.message for finding in findings["gpu.amd-no-driver"]] == [f"No driver holds {bus_id(0)}."]


def test_nvidia_computes_and_a_radeon_draws() -> None:
    """Its nodes are nobody's business, until a PyTorch for it is there."""
    machine, closed = beside_nvidia(amd(RX7900)), {"access:/dev/kfd": False}

    assert found(judge(machine, CUDA, **closed, **nvml_calls(RTX), **SM)) == {}
    gfx = {key: ["gfx1100"] for key in GFX}
    assert set(found(judge(machine, ROCM, **closed, **nvml_calls(RTX), **gfx))) == {"gpu.amd-node-closed"}
    assert found(judge(machine, ROCM, **nvml_calls(RTX), **gfx)) == {}


def test_two_makers_for_computing_are_silent_with_a_build_for_one() -> None:
    for others in (amd(RX7900), intel()):
        assert found(judge(beside_nvidia(others), CUDA, **nvml_calls(RTX), **SM)) == {}


def test_a_divided_mi300x_is_one_gpu() -> None:
    """Eight parts of one address are one device with the units of all; what its parts do not tell of links is unknown, and no missing link."""
    files, links = amd(*[MI300X] * 2, hive=77)
    files = divided(files, 0, 8, 152, 77)

    report = judge((files, links), ROCM)

    first, second = MachineFacts(report.snapshot.areas).gpus
    assert (first.bus_id, first.compute_units, first.mig_enabled, first.compute_partition) == (bus_id(0), 304, True, "CPX")
    assert (second.bus_id, second.compute_units, second.mig_enabled, second.xgmi.peers) == (bus_id(1), 304, False, 1)
    assert found(report) == {}
    away = {path: text for path, text in files.items() if not (path.startswith(f"{NODES}/1/io_links") and "node_to 2\n" in str(text))}
    assert found(judge((away, links), ROCM)) == {}


def test_a_container_with_one_of_eight_gpus_has_one() -> None:
    """It sees all of them in /sys, and the node of its own in /dev/dri; the others are no business of it."""
    files, links = amd(*[MI300X] * 8, hive=77)
    for index in range(8):
        own = next(path for path in files if path.endswith(f"{bus_id(index)}/numa_node")).rpartition("/")[0]
        files[f"{own}/drm/renderD{128 + index}/dev"] = f"226:{128 + index}\n"
        if index != 5:
            del files[f"/dev/dri/renderD{128 + index}"]
            files[f"{NODES}/{index + 1}/properties"] = OSError("Operation not permitted")
            files[f"{NODES}/{index + 1}/gpu_id"] = OSError("Operation not permitted")

    report = judge(({**files, "/.dockerenv": ""}, links), ROCM)

    (device,) = MachineFacts(report.snapshot.areas).gpus
    assert (device.index, device.bus_id, device.target) == (0, bus_id(5), "gfx942")
    assert found(report) == {}


def test_a_container_with_a_part_of_a_gpu_has_that_gpu() -> None:
    """The part's node is another one than the card's; the compute driver shows the part."""
    files, links = amd(MI300X)
    own = next(path for path in files if path.endswith(f"{bus_id(0)}/numa_node")).rpartition("/")[0]
    del files["/dev/dri/renderD128"]

    report = judge(({**files, f"{own}/drm/renderD128/dev": "226:128\n", "/dev/dri/renderD131": "", "/.dockerenv": ""}, links), ROCM)

    assert [device.bus_id for device in MachineFacts(report.snapshot.areas).gpus] == [bus_id(0)]


def test_a_container_with_one_arc_of_two_has_one() -> None:
    files, links = intel()
    own = next(path for path in files if path.endswith("0000:03:00.0/numa_node")).rpartition("/")[0]
    files[f"{own}/drm/renderD128/dev"] = "226:128\n"
    second = {
        path.replace("0000:03:00.0", "0000:04:00.0").replace("renderD128", "renderD129"): text
        for path, text in files.items()
        if "0000:03:00.0" in path
    }
    more = {
        path.replace("0000:03:00.0", "0000:04:00.0").replace("card1", "card2"): target
        for path, target in links.items()
        if "0000:03:00.0" in path + target
    }
    more = {path: target.replace("0000:03:00.0", "0000:04:00.0").replace("card1", "card2") for path, target in more.items()}
    second = {path.replace("drm/card1", "drm/card2"): str(text).replace("0000:03:00.0", "0000:04:00.0") for path, text in second.items()}

    one, both = ({**files, **second, "/.dockerenv": "", **given} for given in ({}, {"/dev/dri/renderD129": ""}))
    reports = [judge((some, {**links, **more}), CUDA) for some in (one, both)]

    assert [[device.bus_id for device in MachineFacts(report.snapshot.areas).gpus] for report in reports] == [
        ["0000:03:00.0"],
        ["0000:03:00.0", "0000:04:00.0"],
    ]


# ---------------------------------------------------------------------- what a program was started with

SITE = "/venv/lib/python3.12/site-packages"


def running(variables: str, torch: str) -> Files:
    """A program that computes with this build, an hour old."""
    given = {**VERSION, f"{SITE}/torch/version.py": torch, "/proc/uptime": "100000.0 1\n", "/proc/stat": "btime 1700000000\n"}
    return {**given, **process(2121, argv="/venv/bin/python train.py", env=f"PATH=/bin {variables}", mapped=(LIBTORCH,))}


FOR_ROCM = "__version__ = '2.13.0+rocm7.1'\ncuda: Optional[str] = None\nhip: Optional[str] = '7.1.0'\nxpu: Optional[str] = None\n"
FOR_XPU = "__version__ = '2.13.0+xpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\nxpu: Optional[str] = '20250302'\n"


@pytest.mark.parametrize(
    ("variables", "rules"),
    [
        ("HIP_VISIBLE_DEVICES=1", {"gpu.chosen-absent"}),
        ("ROCR_VISIBLE_DEVICES=0 HIP_VISIBLE_DEVICES=0", set()),
        ("CUDA_VISIBLE_DEVICES=3", {"gpu.chosen-absent"}),
        ("HSA_OVERRIDE_GFX_VERSION=10.3.0", {"gpu.target-overridden"}),
        ("HSA_OVERRIDE_GFX_VERSION=11.0.0", set()),
        ("AMD_SERIALIZE_KERNEL=3", {"environment.device-debugging"}),
        ("AMD_LOG_LEVEL=1 LD_LIBRARY_PATH=/opt/intel/oneapi/compiler/2025.1/lib", set()),
    ],
)
def test_variables_that_harm_a_program_on_a_radeon(variables: str, rules: set[str]) -> None:
    assert _of_programs(amd(RX7900), running(variables, FOR_ROCM)) == rules


@pytest.mark.parametrize(
    ("variables", "rules"),
    [
        ("ZE_AFFINITY_MASK=0", set()),
        ("ZE_AFFINITY_MASK=5", {"gpu.chosen-absent"}),
        ("ONEAPI_DEVICE_SELECTOR=opencl:gpu", {"gpu.selector-without-level-zero"}),
        ("ONEAPI_DEVICE_SELECTOR=level_zero:gpu", set()),
        ("SYCL_UR_TRACE=-1", {"environment.device-debugging"}),
        ("HIP_VISIBLE_DEVICES=9", set()),
    ],
)
def test_variables_that_harm_a_program_on_an_arc(variables: str, rules: set[str]) -> None:
    assert _of_programs(intel(), running(variables, FOR_XPU)) == rules


def _of_programs(machine: tuple[Files, dict[str, str]], program: Files) -> set[str]:
    """The rules about processes that find something."""
    files, links = machine
    names = ("gpu", "driver", "environment", "torch", "xids", "releases")
    rules = [path for path in judging.rule_files() if Path(path).stem in names]
    answers = {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **OPEN}
    host = make_machine({**BASE, **files, **program}, links, answers)
    report = audit(host, judging.Terms(load(rules, judging.schema())), areas=AREAS)
    return {
        finding.rule
        for finding in report.findings()
        if finding.about.startswith(("PID", "pid", "python", "process")) or "2121" in finding.about
    }
