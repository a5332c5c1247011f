"""The list of causes, a row a rule, and everything that is known of one: what to do before why."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import msgspec

from sysperf.model.finding import Evidence, Finding, Remedy
from sysperf.model.rule import SEVERITIES
from sysperf.model.text import neutral
from sysperf.model.trial import Trial
from sysperf.report import words
from sysperf.report.changes import duration
from sysperf.tui.now import Now
from sysperf.tui.widgets import causes
from sysperf.tui.widgets.causes import Cause
from sysperf.tui.widgets.line import BLANK, Line, Lines, Span, fitted, folded, line, padded, paragraph, span
from sysperf.tui.widgets.verdict import SAYS_THE_AGENT

ORDERS: dict[str, Callable[[Cause], object]] = {
    "cost": lambda _: (),  # as `causes` sorts them
    "area": lambda cause: (cause.first.rule, cause.first.about),
    "subject": lambda cause: (cause.first.scope, cause.first.about, SEVERITIES.index(cause.first.severity), cause.first.rule),
}
LABEL = 6
MAX_SEEN, MAX_PLACES = 6, 12


def chosen(now: Now, words_wanted: str, order: str, *, unknown: bool = False) -> list[Cause]:
    """The causes whose findings hold all of these words, in this order; the unknown checks behind them when asked for."""
    wanted = words_wanted.lower().split()
    matching = causes.causes([finding for finding in now.findings() if _matches(finding, wanted)])
    matching.sort(key=ORDERS[order])  # type: ignore[arg-type]  # each order's keys compare with each other
    if unknown and now.report:
        matching += [Cause((outcome,)) for outcome in now.report.outcomes if outcome.state == "unknown" and _matches(outcome, wanted)]
    return matching


def _matches(outcome: Finding, wanted: Sequence[str]) -> bool:
    parts = (outcome.rule, outcome.about, outcome.severity, outcome.title, outcome.message, outcome.scope)
    text = " ".join((*parts, *(fix.kind for fix in outcome.fixes))).lower()
    return all(word in text for word in wanted)


def draw(now: Now, shown: Sequence[Cause], width: int, unfolded: Collection[str] = ()) -> Lines:
    """A row each: mark, title, what it costs, who cures it and how; below an unfolded one its programs or GPUs."""
    if not shown:
        return _empty(now, width)
    out: Lines = []
    for cause, row in zip(shown, causes.rows(now, shown, width, unfolded), strict=True):
        out.append(Line(row.spans, ("rule", cause.name)) if cause.many else row)
        if cause.many and cause.name in unfolded:
            out += [_member(now, finding, width) for finding in cause.findings]
    return out


def _member(now: Now, finding: Finding, width: int) -> Line:
    dim = "dim" if finding.key in now.faded else ""
    about = span(f"{causes.subject(finding)}{causes.seen_ago(now, finding)}: {words.message(finding)}", dim)
    return fitted(line(Span("    "), causes.mark(now, finding), about, key=finding.key), width)


def _empty(now: Now, width: int) -> Lines:
    if now.report is None:
        return [line(span("Looking at this machine …", "dim"))]
    if now.findings():
        return [line(span("No finding has all of these words. Esc shows all.", "dim"))]
    if not now.counted:
        return paragraph(SAYS_THE_AGENT, width, "strong")
    return paragraph(words.verdict(now.report), width, words.mood(now.report))


def detail(now: Now, outcome: Finding | None, width: int, measured: Trial | None = None, also: Sequence[Finding] = ()) -> Lines:
    """What was seen, the fixes with their commands, why, the evidence, undo, gain (as measured here, where it was), and since when.

    `also` are the findings of the same rule about others.
    """
    if outcome is None:
        return []
    if measured is not None:
        outcome = msgspec.structs.replace(outcome, gain=measured.gain())
    if outcome.state == "unknown":
        return _unknown(outcome, width)
    figure, basis = causes.loss(outcome)
    head = (causes.mark(now, outcome), span(outcome.title, "strong"), span(f"  {outcome.about}" if outcome.about else ""))
    out: Lines = [line(*head, span(f"  {figure}", "strong"), span(f" {basis}", "dim"))] if figure else [line(*head)]
    if outcome.key in now.fixed:
        sentence = f"Changed by transaction {now.fixed[outcome.key]}; it stays listed until the machine was audited again."
        out += paragraph(sentence, width, "good", "  ")
    if outcome.message != outcome.title:
        out += paragraph(words.message(outcome), width, "", "  ")
    out += paragraph(f"also {words.some(map(causes.subject, also), MAX_PLACES)}", width, "", "  ") if also else []
    for number, fix in enumerate(outcome.fixes, 1):
        out += [BLANK, *_fix(number, fix, width, here=now.here)]
    out += [BLANK] if outcome.why or outcome.evidence else []
    for number, text in enumerate(words.paragraphs(outcome.why)):
        out += _labelled("" if number else "why", text, width)
    for number, evidence in enumerate(_telling(outcome)[:MAX_SEEN]):
        out += _labelled("" if number else "seen", words.seen(evidence), width, "dim")
    rest = len(outcome.evidence) - MAX_SEEN
    out += _labelled("", f"and {words.count(rest, 'more fact')}: e explains the rule", width, "dim") if rest > 0 else []
    out += [part for number, fix in enumerate(outcome.fixes, 1) for part in _undo(number, fix, width)]
    out += _labelled("gain", words.gain(outcome), width, "good" if outcome.gain.basis == "measured" else "")
    out += _labelled("rule", f"{outcome.rule}{', low confidence' if outcome.confidence == 'low' else ''}", width, "dim")
    since = now.since.get(outcome.key)
    if since:
        holds = f"holds for {duration(now.at - since)}, says the agent" if now.at > since else _day(since)
        out += _labelled("since", holds, width, "dim")
    return [whole for part in out for whole in folded(part, width)]


def _fix(number: int, fix: Remedy, width: int, *, here: bool) -> Lines:
    """``[1] set kernel.numa_balancing to 0  with care, needs root``, and the commands whole."""
    title = neutral(fix.title) or next(iter(words.command(fix.command)), "")
    does = "a applies it, " if fix.setting is not None and here else ""
    badge = f" ({does}{words.terms(fix)})"
    rows = paragraph(f"{title[:1].upper()}{title[1:]}{badge}", width - LABEL)
    out = [Line((Span(padded(f" [{number}]" if not place else "", LABEL), "key"), *row.spans)) for place, row in enumerate(rows)]
    out += [line(Span(" " * LABEL), span(command, "command")) for command in words.command(fix.command)]
    return [*out, *(part for text in words.paragraphs(fix.note) for part in _labelled("", text, width, "dim"))]


def _undo(number: int, fix: Remedy, width: int) -> Lines:
    label = f"undo {number}"
    out = [
        line(Span(padded(label if not place else "", LABEL + 1), "dim"), span(command, "command"))
        for place, command in enumerate(words.command(fix.undo))
    ]
    return out + [part for text in words.paragraphs(fix.undo_text) for part in _labelled(label, text, width)]


def _labelled(label: str, text: str, width: int, style: str = "") -> Lines:
    rows = paragraph(text, width - LABEL - 1, style)
    return [Line((Span(padded("" if place else label, LABEL + 1), "dim"), *row.spans)) for place, row in enumerate(rows)]


def _telling(outcome: Finding) -> list[Evidence]:
    """Facts with a value before lists and what is empty."""
    return sorted(
        outcome.evidence, key=lambda evidence: (evidence.value in (None, "", [], ()), isinstance(evidence.value, list | tuple | dict))
    )


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


def commands_of(outcome: Finding) -> list[str]:
    """The commands to copy, one for each fix that has one; what sysperf would run where it can set it itself."""
    found = ["\n".join(lines) for fix in outcome.fixes if (lines := words.command(fix.command))]
    return found or [command_of(outcome)]


def command_of(outcome: Finding) -> str:
    """The first command to copy."""
    for fix in outcome.fixes:
        if lines := words.command(fix.command):
            return "\n".join(lines)
    setting = next((fix.setting for fix in outcome.fixes if fix.setting), None)
    if setting is not None and setting.item:  # the rule's name alone would change all that it is about
        return f"sudo sysperf apply --set {setting.knob}@{setting.item}={setting.value}"
    if setting is not None:
        return f"sudo sysperf apply {outcome.rule}"
    return f"sysperf explain {outcome.rule}"
