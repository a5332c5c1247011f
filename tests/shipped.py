"""The rules that sysperf ships, read once for all tests of one process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from sysperf.engine import judging
from sysperf.evaluate.rule_files import read_file
from sysperf.evaluate.ruleset import Ruleset
from sysperf.model.rule import Rule, RuleFile

FILES = tuple(Path(path) for path in judging.rule_files())


@cache
def rule_files() -> dict[Path, RuleFile]:
    """What each file holds, with the tests inside."""
    return {path: read_file(path) for path in FILES}


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, file by file."""
    return tuple(rule for file in rule_files().values() for rule in file.rule)


@cache
def ruleset() -> Ruleset:
    """All rules, ready to judge with."""
    return Ruleset(list(rule_files().values()), judging.schema())
