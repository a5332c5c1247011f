"""The verdict in a sentence, and how many findings there are of each severity."""

from __future__ import annotations

from sysperf.model.rule import SEVERITIES
from sysperf.report import words
from sysperf.report.text import MARKS
from sysperf.tui.now import Now
from sysperf.tui.widgets.line import Line, Lines, Span, line, paragraph, span


def draw(now: Now, width: int) -> Lines:
    """One or two lines; nothing is said of what was not looked at."""
    report = now.report
    if report is None:
        return [line(span("Looking at this machine …", "dim"))]
    if now.counted or report.findings():
        out = paragraph(words.verdict(report), width, words.mood(report) if now.counted else _mood(now))
    else:
        out = paragraph("Nothing found that slows PyTorch down, says the agent.", width, "good")
    return [*out, counts(now)]


def _mood(now: Now) -> str:
    found = words.by_severity(now.findings())
    return next((severity for severity in ("error", "warning") if severity in found), "good")


def counts(now: Now) -> Line:
    """``✗ 1 error  ! 2 warnings  i 0 …``, the unknown and the waived last."""
    report = now.report
    groups = words.by_severity(now.findings())
    parts: list[Span] = []
    for severity in SEVERITIES:
        number = len(groups.get(severity, ()))
        told = f"{number} info" if severity == "info" else words.count(number, severity)
        parts += [span(f"{MARKS[severity]} {told}", severity if number else "dim"), Span("   ")]
    unknown = report.tally.unknown if report and now.counted else 0
    waived = len(now.waived) + (report.tally.suppressed if report and now.counted else 0)
    parts += [span(f"? {unknown} unknown   ", "unknown")] if unknown else []
    parts += [span(f"{waived} suppressed", "dim")] if waived else []
    return line(*parts)
