"""The rules about PyTorch installations, judged on whole machines: what fires, and what must stay silent."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from sysperf.collect import AREAS
from sysperf.engine import judging
from sysperf.engine.audit import audit
from sysperf.evaluate.ruleset import load
from sysperf.host import Host
from sysperf.model.finding import Finding
from tests.collect.environments import Files, conda_at, cu130_in, dist, python_at, site_of, torch_in
from tests.conftest import MakeMachine

V = "/home/ada/p/.venv"
SITE = site_of(V)
CALLS = {"home": "/home/ada", "uname": ["6.1.0", "x86_64"], "PATH": {"g++": ["/usr/bin/g++", "/usr/bin/g++-12"]}}
SHELL = {"/proc/self/environ": f"VIRTUAL_ENV={V}\0", "/usr/include/python3.11/Python.h": ""}
GPU: Files = {
    "/sys/bus/pci/devices/0000:65:00.0/class": "0x030200\n",
    "/sys/bus/pci/devices/0000:65:00.0/vendor": "0x10de\n",
    "/sys/bus/pci/devices/0000:65:00.0/device": "0x2330\n",
}
RULES = [path for path in judging.rule_files() if Path(path).stem in ("python", "torch", "releases")]
TERMS = judging.Terms(load(RULES, judging.schema()))

Judge = Callable[..., dict[str, Finding]]


@pytest.fixture
def findings(machine: MakeMachine) -> Judge:
    """The findings of our two rule files on a machine made of files, by rule id."""

    def read(files: Files, links: dict[str, str] | None = None) -> dict[str, Finding]:
        report = audit(machine({**SHELL, **files}, links, CALLS), TERMS, areas=AREAS)
        return {outcome.rule: outcome for outcome in report.findings()}

    return read


def test_a_healthy_gpu_environment_is_silent(findings: Judge) -> None:
    """A venv with PyPI's PyTorch and a matching torchvision on a GPU machine gives no finding at all."""
    assert findings({**GPU, **python_at(V), **cu130_in(SITE), **dist(SITE, "torchvision", "0.28.0", ("torch (>=2.13.0)",))}) == {}


def test_a_healthy_cpu_box_is_silent(findings: Judge) -> None:
    """The CPU build is right where there is no GPU."""
    assert findings({**python_at(V), **torch_in(SITE)}) == {}


def test_the_cpu_build_on_a_gpu_machine_is_an_error(findings: Judge) -> None:
    """One PCI function of class 0302 is enough to know that the GPU stays unused, driver or not."""
    by_rule = findings({**GPU, **python_at(V), **torch_in(SITE)})

    assert list(by_rule) == ["torch.cpu-wheel-on-gpu-host"]
    finding = by_rule["torch.cpu-wheel-on-gpu-host"]
    assert (finding.severity, finding.about) == ("error", V)
    assert "2.13.0+cpu" in finding.message
    assert (
        f"{V}/bin/python3 -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
        in finding.fixes[0].command
    )


def test_an_old_conda_environment_beside_a_good_one_is_told_apart(findings: Judge) -> None:
    """Each finding names the environment that it is about; the good one has none."""
    conda, links = conda_at(
        "/opt/conda", "pytorch-2.5.1-py3.9_cpu_0", python="3.9.18", history="+pytorch/linux-64::pytorch-2.5.1-py3.9_cpu_0\n"
    )
    conda.update(torch_in("/opt/conda/lib/python3.9/site-packages", "2.5.1", installer="conda"))

    by_rule = findings({**GPU, **python_at(V), **cu130_in(SITE), **conda}, links)

    assert set(by_rule) == {"python.eol", "torch.conda-channel-frozen", "torch.version-lag", "torch.compile-toolchain-missing"}
    assert {finding.about for finding in by_rule.values()} == {"/opt/conda"}
    assert by_rule["torch.version-lag"].evidence[-1].source == "/opt/conda/lib/python3.9/site-packages/torch/version.py"


def test_a_foreign_library_and_a_foreign_companion_are_found(findings: Judge) -> None:
    """The message names what is installed and what was asked for, the evidence names the file."""
    by_rule = findings({
        **GPU,
        **python_at(V),
        **cu130_in(SITE, nvidia_nccl_cu13="2.28.9"),
        **dist(SITE, "torchvision", "0.24.1", ("torch (==2.9.1)",)),
    })  # fmt: skip

    assert set(by_rule) == {"torch.wheel-pin-mismatch", "torch.companion-mismatch"}
    assert "nvidia-nccl-cu13==2.29.7, installed is 2.28.9" in by_rule["torch.wheel-pin-mismatch"].message
    assert by_rule["torch.wheel-pin-mismatch"].evidence[0].source == f"{SITE}/torch-2.13.0.dist-info/METADATA"
    assert "torchvision (version 0.24.1) asks for torch==2.9.1" in by_rule["torch.companion-mismatch"].message


def test_a_hostile_version_reaches_no_shell(findings: Judge) -> None:
    """Whatever version.py says runs nothing in the command that a person may paste."""
    by_rule = findings({**GPU, **python_at(V), **torch_in(SITE, "2.5.0;touch /tmp/x", dist_version="2.5.0")})

    undo = by_rule["torch.cpu-wheel-on-gpu-host"].fixes[0].undo
    assert "torch==2.5.0" in undo
    assert "touch" not in shlex.split(undo.replace(";", " ; "))


def test_every_unknown_about_this_machine_says_why() -> None:
    """Live, with or without a PyTorch, what our rules leave open has a reason that a person can act on."""
    report = audit(Host(), TERMS, areas=AREAS)

    gaps = [gap for outcome in report.outcomes if outcome.state == "unknown" for gap in outcome.unknown]
    assert all(gap.reason for gap in gaps)
    assert "the collector broke" not in " ".join(area.problem or "" for area in report.snapshot.areas.values())
