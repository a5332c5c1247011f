"""Prometheus metrics, as its own client parses them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from prometheus_client.parser import text_string_to_metric_families

from sysperf.model.finding import Report
from sysperf.model.text import neutral
from sysperf.report.formats import render
from tests.report import reports
from tests.report.hostile import texts

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(report: Report) -> Samples:
    """Every sample by name and labels; equal ones would be an error to a server."""
    by_metric: Samples = {}
    for family in text_string_to_metric_families(render(report, "prometheus")):
        assert family.type == "gauge"
        assert family.documentation
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in by_metric
            by_metric[key] = sample.value
    return by_metric


@pytest.mark.parametrize("machine", reports.MACHINES)
def test_every_report_parses(machine: str) -> None:
    """Prometheus accepts it, and no series is there twice."""
    assert samples(reports.MACHINES[machine]())


def test_findings_are_series_and_counts() -> None:
    """A series a finding, a count a severity (zero too), the unknown, the time."""
    by_metric = samples(reports.sick())

    assert by_metric["sysperf_finding", (("rule", "numa.balancing-on"), ("severity", "warning"), ("subject", ""))] == 1
    assert by_metric["sysperf_finding_gain_measured", (("rule", "numa.balancing-on"), ("severity", "warning"), ("subject", ""))] == 0
    assert [by_metric["sysperf_findings", (("severity", name),)] for name in ("error", "warning", "info", "hint")] == [3, 1, 2, 1]
    assert by_metric["sysperf_unknown", ()] == 3
    assert by_metric["sysperf_audit_seconds", ()] == 0.0842
    assert by_metric["sysperf_audit_timestamp_seconds", ()] == 1_795_230_612
    assert by_metric["sysperf_build_info", (("version", "0.1.0"),)] == 1


def test_zero_is_a_count() -> None:
    """A healthy machine says so in numbers; an alert can tell it from silence."""
    assert samples(reports.perfect())["sysperf_findings", (("severity", "error"),)] == 0


def test_an_area_that_could_not_be_read_is_down() -> None:
    """Reading failed is 0, not an absent series."""
    assert samples(reports.silent())["sysperf_area_read", (("area", "gpu"),)] == 0


def test_the_same_finding_twice_is_one_series() -> None:
    """Two equal series make a server refuse the whole scrape."""
    assert samples(reports.report(reports.balancing(), reports.balancing()))


@given(text=texts)
@settings(max_examples=25)
def test_foreign_text_is_a_label(text: str) -> None:
    """Quotes, backslashes and newlines do not end it."""
    by_metric = samples(reports.hostile(text))

    assert ("sysperf_finding", (("rule", neutral(text)), ("severity", "error"), ("subject", neutral(text)))) in by_metric
