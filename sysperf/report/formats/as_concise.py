"""A line a finding, whole: severity, rule, what it is about, what was observed."""

from __future__ import annotations

from sysperf.model.finding import Report
from sysperf.model.text import neutral
from sysperf.report import words


def render(report: Report) -> str:
    """Return a line for each finding, which grep and logs can hold; nothing where nothing was found."""
    return "".join(
        f"{outcome.severity}: {neutral(outcome.rule)}: {f'{neutral(outcome.about)}: ' if outcome.about else ''}{words.message(outcome)}\n"
        for outcome in report.findings()
    )
