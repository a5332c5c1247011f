"""GPU machines that others published, judged whole: what an engineer expects is named, and nothing else is said of the GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.ruleset import load
from sysperf.model.finding import Report
from sysperf.report.words import verdict
from tests.conftest import make_machine
from tests.gpu_records import FOLDER, Machine, build, records
from tests.rules.test_gpu_rules import AREAS, BASE

RULES = [path for path in judging.rule_files() if Path(path).stem in ("container", "driver", "gpu", "pcie", "releases", "torch", "xids")]
TERMS = judging.Terms(load(RULES, judging.schema()))
DRAWS = sorted((path.stem for path in FOLDER.glob("draw*.toml")), key=lambda name: int(name.removeprefix("draw")))
UNKNOWN = re.compile(r"(^|[\s=/'(])\?([\s:,.)/'+]|$)")
MACHINES = {f"{draw}: {name}": machine for draw in DRAWS for name, machine in records(draw).items()}


def judged(machine: Machine) -> Report:
    files, links, calls = build(machine)
    host = make_machine({**BASE, **files}, links, calls, deep="dmesg" in machine)
    return audit(host, TERMS, areas=AREAS)


@pytest.mark.parametrize("name", MACHINES)
def test_what_an_engineer_expects_is_named_and_nothing_else(name: str) -> None:
    machine = MACHINES[name]

    report = judged(machine)

    found = {finding.rule for finding in report.findings()}
    expected = {rule for illness in machine["must"] for rule in illness} | set(machine.get("may", ()))
    missed = [illness for illness in machine["must"] if not found.intersection(illness)]
    assert (missed, sorted(found - expected)) == ([], [])
    grave = {finding.severity for finding in report.findings()} & {"error", "warning"}
    assert not grave or "No errors and no warnings" not in verdict(report)
    blanks = [fix.title for finding in report.findings() for fix in finding.fixes if UNKNOWN.search(f"{fix.title} {fix.command}")]
    assert blanks == [], "advice for a cause of which nothing is known"


def test_no_wheel_is_advised_that_the_driver_does_not_run() -> None:
    """Wheels of CUDA 12.6 need driver 525: on that of 2018 only another driver helps."""
    report = judged(MACHINES["draw21: p100-four-with-a-driver-of-2018"])

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
