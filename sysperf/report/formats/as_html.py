"""One web page that needs nothing else: no font, no picture from elsewhere; its only script copies commands. Light, dark and on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sysperf.model.finding import Evidence, Finding, Remedy, Report
from sysperf.model.rule import SEVERITIES, Severity
from sysperf.report import frame, words
from sysperf.report.frame import text as _text
from sysperf.report.machine import described

NAMES: dict[Severity, str] = {"error": "Errors", "warning": "Warnings", "info": "Worth knowing", "hint": "Hints"}
MARKS: dict[Severity, str] = {"error": "✗", "warning": "!", "info": "i", "hint": "·"}
_OPEN = ("error", "warning")


def render(report: Report) -> str:
    """The whole report."""
    lines = (
        *_filters(report),
        *_head(report),
        "<main>",
        *_findings(report),
        *_unread(report),
        *_suppressed(report),
        "</main>",
        f"<footer><p>{_text(words.tally(report))}</p></footer>",
    )
    return frame.framed(f"sysperf: {words.verdict(report)}", lines)


def _filters(report: Report) -> Iterator[str]:
    """Boxes that show and hide severities; the style sheet does it, the labels are in the head."""
    for severity in words.by_severity(report.findings()):
        yield f'<input type="checkbox" class="filter" id="show-{severity}" checked aria-label="{NAMES[severity]}">'


def _head(report: Report) -> Iterator[str]:
    groups = words.by_severity(report.findings())
    when = ", ".join(part for part in (words.machine_of(report), words.taken_at(report)) if part)
    yield f'<header class="{words.mood(report)}"><p class="name"><b>sysperf</b> {_text(report.sysperf)}<span>{_text(when)}</span></p>'
    yield f"<h1>{_text(words.verdict(report))}</h1>"
    yield from _bar(report)
    yield '<nav aria-label="severities">'
    yield from (f'<label for="show-{name}" class="{name}">{NAMES[name]} <b>{len(group)}</b></label>' for name, group in groups.items())
    yield f'<span class="unknown">unknown <b>{report.tally.unknown}</b></span>' if report.tally.unknown else ""
    yield f'<span class="good">passed <b>{report.tally.passed}</b></span>' if report.tally.passed else ""
    yield "</nav><dl>"
    yield from (f"<dt>{_text(label)}</dt><dd>{_text(which)}</dd>" for label, which in described(report.snapshot))
    yield "</dl></header>"


def _bar(report: Report) -> Iterator[str]:
    """The answers as shares of one bar."""
    groups = words.by_severity(report.findings())
    shares = [(name, len(groups.get(name, ()))) for name in SEVERITIES] + [("unknown", report.tally.unknown), ("good", report.tally.passed)]
    yield from frame.bar(shares)


def _findings(report: Report) -> Iterator[str]:
    """A card for each rule: what it says of several programs or GPUs stands in one."""
    for severity, outcomes in words.by_severity(report.findings()).items():
        rules: dict[str, list[Finding]] = {}
        for outcome in outcomes:
            rules.setdefault(outcome.rule_key, []).append(outcome)
        yield f'<section class="{severity}"><h2>{NAMES[severity]} <span>{len(rules)}</span></h2>'
        for alike in rules.values():
            yield from _finding(alike[0], alike[1:], opened=severity in _OPEN)
        yield "</section>"


def _finding(outcome: Finding, also: Sequence[Finding], *, opened: bool) -> Iterator[str]:
    """What was seen, the fix, why, what it gains; the evidence is folded behind them."""
    about = f"{outcome.about} and {len(also)} more" if also else outcome.about
    subject = f' <span class="subject">{_text(about)}</span>' if about else ""
    link = next((ref for ref in outcome.refs if words.is_link(ref)), "")
    name = f'<a href="{_text(link)}" rel="noreferrer noopener">{_text(outcome.rule)}</a>' if link else _text(outcome.rule)
    yield f"<details{' open' if opened else ''}><summary>"
    yield f'<i aria-label="{outcome.severity}">{MARKS[outcome.severity]}</i><code>{name}</code>{subject}'
    yield f"<p>{_text(words.message(outcome))}</p></summary>"
    for fix in outcome.fixes:
        yield from _fix(fix)
    yield from _also(also)
    if outcome.why:
        yield "<h3>Why it matters</h3>"
        yield from (f"<p>{_text(paragraph)}</p>" for paragraph in words.paragraphs(outcome.why))
    gain = f"gain {words.gain(outcome)}" if outcome.gain.basis != "measured" else words.gain(outcome)
    yield f'<p class="gain {outcome.gain.basis}"><span>{_text(gain)}</span><span>confidence {outcome.confidence}</span></p>'
    if outcome.evidence:
        yield f'<details class="behind"><summary>Observed: {words.count(len(outcome.evidence), "fact")}</summary><table>'
        yield from map(_evidence, outcome.evidence)
        yield "</table></details>"
    if outcome.refs:
        yield f'<p class="refs">{" ".join(map(_link, outcome.refs))}</p>'
    yield f"{frame.explained(outcome.rule)}</details>"


def _also(also: Sequence[Finding]) -> Iterator[str]:
    """The others of the same rule: what differs is what was seen of them and their commands."""
    if not also:
        return
    yield f'<details class="behind"><summary>The same of {len(also)} more</summary>'
    for outcome in also:
        yield f"<p><b>{_text(outcome.about)}</b> {_text(words.message(outcome))}</p>"
        yield from (frame.command(fix.command) for fix in outcome.fixes if fix.command)
    yield "</details>"


def _evidence(evidence: Evidence) -> str:
    name, value = _text(evidence.fact), _text(words.value(evidence.value, evidence.fact))
    return f"<tr><td><code>{name}</code></td><td>{value}</td><td><code>{_text(words.origin(evidence))}</code></td></tr>"


def _fix(fix: Remedy) -> Iterator[str]:
    yield f'<h3>Fix <span class="terms {fix.safety}">{_text(words.terms(fix))}</span></h3>'
    yield f"<p>{_text(fix.title[:1].upper() + fix.title[1:])}</p>" if fix.title else ""
    yield frame.command(fix.command)
    yield from (f"<p>{_text(paragraph)}</p>" for paragraph in words.paragraphs(fix.note))
    if fix.undo:
        yield f'<h3 class="undo">Undo</h3>{frame.command(fix.undo)}'
    if fix.undo_text:
        yield f'<h3 class="undo">Undo</h3><p>{_text(fix.undo_text)}</p>'


def _link(ref: str) -> str:
    return f'<a href="{_text(ref)}" rel="noreferrer noopener">{_text(ref)}</a>' if words.is_link(ref) else f"<span>{_text(ref)}</span>"


def _unread(report: Report) -> Iterator[str]:
    groups = words.unread(words.of_state(report, "unknown"))
    if not groups:
        return
    yield f'<section class="unknown"><h2>Could not be read <span>{report.tally.unknown}</span></h2>'
    for group in groups:
        yield f'<details><summary><i>?</i>{_text(group.reason)} <span class="subject">{words.count(group.checks, "check")}</span>'
        yield f"<p>→ {_text(group.remedy)}</p></summary>" if group.remedy else "</summary>"
        yield f"<p>{', '.join(f'<code>{_text(fact)}</code>' for fact in group.facts)}</p>"
        yield f'<p class="refs">{" ".join(f"<span>{_text(where)}</span>" for where in group.origins)}</p>' if group.origins else ""
        yield "</details>"
    yield "</section>"


def _suppressed(report: Report) -> Iterator[str]:
    outcomes = words.of_state(report, "suppressed")
    if not outcomes:
        return
    yield f'<section class="suppressed"><h2>Suppressed <span>{len(outcomes)}</span></h2><ul>'
    for outcome in outcomes:
        yield f"<li><code>{_text(outcome.rule)}</code> {_text(outcome.about)} <span>{_text(outcome.because)}</span></li>"
    yield "</ul></section>"
