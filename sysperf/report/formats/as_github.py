"""GitHub workflow commands: findings become annotations of the job.

Format  https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections.abc import Iterator

from sysperf.model.finding import Finding, Place, Report
from sysperf.model.rule import Severity
from sysperf.model.text import neutral
from sysperf.report import words

COMMANDS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "notice", "hint": "notice"}


def render(report: Report) -> str:
    """One annotation a finding, what costs most first (GitHub shows ten of each kind a step), then the verdict.

    Hints about a source are in its count only: they would take the place of what costs more.
    Every line is a command: a line of foreign text could be taken for one.
    """
    shown = [outcome for outcome in report.findings() if not report.source_files or outcome.severity != "hint"]
    lines = [_finding(outcome) for outcome in shown]
    lines += _unread(report)
    lines.append(_command("notice", "sysperf", f"{words.verdict(report)}\n{words.tally(report)}"))
    return "\n".join([*lines, ""])


def _command(name: str, title: str, text: str, place: Place | None = None) -> str:
    """`place` puts the annotation beside the lines of a source."""
    at = ""
    if place is not None and place.file and not place.package:
        numbers = {"line": place.line, "col": place.column, "endLine": place.end_line, "endColumn": place.end_column}
        known = "".join(f"{name}={number}," for name, number in numbers.items() if number)  # a trace has no columns
        at = f"file={_property(neutral(place.file, 4_000))},{known}"
    return f"::{name} {at}title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _finding(outcome: Finding) -> str:
    in_source = outcome.place is not None and outcome.place.file and not outcome.place.package
    subject = f" ({neutral(outcome.about)})" if outcome.about and not in_source else ""
    return _command(COMMANDS[outcome.severity], f"{neutral(outcome.rule)}{subject}", "\n".join(_lines(outcome)), outcome.place)


def _lines(outcome: Finding) -> Iterator[str]:
    yield words.message(outcome)
    for evidence in outcome.evidence:
        yield f"observed: {words.seen(evidence)}"
    if outcome.why:
        yield f"why: {words.short(outcome.why)}"
    for fix in outcome.fixes:
        yield f"fix: {neutral(fix.title)} ({words.terms(fix)})"
        yield from words.command(fix.command)
    if outcome.scope != "script":  # nobody has measured a place of a source
        yield f"gain: {words.gain(outcome)}"


def _unread(report: Report) -> Iterator[str]:
    groups = words.unread(words.of_state(report, "unknown"))
    if groups:
        reasons = (f"{group.reason}: {words.some(group.facts, 5)}" + (f" → {group.remedy}" if group.remedy else "") for group in groups)
        yield _command("notice", f"sysperf could not read everything ({report.tally.unknown})", "\n".join(reasons))
