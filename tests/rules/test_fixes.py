"""What rules tell people to type, as filled in by their own examples: a shell takes it, and the undo is about the same thing."""

from __future__ import annotations

import functools
import re
import shlex
import subprocess

import pytest
from msgspec import structs

from sysperf.engine import judging
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.selftest import answers
from sysperf.model.finding import Finding, Remedy
from sysperf.model.rule import Override, Rule
from tests.shipped import rules, ruleset


@functools.cache
def findings() -> list[tuple[Rule, Finding]]:
    """Each rule's own examples that fire, as users would see them."""
    schema = judging.schema()
    return [
        (rule, outcome)
        for rule in rules()
        for test in rule.test
        for state, outcome in answers(Compiled(rule, schema, Override(rule.id, params=test.params)), test, ruleset(), schema)
        if outcome and state == "fire"
    ]


def remedies() -> list[tuple[str, Remedy]]:
    """What they say to do, each with the rule that says so."""
    return [(rule.id, remedy) for rule, outcome in findings() for remedy in outcome.fixes]


def test_every_rule_has_an_example_that_fires() -> None:
    """What follows looks at the fixes of all rules, not of some."""
    assert {rule.id for rule, _ in findings()} == {rule.id for rule in rules()}


def commands() -> list[tuple[str, str]]:
    return sorted({(rule, text) for rule, remedy in remedies() for text in (remedy.command, remedy.undo) if text})


def test_a_shell_takes_every_command_and_undo() -> None:
    """`bash -n` parses each as it is shown; no number in it is grouped, and quotes close."""
    texts = commands()
    refused = {
        rule: text for rule, text in texts if subprocess.run(["bash", "-n", "-c", text], check=False, capture_output=True).returncode
    }
    grouped = {rule: text for rule, text in texts if re.search(r"(?<![\d.])\d{1,3}(,\d{3})+(?!\d)(?![-,]\d)", text)}

    assert not refused
    assert not grouped
    for _, text in texts:
        shlex.split(text)


def test_an_undo_takes_back_what_the_command_did() -> None:
    """An undo without a command undoes nothing; it names the same GPU or environment."""
    for rule, remedy in remedies():
        if remedy.undo and remedy.kind == "advice":
            assert remedy.command, rule
            assert all(thing in remedy.undo for thing in _things(remedy.command)), (rule, remedy)


def _things(text: str) -> list[str]:
    """The GPUs and environments that a command names."""
    return re.findall(r"-i (\S+:\S+)", text) + re.findall(r"(\S+)/bin/python3 -m pip install", text)


@pytest.mark.parametrize(
    ("maker", "tools"), [("amd", r"nvidia|xpu-smi"), ("intel", r"nvidia|amd-smi|rocm-smi"), ("nvidia", r"amd-smi|rocm-smi|xpu-smi")]
)
def test_no_command_is_that_of_another_maker(maker: str, tools: str) -> None:
    """Each example of a rule about a GPU, with the GPU made by another: where it still fires, its commands are not of the first."""
    wrong = []
    for rule in (rule for rule in rules() if rule.scope == "gpu"):
        compiled = Compiled(rule, judging.schema(), Override(rule.id))
        for test in rule.test:
            if not isinstance(gpu := test.given.get("gpu"), dict) or {"brand", "nvlink"} & gpu.keys() or gpu.get("mobile"):
                continue  # of NVIDIA's alone
            other = structs.replace(test, given={**test.given, "gpu": {**gpu, "vendor": maker}})
            for _, outcome in answers(compiled, other, ruleset(), judging.schema()):
                wrong += [(rule.id, fix.command) for fix in (outcome.fixes if outcome else ()) if re.search(tools, fix.command)]

    assert not sorted(set(wrong)), "\n".join(map(str, sorted(set(wrong))))


EITHER_OR = (
    *("container.wsl-no-gpu", "gpu.clocks-stuck", "gpu.fabric-not-ready", "gpu.gtt-half", "gpu.throttle-hw", "gpu.throttle-thermal-sw"),
    "torch.ipex-archived",
)
"""Rules whose advice depends on the machine: one for each."""


@pytest.mark.parametrize("rule", EITHER_OR)
def test_advice_that_depends_on_the_machine_is_given_once(rule: str) -> None:
    said = [outcome.fixes for one, outcome in findings() if one.id == rule]

    assert {len(fixes) for fixes in said} == {1}
    assert len({fixes[0].title for fixes in said}) > 1


def test_only_a_laptop_is_told_to_plug_in_its_charger() -> None:
    capped = [finding for rule, finding in findings() if rule.id == "gpu.power-capped"]

    assert {int(finding.message.split()[0]) for finding in capped if finding.fixes} == {300, 580, 1050}
    assert len(capped) > 4


def test_what_another_index_had_is_taken_back_from_there() -> None:
    """``torch==2.13.0+cpu``, as `pip freeze` writes it, is in no index but PyTorch's, and Intel's extension in Intel's."""
    undone = [(rule, text) for rule, text in commands() if "-r sysperf-before.txt" in text]
    from_pypi = {rule for rule, text in undone if "--extra-index-url https://" not in text}

    assert len(undone) >= 6
    assert from_pypi == {"torch.debug-build"}, "which was built by its user: no index has it"


def test_a_driver_that_runs_no_wheel_of_today_is_not_kept() -> None:
    """Each example is told what helps there: a driver, a wheel of an older CUDA, one of both, or one after the other."""
    titles = {
        tuple(fix.title.partition(" of ")[0] for fix in finding.fixes)
        for rule, finding in findings()
        if rule.id == "driver.too-old-for-cuda"
    }

    driver, wheel = "install a driver", "install a wheel"
    assert titles == {(driver,), (wheel,), (driver, f"or {wheel}"), (driver, f"then {wheel}")}


def test_who_waits_for_files_of_a_server_is_not_told_to_write_less() -> None:
    """What is read through a network or by a program (FUSE) is in no count of a disk, and its log is."""
    said = [finding for rule, finding in findings() if rule.id == "storage.blocks" and "thread waits" in finding.message]

    assert {(" 45 %" in one.message, one.fixes[0].title.startswith("it writes")) for one in said} == {(True, False), (False, True)}
