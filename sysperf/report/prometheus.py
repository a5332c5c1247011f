"""Metrics in the Prometheus text format, for the node exporter's textfile folder or a scrape.

Format  https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterable

from sysperf.model.outcome import Report
from sysperf.model.rule import SEVERITIES
from sysperf.model.text import neutral

Sample = tuple[dict[str, str], float]

_TIME = "%Y-%m-%dT%H:%M:%S"


def render(report: Report) -> str:
    """All metrics are gauges: they tell of the last audit."""
    findings = report.findings()
    severities = [outcome.severity for outcome in findings]
    named = [{"rule": one.rule, "severity": one.severity, "subject": one.subject} for one in findings]
    areas = report.snapshot.areas
    families = [
        _gauge("finding", "A finding of the last audit; the series ends when it is gone.", [(labels, 1) for labels in named]),
        _gauge(
            "finding_gain_measured",
            "Whether the gain of acting on the finding was measured on this machine.",
            [(labels, one.gain.state == "measured") for labels, one in zip(named, findings, strict=True)],
        ),
        _gauge("findings", "Findings of the last audit.", [({"severity": name}, severities.count(name)) for name in SEVERITIES]),
        _gauge("unknown", "Checks that the last audit could not make.", [({}, report.tally.unknown)]),
        _gauge("checks", "Answers of the last audit.", [({"state": name}, number) for name, number in _states(report).items()]),
        _gauge("rules", "Rules in force.", [({}, report.tally.rules)]),
        _gauge("audit_seconds", "How long the last audit took.", [({}, report.took_ms / 1e3)]),
        _gauge("audit_timestamp_seconds", "When the last audit was made, in Unix time.", _taken_at(report)),
        _gauge("area_seconds", "How long reading an area took.", [({"area": name}, area.took_ms / 1e3) for name, area in areas.items()]),
        _gauge("area_read", "Whether an area could be read.", [({"area": name}, area.problem is None) for name, area in areas.items()]),
        _gauge("build_info", "The version that made this audit.", [({"version": report.sysperf}, 1)]),
    ]
    return "".join(families)


def _states(report: Report) -> dict[str, int]:
    tally = report.tally
    counts = (tally.passed, tally.findings, tally.not_applicable, tally.unknown, tally.suppressed)
    return dict(zip(("pass", "finding", "not-applicable", "unknown", "suppressed"), counts, strict=True))


def _gauge(name: str, doc: str, samples: Iterable[Sample]) -> str:
    """One metric family; of series with equal labels the first stays, since a scrape with two fails as a whole."""
    series: dict[str, float] = {}
    for labels, value in samples:
        series.setdefault(_labels(labels), value)
    lines = [f"sysperf_{name}{labels} {_number(value)}\n" for labels, value in series.items()]
    return "".join([f"# HELP sysperf_{name} {doc}\n# TYPE sysperf_{name} gauge\n", *lines]) if lines else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _labels(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escape(text: str) -> str:
    return neutral(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _taken_at(report: Report) -> list[Sample]:
    match = re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", report.snapshot.taken_at)
    try:
        return [({}, calendar.timegm(time.strptime(match[0], _TIME)))] if match else []
    except ValueError:  # a saved report can hold a 31st of February
        return []
