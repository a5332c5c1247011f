"""Patterns of `matches`: refused when the time that they take is not bounded."""

from __future__ import annotations

import _ast as ast  # its syntax nodes alone: `ast` itself costs 1.5 ms
import re

from sysperf.model.errors import RuleError
from sysperf.startup import lazy

_GROUP_OPTION = lazy(r"\(\?")


def check_pattern(node: ast.expr) -> None:
    """A pattern is a constant whose time is bounded: no groups repeated that repeat or choose inside, no look-around."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise RuleError("the pattern of `matches` must be a constant text")
    pattern = node.value
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise RuleError(f"`{pattern[:60]}` is no regular expression: {error}") from None
    bare = re.sub(r"\[\^?\]?[^\]]*\]", "x", pattern)
    if _GROUP_OPTION.search(pattern.replace("(?:", "(").replace("(?i)", "")):
        raise RuleError(f"`{pattern[:60]}`: look-around and group options are not part of the condition language")
    if len(re.findall(r"[*+]|\{\d*,\d*\}", bare)) > 2 or _repeats_a_group(bare):
        raise RuleError(f"`{pattern[:60]}` could take too long: at most two repetitions, and none of a group that repeats or chooses")


def _repeats_a_group(bare: str) -> bool:
    inside: list[bool] = []
    for index, char in enumerate(bare):
        if char == "(":
            inside.append(False)
        elif char in "*+?{|" and inside:
            inside[-1] = True
        elif char == ")" and inside:
            risky = inside.pop()
            if risky and bare[index + 1 : index + 2] in ("*", "+", "{"):
                return True
            if inside and risky:
                inside[-1] = True
    return False
