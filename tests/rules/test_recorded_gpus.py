"""GPU machines that others published, judged whole: what an engineer expects is named, and nothing else is said of the GPUs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.ruleset import load
from sysperf.model.finding import Report
from sysperf.report.words import verdict
from tests.conftest import make_machine
from tests.gpu_records import FOLDER, Machine, build, records
from tests.rules.test_gpu_rules import AREAS, BASE

RULES = [
    path
    for path in judging.rule_files()
    if Path(path).stem in ("container", "driver", "environment", "gpu", "nccl", "pcie", "releases", "torch", "xids")
]
TERMS = judging.Terms(load(RULES, judging.schema()))
DRAWS = sorted((path.stem for path in FOLDER.glob("draw*.toml")), key=lambda name: int(name.removeprefix("draw")))
EVERYDAY = DRAWS[::-3]
"""Of the newest draw and each third one before; slow tests take all."""
UNKNOWN = re.compile(r"(^|[\s=/'(])\?([\s:,.)/'+]|$)")


def judged(machine: Machine) -> Report:
    files, links, calls = build(machine)
    host = make_machine({**BASE, **files}, links, calls, deep="dmesg" in machine)
    return audit(host, TERMS, areas=(*AREAS, "storage"))


class Wrong(NamedTuple):
    """What a report should have said, and what it should not have."""

    missed: list[list[str]] = []
    unexpected: list[str] = []
    denied: bool = False
    """It says that there are neither errors nor warnings beside them."""
    blanks: list[str] = []
    """Advice for a cause of which nothing is known."""


def wrong(machine: Machine) -> Wrong:
    """What is wrong with the report on a machine."""
    report = judged(machine)
    findings = report.findings()
    found = {finding.rule for finding in findings}
    expected = {rule for illness in machine["must"] for rule in illness} | set(machine.get("may", ()))
    grave = {finding.severity for finding in findings} & {"error", "warning"}
    return Wrong(
        missed=[illness for illness in machine["must"] if not found.intersection(illness)],
        unexpected=sorted(found - expected),
        denied=bool(grave) and "No errors and no warnings" in verdict(report),
        blanks=[fix.title for finding in findings for fix in finding.fixes if UNKNOWN.search(f"{fix.title} {fix.command}")],
    )


@pytest.mark.parametrize("draw", [draw if draw in EVERYDAY else pytest.param(draw, marks=pytest.mark.slow) for draw in DRAWS])
def test_what_an_engineer_expects_is_named_and_nothing_else(draw: str) -> None:
    told = {name: wrong(machine) for name, machine in records(draw).items()}

    assert {name: mistakes for name, mistakes in told.items() if mistakes != Wrong()} == {}


def test_what_operators_check_is_named() -> None:
    """What else a list's machine shows, as a torch that is behind, is not of the check."""
    machines = records("checklists")

    assert {name: missed for name, machine in machines.items() if (missed := wrong(machine).missed)} == {}
    assert {name: said for name, machine in machines.items() if not machine["must"] and (said := wrong(machine).unexpected)} == {}


def test_no_wheel_is_advised_that_the_driver_does_not_run() -> None:
    """Wheels of CUDA 12.6 need driver 525: on that of 2018 only another driver helps."""
    report = judged(records("draw21")["p100-four-with-a-driver-of-2018"])

    (finding,) = (one for one in report.findings() if one.rule == "driver.too-old-for-cuda")
    assert [fix.command for fix in finding.fixes] == [""]


RADEON: Machine = {"amd": [{"like": "MI300X"}], "unbound": True}
ARC: Machine = {"bus": [{"count": 1, "vendor": "0x8086", "device": "0x56a0", "class": "0x030000"}]}
AT_LAST = "load the driver"


@pytest.mark.parametrize(
    ("machine", "parameters", "advised"),
    [
        (RADEON, "ro", [AT_LAST]),
        (RADEON, "modprobe.blacklist=nouveau,amdgpu", ["the kernel was started with modprobe.blacklist=nouveau,amdgpu", AT_LAST]),
        (RADEON, "modprobe.blacklist=i915", [AT_LAST]),
        (ARC, "rd.driver.blacklist=xe,i915", ["the kernel was started with rd.driver.blacklist=xe,i915", AT_LAST]),
        (ARC, "modprobe.blacklist=amdgpu", [AT_LAST]),
        (ARC, "nomodeset", ["start the kernel without nomodeset", AT_LAST]),
        (RADEON, "module_blacklist=nouveau", [AT_LAST]),
        (RADEON, "module_blacklist=amdgpu", ["start the kernel without module_blacklist=amdgpu", AT_LAST]),
    ],
)
def test_a_start_parameter_is_named_where_it_keeps_the_driver_of_this_gpu_away(
    machine: Machine, parameters: str, advised: list[str]
) -> None:
    report = judged({**machine, "files": {"/proc/cmdline": f"{parameters}\n"}})

    (finding,) = (one for one in report.findings() if one.rule == "gpu.amd-no-driver")
    assert [fix.title[: len(words)] for fix, words in zip(finding.fixes, advised, strict=True)] == advised


HALO: Machine = {
    "amd": [{"like": "RX7900", "target": 110501, "simds": 80, "device": "1586", "vram": 1 << 29, "cap": 0}],
    "files": {"/proc/meminfo": "MemTotal: 131072000 kB\nMemFree: 20000000 kB\nMemAvailable: 25000000 kB\n"},
}
WISHED = "pages_limit=24576000"


@pytest.mark.parametrize(
    ("parameters", "module", "limit_gib", "shared_gib", "advised"),
    [
        ("ro", "ttm", 62, 62, f"let it have three quarters: start the kernel with ttm.{WISHED}"),
        ("amdgpu.gttsize=32768", "ttm", 100, 32, "start the kernel without amdgpu.gttsize=32768"),
        ("ro", "ttm", 100, 32, "take gttsize out of the options of amdgpu"),
        ("amdgpu.gtt_size=9 amdgpu.gttsize=9", "amdttm", 100, 32, "the module ignores amdgpu.gtt_size=9"),
        ("amdgpu.gtt_size=9 ttm.pages_limit=9", "", 0, 62, "the module ignores amdgpu.gtt_size=9"),
        ("ttm.pages_limit=9", "amdttm", 62, 62, f"let it have three quarters: start the kernel with amdttm.{WISHED}, as parameters"),
        ("ro", "", 0, 62, f"let it have three quarters: start the kernel with ttm.{WISHED} (amdttm"),
        ("amdttm.pages_limit=9", "", 0, 62, f"let it have three quarters: start the kernel with ttm.{WISHED} (amdttm"),
        ("ttm.pages_limit=9", "", 0, 62, "the kernel was started with ttm.pages_limit=9: where that asks for more"),
        ("ttm.pages_limit=9", "ttm", 62, 62, None),
        ("amdttm.pages_limit=9", "amdttm", 62, 62, None),
    ],
)
def test_a_processors_gpu_that_gets_half_of_the_memory_has_one_next_step(
    parameters: str, module: str, limit_gib: int, shared_gib: int, advised: str | None
) -> None:
    """What holds it is the kernel's parameter, an option of the module, or its own default. Who chose the limit is not told to raise it."""
    limit = {f"/sys/module/{module}/parameters/pages_limit": f"{limit_gib << 18}\n"} if module else {}
    report = judged(
        {
            **HALO,
            "card": {"mem_info_gtt_total": f"{shared_gib << 30}\n"},
            "files": {**HALO["files"], **limit, "/proc/cmdline": f"{parameters}\n"},
        }
    )

    titles = [fix.title for one in report.findings() if one.rule == "gpu.gtt-half" for fix in one.fixes]
    assert [title[: len(advised or "")] for title in titles] == ([advised] if advised else [])


TWO: Machine = {
    "driver": "580.95.05",
    "gpu": [{"like": "geforce", "count": 2}],
    "torch": {"version": "2.9.1+cu128", "cuda": "12.8", "code": ["sm_89"]},
}


@pytest.mark.parametrize(
    ("machine", "variables", "rules"),
    [
        (TWO, "CUDA_VISIBLE_DEVICES=2", {"environment.visible-devices-absent"}),
        (TWO, "CUDA_VISIBLE_DEVICES=all", {"environment.visible-devices-word"}),
        (TWO, "CUDA_VISIBLE_DEVICES=1", set()),
        (TWO, "LD_LIBRARY_PATH=/usr/local/cuda-12.3/lib64", {"driver.toolkit-unneeded"}),
        (TWO, "NCCL_P2P_DISABLE=1 NCCL_DEBUG=INFO TORCH_LOGS=+dynamo", set()),
        (TWO, "HIP_VISIBLE_DEVICES=7", set()),
        ({"amd": [{"like": "RX7900"}]}, "HIP_VISIBLE_DEVICES=7", {"gpu.chosen-absent"}),
        ({"amd": [{"like": "RX7900"}]}, "HSA_OVERRIDE_GFX_VERSION=11.0.0", set()),
        (
            {"intel": {}, "torch": {"version": "2.9.1+xpu", "xpu": "20250201", "code": []}},
            "ONEAPI_DEVICE_SELECTOR=opencl:gpu",
            {"gpu.selector-without-level-zero"},
        ),
        (TWO, "KMP_DUPLICATE_LIB_OK=TRUE", set()),
    ],
)
def test_variables_of_the_shell_are_judged_where_they_say_enough(machine: Machine, variables: str, rules: set[str]) -> None:
    """A program that failed does not run; what needs more than its variables stays unsaid."""
    report = judged({**machine, "shell": variables})

    said = [one for one in report.findings() if one.subject.text == "this shell"]
    assert {one.rule for one in said} == rules
    assert not any("this shell" in (gap.subject.text) for gap in report.outcomes if gap.state != "finding")


def test_a_fix_for_the_shell_is_one_that_it_takes() -> None:
    """Variables that are set there are taken away; there is no program to be started with a prefix."""
    report = judged({**TWO, "shell": "CUDA_FORCE_PTX_JIT=1"})

    (fix,) = next(one for one in report.findings() if one.rule == "environment.ptx-forced").fixes
    assert (fix.command, fix.title, fix.needs) == ("unset CUDA_FORCE_PTX_JIT", "unset CUDA_FORCE_PTX_JIT", "")


def test_what_a_running_program_shows_is_not_said_of_its_shell() -> None:
    report = judged({**TWO, "shell": "CUDA_VISIBLE_DEVICES=2", "run": "CUDA_VISIBLE_DEVICES=2"})

    assert [one.subject.kind for one in report.findings() if one.rule == "environment.visible-devices-absent"] == ["process"]


NEVER_SET_UP = {"like": "hopper", "count": 8, "fabric": "in-progress"}
SILENT: Machine = {"nvml": "GPU access blocked by the operating system", "library": "580.95.05", "gpu": []}


@pytest.mark.parametrize(
    ("rule", "machine", "advised"),
    [
        ("gpu.fabric-not-ready", {"gpu": [NEVER_SET_UP], "fabric_manager": False}, "start the fabric manager of the driver's version"),
        ("gpu.fabric-not-ready", {"gpu": [NEVER_SET_UP]}, "read why the fabric manager, which runs,"),
        ("gpu.fabric-not-ready", {"gpu": [NEVER_SET_UP], "base": "container"}, "have the fabric manager of the host looked at"),
        (
            "gpu.fabric-not-ready",
            {"gpu": [NEVER_SET_UP], "base": "vm", "fabric_manager": False},
            "have the fabric manager of the host looked at",
        ),
        (
            "gpu.fabric-not-ready",
            {"gpu": [{**NEVER_SET_UP, "name": "NVIDIA B200"}], "base": "vm"},
            "read why the fabric manager, which runs,",
        ),
        (
            "gpu.fabric-not-ready",
            {"gpu": [{**NEVER_SET_UP, "name": "NVIDIA GB200", "count": 4}]},
            "have the NMX controller in the switch trays",
        ),
        ("gpu.nvml-silent", {**SILENT, "on_bus": 1}, "install the driver's libraries of the same version"),
        ("gpu.nvml-silent", {**SILENT, "base": "wsl"}, "update NVIDIA's driver in Windows and WSL"),
        (
            "gpu.nvml-silent",
            {**SILENT, "base": "wsl", "files": {"/proc/self/cgroup": f"0::/docker/{'0123456789abcdef' * 4}\n"}},
            "see that nvidia-smi answers in WSL itself",
        ),
    ],
)
def test_each_place_has_a_next_step_of_its_own(rule: str, machine: Machine, advised: str) -> None:
    """A container starts no service of its host; a guest without switches has nothing to start; what runs is not started."""
    report = judged(machine)

    steps = {tuple(fix.title for fix in one.fixes) for one in report.findings() if one.rule == rule}
    assert [[title[: len(advised)] for title in titles] for titles in steps] == [[advised]]
