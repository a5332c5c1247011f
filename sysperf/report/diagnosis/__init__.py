"""A diagnosis for people: the verdict in a sentence, then each cause with its evidence, its line, its fix and its proof."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sysperf.model.finding import Finding, Place, Remedy
from sysperf.model.text import neutral
from sysperf.report.diagnosis.causes import MAX_TEXT, STATES, explained, gain, signal_text, title
from sysperf.report.formats import as_json
from sysperf.report.formats.as_markdown import code, escape
from sysperf.report.terminal import Ink, Page, clip
from sysperf.report.words import count

if TYPE_CHECKING:
    from sysperf.diagnosis.verdict import Verdict

STYLES = {"slowed": "warning", "healthy": "good", "idle": "good", "cannot-tell": "unknown"}
MAX_CAUSES = 5


def render(verdict: Verdict, form: str, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """The verdict in one of the forms text, json, markdown, html."""
    if form == "json":
        return as_json.dump(verdict)
    if form == "markdown":
        return markdown(verdict)
    if form == "html":
        from sysperf.report.diagnosis import page as diagnosis_page  # noqa: PLC0415 - 4 MB of hashes and entities, which a dashboard need not hold

        return diagnosis_page.page(verdict)
    return text(verdict, color=color, width=width, verbose=verbose)


def text(verdict: Verdict, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """One screen; `verbose` adds every signal and what was dropped."""
    sheet = Page(Ink(color), width)
    sheet.paragraph(neutral(verdict.sentence, MAX_TEXT), STYLES[verdict.verdict])
    if verdict.changed:
        sheet.paragraph(neutral(verdict.changed, MAX_TEXT), "unknown")
    for cause in verdict.causes if verbose else verdict.causes[:MAX_CAUSES]:
        _cause(sheet, cause, explained(verdict, cause), verbose)
    if len(verdict.causes) > MAX_CAUSES and not verbose:
        sheet.paragraph(f"{len(verdict.causes) - MAX_CAUSES} more with --verbose.", "dim")
    _dropped(sheet, verdict, verbose)
    for hypothesis in verdict.hypotheses if verbose else ():
        confirmed = ", ".join(hypothesis.confirmed_by) or "a hypothesis: nothing that was measured confirms it"
        at = "".join(f"{place.file}:{place.line}: " for place in hypothesis.places)
        sheet.labelled("source", neutral(f"{at}{hypothesis.title} ({hypothesis.rule}; {confirmed})", MAX_TEXT), "dim")
    for note in verdict.notes:
        sheet.labelled("not seen", neutral(note, MAX_TEXT), "dim")
    said = {command for cause in verdict.causes for command in (cause.verify, *(fix.command for fix in cause.fixes))}
    if verdict.next and verdict.next not in said:
        sheet.line()
        sheet.verbatim("next", neutral(verdict.next, MAX_TEXT), "command")
    sheet.line()
    sheet.paragraph(f"{count(len(verdict.facts.programs), 'program')}, {verdict.took_s:.0f} s. Nothing of the job was changed.", "dim")
    return str(sheet)


def _cause(sheet: Page, cause: Finding, others: Sequence[Finding], verbose: bool) -> None:
    sheet.line()
    ink = sheet.ink
    sheet.line(f"{ink(STATES.get(cause.state, 'unknown'), cause.state)}  {ink('strong', neutral(cause.title))}{ink('good', gain(cause))}")
    sheet.paragraph(neutral(cause.message, MAX_TEXT), indent="  ")
    if subjects := ", ".join(subject.text for subject in (cause.subject, *cause.also)):
        sheet.labelled("in", clip(neutral(subjects, MAX_TEXT), 4 * sheet.width))
    for number, place in enumerate(cause.places):
        sheet.verbatim("" if number else "where", _place(place))
    for number, signal in enumerate(cause.signals):
        sheet.labelled("" if number else "evidence", signal_text(signal), "dim")
    for number, other in enumerate(others):
        sheet.labelled("" if number else "explains", neutral(f"{other.title}: {other.message}", MAX_TEXT), "dim")
    for number, fix in enumerate(cause.fixes if verbose else _first(cause.fixes)):
        sheet.labelled("fix" if not number else "and" if fix in _first(cause.fixes) else "or", neutral(title(fix), MAX_TEXT))
        if fix.command:
            sheet.verbatim("", neutral(fix.command, MAX_TEXT), "command")
    if cause.keep:
        sheet.verbatim("keep", neutral(cause.keep, MAX_TEXT), "command")
    if cause.verify:
        sheet.verbatim("prove", neutral(cause.verify, MAX_TEXT), "command")
    if verbose:
        sheet.labelled("why", neutral(" ".join(cause.why.split()), MAX_TEXT), "dim")


def _first(fixes: Sequence[Remedy]) -> Sequence[Remedy]:
    """The first fix. CPUs that are divided are a line for each program: all of them are one."""
    parts = list(itertools.takewhile(lambda fix: fix.kind == "bind", fixes))
    return parts or fixes[:1]


def _dropped(sheet: Page, verdict: Verdict, verbose: bool) -> None:
    if not verdict.dropped:
        return
    sheet.line()
    for cause in verdict.dropped:
        if verbose or cause.state == "contradicted":
            sheet.paragraph(f"Not {neutral(cause.rule)}: {neutral(cause.because, MAX_TEXT)}", "dim")


def _place(place: Place) -> str:
    return neutral(place.text, MAX_TEXT)


def markdown(verdict: Verdict) -> str:
    """Render for an issue or a chat: the verdict, a table of the causes, their evidence."""
    blocks = [f"**{escape(verdict.sentence)}**", *([escape(verdict.changed)] if verdict.changed else [])]
    if verdict.causes:
        rows = [_row(cause) for cause in verdict.causes]
        blocks.append("\n".join(["| | cause | predicted | where |", "|---|---|---|---|", *rows]))
    for cause in verdict.causes:
        signals = "\n".join(f"- {escape(signal_text(signal))}" for signal in cause.signals)
        fixes = "\n".join(f"- {escape(title(fix))}{f': {code(fix.command)}' if fix.command else ''}" for fix in cause.fixes)
        consequences = [f"It explains: {escape(other.title)}. {escape(other.message)}" for other in explained(verdict, cause)]
        blocks += [f"### {escape(cause.title)}", escape(cause.message), signals, *consequences, "Fix:", fixes]
        blocks += [f"Keep the source before you change it: {code(cause.keep)}"] if cause.keep else []
        blocks += [f"Prove it: {code(cause.verify)}"] if cause.verify else []
    blocks += [f"Not `{cause.rule}`: {escape(cause.because)}" for cause in verdict.dropped if cause.state == "contradicted"]
    blocks += [f"Not seen: {escape(note)}" for note in verdict.notes]
    return "\n\n".join(blocks) + "\n"


def _row(cause: Finding) -> str:
    where = code(_place(cause.place), cell=True) if cause.place else "-"
    return f"| {escape(cause.state)} | {escape(cause.title)} | {escape(gain(cause).strip()) or '-'} | {where} |"
