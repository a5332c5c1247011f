"""A rule in words: `sysperf explain ID`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from sysperf.model.knob import SYSCTLS, SYSFS
from sysperf.model.rule import AnyFix, Rule, Sysctl, Sysfs


def render(rule: Rule, *, color: bool, width: int) -> str:
    """What the rule looks at, why it matters, what to do, and who says so."""
    bold, end = ("\x1b[1m", "\x1b[0m") if color else ("", "")
    lines = [f"{bold}{rule.id}{end}  {rule.title}", f"{rule.severity}, confidence {rule.confidence}, scope {rule.scope}, {rule.file}", ""]
    for paragraph in rule.explain.strip().split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), width), ""]
    for title, section in (("When", _when(rule)), ("Fix", _fixes(rule)), ("Gain", _gain(rule)), ("Sources", iter(rule.refs))):
        wrapped = [line for text in section for line in textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)]
        lines += [f"{bold}{title}{end}", *wrapped, ""] if wrapped else []
    return "\n".join(lines).rstrip()


def _when(rule: Rule) -> Iterator[str]:
    if rule.for_each:
        yield f"for each {rule.for_each}"
    if rule.applies:
        yield f"applies where  {rule.applies}"
    yield f"reported when  {rule.when}"
    for guard in rule.unless:
        yield f"not when  {guard.when}  ({guard.because})"
    for name, value in rule.params.items():
        yield f"p.{name} = {value}  (a site can override it)"


def _fixes(rule: Rule) -> Iterator[str]:
    for fix in rule.fix:
        parts = [fix.title or _what(fix), getattr(fix, "text", ""), getattr(fix, "command", ""), fix.note]
        needs = f", needs {fix.needs}" if fix.needs else ""
        numerics = ", may change results" if fix.numerics else ""
        yield f"{fix.safety}{needs}{numerics}: {'; '.join(part for part in parts if part)}"


def _what(fix: AnyFix) -> str:
    if isinstance(fix, Sysctl):
        return f"set {fix.key} to {fix.value} ({SYSCTLS[fix.key].source})"
    if isinstance(fix, Sysfs):
        return f"set {fix.knob} to {fix.value} in {SYSFS[fix.knob].path}"
    return {
        "env": "start the program with other environment variables",
        "preload": "preload an allocator",
        "bind": "start the program bound to the right CPUs",
        "nvml": "change a GPU setting",
        "affinity": "let the process use more CPUs",
        "migrate-pages": "move its memory",
    }.get(str(type(fix).__struct_config__.tag), "")


def _gain(rule: Rule) -> Iterator[str]:
    if rule.impact:
        claim = f": {rule.impact.claim}" if rule.impact.claim else ""
        cite = f" ({rule.impact.cite})" if rule.impact.cite else ""
        yield f"{rule.impact.metric}, {rule.impact.basis}{claim}{cite}; unmeasured on this machine until you measure it"
    if rule.measure:
        yield f"can be tested by the experiment {rule.measure.experiment}; below {rule.measure.min_effect:.0%} it is called no gain"
