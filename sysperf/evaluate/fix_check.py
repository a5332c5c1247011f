"""What a fix of a rule may be: our settings within their ranges, and commands that a shell takes."""

from __future__ import annotations

from collections.abc import Mapping

from sysperf.evaluate.schema import suggest
from sysperf.model.errors import RuleError
from sysperf.model.knob import SETTABLE, SYSCTLS, SYSFS, Knob
from sysperf.model.rule import Advice, Fix, SetKnob, Sysctl, Sysfs
from sysperf.startup import lazy

_GROUPED = lazy(r"\{[^{}]*\|\s*num\s*\}")
_BLANK, _LITERAL = lazy(r"\{([^{}]+)\}"), lazy(r"'([^']*)'")
_QUOTE_OR_BLANK = lazy(r"\\.|\{\{|\{[^{}]*\}|['\"]")


def check_fix(fix: Fix) -> None:
    """A fix chooses among our knobs and stays within their ranges; only a person runs a command."""
    if isinstance(fix, Sysctl):
        _check_knob(fix.key, fix.value, SYSCTLS, "sysctl")
    if isinstance(fix, Sysfs):
        _check_knob(fix.knob, fix.value, SYSFS, "sysfs knob")
        _check_item(fix, SYSFS[fix.knob])
    if isinstance(fix, SetKnob):
        _check_knob(fix.knob, fix.value, SETTABLE, "setting")
        _check_item(fix, SETTABLE[fix.knob])
    if isinstance(fix, Advice):
        _check_commands(fix)
    if isinstance(fix, Advice) and fix.safety == "safe":
        raise RuleError("advice is done by a person: its safety is `manual` or `caution`")
    if fix.numerics and fix.safety == "safe":
        raise RuleError("a fix that can change results is never `safe`")


def _check_commands(fix: Advice) -> None:
    """A command is pasted into a shell: a number in it is written plainly, and only what has a command can be taken back by one."""
    for name in ("command", "undo"):
        if _GROUPED.search(getattr(fix, name)):
            raise RuleError(f"`{name}` groups the digits of a number: no program takes 1,000", "leave `|num` out")
        if _quoted_blank(getattr(fix, name)):
            raise RuleError(f"`{name}` has a blank inside of quotes, which the quotes of its value would end", "put the blank outside")
        if _several_words(getattr(fix, name)):
            raise RuleError(f"`{name}` has a blank of several words, which is quoted as one", "write two fixes, each with its `when`")
    if fix.undo and not fix.command:
        raise RuleError("`undo` takes back a command, and there is none")


def _several_words(command: str) -> bool:
    """Whether a blank can be filled by a text with a space, which a shell is then given as one word."""
    return any(" " in literal for blank in _BLANK.findall(command) for literal in _LITERAL.findall(blank))


def _quoted_blank(command: str) -> bool:
    """Whether a blank stands where a shell reads a quotation."""
    quote = ""
    for part in _QUOTE_OR_BLANK.findall(command):
        if part[0] == "{":
            if quote and part not in ("{{", "}}"):
                return True
        elif part[0] != "\\" and quote in ("", part):
            quote = "" if quote else part
    return False


def _check_item(fix: Sysfs | SetKnob, knob: Knob) -> None:
    if knob.per_item != bool(fix.item):
        raise RuleError(f"`{knob.name}` {'needs' if knob.per_item else 'takes no'} `item`")


def _check_knob(name: str, value: str | int, knobs: Mapping[str, Knob], what: str) -> None:
    if name not in knobs:
        raise RuleError(f"`{name}` is no {what} that sysperf may change{suggest(name, knobs)}", f"it may change {', '.join(knobs)}")
    if not knobs[name].accepts(value):
        raise RuleError(f"{value!r} is no value that `{name}` may be set to")
