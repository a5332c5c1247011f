"""The list of findings, and everything that is known of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from sysperf.evaluate.judge import rank
from sysperf.model.finding import Finding
from sysperf.model.rule import SEVERITIES
from sysperf.model.trial import Trial
from sysperf.report import as_text, words
from sysperf.report.as_text import MARKS
from sysperf.report.changes import duration
from sysperf.tui.now import Now
from sysperf.tui.widgets import ansi
from sysperf.tui.widgets.line import BLANK, Lines, Span, fitted, folded, line, padded, paragraph, span

ORDERS: dict[str, Callable[[Finding], object]] = {
    "cost": rank,
    "area": lambda outcome: (outcome.rule, outcome.about),
    "subject": lambda outcome: (outcome.scope, outcome.about, SEVERITIES.index(outcome.severity), outcome.rule),
}
MAX_ID_WIDTH = 30


def chosen(now: Now, words_wanted: str, order: str, *, unknown: bool = False) -> list[Finding]:
    """The findings that hold all of these words, in this order; the unknown ones behind them when asked for."""
    wanted = words_wanted.lower().split()
    matching = [finding for finding in now.findings() if _matches(finding, wanted)]
    matching.sort(key=ORDERS[order])  # type: ignore[arg-type]  # each order's keys compare with each other
    if unknown and now.report:
        matching += [outcome for outcome in now.report.outcomes if outcome.state == "unknown" and _matches(outcome, wanted)]
    return matching


def _matches(outcome: Finding, wanted: Sequence[str]) -> bool:
    text = " ".join(
        (
            outcome.rule,
            outcome.about,
            outcome.severity,
            outcome.title,
            outcome.message,
            outcome.scope,
            *(fix.kind for fix in outcome.fixes),
        )
    ).lower()
    return all(word in text for word in wanted)


def draw(now: Now, outcomes: Sequence[Finding], width: int) -> Lines:
    """One line each: mark, rule, subject, what was seen."""
    if not outcomes:
        return _empty(now, width)
    column = min(max(len(outcome.rule) for outcome in outcomes), MAX_ID_WIDTH, max(12, width // 3))
    out: Lines = []
    for outcome in outcomes:
        mark = Span("✓ ", "good") if outcome.key in now.fixed else span("? ", "unknown") if outcome.state == "unknown" else span(
            f"{MARKS[outcome.severity]} ", outcome.severity
        )  # fmt: skip
        text = f"{outcome.about}: {words.message(outcome)}" if outcome.about else words.message(outcome)
        out.append(fitted(line(mark, Span(padded(outcome.rule, column), "strong"), Span("  "), span(text), key=outcome.key), width))
    return out


def _empty(now: Now, width: int) -> Lines:
    if now.report is None:
        return [line(span("Looking at this machine …", "dim"))]
    if now.findings():
        return [line(span("No finding has all of these words. Esc shows all.", "dim"))]
    if not now.counted:
        return paragraph("Nothing found that slows PyTorch down, says the agent.", width, "good")
    return paragraph(words.verdict(now.report), width, words.mood(now.report))


def detail(now: Now, outcome: Finding | None, width: int, measured: Trial | None = None) -> Lines:
    """Evidence, why, fix, undo, gain (as measured here, where it was); since when; and what was done about it from here."""
    if outcome is None:
        return []
    if measured is not None:
        outcome = msgspec.structs.replace(outcome, gain=measured.gain())
    out: Lines = []
    if outcome.key in now.fixed:
        sentence = f"Changed by transaction {now.fixed[outcome.key]}; it stays listed until the machine was audited again."
        out += [*paragraph(sentence, width, "good"), BLANK]
    if outcome.state == "unknown":
        return out + _unknown(outcome, width)
    out += ansi.lines(as_text.finding(outcome, color=True, width=max(40, width)))
    since = now.since.get(outcome.key)
    if since:
        out += [BLANK, line(span(f"holds for {duration(now.at - since)}, says the agent" if now.at > since else _day(since), "dim"))]
    return [whole for part in out for whole in folded(part, width)]


def _day(at: float) -> str:
    return f"holds since {time.strftime('%Y-%m-%d %H:%M', time.localtime(at))}"


def _unknown(outcome: Finding, width: int) -> Lines:
    out = [
        line(span("? ", "unknown"), span(outcome.rule, "strong"), Span("  "), span(outcome.about)),
        *paragraph(outcome.title, width),
        BLANK,
    ]
    for gap in outcome.unknown:
        out += paragraph(f"{gap.fact}: {gap.reason}", width, "unknown")
        out += paragraph(f"→ {gap.remedy}", width, "dim", "  ") if gap.remedy else []
    return out


def command_of(outcome: Finding) -> str:
    """The command to copy: that of the first fix that has one; what sysperf would run where it can set it itself."""
    for fix in outcome.fixes:
        if lines := words.command(fix.command):
            return "\n".join(lines)
    setting = next((fix.setting for fix in outcome.fixes if fix.setting), None)
    if setting is not None and setting.item:  # the rule's name alone would change all that it is about
        return f"sudo sysperf apply --set {setting.knob}@{setting.item}={setting.value}"
    if setting is not None:
        return f"sudo sysperf apply {outcome.rule}"
    return f"sysperf explain {outcome.rule}"
