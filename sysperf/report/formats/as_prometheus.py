"""Metrics in the Prometheus text format, for the node exporter's textfile folder or a scrape.

Format  https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from sysperf.model import moment
from sysperf.model.finding import Finding, Report
from sysperf.model.rule import SEVERITIES
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral

Sample = tuple[dict[str, str], float]

MAX_SERIES = 2_000
"""Of one family: more would harm the server that keeps them."""


def render(report: Report) -> str:
    """All metrics are gauges: they describe the last audit."""
    families = [
        *findings(report.findings()),
        gauge("unknown", "Checks that the last audit could not make.", [({}, report.tally.unknown)]),
        gauge("checks", "Answers of the last audit.", [({"state": name}, number) for name, number in _states(report).items()]),
        gauge("rules", "Rules in force.", [({}, report.tally.rules)]),
        gauge("audit_seconds", "How long the last audit took.", [({}, report.took_ms / 1e3)]),
        *areas(report.snapshot),
        gauge("build_info", "The version that made this audit.", [({"version": report.sysperf}, 1)]),
    ]
    return "".join(families)


def findings(outcomes: Sequence[Finding]) -> list[str]:
    """A series a finding, and a count a severity."""
    severities = [outcome.severity for outcome in outcomes]
    named = [(name_of(outcome), outcome) for outcome in outcomes]
    return [
        gauge("finding", "A finding of the last audit; the series ends when it is gone.", [(labels, 1) for labels, _ in named]),
        gauge(
            "finding_gain_measured",
            "Whether the gain of acting on the finding was measured on this machine.",
            [(labels, outcome.gain.basis == "measured") for labels, outcome in named],
        ),
        gauge("findings", "Findings of the last audit.", [({"severity": name}, severities.count(name)) for name in SEVERITIES]),
    ]


def name_of(outcome: Finding) -> dict[str, str]:
    """The labels of a finding."""
    return {"rule": outcome.rule, "severity": outcome.severity, "subject": outcome.about}


def areas(snapshot: Snapshot) -> list[str]:
    """Return when the machine was read, and how that went."""
    read = snapshot.areas
    return [
        gauge("audit_timestamp_seconds", "When the last audit was made, in Unix time.", _taken_at(snapshot)),
        gauge("area_seconds", "How long reading an area took.", [({"area": name}, area.took_ms / 1e3) for name, area in read.items()]),
        gauge("area_read", "Whether an area could be read.", [({"area": name}, area.problem is None) for name, area in read.items()]),
    ]


def _states(report: Report) -> dict[str, int]:
    tally = report.tally
    counts = (tally.passed, tally.findings, tally.not_applicable, tally.unknown, tally.suppressed)
    return dict(zip(("pass", "finding", "not-applicable", "unknown", "suppressed"), counts, strict=True))


def gauge(name: str, doc: str, samples: Iterable[Sample]) -> str:
    """One metric family; of series with equal labels the first stays, since a scrape with two fails as a whole."""
    return family(name, doc, samples, "gauge")


def family(name: str, doc: str, samples: Iterable[Sample], kind: Literal["gauge", "counter"]) -> str:
    """A family of this kind, of at most `MAX_SERIES`; empty without samples. `doc` is one line without backslashes."""
    series: dict[str, float] = {}
    for labels, value in itertools.islice(samples, MAX_SERIES):
        series.setdefault(_labels(labels), value)
    lines = [f"sysperf_{name}{labels} {_number(value)}\n" for labels, value in series.items()]
    return "".join([f"# HELP sysperf_{name} {doc}\n# TYPE sysperf_{name} {kind}\n", *lines]) if lines else ""


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else f"{value:.15g}"


def _labels(labels: dict[str, str]) -> str:
    inside = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escape(text: str) -> str:
    return neutral(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _taken_at(snapshot: Snapshot) -> list[Sample]:
    at = moment.seconds(snapshot.taken_at)
    return [] if at is None else [({}, int(at))]
