"""The rules about GPUs of AMD and Intel, judged on whole machines: the healthy ones stay silent, the sick ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.ruleset import load
from sysperf.model.finding import Report
from sysperf.report.words import verdict
from tests.collect.environments import python_at, site_of, torch_in
from tests.conftest import Files, make_machine
from tests.other_gpus import MI300X, amd, intel, metrics
from tests.rules.test_gpu_rules import AREAS, BASE, VENV, found

RULES = [path for path in judging.rule_files() if Path(path).stem in ("gpu", "driver", "torch", "releases")]
OPEN = {"access:/dev/kfd": True, **{f"access:/dev/dri/renderD{128 + index}": True for index in range(8)}}
GFX = {f"gpu-code:{site_of(VENV)}/torch/lib/libtorch_python.so": ["gfx90a", "gfx942"]}


def shell(version: str, cuda: str = "", hip: str = "") -> Files:
    """A shell in an environment with this torch."""
    header = {"/usr/include/python3.11/Python.h": ""}
    return {"/proc/self/environ": f"VIRTUAL_ENV={VENV}\0", **header, **python_at(VENV), **torch_in(site_of(VENV), version, cuda, hip)}


def judge(machine: tuple[Files, dict[str, str]], torch: Files, **calls: object) -> Report:
    files, links = machine
    answers = {"home": "/home/ada", "uname": ["6.8.0", "x86_64"], **OPEN, **GFX, **calls}
    return audit(make_machine({**BASE, **files, **torch}, links, answers), judging.Terms(load(RULES, judging.schema())), areas=AREAS)


ROCM = shell("2.14.0+rocm7.2", hip="7.2.0")


def test_eight_healthy_mi300x_are_silent() -> None:
    """With the build for them, nodes that may be opened, and nothing wrong."""
    report = judge(amd(*[MI300X] * 8, hive=77), ROCM)

    assert found(report) == {}
    assert "did not answer" not in verdict(report)


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
    xpu = shell("2.14.0+xpu")
    xpu[f"{site_of(VENV)}/torch/version.py"] = str(xpu[f"{site_of(VENV)}/torch/version.py"]).replace(
        "xpu: Optional[str] = None", "xpu: Optional[str] = '20250301'"
    )
    xpu["/usr/lib/x86_64-linux-gnu/libze_loader.so.1"] = ""
    small = "0x0 0x0 0x0\n0x0 0x0 0x0\n0x0000004000000000 0x000000400fffffff 0x000000000014220c\n"

    assert found(judge(intel(), xpu)) == {}
    assert set(found(judge(intel(resource=small), xpu))) == {"gpu.arc-small-bar"}
