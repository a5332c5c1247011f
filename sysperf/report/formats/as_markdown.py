"""Markdown for a pull request, an issue or a job's summary: a table, then the details folded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sysperf.model.finding import Evidence, Finding, Report
from sysperf.model.rule import Severity
from sysperf.model.text import neutral
from sysperf.report import words
from sysperf.report.machine import described
from sysperf.startup import lazy

MARKS: dict[Severity, str] = {"error": "❌", "warning": "⚠️", "info": "📌", "hint": "💡"}
_ACTIVE = lazy(r"[\\`*_{}\[\]<>|~&$#^]|:(?=\S)|(?<=www)\.", re.IGNORECASE)
_MENTION = lazy(r"@(?=\w)")


def escape(text: str) -> str:
    """A text that Markdown shows as it is inside a line: no emphasis, link, HTML, table cell, mention, emoji code or math."""
    return _MENTION.sub("@<!-- -->", _ACTIVE.sub(r"\\\g<0>", neutral(text, words.MAX_TEXT).strip()))


def line(text: str) -> str:
    """The same at the start of a line, where ``-`` would begin a list and ``=`` make a heading."""
    escaped = escape(text)
    mark = re.match(r"[-+=]|\d+[.)]", escaped)
    return f"{escaped[: mark.end() - 1]}\\{escaped[mark.end() - 1 :]}" if mark else escaped


def code(text: str, *, cell: bool = False) -> str:
    """A short text as code, behind more backticks than any run in it; in a table's cell a bar needs a backslash even there."""
    plain = neutral(text)
    if not plain.strip():
        return ""
    fence = "`" * (_longest_run(plain) + 1)
    blank = " " if plain[0] in "` " or plain[-1] in "` " else ""
    return f"{fence}{blank}{plain.replace('|', chr(92) + '|') if cell else plain}{blank}{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def code_block(text: str) -> str:
    """A command as a block, behind a fence longer than any in it."""
    lines = words.command(text)
    fence = "`" * max(3, _longest_run(text) + 1)
    return "\n".join([f"{fence}sh", *lines, fence]) if lines else ""


def render(report: Report) -> str:
    """The whole report."""
    blocks = [f"## sysperf: {escape(words.verdict(report))}", *_machine(report), *_findings(report), *_unread(report), *_suppressed(report)]
    return "\n\n".join([*blocks, f"<sub>{escape(_foot(report))}</sub>"]) + "\n"


def _foot(report: Report) -> str:
    parts = (f"sysperf {report.sysperf}", words.machine_of(report), words.taken_at(report), words.tally(report))
    return ", ".join(part for part in parts if part)


def _machine(report: Report) -> Iterator[str]:
    if set(report.snapshot.areas) == {"trace"}:
        return
    rows = (f"| {escape(label)} | {escape(which)} |" for label, which in described(report.snapshot))
    yield "\n".join(["| Machine | |", "|---|---|", *rows])


def _findings(report: Report) -> Iterator[str]:
    findings = report.findings()
    if not findings:
        return
    yield "\n".join(["| | Rule | Subject | Observed | Gain |", "|---|---|---|---|---|", *map(_row, findings)])
    for finding in findings:
        yield _details(finding)


def _row(outcome: Finding) -> str:
    cells = (escape(outcome.about), escape(words.message(outcome)), escape(outcome.gain.text))
    return f"| {MARKS[outcome.severity]} {outcome.severity} | {code(outcome.rule, cell=True)} | {' | '.join(cells)} |"


def _details(outcome: Finding) -> str:
    import html  # noqa: PLC0415 - half a megabyte of entities, which the dashboard's Markdown needs not

    subject = f" · {html.escape(neutral(outcome.about))}" if outcome.about else ""
    parts = [f"<details><summary>{MARKS[outcome.severity]} <b>{html.escape(neutral(outcome.rule))}</b>{subject}</summary>"]
    parts.append(f"**{escape(outcome.title) or escape(outcome.rule) or 'untitled'}**")
    parts += map(line, words.paragraphs(outcome.why))
    parts.append("\n".join(f"- {_evidence(evidence)}" for evidence in outcome.evidence))
    parts.append("\n".join(f"- in {code(place.text)}" for place in outcome.places))
    for fix in outcome.fixes:
        parts += [f"**Fix** ({escape(words.terms(fix))}): {escape(fix.title)}", code_block(fix.command)]
        parts += map(line, words.paragraphs(fix.note))
        parts += ["Undo:", code_block(fix.undo)] if fix.undo else []
        parts += [f"Undo: {escape(fix.undo_text)}"] if fix.undo_text else []
    parts.append(f"**Gain:** {escape(words.gain(outcome))}")
    parts.append("\n".join(f"- {link(ref)}" for ref in outcome.refs))
    return "\n\n".join([part for part in parts if part] + ["</details>"])


def _evidence(evidence: Evidence) -> str:
    value = code(words.observed(evidence))
    return f"{value} from {code(words.origin(evidence))}" if evidence.source else value


def link(ref: str) -> str:
    """A reference that can be followed when it is a web address."""
    return f"<{ref}>" if words.is_link(ref) else line(ref)


def _unread(report: Report) -> Iterator[str]:
    groups = words.unread(words.of_state(report, "unknown"))
    if not groups:
        return
    lines = []
    for group in groups:
        remedy = f" → {escape(group.remedy)}" if group.remedy else ""
        lines.append(f"- {line(group.reason)} ({words.count(group.checks, 'check')}): {', '.join(map(code, group.facts))}{remedy}")
    yield f"<details><summary>Could not be read ({report.tally.unknown})</summary>"
    yield "\n".join(lines)
    yield "</details>"


def _suppressed(report: Report) -> Iterator[str]:
    outcomes = words.of_state(report, "suppressed")
    if not outcomes:
        return
    yield f"<details><summary>Suppressed ({len(outcomes)})</summary>"
    yield "\n".join(f"- {code(outcome.rule)} {escape(outcome.about)} {escape(outcome.because)}" for outcome in outcomes)
    yield "</details>"
