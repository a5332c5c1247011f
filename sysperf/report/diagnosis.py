"""A diagnosis for people: the verdict in a sentence, then each cause with its evidence, its line, its fix and its proof."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Sequence

from sysperf.diagnosis.facts import Line
from sysperf.diagnosis.verdict import Cause, Signal, Verdict
from sysperf.model.outcome import Remedy
from sysperf.model.text import neutral
from sysperf.report import as_json
from sysperf.report.as_markdown import code, escape
from sysperf.report.terminal import Ink, Page, clip
from sysperf.report.words import count

STYLES = {"slowed": "warning", "healthy": "good", "idle": "good", "cannot-tell": "unknown"}
STATES = {"confirmed": "error", "likely": "warning"}
MAX_CAUSES, MAX_TEXT = 5, 2_000


def render(verdict: Verdict, form: str, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """The verdict in one of the forms text, json, markdown, html."""
    if form == "json":
        return as_json.dump(verdict)
    if form == "markdown":
        return markdown(verdict)
    return page(verdict) if form == "html" else text(verdict, color=color, width=width, verbose=verbose)


def text(verdict: Verdict, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """One screen; `verbose` adds every signal and what was dropped."""
    sheet = Page(Ink(color), width)
    sheet.paragraph(neutral(verdict.sentence, MAX_TEXT), STYLES[verdict.verdict])
    for cause in verdict.causes if verbose else verdict.causes[:MAX_CAUSES]:
        _cause(sheet, cause, verbose)
    if len(verdict.causes) > MAX_CAUSES and not verbose:
        sheet.paragraph(f"{len(verdict.causes) - MAX_CAUSES} more with --verbose.", "dim")
    _dropped(sheet, verdict, verbose)
    for hypothesis in verdict.hypotheses if verbose else ():
        raised = ", ".join(hypothesis.raised_by) or "a hypothesis: nothing that was measured confirms it"
        sheet.labelled(
            "source", neutral(f"{hypothesis.file}:{hypothesis.line}: {hypothesis.title} ({hypothesis.rule}; {raised})", MAX_TEXT), "dim"
        )
    for note in verdict.notes:
        sheet.labelled("not seen", neutral(note, MAX_TEXT), "dim")
    if verdict.verdict == "cannot-tell" and verdict.next:
        sheet.line()
        sheet.verbatim("next", neutral(verdict.next, MAX_TEXT), "command")
    sheet.line()
    sheet.paragraph(f"{count(len(verdict.facts.programs), 'program')}, {verdict.took_s:.0f} s. Nothing of the job was changed.", "dim")
    return str(sheet)


def _cause(sheet: Page, cause: Cause, verbose: bool) -> None:
    sheet.line()
    ink = sheet.ink
    sheet.line(f"{ink(STATES.get(cause.state, 'unknown'), cause.state)}  {ink('strong', neutral(cause.title))}{ink('good', gain(cause))}")
    sheet.paragraph(neutral(cause.message, MAX_TEXT), indent="  ")
    if cause.subjects:
        sheet.labelled("in", clip(neutral(", ".join(cause.subjects), MAX_TEXT), 4 * sheet.width))
    for number, line in enumerate(cause.where):
        sheet.verbatim("" if number else "where", clip(place(line), sheet.width - 12))
    for number, signal in enumerate(cause.signals):
        sheet.labelled("" if number else "evidence", _signal(signal), "dim")
    for number, fix in enumerate(cause.fixes if verbose else _first(cause.fixes)):
        sheet.labelled("fix" if not number else "and" if fix in _first(cause.fixes) else "or", neutral(_title(fix), MAX_TEXT))
        if fix.command:
            sheet.verbatim("", neutral(fix.command, MAX_TEXT), "command")
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
            sheet.paragraph(f"Not {neutral(cause.id)}: {neutral(cause.because, MAX_TEXT)}", "dim")


def gain(cause: Cause) -> str:
    """``  saves about 20 % of the step (12 to 30)``; empty where nothing is predicted."""
    if cause.gain is None or cause.gain < 1:
        return ""
    return f"  saves about {cause.gain:.0f} % of the step ({cause.gain_low:.0f} to {cause.gain_high:.0f})"


def place(line: Line) -> str:
    """``train.py:31 in load: image = Image.open(path)``."""
    text = f": {line.text}" if line.text else ""
    return neutral(f"{line.file}:{line.line} in {line.function}{text}", MAX_TEXT)


def _signal(signal: Signal) -> str:
    return f"{signal.source}{'' if signal.supports else ' (against)'}: {neutral(signal.text, MAX_TEXT)}"


def _title(fix: Remedy) -> str:
    return f"{fix.title}; {fix.note}" if fix.note else fix.title


def markdown(verdict: Verdict) -> str:
    """Render for an issue or a chat: the verdict, a table of the causes, their evidence."""
    blocks = [f"**{escape(verdict.sentence)}**"]
    if verdict.causes:
        rows = [_row(cause) for cause in verdict.causes]
        blocks.append("\n".join(["| | cause | predicted | where |", "|---|---|---|---|", *rows]))
    for cause in verdict.causes:
        signals = "\n".join(f"- {escape(_signal(signal))}" for signal in cause.signals)
        fixes = "\n".join(f"- {escape(_title(fix))}{f': {code(fix.command)}' if fix.command else ''}" for fix in cause.fixes)
        blocks += [f"### {escape(cause.title)}", escape(cause.message), signals, "Fix:", fixes]
        blocks += [f"Prove it: {code(cause.verify)}"] if cause.verify else []
    blocks += [f"Not `{cause.id}`: {escape(cause.because)}" for cause in verdict.dropped if cause.state == "contradicted"]
    blocks += [f"Not seen: {escape(note)}" for note in verdict.notes]
    return "\n\n".join(blocks) + "\n"


def _row(cause: Cause) -> str:
    where = code(place(cause.where[0]), cell=True) if cause.where else "-"
    return f"| {escape(cause.state)} | {escape(cause.title)} | {escape(gain(cause).strip()) or '-'} | {where} |"


def page(verdict: Verdict) -> str:
    """One self-contained page that loads nothing."""
    head = html.escape(neutral(verdict.sentence, MAX_TEXT))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{head}</title><style>{_CSS}</style><h1>{head}</h1><p><code>{_text(verdict.command)}</code>"
        f"{''.join(_sections(verdict))}</html>\n"
    )


_CSS = (
    "body{font:16px system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "section{border-left:4px solid #d67f2a;padding-left:1rem;margin:1.5rem 0}section.confirmed{border-color:#d03b3b}"
    "code{overflow-wrap:anywhere}small{opacity:.7}"
)


def _text(value: str) -> str:
    return html.escape(neutral(value, MAX_TEXT))


def _sections(verdict: Verdict) -> Iterator[str]:
    for cause in verdict.causes:
        yield f'<section class="{cause.state}"><h2>{_text(cause.title)}</h2><p>{cause.state}{_text(gain(cause))}<p>{_text(cause.message)}'
        yield "".join(f"<p><code>{_text(place(line))}</code>" for line in cause.where)
        yield f"<ul>{''.join(f'<li>{_text(_signal(signal))}' for signal in cause.signals)}</ul>"
        yield "".join(f"<p>{_text(_title(fix))} <code>{_text(fix.command)}</code>" for fix in cause.fixes)
        yield f"<p>Prove it: <code>{_text(cause.verify)}</code></section>" if cause.verify else "</section>"
    yield "".join(f"<p><small>Not {_text(cause.id)}: {_text(cause.because)}</small>" for cause in verdict.dropped if cause.because)
    yield "".join(f"<p><small>Not seen: {_text(note)}</small>" for note in verdict.notes)
