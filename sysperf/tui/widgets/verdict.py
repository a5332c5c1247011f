"""The verdict in a sentence, and how many findings there are of each severity."""

from __future__ import annotations

import msgspec

from sysperf.model.rule import SEVERITIES
from sysperf.report import words
from sysperf.report.as_text import MARKS
from sysperf.tui.now import Now
from sysperf.tui.widgets.line import Line, Lines, Span, fitted, line, paragraph, span

NARROW = 76


def draw(now: Now, width: int) -> Lines:
    """One or two lines about what was examined, and nothing else."""
    report = now.report
    if report is None:
        return [line(span("Looking at this machine …", "dim"))]
    if now.waived:
        report = msgspec.structs.replace(report, outcomes=tuple(outcome for outcome in report.outcomes if outcome.key not in now.waived))
    if now.counted or report.findings():
        out = paragraph(words.verdict(report), width, words.mood(report) if now.counted else _mood(now))
    else:
        out = paragraph("Nothing found that slows PyTorch down, says the agent.", width, "good")
    return [*out, counts(now, width)]


def _mood(now: Now) -> str:
    numbers = words.by_severity(now.findings())
    return next((severity for severity in ("error", "warning") if severity in numbers), "good")


def counts(now: Now, width: int) -> Line:
    """``✗ 1 error  ! 2 warnings  i 0 …``, the unknown and the waived last; on narrow screens the numbers alone."""
    report = now.report
    groups = words.by_severity(now.findings())
    unknown = report.tally.unknown if report and now.counted else 0
    suppressed = len(now.waived) + (report.tally.suppressed if report and now.counted else 0)
    counters: list[tuple[str, int, str, str]] = [
        (MARKS[severity], len(groups.get(severity, ())), severity, severity) for severity in SEVERITIES
    ]
    counters += [("?", unknown, "unknown", "unknown")] if unknown else []
    counters += [("~", suppressed, "suppressed", "dim")] if suppressed else []
    parts: list[Span] = []
    for mark, number, name, style in counters:
        noun = f" {name if name in ('info', 'unknown', 'suppressed') or number == 1 else f'{name}s'}" if width >= NARROW else ""
        parts += [span(f"{mark} {number}{noun}", style if number else "dim"), Span("   ")]
    return fitted(line(*parts), width)
