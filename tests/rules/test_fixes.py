"""What rules tell people to type: a shell takes it, its undo belongs to it, and the same act is equally safe wherever it is told."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sysperf.engine import judging
from sysperf.evaluate.ruleset import Compiled, Ruleset, read_file
from sysperf.evaluate.selftest import firing
from sysperf.model.errors import RuleError
from sysperf.model.outcome import Outcome
from sysperf.model.rule import Env, Rule

FILES = [Path(path) for path in judging.rule_files()]
SCHEMA = judging.schema()
RULESET = Ruleset([read_file(path) for path in FILES], SCHEMA)
RULES = [rule for path in FILES for rule in read_file(path).rule]


def findings() -> Iterator[tuple[Rule, Outcome]]:
    """Each rule's own examples that fire, as users would see them."""
    for rule in RULES:
        for outcome in firing(rule, RULESET, SCHEMA):
            yield rule, outcome


FOUND = list(findings())
REMEDIES = [(rule.id, remedy) for rule, outcome in FOUND for remedy in outcome.fixes]


def test_every_rule_has_an_example_that_fires() -> None:
    """What follows looks at the fixes of all rules, not of some."""
    assert {rule.id for rule, _ in FOUND} == {rule.id for rule in RULES}


def commands() -> list[tuple[str, str]]:
    return sorted({(rule, text) for rule, remedy in REMEDIES for text in (remedy.command, remedy.undo) if text})


def test_a_shell_takes_every_command_and_undo() -> None:
    """`bash -n` parses each as it is shown; no number in it is grouped, and quotes close."""
    texts = commands()
    refused = {
        rule: text for rule, text in texts if subprocess.run(["bash", "-n", "-c", text], check=False, capture_output=True).returncode
    }
    grouped = {rule: text for rule, text in texts if re.search(r"(?<![\d.])\d{1,3}(,\d{3})+(?!\d)(?![-,]\d)", text)}

    assert not refused
    assert not grouped
    for _, text in texts:
        shlex.split(text)


@pytest.mark.parametrize("filter_name", ["num", "bytes", "pct", "list", "ms"])
def test_a_rule_with_a_number_for_readers_in_a_command_is_refused(filter_name: str) -> None:
    """`nvidia-smi -pl 1,000` fails: such a rule does not load."""
    rule = next(rule for rule in RULES if rule.id == "gpu.power-limit-lowered")
    (fix,) = rule.fix
    broken = msgspec.structs.replace(rule, fix=(msgspec.structs.replace(fix, command=f"x {{gpu.index|{filter_name}}}"),))

    with pytest.raises(RuleError, match="in a command"):
        Compiled(broken, SCHEMA).check()


def test_an_undo_takes_back_what_the_command_did() -> None:
    """An undo without a command undoes nothing; it names the same GPU or environment."""
    for rule, remedy in REMEDIES:
        if remedy.undo and remedy.kind == "advice":
            assert remedy.command, rule
            assert all(thing in remedy.undo for thing in _things(remedy.command)), (rule, remedy)


def _things(text: str) -> list[str]:
    """The GPUs and environments that a command names."""
    return re.findall(r"-i (\S+:\S+)", text) + re.findall(r"(\S+)/bin/python3 -m pip install", text)


def acts(rule: Rule) -> Iterator[tuple[str, str, bool]]:
    """(what is done, how safe it is, whether results may change) for each variable that a rule sets or clears."""
    for fix in rule.fix:
        if isinstance(fix, Env):
            yield from ((f"set {name}", fix.safety, fix.numerics) for name in fix.set)
            yield from ((f"unset {name}", fix.safety, fix.numerics) for name in fix.unset)


def test_the_same_act_is_equally_safe_in_every_rule() -> None:
    """Who reads that OMP_WAIT_POLICY is safe in one rule and risky in another believes neither.

    `sysperf wrap` starts a program anew and never changes one: its own rules say `safe` of what is its purpose.
    """
    told: dict[str, dict[tuple[str, bool], list[str]]] = defaultdict(lambda: defaultdict(list))
    for rule in RULES:
        if rule.scope != "launch":
            for what, safety, numerics in acts(rule):
                told[what][safety, numerics].append(rule.id)

    assert {what: dict(ways) for what, ways in told.items() if len(ways) > 1} == {}


def test_patterns_take_the_worst_text_in_little_time() -> None:
    """Each pattern of a `matches`, against texts made to fail late: long runs of its own characters with a wrong end."""
    patterns = {found for rule in RULES for text in _conditions(rule) for found in re.findall(r"matches\([^']*'([^']+)'\)", text)}
    assert patterns
    for pattern in patterns:
        compiled = re.compile(pattern)
        words = [word for word in re.split(r"[^\w/.:-]+", pattern) if word] or ["a"]
        start = time.process_time()
        for word in words:
            compiled.search(word * (4096 // len(word)) + "\0")
            compiled.search("".join(word[:1] * 2000 + word[-1:] * 2000) + "\0")
        assert time.process_time() - start < 0.5, pattern


def _conditions(rule: Rule) -> tuple[str, ...]:
    return rule.applies, rule.when, rule.for_each, *(guard.when for guard in rule.unless)
