"""A rule in words: `sysperf explain ID`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sysperf.model.experiment import EXPERIMENTS, STANDALONE
from sysperf.model.knob import KNOBS, SYSCTLS, SYSFS
from sysperf.model.rule import Advice, AnyFix, Env, Preload, Rule, SetKnob, Sysctl, Sysfs
from sysperf.model.statement import Statement
from sysperf.model.text import neutral
from sysperf.report.terminal import Ink, Page
from sysperf.report.words import MAX_TEXT, NEEDS, SAFETY, command, paragraphs

_TITLES = {
    "env": "start the program with other environment variables",
    "bind": "start the program bound to the right CPUs",
    "nvml": "change a GPU setting",
    "affinity": "let the process use more CPUs",
    "migrate-pages": "move its memory",
}


def render(rule: Rule, statements: Sequence[Statement] = (), *, color: bool, width: int) -> str:
    """What the rule looks at, why it matters, what to do, and who says so."""
    page = Page(Ink(color), width)
    page.paragraph(neutral(rule.id), "strong")
    page.paragraph(neutral(rule.title))
    page.paragraph(f"{rule.severity}, {rule.confidence} confidence, scope {rule.scope}, {neutral(rule.file)}".removesuffix(", "), "dim")
    for paragraph in paragraphs(rule.explain):
        page.line()
        page.paragraph(paragraph)
    for section in (_when(rule), _gain(rule)):
        page.line()
        for label, text in section:
            page.labelled(label, neutral(text, MAX_TEXT))
    for fix in rule.fix:
        page.line()
        _fix(page, fix)
    page.line()
    for number, ref in enumerate(rule.refs):
        page.verbatim("" if number else "sources", neutral(ref))
    for statement in statements:
        page.labelled("article", f"{statement.name}: {statement.says}: {statement.today} (`sysperf explain --seed {statement.ids[0]}`)")
    return str(page)


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
        least = f"less than {rule.measure.min_effect:.0%} would count as no gain"
        program = EXPERIMENTS.get(rule.measure.experiment, "")
        tries = f"`sysperf verify --fix {rule.id}`" if _is_tried(rule) else "`sysperf verify --a … --b …`, before and after"
        yield "measure", f"{tries}, with {f'the built-in {program} or ' if program else ''}a program of yours; {least}"


def _is_tried(rule: Rule) -> bool:
    """Whether `verify --fix` can do by itself what the rule advises, or has an experiment that tells whether it is worth it."""
    return any(not isinstance(fix, Advice) for fix in rule.fix) or bool(rule.measure and rule.measure.experiment in STANDALONE)


def _fix(page: Page, fix: AnyFix) -> None:
    parts = (SAFETY[fix.safety], NEEDS.get(fix.needs, ""), "results may change" if fix.numerics else "")
    text = getattr(fix, "text", "")
    page.labelled("fix", f"{neutral(fix.title or text or _what(fix), MAX_TEXT)} ({', '.join(part for part in parts if part)})")
    page.labelled("", neutral(text if fix.title else "", MAX_TEXT))
    for label, text in (("", _command(fix)), ("undo", getattr(fix, "undo", ""))):
        for number, line in enumerate(command(text)):
            page.verbatim("" if number else label, line, "command")
    source = _source(fix)
    if source:
        page.verbatim("source", source)
    page.labelled("note", neutral(fix.note, MAX_TEXT))


def _command(fix: AnyFix) -> str:
    """What a person would type; what depends on the machine stands in braces."""
    if isinstance(fix, Env):
        changed = (*(f"-u {name}" for name in fix.unset), *(f"{name}={value}" for name, value in fix.set.items()))
        return f"env {' '.join(changed)} python …"
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
    """Who documents the setting."""
    if isinstance(fix, Sysctl):
        return SYSCTLS[fix.key].source
    return KNOBS[fix.knob].source if isinstance(fix, Sysfs | SetKnob) else ""
