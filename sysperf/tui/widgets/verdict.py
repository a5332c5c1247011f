"""The headline: how much is wrong, and whether that is all that could be known."""

from __future__ import annotations

import msgspec

from sysperf.model.rule import SEVERITIES
from sysperf.report import words
from sysperf.report.formats.as_text import MARKS
from sysperf.tui.now import Now
from sysperf.tui.widgets.causes import causes
from sysperf.tui.widgets.line import Lines, Span, fitted, line, paragraph, span, width_of

SAYS_THE_AGENT = "Nothing found that slows PyTorch down, says the agent."
"""Not in green: an older agent does not tell how many checks it could make."""
_ALARMS = {"error": "alarm", "warning": "caution"}


def draw(now: Now, width: int) -> Lines:
    """Causes by severity, what is unknown and waived; where nothing is wrong, the verdict in a sentence. One line, or two."""
    report = now.report
    if report is None:
        return [line(span("Looking at this machine …", "dim"))]
    if now.waived:
        report = msgspec.structs.replace(report, outcomes=tuple(outcome for outcome in report.outcomes if outcome.key not in now.waived))
    counts = counters(now)
    if now.counted or report.findings():
        text, mood = words.verdict(report), words.mood(report) if now.counted else _mood(now)
    else:
        text, mood = SAYS_THE_AGENT, "strong"
    if mood in _ALARMS:  # the numbers say it already
        text = text.partition("could be better.")[2].strip()
        mood = "dim"
    if width_of(counts) + len(text) + 2 <= width:
        return [line(*counts, Span("  "), span(text, mood))]
    return [fitted(line(*counts), width), *paragraph(text, width, mood)]


def _mood(now: Now) -> str:
    numbers = words.by_severity(now.findings())
    return next((severity for severity in ("error", "warning") if severity in numbers), "strong")


def counters(now: Now) -> list[Span]:
    """`` ✗ 1 error   ! 2 warnings (501 programs)  i 1  ? 3 unknown``: causes, not the programs that have them."""
    report = now.report
    found = causes(now.findings())
    unknown = report.tally.unknown if report and now.counted else 0
    suppressed = len(now.waived) + (report.tally.suppressed if report and now.counted else 0)
    parts: list[Span] = []
    for severity in SEVERITIES:
        group = [cause for cause in found if cause.first.severity == severity]
        places = sum(len(cause.findings) for cause in group)
        if not group and severity in ("info", "hint"):
            continue
        noun = f" {severity}{'s' if severity in _ALARMS and len(group) != 1 else ''}"
        text = f"{MARKS[severity]} {len(group)}{noun}" + (f" ({places} places)" if places > len(group) else "")
        style = "dim" if not group else _ALARMS.get(severity, severity)
        parts += [span(f" {text} " if style in _ALARMS.values() else text, style), Span("  ")]
    parts += [span(f"? {unknown} unknown", "unknown"), Span("  ")] if unknown else []
    return parts + ([Span(f"~ {suppressed} waived", "dim")] if suppressed else [])
