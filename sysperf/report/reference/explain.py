"""A rule or a cause in words: `sysperf explain ID`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from sysperf.model import experiment
from sysperf.model.cause import Cause, Example, Explained, Witness
from sysperf.model.finding import Start
from sysperf.model.knob import KNOBS, SYSCTLS, SYSFS
from sysperf.model.rule import Advice, AnyFix, Env, Preload, Rule, SetKnob, Sysctl, Sysfs
from sysperf.model.statement import Statement
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page
from sysperf.report.words import MAX_TEXT, NEEDS, SAFETY, SOURCES, command, page_of, paragraphs

MAX_EDGES = 10
BEFORE_AND_AFTER = "`sysperf verify --a 'BEFORE' --b 'AFTER'`: your program's command as it is, and as advised"
_TITLES = {
    "env": "start the program with other environment variables",
    "bind": "start the program bound to the right CPUs",
    "nvml": "change a GPU setting",
    "affinity": "let the process use more CPUs",
    "migrate-pages": "move its memory",
}


def render(what: Rule | Explained, statements: Sequence[Statement] = (), *, color: bool, width: int, verbose: bool = False) -> str:
    """What an id names, in words, and the articles' statements about it; with `verbose`, also the conditions under which it is reported."""
    if isinstance(what, Rule):
        text = _rule(what, color=color, width=width, verbose=verbose)
    else:
        text = _cause(what.cause, what.because_of, color=color, width=width, verbose=verbose)
    return text + _articles(statements, color=color, width=width)


def own(name: str, text: str, *, color: bool, width: int) -> str:
    """What a finding means that no rule makes, such as a waiver without effect."""
    page = Page(Ink(color), width)
    page.line(page.ink("strong", name))
    _body(page, text)
    return str(page)


def _articles(statements: Sequence[Statement], *, color: bool, width: int) -> str:
    """What the articles say of it; "" where they say nothing."""
    page = Page(Ink(color), width)
    for statement in statements:
        page.labelled("article", f'{statement.name}: "{statement.says}": {statement.verdict} (`sysperf explain --seed {statement.ids[0]}`)')
    return str(page) if statements else ""


def _rule(rule: Rule, *, color: bool, width: int, verbose: bool) -> str:
    """Why it matters, what to do, what that gains and who says so."""
    page = Page(Ink(color), width)
    _head(page, rule.id, rule.title, f"{rule.severity}, {rule.confidence} confidence, scope {rule.scope}, {rule.file}".removesuffix(", "))
    _body(page, rule.explain)
    for fix in rule.fix:
        page.line()
        _fix(page, fix)
    _labels(page, _gain(rule))
    if verbose:
        _labels(page, _when(rule))
    _sources(page, rule.id, rule.refs)
    return str(page)


def _cause(cause: Cause, because_of: Sequence[str], *, color: bool, width: int, verbose: bool) -> str:
    """The story of a cause: what it is, where it shows, what to do, what that gains, and what is its consequence."""
    page = Page(Ink(color), width)
    _head(page, cause.id, cause.title, f"shows in: {', '.join(dict.fromkeys(_FROM[witness.from_][0] for witness in cause.witness))}")
    _body(page, cause.explain)
    for witness, rule in zip(cause.witness, cause.rules(), strict=True):
        page.line()
        _witness(page, witness, rule, verbose=verbose)
    for fix in _once(cause.fix):
        page.line()
        _fix(page, fix)
    if cause.example is not None:
        _example(page, cause.example)
    gains = dict.fromkeys(label for rule in cause.rules() for label in _gain(rule))
    _labels(page, [*gains, *_told_by_others(cause, {label for label, _ in gains})])
    edges = (
        ("explains", ", ".join((*cause.explains, *cause.explains_where_most)), "consequences: left out where this one shows"),
        ("caused by", ", ".join(because_of) if verbose else _first(because_of), "where one of these shows, it is named instead"),
    )
    _labels(page, [(label, f"{ids} ({meaning})") for label, ids, meaning in edges if ids])
    _sources(page, cause.id, cause.refs)
    return str(page)


def _told_by_others(cause: Cause, told: Collection[str]) -> Iterator[tuple[str, str]]:
    """Name who tells the gain and how it is measured, where the cause itself does not: a command's answer is about a program of yours."""
    looks = {witness.from_: _FROM[witness.from_][1] for witness in cause.witness if witness.cost}
    if "gain" not in told and any(witness.predict for witness in cause.witness):
        yield "gain", "`sysperf analyze` replays the step of your program without this, and predicts it"
    elif "gain" not in told and cause.fix and looks:
        yield "gain", f"`sysperf {next(iter(looks.values()))}` says what it costs your program, and what of that can be gained"
    is_lost = bool(looks) or any(witness.predict or witness.from_ == "source" for witness in cause.witness)
    if "measure" not in told and is_lost and any(isinstance(fix, Advice) and fix.by == "code" for fix in cause.fix):
        yield "measure", BEFORE_AND_AFTER


def _first(ids: Sequence[str]) -> str:
    """The first of many ids, and how many more there are."""
    left = len(ids) - MAX_EDGES
    return ", ".join(ids) if left <= 1 else f"{', '.join(ids[:MAX_EDGES])}, and {left} more, which --verbose shows"


_FROM = {
    "source": ("source code", "lint"),
    "machine": ("this machine or shell", "audit"),
    "outside": ("a process seen from outside", "audit"),
    "running": ("a running program", "diagnose"),
    "trace": ("a trace", "analyze"),
}
"""From where a witness looks, in words, and the command that looks."""


def _witness(page: Page, witness: Witness, rule: Rule, *, verbose: bool) -> None:
    """One place where the cause shows: what is seen there, by which command, and in a running program by which observations."""
    page.labelled(witness.from_, f"`sysperf {_FROM[witness.from_][1]}`, {rule.severity}: {neutral(_blanks(witness.message), MAX_TEXT)}")
    for paragraph in paragraphs(witness.explain):
        page.labelled("", paragraph)
    for signal in witness.signals:
        stand = f"{'against' if signal.against else 'for'}, by {SOURCES.get(signal.source, signal.source)}"
        page.labelled("", f"{stand}: {neutral(_blanks(signal.says), MAX_TEXT)}", "dim")
    for label, text in _when(rule) if verbose else ():
        page.labelled(label, neutral(text, MAX_TEXT), "dim")


def _once(fixes: Sequence[AnyFix]) -> list[AnyFix]:
    """Each fix once: those that differ in what a finding fills in are printed alike."""
    shown: dict[object, AnyFix] = {}
    for fix in fixes:
        shown.setdefault((fix.title, _blanks(getattr(fix, "text", "")), _blanks(_command(fix)), _what(fix)), fix)
    return list(shown.values())


def _example(page: Page, example: Example) -> None:
    for label, code in (("slow", example.bad), ("better", example.good)):
        page.line()
        for number, line in enumerate(code.strip("\n").split("\n")):
            page.verbatim("" if number else label, neutral(line), "command" if label == "better" else "plain")


def _head(page: Page, name: str, title: str, facts: str) -> None:
    page.paragraph(neutral(name), "strong")
    page.paragraph(neutral(title))
    page.paragraph(neutral(facts), "dim")


def _body(page: Page, text: str) -> None:
    for paragraph in paragraphs(text):
        page.line()
        page.paragraph(paragraph)


def _labels(page: Page, labelled: Iterable[tuple[str, str]]) -> None:
    page.line()
    for label, text in labelled:
        page.labelled(label, neutral(text, MAX_TEXT))


def _sources(page: Page, rule: str, refs: Sequence[str]) -> None:
    page.line()
    if address := page_of(rule):
        page.verbatim("page", address)
    for number, ref in enumerate(refs):
        page.verbatim("" if number else "sources", neutral(ref))


def _when(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.for_each:
        yield "for each", rule.for_each
    if rule.applies:
        yield "applies", rule.applies
    yield "reported", rule.when
    for guard in rule.unless:
        yield "not when", f"{guard.when} ({guard.because})"
    for name, value in rule.params.items():
        yield "limit", f"p.{name} = {value} (a site can override it)"


def _gain(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.impact:
        claim = f": {rule.impact.claim}" if rule.impact.claim else ""
        cite = f" ({rule.impact.cite})" if rule.impact.cite else ""
        yield (
            "gain",
            f"{rule.impact.metric}, {rule.impact.basis.replace('-', ' ')}{claim}{cite}; unmeasured on this machine until you measure it",
        )
    if rule.measure:
        yield "measure", f"{_how_to_measure(rule)}; less than {rule.measure.min_effect:.0%} would count as no gain"


def _how_to_measure(rule: Rule) -> str:
    """Return the command that tells whether it is worth to do what the rule advises."""
    if experiment.choice(rule):
        return f"`sysperf tune --fix {rule.id} -- COMMAND`"
    named = rule.measure.experiment if rule.measure else ""
    by = {fix.by if isinstance(fix, Advice) else "" for fix in rule.fix}
    if "" in by:
        program = experiment.EXPERIMENTS.get(named, "")
        built_in = f"by the built-in {program}, or " if program else ""
        return f"`sysperf verify --fix {rule.id}` {built_in}with `-- COMMAND` by a program of yours"
    if named == experiment.COPIES:
        return f"`sysperf verify --fix {rule.id}`"
    if by == {"code"} or rule.scope in ("launch", "process"):
        return BEFORE_AND_AFTER
    if "environment" in by:
        return "`sysperf verify --env OLD --env NEW -- COMMAND`: the interpreters of both environments"
    group = experiment.BANDWIDTHS.get(named, "")
    ceilings = f"sysperf bench host{f' --only {group}' if group else ''}"
    return (
        f"`{ceilings} --json --output before.json` before it is done, `{ceilings} --compare before.json` after: the machine changes, "
        "so that runs of a program cannot take turns"
    )


def _fix(page: Page, fix: AnyFix) -> None:
    parts = (SAFETY[fix.safety], NEEDS.get(fix.needs, ""), "results may change" if fix.numerics else "")
    text = getattr(fix, "text", "")
    page.labelled("fix", f"{neutral(_blanks(fix.title or text or _what(fix)), MAX_TEXT)} ({', '.join(part for part in parts if part)})")
    page.labelled("", neutral(_blanks(text) if fix.title else "", MAX_TEXT))
    for label, text in (("", _command(fix)), ("undo", getattr(fix, "undo", ""))):
        for number, line in enumerate(command(_blanks(text))):
            page.verbatim("" if number else label, line, "command")
    page.labelled("undo", neutral(_blanks(getattr(fix, "undo_text", "")), MAX_TEXT))
    source = _source(fix)
    if source:
        page.verbatim("source", source)
    page.labelled("note", neutral(_blanks(fix.note), MAX_TEXT))


def _blanks(template: str) -> str:
    """A text with … for what a finding fills in, or with what stands there where that is unknown, or one of the texts to choose from."""

    def filled(blank: re.Match[str]) -> str:
        texts: list[str] = _TEXT.findall(blank[0])
        if len(texts) == 2 and abs(len(texts[0]) - len(texts[1])) == 1 and {f"{texts[0]}s", f"{texts[1]}s"} & {*texts}:
            return texts[1]  # one of them, or several
        return " or ".join(texts) if texts and all(text == text.strip() for text in texts) else "…"  # others are parts of a sentence

    return re.sub(r"(?<=…)…+|(?<=[.]) …+[.]$", "", re.sub(r"\{[^{}]*\}", filled, template))


_TEXT = re.compile(r"(?:\{|, |else )'([^']{4,})'(?= if |\)\}|\})")
"""A text of an expression that is printed: the default, or a branch of a choice."""


def _command(fix: AnyFix) -> str:
    """What a person would type."""
    if isinstance(fix, Env):
        return Start(fix.set, fix.unset).command()
    return str(getattr(fix, "command", ""))


def _what(fix: AnyFix) -> str:
    if isinstance(fix, Preload):
        return f"preload {fix.library}"
    if isinstance(fix, Sysctl):
        return f"set {fix.key} to {fix.value}"
    if isinstance(fix, Sysfs):
        return f"set {fix.knob} to {fix.value} in {SYSFS[fix.knob].path}"
    if isinstance(fix, SetKnob):
        return f"set {fix.knob} to {fix.value}"
    return _TITLES.get(str(type(fix).__struct_config__.tag), "")


def _source(fix: AnyFix) -> str:
    """Return who documents the setting."""
    if isinstance(fix, Sysctl):
        return SYSCTLS[fix.key].source
    return KNOBS[fix.knob].source if isinstance(fix, Sysfs | SetKnob) else ""
