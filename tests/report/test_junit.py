"""JUnit XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings

from sysperf.model.text import neutral
from sysperf.report.formats import render
from tests.report import reports
from tests.report.hostile import texts


def read(xml: str) -> ET.Element:
    """The root element, as any reader of XML finds it."""
    return ET.fromstring(xml.encode())  # noqa: S314 - our own output


def parsed(machine: str) -> ET.Element:
    """The root of a report."""
    return read(render(reports.MACHINES[machine](), "junit"))


@pytest.mark.parametrize("machine", reports.MACHINES)
def test_counts_are_those_of_the_cases(machine: str) -> None:
    """The totals on the root and on each suite are what is inside."""
    root = parsed(machine)

    for element in (root, *root.iter("testsuite")):
        counted = {"tests": "testcase", "failures": "testcase/failure", "skipped": "testcase/skipped", "errors": "testcase/error"}
        for attribute, path in counted.items():
            inside = element.findall(f"testsuite/{path}" if element is root else path)
            assert int(element.attrib[attribute]) == len(inside), (element.attrib["name"], attribute)


def test_a_suite_is_an_area() -> None:
    """Cases are grouped as the rules are."""
    names = [suite.attrib["name"] for suite in parsed("sick").iter("testsuite")]

    assert names == ["sysperf", "gpu", "numa", "memory", "process", "openmp", "power", "torch"]


def test_findings_fail_and_unknown_ones_are_skipped() -> None:
    """A failure carries its severity; a skip says why."""
    root = parsed("sick")

    assert [element.attrib["type"] for element in root.iter("failure")] == ["error"] * 3 + ["warning", "info", "info", "hint"]
    assert any("Permission denied" in element.attrib["message"] for element in root.iter("skipped"))
    assert any("agreed until 2027" in element.attrib["message"] for element in root.iter("skipped"))


def test_a_healthy_machine_is_no_empty_run() -> None:
    """Some systems fail a run without a case: the audit itself is one, and it passes."""
    (case,) = parsed("perfect").iter("testcase")

    assert case.attrib["name"] == "audit"
    assert (case.findtext("system-out") or "").startswith("Healthy")


@given(text=texts)
@settings(max_examples=25)
def test_foreign_text_is_well_formed(text: str) -> None:
    """XML holds no control character and no surrogate, and elements are only ours."""
    root = read(render(reports.hostile(text), "junit"))

    assert {element.tag for element in root.iter()} <= {
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
        "skipped",
        "properties",
        "property",
        "system-out",
    }
    assert next(root.iter("failure")).attrib["message"] == neutral(text)
