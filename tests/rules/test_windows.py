"""Rules about what running programs do now: they look at windows, and what holds in one window is no finding of the agent's yet."""

from __future__ import annotations

import re

import pytest

from sysperf.collect.process.records import Process
from sysperf.collect.process.window import Window, over
from sysperf.model.record import plain
from sysperf.model.rule import Rule
from tests.shipped import rules

PROGRAM = Process(pid=7, ppid=1, name="python")
COMMON = {"window_s", "children.started"}
"""Facts of a window that no rule judges by themselves."""
NAMED = re.compile(r"\b(?:proc|one)\.([\w.]+)")


def leaves(value: object, path: str = "") -> dict[str, object]:
    """Each fact by its path."""
    if not isinstance(value, dict):
        return {path: value}
    return {leaf: fact for name, part in value.items() for leaf, fact in leaves(part, f"{path}.{name}".lstrip(".")).items()}


def windowed() -> set[str]:
    """The facts that a window changes."""
    full = Window(**dict.fromkeys(Window.__struct_fields__, 1))
    before, after = leaves(plain(PROGRAM)), leaves(plain(over(PROGRAM, full)))
    return {path for path in after if after[path] != before.get(path)} - COMMON


WINDOWED = windowed()
RULES = [rule for rule in rules() if rule.scope == "process"]


def windowed_facts(rule: Rule) -> set[str]:
    """The facts of a window that its conditions name."""
    return WINDOWED.intersection(NAMED.findall(f"{rule.applies} {rule.when}"))


@pytest.mark.parametrize("rule", [rule for rule in RULES if windowed_facts(rule)], ids=lambda rule: rule.id)
def test_a_rule_about_a_window_holds_for_several(rule: Rule) -> None:
    """A validation, a checkpoint or an import lasts for one window of the agent's, and is no illness."""
    assert rule.hold is not None
    assert rule.hold.samples >= 2
    assert rule.hold.window_s >= 30.0


def test_there_are_such_rules() -> None:
    assert len([rule for rule in RULES if windowed_facts(rule)]) >= 15
