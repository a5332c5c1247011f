"""Causes in rule files: what a witness takes from its cause, how both are named, and what explains what."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.evaluate.rule_files import read_causes, read_file
from sysperf.evaluate.ruleset import Ruleset, check_explanations, load
from sysperf.evaluate.schema import Schema
from sysperf.model.cause import Cause, Witness
from sysperf.model.errors import RuleError
from sysperf.model.rule import Override

SCHEMA = Schema({})
CAUSE = """
[[cause]]
id = "box.heavy"
title = "The box is heavy"
explain = "It weighs."
refs = ["https://example.org"]
fix = [
  { kind = "advice", by = "code", text = "carry less" },
  { kind = "advice", by = "code", text = "carry it in two turns", from = ["source"] },
]

[[cause.witness]]
from = "source"
severity = "hint"
when = "1 > 2"
message = "m"

[[cause.witness]]
from = "trace"
explain = "It bends."
severity = "warning"
when = "2 > 1"
message = "m"
params = { limit = 3 }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "box.toml"
    path.write_text(text)
    return path


def ruleset(folder: Path, text: str, scopes: tuple[str, ...] = ()) -> Ruleset:
    return load([written(folder, text)], SCHEMA, scopes=scopes)


def test_a_witness_is_a_rule_with_the_words_of_its_cause(tmp_path: Path) -> None:
    """What it explains itself stays its own; it offers the fixes that are for all witnesses, and those for it."""
    source, trace = read_file(written(tmp_path, CAUSE)).rule

    assert (source.id, source.key, source.scope) == ("box.heavy", "box.heavy#source", "script")
    assert (trace.id, trace.key, trace.scope) == ("box.heavy", "box.heavy#trace", "trace")
    assert (source.title, source.explain, len(source.fix)) == ("The box is heavy", "It weighs.", 2)
    assert (trace.title, trace.explain, len(trace.fix)) == ("The box is heavy", "It bends.", 1)
    assert source.refs == trace.refs == ("https://example.org",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CAUSE.replace('from = "trace"', 'from = "source"'), "box.heavy#source` is defined twice"),
        (CAUSE.replace('from = "trace"', 'from = "smell"'), "cause `box.heavy`"),
        (CAUSE.replace('title = "The box is heavy"\n', ""), "cause `box.heavy`"),
        (CAUSE.replace('id = "box.heavy"', 'id = "Box"'), "no rule id"),
    ],
)
def test_a_mistake_names_the_cause(tmp_path: Path, text: str, message: str) -> None:
    """Two witnesses of one source want names, a source is one of four."""
    with pytest.raises(RuleError, match=message):
        read_file(written(tmp_path, text))


def test_two_witnesses_of_one_source_have_names(tmp_path: Path) -> None:
    text = CAUSE.replace('from = "trace"', 'from = "source"\nname = "bent"')

    assert [rule.key for rule in read_file(written(tmp_path, text)).rule] == ["box.heavy#source", "box.heavy#source-bent"]


def test_a_cause_is_selected_overridden_and_disabled_whole(tmp_path: Path) -> None:
    """By its id all its witnesses, by a source those of it."""
    rules = ruleset(tmp_path, CAUSE)

    assert rules.matching("trace") == rules.matching("box") == {"box.heavy"}
    rules.override(Override("box.heavy", severity="error", params={"limit": 5}))
    assert {rules.compiled(rule.key).severity for rule in rules.rules} == {"error"}
    rules = ruleset(tmp_path, CAUSE)
    rules.override(Override("box.heavy", disabled=True))
    assert rules.rules == []


def test_what_is_left_out_is_known_by_name(tmp_path: Path) -> None:
    """An override of it is no mistake, one of a name that nobody has is."""
    rules = ruleset(tmp_path, CAUSE + CAUSE.replace("box.heavy", "box.light").partition('[[cause.witness]]\nfrom = "trace"')[0], ("trace",))

    assert ([rule.key for rule in rules.rules], rules.others) == (["box.heavy#trace"], frozenset({"box.light"}))
    rules.override(Override("box.light", disabled=True))
    with pytest.raises(RuleError, match=r"box\.lite"):
        rules.override(Override("box.lite", disabled=True))


def cause(name: str, *explains: str, where_most: tuple[str, ...] = ()) -> Cause:
    witness = Witness(from_="running", severity="info", when="True", message="m")
    return Cause(id=name, title="T", explain="e", explains=explains, explains_where_most=where_most, witness=(witness,))


def check(*causes: Cause) -> None:
    check_explanations([rule for each in causes for rule in each.rules()])


def test_what_explains_something_names_a_cause_and_goes_in_no_circle() -> None:
    """Two that see the same time from two sides may explain each other, where one is most of it."""
    check(cause("a.a", "b.b"), cause("b.b", "c.c"), cause("c.c", where_most=("a.a",)))
    with pytest.raises(RuleError, match=r"`a\.a` explains `b\.x`: no such cause"):
        check(cause("a.a", "b.x"), cause("b.b"))
    with pytest.raises(RuleError, match="no such cause"):
        check(cause("a.a", where_most=("b.x",)))
    with pytest.raises(RuleError, match=r"a\.a → b\.b → c\.c → a\.a"):
        check(cause("a.a", "b.b"), cause("b.b", "c.c"), cause("c.c", "a.a"))


def test_causes_are_read_as_they_are_written(tmp_path: Path) -> None:
    """`sysperf explain` tells them whole."""
    (written_cause,) = read_causes(written(tmp_path, CAUSE)).cause

    assert [witness.from_ for witness in written_cause.witness] == ["source", "trace"]
