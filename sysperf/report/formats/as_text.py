"""The report for people at a terminal: what is wrong, what was seen, why it matters, what to do."""

from __future__ import annotations

from sysperf.model.finding import Finding, Remedy, Report, Rewrap
from sysperf.model.rule import Severity
from sysperf.model.text import neutral
from sysperf.report import words
from sysperf.report.machine import described
from sysperf.report.terminal import Ink, Page, cells, clip, pad, shorten, wrap

HEADS: dict[Severity, str] = {"error": "Errors", "warning": "Warnings", "info": "Worth knowing", "hint": "Hints"}
MARKS: dict[Severity, str] = {"error": "✗", "warning": "!", "info": "i", "hint": "·"}
MAX_EVIDENCE = 4
MAX_SUBJECTS = 6
MAX_BRIEF = 8
MAX_REASONS = 4
MAX_ID_WIDTH = 34


def render(report: Report, *, color: bool = False, width: int = 100, verbose: bool = False, quiet: bool = False) -> str:
    """The whole report; without `verbose`, small findings take one line and long lists are cut; `quiet`: findings alone."""
    page = Page(Ink(color), width)
    if not quiet:
        _head(page, report)
    for severity, outcomes in words.by_severity(report.findings()).items():
        page.line()
        page.line(page.ink(severity, f"{HEADS[severity]} ({len(outcomes)})"))
        if verbose or severity in ("error", "warning"):
            _full(page, outcomes, verbose)
        else:
            _brief(page, outcomes)
    if quiet:
        return str(page).lstrip("\n")
    _rewraps(page, report, verbose)
    _unread(page, report, verbose)
    _suppressed(page, report, verbose)
    if verbose:
        _passed(page, report)
    _foot(page, report, verbose)
    return str(page)


def finding(outcome: Finding, *, color: bool, width: int) -> str:
    """One finding with everything that is known of it."""
    page = Page(Ink(color), width)
    _finding(page, outcome, verbose=True)
    return str(page)


def _head(page: Page, report: Report) -> None:
    ink = page.ink
    when = ", ".join(part for part in (words.machine_of(report), words.taken_at(report)) if part)
    name = f"sysperf {neutral(report.sysperf, 40)}"
    if cells(name) + cells(when) + 2 <= page.width:
        page.line(f"{ink('strong', name)}  {ink('dim', when)}")
    else:
        page.paragraph(name, "strong")
        page.paragraph(when, "dim")
    page.line()
    for label, which in described(report.snapshot):
        page.labelled(label, which)
    page.line()
    page.paragraph(words.verdict(report), words.mood(report))


def _full(page: Page, outcomes: list[Finding], verbose: bool) -> None:
    if verbose:
        for outcome in outcomes:
            _finding(page, outcome, verbose=True)
        return
    for first, *others in _by_rule(outcomes):
        _finding(page, first, verbose=False)
        for number, other in enumerate(others[:MAX_SUBJECTS]):
            page.labelled("" if number else "also", _about(other))
        if len(others) > MAX_SUBJECTS:
            page.labelled("", f"and {len(others) - MAX_SUBJECTS} more; --verbose shows all", "dim")


def _by_rule(outcomes: list[Finding]) -> list[list[Finding]]:
    """The findings of one rule about several subjects, as one entry."""
    rules: dict[str, list[Finding]] = {}
    for outcome in outcomes:
        rules.setdefault(outcome.rule, []).append(outcome)
    return [*rules.values()]


def _finding(page: Page, outcome: Finding, *, verbose: bool) -> None:
    ink = page.ink
    page.line()
    doubt = ink("dim", "  low confidence") if outcome.confidence == "low" else ""
    name, subject = neutral(outcome.rule), neutral(outcome.about)
    beside = cells(name) + cells(subject) + 4 <= page.width
    beside_name = f"  {subject}" if subject and beside else ""
    page.line(f"{ink(outcome.severity, MARKS[outcome.severity])} {ink('strong', name)}{beside_name}{doubt}")
    if not beside:
        page.paragraph(subject, indent="  ")
    page.paragraph(words.message(outcome), indent="  ")
    _evidence(page, outcome, verbose)
    for number, paragraph in enumerate(words.paragraphs(outcome.why) if verbose else [words.short(outcome.why)]):
        page.labelled("" if number else "why", paragraph)
    for number, fix in enumerate(outcome.fixes):
        fix_lines(page, "or" if number else "fix", fix)
    page.labelled("gain", words.gain(outcome), "good" if outcome.gain.basis == "measured" else "plain")
    for number, ref in enumerate(outcome.refs if verbose else ()):
        page.verbatim("" if number else "read", neutral(ref), "dim")


def _about(outcome: Finding) -> str:
    """The message behind its subject."""
    return f"{neutral(outcome.about)}: {words.message(outcome)}" if outcome.about else words.message(outcome)


def _evidence(page: Page, outcome: Finding, verbose: bool) -> None:
    most = len(outcome.evidence) if verbose else MAX_EVIDENCE
    label = "observed"
    for evidence in outcome.evidence[:most]:
        value, origin = words.observed(evidence), words.origin(evidence)
        source = f"from {origin}" if origin else ""
        if cells(value) + cells(source) + 4 + page.label_width <= page.width:
            page.verbatim(label, f"{value}  {page.ink('dim', source)}".rstrip())
        else:
            page.labelled(label, value)
            page.labelled("", source, "dim")
        label = ""
    if len(outcome.evidence) > most:
        page.labelled("", f"and {words.count(len(outcome.evidence) - most, 'more fact')}", "dim")


def fix_lines(page: Page, label: str, fix: Remedy) -> None:
    """What to do, the commands whole, and how to take it back."""
    title = neutral(fix.title)
    page.labelled(label, f"{title[:1].upper()}{title[1:]} ({words.terms(fix)})" if title else words.terms(fix))
    for line in words.command(fix.command):
        page.verbatim("", line, "command")
    for number, line in enumerate(words.command(fix.undo)):
        page.verbatim("" if number else "undo", line, "command")
    for paragraph in words.paragraphs(fix.undo_text):
        page.labelled("undo", paragraph)
    for paragraph in words.paragraphs(fix.note):
        page.labelled("note", paragraph)


def _brief(page: Page, outcomes: list[Finding]) -> None:
    column = min(max(cells(neutral(outcome.rule)) for outcome in outcomes), MAX_ID_WIDTH)
    for outcome in outcomes[:MAX_BRIEF]:
        mark = page.ink(outcome.severity, MARKS[outcome.severity])
        name = pad(clip(neutral(outcome.rule), column), column)
        page.line(f"{mark} {page.ink('strong', name)}  {shorten(_about(outcome), page.width - column - 4)}")
    if len(outcomes) > MAX_BRIEF:
        page.line(page.ink("dim", f"  and {len(outcomes) - MAX_BRIEF} more; --verbose shows all"))


def _rewraps(page: Page, report: Report, verbose: bool) -> None:
    """Running programs that wrap would have started otherwise; those that lack the same are one entry."""
    if not report.rewraps:
        return
    alike: dict[tuple[str, ...], list[Rewrap]] = {}
    for program in report.rewraps:
        alike.setdefault(program.changes, []).append(program)
    page.line()
    page.line(page.ink("hint", f"Started otherwise ({len(report.rewraps)}): what wrap would have set; the gain is unmeasured"))
    for changes, programs in alike.items():
        pids = words.some([str(program.pid) for program in programs], len(programs) if verbose else MAX_SUBJECTS)
        page.paragraph(f"pid {pids}: {words.some([neutral(change, 200) for change in changes], len(changes))}", indent="  ")
        commands = [*dict.fromkeys(program.command for program in programs)]
        for command in commands if verbose else commands[:1]:
            page.line("  " + page.ink("command", neutral(command, 2_000)))
        if len(commands) > 1 and not verbose:
            page.line(page.ink("dim", f"  and {words.count(len(commands) - 1, 'more command')}; --verbose shows all"))


def _unread(page: Page, report: Report, verbose: bool) -> None:
    groups = words.unread(words.of_state(report, "unknown"))
    if not groups:
        return
    page.line()
    page.line(page.ink("unknown", f"Could not be read ({report.tally.unknown})"))
    for group in groups if verbose else groups[:MAX_REASONS]:
        _reason(page, group, verbose)
    if len(groups) > MAX_REASONS and not verbose:
        page.line(page.ink("dim", f"  and {words.count(len(groups) - MAX_REASONS, 'more reason')}; --verbose shows all"))


def _reason(page: Page, group: words.Unread, verbose: bool) -> None:
    facts = words.some(group.facts, len(group.facts) if verbose else 3)
    where = f" from {group.origins[0]}" if len(group.origins) == 1 and not verbose else ""
    sentence = f"{group.reason} ({words.count(group.checks, 'check')}): {facts}{where}"
    first, *rest = wrap(sentence, page.width - 2)
    page.line(f"{page.ink('unknown', '?')} {first}")
    for line in rest:
        page.line(f"  {line}")
    if group.remedy:
        page.paragraph(f"→ {group.remedy}", "dim", indent="  ")
    for where in group.origins if verbose else ():
        page.paragraph(where, "dim", indent="    ")


def _suppressed(page: Page, report: Report, verbose: bool) -> None:
    outcomes = words.of_state(report, "suppressed")
    if not outcomes or not verbose:
        return
    page.line()
    page.line(page.ink("dim", f"Suppressed ({len(outcomes)})"))
    for outcome in outcomes:
        subject = f" {neutral(outcome.about)}" if outcome.about else ""
        page.paragraph(f"{neutral(outcome.rule)}{subject}: {neutral(outcome.because)}", indent="  ")


def _passed(page: Page, report: Report) -> None:
    if report.passed:
        page.line()
        page.line(page.ink("good", f"Passed ({len(report.passed)})"))
        page.paragraph(", ".join(map(neutral, sorted(report.passed))), "dim", indent="  ")


def _foot(page: Page, report: Report, verbose: bool) -> None:
    page.line()
    page.paragraph(words.tally(report), "dim")
    findings = report.findings()
    if findings:
        rest = "" if verbose else "; --verbose shows everything"
        page.paragraph(f"Next: sysperf explain {neutral(findings[0].rule)}{rest}", "strong")
    elif report.tally.unknown and not verbose:
        page.paragraph("Next: sysperf audit --verbose lists what could not be read, file by file", "strong")
