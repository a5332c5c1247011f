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
