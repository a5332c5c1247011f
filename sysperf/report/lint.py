"""Hypotheses about scripts for people at a terminal: a file, its places, what may be slow there and why."""

from __future__ import annotations

from itertools import groupby

from sysperf.model.finding import Finding, Place
from sysperf.model.rule import SEVERITIES
from sysperf.model.text import neutral
from sysperf.report.formats.as_text import MARKS
from sysperf.report.terminal import Ink, Page, clip
from sysperf.report.words import count, listed, paragraphs, short
from sysperf.script.hypothesis import Lint

MAX_UNREAD = 5
SYNTAX_HINT = "mend them, or run sysperf with the Python that they are for; "
LEAVE_OUT = "--exclude PATTERN leaves files out"
MAX_HINTS = 3
"""Places of one rule in one file that are shown without --verbose."""


def render(result: Lint, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:
    """All hypotheses by file, in the order of the source; without `verbose`, the first places of a rule in a file."""
    page = Page(Ink(color), width)
    for _, in_file in groupby(result.hypotheses, key=lambda hypothesis: _place(hypothesis).file):
        _file(page, [*in_file], verbose)
    _notes(page, result)
    _unread(page, result, verbose)
    _foot(page, result, verbose)
    return str(page)


def _file(page: Page, hypotheses: list[Finding], verbose: bool) -> None:
    page.line(page.ink("strong", neutral(_place(hypotheses[0]).file)))
    numbers: dict[str, int] = {}
    for hypothesis in hypotheses:
        numbers[hypothesis.rule] = numbers.get(hypothesis.rule, 0) + 1
        if verbose or numbers[hypothesis.rule] <= MAX_HINTS:
            _hypothesis(page, hypothesis, verbose, first=numbers[hypothesis.rule] == 1)
    more = [f"{number - MAX_HINTS} more of {rule}" for rule, number in numbers.items() if number > MAX_HINTS]
    if more and not verbose:
        page.paragraph(f"and {listed(more)}; --verbose shows all", "dim", indent="  ")
    page.line()


def _hypothesis(page: Page, hypothesis: Finding, verbose: bool, *, first: bool) -> None:
    """The place and the rule; what it says the first time in a file."""
    ink = page.ink
    place = _place(hypothesis)
    cell = f"cell {place.cell} " if place.cell else ""
    fixable = ink("good", "  [--fix]") if hypothesis.source_fix else ""
    mark = ink(hypothesis.severity, MARKS[hypothesis.severity])
    page.line(f"{mark} {neutral(place.file)}:{cell}{place.line}:{place.column}: {ink('strong', hypothesis.rule)}{fixable}")
    page.line("    " + ink("command", clip(place.code, page.room - 4)))
    if not first and not verbose:
        return
    page.paragraph(neutral(hypothesis.message), indent="    ")
    if hypothesis.because:
        page.paragraph(neutral(hypothesis.because), "dim", indent="    ")
    for number, paragraph in enumerate(paragraphs(hypothesis.why) if verbose else [short(hypothesis.why)]):
        page.labelled("" if number else "why", paragraph)
    for number, fix in enumerate(fix for fix in hypothesis.fixes if fix.source is None):
        page.labelled("or" if number else "fix", neutral(fix.title or fix.note))
    if verbose:
        for number, reference in enumerate(hypothesis.refs):
            page.verbatim("" if number else "read", neutral(reference), "dim")


def _place(hypothesis: Finding) -> Place:
    return hypothesis.place or Place()


def _notes(page: Page, result: Lint) -> None:
    """The comments that do nothing."""
    if result.notes:
        page.line(page.ink("unknown", f"Comments `# sysperf: ignore` without effect ({len(result.notes)})"))
        for note in result.notes:
            page.paragraph(f"? {neutral(note.file)}:{note.line}: {neutral(note.text)}", indent="  ")
        page.line()


def _unread(page: Page, result: Lint, verbose: bool) -> None:
    if not result.unread:
        return
    page.line(page.ink("unknown", f"Could not be examined ({len(result.unread)})"))
    for unread in result.unread if verbose else result.unread[:MAX_UNREAD]:
        place = f"{neutral(unread.file)}:{unread.line}" if unread.line else neutral(unread.file)
        page.paragraph(f"? {place}: {neutral(unread.reason)}", indent="  ")
    if len(result.unread) > MAX_UNREAD and not verbose:
        page.line(page.ink("dim", f"  and {count(len(result.unread) - MAX_UNREAD, 'more file')}; --verbose shows all"))
    mend = SYNTAX_HINT if any(unread.reason.startswith("not Python") for unread in result.unread) else ""
    page.paragraph(f"Next: {mend}{LEAVE_OUT}", "dim", indent="  ")
    page.line()


def _nothing(result: Lint) -> str:
    """What is said where there is no hit: of files that were not read nothing is known."""
    if not result.files:
        return "No Python file or notebook to read"
    return "Nothing is known" if result.unread and not result.lines else "Nothing to look at"


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number:,} lines"


def _foot(page: Page, result: Lint, verbose: bool) -> None:
    by = [
        f"{number} {severity}"
        for severity in SEVERITIES
        if (number := sum(hypothesis.severity == severity for hypothesis in result.hypotheses))
    ]
    sentence = f"{count(len(result.hypotheses), 'place')} to look at ({', '.join(by)})" if by else _nothing(result)
    page.paragraph(
        f"{sentence}: {count(result.rules, 'rule')} on {count(result.files, 'file')} of {_lines(result.lines)} "
        f"in {result.took_ms / 1e3:.1f} s"
        + (f"; {result.ignored} accepted" if result.ignored else "")
        + (f"; {result.unsure} less sure (--confidence low shows them)" if result.unsure else "")
        + (f"; {result.skipped} skipped (tests, builds; name them to read them)" if result.skipped else "")
        + (f"; {result.excluded} excluded" if result.excluded else "")
        + (f"; {count(result.undecided, 'check')} not decided by the source" if result.undecided and verbose else "")
        + "."
    )
    if result.hypotheses:
        page.paragraph("These are hypotheses: a trace (`sysperf analyze`) or a trial (`sysperf verify`) shows what a place costs.", "dim")
        fixable = sum(hypothesis.source_fix is not None for hypothesis in result.hypotheses)
        if fixable:
            page.paragraph(f"Next: `sysperf lint --fix` shows {count(fixable, 'change')} that it can make, as a diff.", "strong")
        else:
            page.paragraph(f"Next: sysperf explain {neutral(result.hypotheses[0].rule)}", "strong")
