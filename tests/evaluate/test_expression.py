"""The condition language: three-valued, checked when loaded, bounded, without side effects."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.evaluate.expression import compile_expression
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.schema import Schema
from sysperf.evaluate.scope import MAX_STEPS, Scope
from sysperf.evaluate.syntax import names_in
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import RuleError

from .conftest import SCHEMA, Box, Disk, evaluate

UNKNOWN_BOX = Box()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("box.swappiness > 10", True),
        ("box.swappiness > 10 and box.busy", False),
        ("not box.busy", True),
        ("10 < box.swappiness <= 60", True),
        ("box.swappiness * 2 - 20 == 100", True),
        ("box.swappiness // 7 % 5", 3),
        ("'on' if box.busy else 'off'", "off"),
        ("box.mode in ['always', 'madvise']", True),
        ("box.env.OMP_NUM_THREADS == '4'", True),
        ("box.env.NOT_SET == ''", True),
        ("box.env['OMP_NUM_THREADS'] != ''", True),
        ("'OMP_NUM_THREADS' in box.env", True),
        ("int(box.env.OMP_NUM_THREADS) > 2", True),
        ("len(box.allowed) == 4 and 3 in box.allowed", True),
        ("overlaps(box.allowed, cpus('3-9'))", True),
        ("within(box.allowed, cpus('0-3'))", True),
        ("any(d.rotational for d in box.disks)", True),
        ("all(d.rotational for d in box.disks)", False),
        ("count(d.rotational for d in box.disks)", 1),
        ("len([d.name for d in box.disks if d.queue > 100])", 1),
        ("max(d.queue for d in box.disks)", 256),
        ("box.disks[1].name", "sdb"),
        ("matches(box.mode, '^mad')", True),
        ("ver('580.65.06') > ver('575.9') and major('13.0') == '13' and minor('2.13.0+cpu') == '2.13'", True),
        ("round(box.share, 1)", 0.3),
        ("unique([1, 1, 2])", (1, 2)),
        ("assigned(box.env, 'NOT_SET', 'OMP_NUM_THREADS')", ("OMP_NUM_THREADS=4",)),
        ("known(box.mode) and not known(other.mode)", True),
        ("default(other.mode, 'x')", "x"),
    ],
)
def test_values(text: str, value: Any) -> None:
    """Known facts give plain answers."""
    box = Box(
        swappiness=60,
        share=0.25001,
        mode="madvise",
        busy=False,
        allowed=CpuSet.parse("0-3"),
        disks=(Disk("sda", True, 64), Disk("sdb", False, 256)),
        env={"OMP_NUM_THREADS": "4"},
    )

    assert evaluate(text, box=box, other=UNKNOWN_BOX) == value


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("box.busy and False", False),
        ("False and box.busy", False),
        ("box.busy or True", True),
        ("box.busy or False", None),
        ("box.busy and True", None),
        ("not box.busy", None),
        ("box.swappiness == 0", None),
        ("box.swappiness < 1 < 0", False),
        ("box.swappiness + 1", None),
        ("1 if box.busy else 2", None),
        ("any(d.rotational for d in box.disks)", None),
        ("box.mode in ['a', 'b']", None),
        ("1 in [1, box.swappiness]", True),
        ("2 in [1, box.swappiness]", None),
        ("box.env.X == ''", None),
        ("len(box.disks)", None),
        ("table('t', box.mode, 'd')", None),
    ],
)
def test_unknown_is_neither_true_nor_false(text: str, answer: bool | None) -> None:
    """Kleene's logic: an unknown decides nothing, and nothing that it cannot change is unknown."""
    value = evaluate(text, box=UNKNOWN_BOX)

    assert isinstance(value, Unknown) if answer is None else value is answer


def test_an_unknown_names_its_facts() -> None:
    """All facts that were needed and are not known are named, with what they are read from."""
    value = evaluate("box.swappiness > 1 and box.mode == 'x'", box=UNKNOWN_BOX)

    assert set(value.facts) == {"box.swappiness", "box.mode"}
    assert value.reads["box.mode"] == ("/sys/mode",)


def test_any_with_one_known_true_is_true() -> None:
    """One disk that spins is enough, whatever the others are."""
    box = Box(disks=(Disk("a"), Disk("b", True)))

    assert evaluate("any(d.rotational for d in box.disks)", box=box) is True
    assert isinstance(evaluate("all(d.rotational for d in box.disks)", box=box), Unknown)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("int('four') > 1", "invalid literal"),
        ("1 / 0 > 1", "division by zero"),
        ("ver('abc') > ver('1')", "not a version"),
        ("cpus('x')", "not a CPU number"),
        ("table('none', 'x')", "has no entry"),
    ],
)
def test_what_cannot_be_computed_is_unknown(text: str, says: str) -> None:
    """A value that makes no sense is an unknown with a reason, never an exception."""
    value = evaluate(text, box=UNKNOWN_BOX)

    assert isinstance(value, Unknown)
    assert says in " ".join(value.facts.values())


def test_tables_are_looked_up() -> None:
    """A data table answers, with a third argument where it has no entry."""
    assert evaluate("table('floor', '13')", {"floor": {"13": "580"}}) == "580"
    assert evaluate("table('floor', '14', '0')", {"floor": {"13": "580"}}) == "0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("box.swapiness > 1", "did you mean `box.swappiness`?"),
        ("bix.swappiness > 1", "did you mean `box`?"),
        ("box.disks.name == 'x'", "is a list and has no `name`"),
        ("p.limit > 1", "no parameter"),
        ("len(d.nam for d in box.disks)", "did you mean `d.name`?"),
        ("lenn(box.disks)", "did you mean `len`?"),
        ("box.mode > 5", "compares text with number"),
        ("box.swappiness == '60'", "compares number with text"),
        ("box.mode", ""),
        ("not box.mode", "is text, not true or false"),
        ("box.mode and box.busy", "is text, not true or false"),
        ("box.mode + 1", "is text, not a number"),
        ("1 in box.swappiness", "nothing can be in a number"),
        ("min()", "takes 1 to 9 arguments"),
    ],
)
def test_a_wrong_name_or_type_is_refused_when_loaded(text: str, says: str) -> None:
    """A typo is an error with a suggestion, never a silent false."""
    if not says:
        assert compile_expression(text, SCHEMA).type is str
        return
    with pytest.raises(RuleError, match=says.replace("?", r"\?").replace("`", "`")):
        compile_expression(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("box.swapiness > 1", "box"),
        ("box.disks[0].nam == 'x'", "box"),
        ("len(d.nam for d in box.disks)", "box"),
        ("disks[0].nam == 'x'", "box"),
    ],
)
def test_a_wrong_name_has_a_hint_that_names_an_area(text: str, area: str) -> None:
    """Behind a name that the rule itself has given, or that of an area's list, no area is named so: its records tell the area."""
    schema = Schema({"odd": int, **SCHEMA.roots, "disks": tuple[Disk, ...]}, {"disks": ()})

    with pytest.raises(RuleError, match="is no fact") as caught:
        compile_expression(text, schema)

    assert f"--describe {area}`" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "box.__class__",
        "box['__class__']",
        "box.env['__class__']",
        "any(x['__class__'] == 'a' for x in unique(box.disks))",
        "box.mode.upper()",
        "(lambda: 1)()",
        "[x for x in box.disks for y in box.disks]",
        "any(any(any(True for c in box.disks) for b in box.disks) for a in box.disks)",
        "2 ** 99999999",
        "1 << 99999",
        "f'{box.mode}'",
        "(x := 1)",
        "len(obj=box.disks)",
        "len(*box.disks)",
        "box.disks[box.swappiness]",
        "box.disks[0:1]",
        "box.mode is 'x'",
        "'a' * 99999999",
        "{1: 2}",
        "{1, 2}",
        "b'x' == 'x'",
        "1j > 2",
        "None == box.mode",
        "matches(box.mode, box.mode)",
        "matches(box.mode, '(a+)+$')",
        "matches(box.mode, '(a|a)*$')",
        "matches(box.mode, 'a*b*c*d*')",
        r"matches(box.mode, '(a)\\1')",
        "matches(box.mode, '(?=a)')",
        "matches(box.mode, '(')",
        "",
        "box.busy; box.busy",
        "import os",
        "(" * 300 + "1" + ")" * 300,
        "not " * 200 + "True",
        "1 +" * 900 + "1",
        "await box",
        "(yield)",
    ],
)
def test_what_is_not_in_the_language_is_refused(text: str) -> None:
    """No call but the listed ones, no dunder, no power, no statement, no unbounded pattern."""
    with pytest.raises(RuleError):
        compile_expression(text, SCHEMA)


def test_loops_have_a_budget() -> None:
    """A comprehension over too many elements ends with an error, in time."""
    box = Box(disks=tuple(Disk(str(number), False) for number in range(400)))
    condition = compile_expression("any(any(d.rotational for d in box.disks) for e in box.disks)", SCHEMA)

    with pytest.raises(RuleError, match=str(MAX_STEPS)):
        condition(Scope({"box": box}))


def test_a_slow_pattern_meets_short_text() -> None:
    """The worst pattern that is accepted ends quickly on the longest text."""
    box = Box(mode="a" * 100_000)
    start = time.process_time()

    assert evaluate("matches(box.mode, 'a*[ab]*c')", box=box) is False
    assert time.process_time() - start < 2


def test_evidence_is_what_was_touched() -> None:
    """The facts that the answer rests on are kept with their values; untouched ones are not."""
    scope = Scope({"box": Box(swappiness=60, mode="never")})

    compile_expression("box.swappiness > 100 and box.mode == 'never'", SCHEMA)(scope)

    assert {path: touched.value for path, touched in (scope.touched or {}).items()} == {"box.swappiness": 60}


TRUTHS = st.sampled_from([True, False, None])


@settings(max_examples=80)
@given(TRUTHS, TRUTHS)
def test_logic_is_monotone(left: bool | None, right: bool | None) -> None:
    """Learning an unknown fact never changes an answer that was already given."""
    for text in ("box.busy and other.busy", "box.busy or other.busy", "not box.busy or other.busy"):
        answer = evaluate(text, box=Box(busy=left), other=Box(busy=right))
        if isinstance(answer, Unknown):
            continue
        for known_left in [left] if left is not None else [True, False]:
            for known_right in [right] if right is not None else [True, False]:
                assert evaluate(text, box=Box(busy=known_left), other=Box(busy=known_right)) == answer


@settings(max_examples=100)
@given(st.text(alphabet="box.mde swapin()[]'\"<>=andortx019+-*/%,:{}\\\n\0é", max_size=60))
def test_any_text_is_an_expression_or_a_rule_error(text: str) -> None:
    """No text makes the compiler fail in another way."""
    try:
        condition = compile_expression(text, SCHEMA)
    except RuleError:
        return
    condition(Scope({"box": UNKNOWN_BOX, "other": UNKNOWN_BOX}))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("box.busy and not gpu.name", {"box", "gpu"}),
        ("len(box.disks) > p.len", {"box"}),
        ("any(disk.rotational and cpu.online for disk in box.disks if disk.size > box.size)", {"box", "cpu"}),
        ("any(x == disk for disk in box.disks) or disk.rotational", {"box", "x", "disk"}),
        ("all(any(y == x for y in x.parts) for x in box.disks)", {"box"}),
        ("any(box.busy for box in box.disks)", {"box"}),
        ("box['busy'] == 'gpu'", {"box"}),
    ],
)
def test_the_names_of_an_expression_are_those_that_stand_for_facts(text: str, names: set[str]) -> None:
    """Neither functions, parameters and texts, nor what a comprehension binds, within that comprehension."""
    assert names_in(text) == names


@pytest.mark.parametrize("text", ["box.busy and", "", "\\", "(" * 500])
def test_the_names_of_what_is_no_expression_are_an_error(text: str) -> None:
    """As when it is compiled."""
    with pytest.raises(RuleError):
        names_in(text)


@pytest.mark.parametrize("text", ["box.disks[0:1]", "box.disks[box.swappiness]", "box.disks[1.5]", "len(box.disks)[0]", "box.disks[0, 1]"])
def test_facts_are_reached_by_constant_subscripts(text: str) -> None:
    """A slice, a computed number and a call are no path to a fact, and the message says what is."""
    with pytest.raises(RuleError, match="names, dots and constant subscripts"):
        compile_expression(text, SCHEMA)
