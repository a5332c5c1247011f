"""SARIF for code scanning."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

from sysperf.model.finding import Place, Report
from sysperf.model.text import neutral
from sysperf.report.formats import render
from tests.report import reports
from tests.report.hostile import texts

SCHEMA = Path(__file__).parent.parent / "data" / "sarif-schema-2.1.0.json"


@functools.cache
def validator() -> jsonschema.Draft4Validator:
    """The standard's own schema."""
    return jsonschema.Draft4Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def run_of(report: Report) -> dict[str, Any]:
    """The one run of a report, after the standard's schema accepted it."""
    log = json.loads(render(report, "sarif"))
    validator().validate(log)
    run: dict[str, Any] = log["runs"][0]
    return run


@pytest.mark.parametrize("machine", reports.MACHINES)
def test_it_is_valid_sarif(machine: str) -> None:
    """The schema of SARIF 2.1.0 accepts every report."""
    assert run_of(reports.MACHINES[machine]())["invocations"][0]["executionSuccessful"] is True


def test_severities_become_levels() -> None:
    """Error, warning and note; a hint is informational, which has no level."""
    results = run_of(reports.sick())["results"]

    assert [result["level"] for result in results] == ["error", "error", "error", "warning", "note", "note", "none", "warning"]
    assert [result.get("kind") for result in results][6] == "informational"


def test_a_result_is_where_it_was_read() -> None:
    """Code scanning shows results of files only: a relative path and a line."""
    (result,) = run_of(reports.report(reports.balancing()))["results"]

    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "proc/sys/kernel/numa_balancing"}, "region": {"startLine": 1}}


def test_findings_keep_their_identity() -> None:
    """The fingerprint is the finding's own, so the same finding is one alert from run to run."""
    (result,) = run_of(reports.report(reports.balancing()))["results"]

    assert result["partialFingerprints"] == {"primaryLocationLineHash": "5f0c2d1a9be81234:1", "sysperf/v1": "5f0c2d1a9be81234"}


@pytest.mark.parametrize(
    ("place", "region"),
    [
        (Place("train.py", 42, "step"), {"startLine": 42}),
        (Place("train.py", function="step"), {"startLine": 1}),
        (Place("a.py", 3, column=5, end_line=4, end_column=6), {"startLine": 3, "startColumn": 5, "endLine": 4, "endColumn": 6}),
    ],
)
def test_a_place_in_a_source_has_what_is_known_of_it(place: Place, region: dict[str, int]) -> None:
    """A trace knows lines and no columns, which code scanning counts from 1."""
    run = run_of(reports.report(reports.balancing(places=(place,))))
    (location,) = run["results"][0]["locations"]

    assert location["physicalLocation"]["artifactLocation"]["uri"] == place.file
    assert location["physicalLocation"]["region"] == region


def test_a_place_in_an_installed_package_is_no_file_of_this_repository() -> None:
    """The first file that shows it stands in."""
    run = run_of(reports.report(reports.balancing(places=(Place("lightning/loop.py", 3, package="lightning"),))))
    (location,) = run["results"][0]["locations"]

    assert location["physicalLocation"]["artifactLocation"]["uri"].startswith("proc/")


def test_results_of_one_rule_share_it() -> None:
    """Three GPUs, one rule with its help; each result points at it."""
    run = run_of(reports.sick())
    rules = run["tool"]["driver"]["rules"]

    assert [rule["id"] for rule in rules].count("gpu.link-narrow") == 1
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert f"- <{reports.KERNEL_DOC}>" in rules[1]["help"]["markdown"]
    assert rules[1]["helpUri"] == reports.KERNEL_DOC


def test_a_result_says_what_to_do() -> None:
    """The commands are this finding's own: another GPU has another address."""
    results = run_of(reports.sick())["results"]

    assert [result["message"]["text"].split("\n")[1] for result in results[:2]] == [
        "Fix: sudo lspci -vvs 0000:60:00.0",
        "Fix: sudo lspci -vvs 0000:61:00.0",
    ]


def test_a_waived_finding_is_a_suppressed_result() -> None:
    """It is in the log, with the reason of the waiver."""
    (suppressed,) = [result for result in run_of(reports.sick())["results"] if "suppressions" in result]

    assert suppressed["suppressions"] == [{"kind": "external", "status": "accepted", "justification": reports.SUPPRESSED.because}]


def test_unknown_checks_are_notifications_not_results() -> None:
    """What could not be checked is no pass and no finding."""
    run = run_of(reports.sick())
    notes = run["invocations"][0]["toolExecutionNotifications"]

    assert [note["associatedRule"]["id"] for note in notes] == [outcome.rule for outcome in reports.UNKNOWNS]
    assert "Permission denied" in notes[0]["message"]["text"]
    assert not {result["ruleId"] for result in run["results"]} & {outcome.rule for outcome in reports.UNKNOWNS}


def test_braces_and_links_in_messages_are_literal() -> None:
    """§3.11.5 doubles braces; a link of a process's making is none."""
    (result,) = run_of(reports.report(reports.balancing(message="{0} [x](1)", fixes=())))["results"]

    assert result["message"]["text"] == "{{0}} [x\\](1)"


@given(text=texts)
@settings(max_examples=20)
def test_foreign_text_stays_text(text: str) -> None:
    """Valid whatever the names hold, with as many results as there are findings."""
    run = run_of(reports.hostile(text))

    assert len(run["results"]) == 3
    assert run["results"][0]["ruleId"] == neutral(text)
