"""What rules give people to paste: commands that a shell can read, undos that belong to them, patterns that end soon."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import time
from collections.abc import Iterator

import pytest

from sysperf.engine import judging
from sysperf.evaluate.acts import acts_of
from sysperf.evaluate.fix_check import check_fix
from sysperf.evaluate.functions import MAX_TEXT
from sysperf.evaluate.syntax import parse
from sysperf.model.errors import RuleError
from sysperf.model.rule import Advice, Rule
from tests.shipped import rules

RULES = rules()
ADVICE = [(rule, fix) for rule in RULES for fix in rule.fix if isinstance(fix, Advice) and fix.command]
_BLANK = re.compile(r"\{\{|\}\}|\{[^{}]+\}")
_PROSE = ("start it ", "restart", "srun without", "sbatch without")
"""How an undo begins that is an advice and no command."""


def filled(template: str) -> str:
    """The text with each blank filled by a value that a shell has to be protected from."""
    return _BLANK.sub(lambda blank: blank[0][0] if blank[0] in ("{{", "}}") else shlex.quote("it's; $(reboot)"), template)


def test_a_shell_can_read_every_command_and_undo() -> None:
    """A quotation that is not closed, or a blank inside quotes, would run something else than what is shown."""
    texts = [filled(text) for _, fix in ADVICE for text in (fix.command, "" if fix.undo.startswith(_PROSE) else fix.undo) if text]
    assert len(texts) > 100
    for text in texts:
        done = subprocess.run(["/bin/bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), text


def test_no_command_leaves_out_what_only_its_reader_knows() -> None:
    """What stands for the rest of a command line is pasted with it: such options are said in words."""
    assert [(rule.id, fix.command) for rule, fix in ADVICE if "…" in fix.command or "..." in fix.command] == []


@pytest.mark.parametrize("command", ["pip install 'torch=={minor(env.version)}.*'", 'echo "{env.prefix}"', "a 'b' \"{x}\"", "a \\' '{x}'"])
def test_a_blank_inside_of_quotes_is_refused(command: str) -> None:
    """A value is quoted when it is filled in; inside of other quotes its own would end them, and a shell would run the rest."""
    with pytest.raises(RuleError, match="inside of quotes"):
        check_fix(Advice(by="command", command=command))


def test_a_blank_of_several_words_is_refused() -> None:
    """It is quoted as one word, and the shell looks for a program of that name."""
    with pytest.raises(RuleError, match="several words"):
        check_fix(Advice(by="command", command="{'nvidia-smi -q' if x else 'amd-smi'} {y}"))


@pytest.mark.parametrize("command", ["grep '^nvidia-' {x}", "a 'it' {x} \"y\"", "awk '{{print}}' {x}", "echo \\' {x}"])
def test_a_blank_beside_quotes_is_right(command: str) -> None:
    check_fix(Advice(by="command", command=command))


def test_an_undo_takes_back_its_command() -> None:
    """It names something that the command names, and reads no file that the command has not written."""
    for rule, fix in ADVICE:
        if not fix.undo or fix.undo.startswith(_PROSE):
            continue
        done, undone = words(fix.command), words(fix.undo)
        assert done & undone - {"sudo"}, f"{rule.id}: `{fix.undo}` has nothing to do with `{fix.command}`"
        for file in re.findall(r"(?:install .*-r|<) (\S+)", fix.undo):
            assert re.search(rf"> ?{re.escape(file)}", fix.command), f"{rule.id}: the undo reads {file}, which nothing writes"


def words(command: str) -> set[str]:
    return set(re.split(r"[\s;|&<>()=/]+", _BLANK.sub("X", command))) - {""}


# ---------------------------------------------------------------------- patterns


def conditions(rule: Rule) -> Iterator[str]:
    yield from (text for text in (rule.applies, rule.when, *(guard.when for guard in rule.unless)) if text)
    if rule.for_each:
        yield rule.for_each.partition(" in ")[2]


def patterns() -> list[tuple[str, str]]:
    """(rule, pattern) of each `matches` in a condition."""
    listed = []
    for rule in RULES:
        for text in conditions(rule):
            for node in ast.walk(parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "matches":
                    assert isinstance(node.args[1], ast.Constant)
                    listed.append((rule.id, str(node.args[1].value)))
    return listed


def hostile(pattern: str) -> Iterator[str]:
    """Long texts that nearly match: what the pattern repeats, over and over, without an end that fits."""
    letters = dict.fromkeys([*(char for char in pattern if char not in r"()[]{}*+?|^$"), "a", "0", "/", " ", ","])
    yield from (char * MAX_TEXT for char in letters)
    words_of = [word for word in re.split(r"[()|*+?^$\[\]{}.:,]+", pattern) if word]
    yield from ((word * MAX_TEXT)[: MAX_TEXT - 1] + "\x00" for word in words_of)
    yield "".join(letters) * (MAX_TEXT // len(letters))


def test_the_worst_text_for_a_pattern_takes_it_no_time() -> None:
    """Each pattern meets texts made against it; processor time, not the clock: 0.2 s is a hundred times what any of them needs."""
    texts = patterns()
    assert len(texts) > 30
    for rule, pattern in sorted(set(texts)):
        compiled = re.compile(pattern)
        for text in hostile(pattern):
            start = time.process_time()
            compiled.search(text)
            assert time.process_time() - start < 0.2, f"{rule}: {pattern!r} on {text[:40]!r}…"


# ---------------------------------------------------------------------- acts


def test_every_typed_act_of_a_rule_agrees_with_the_table() -> None:
    """The same act is not `safe` in one rule and `caution` in the next: loading checks each fix against rules/acts.toml."""
    ruleset = judging.load_rules()
    acts = ruleset.tables["acts"]

    for rule in RULES:
        ruleset.compiled(rule.key).check()
        if rule.scope == "launch":
            continue
        for fix in rule.fix:
            assert isinstance(fix, Advice) or all(name in acts for name in acts_of(fix)), f"{rule.id}: add its act to rules/acts.toml"


@pytest.mark.parametrize("command", ["nvidia-smi -pl {p.watts|num}", "x {p.watts | num}"])
def test_a_grouped_number_in_a_command_is_refused(command: str) -> None:
    """`nvidia-smi -pl 1,000` fails."""

    for fix in (Advice(by="command", command=command), Advice(by="command", command="x", undo=command)):
        with pytest.raises(RuleError, match="groups the digits"):
            check_fix(fix)
    check_fix(Advice(by="command", command="nvidia-smi -pl {p.watts|plain}", text="{p.watts|num} W"))
