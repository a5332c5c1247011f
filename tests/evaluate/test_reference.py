"""The one evaluator means what the reference semantics say, on conditions of every kind and facts that may be unknown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.evaluate.expression import compile_expression
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.scope import MAX_STEPS, Scope
from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import RuleError
from sysperf.model.record import Record

from .conftest import SCHEMA, Box, Disk
from .reference import meaning

ITEM = SCHEMA.bind("it", Box)
CONDITIONS = [
    "it.swappiness > 30",
    "it.mode == 'never' and it.busy",
    "it.busy or it.swappiness > box.swappiness",
    "not it.busy",
    "it.env.OMP == '4'",
    "assigned(it.env, 'OMP', 'MKL') == ['OMP=4']",
    "it.env.OMP != '' and int(it.env.OMP) > 2",
    "it.mode in ['never', 'always']",
    "matches(it.mode, '^nev')",
    "it.swappiness / it.share > 2",
    "overlaps(it.allowed, box.allowed)",
    "len(it.allowed) < p.limit",
    "ver(it.mode) > ver('1.0')",
    "known(it.mode)",
    "any(d.rotational for d in it.disks)",
    "it.swappiness > 10 if it.busy else it.share > 0.5",
    "1 < it.swappiness < 50",
    "default(it.swappiness, 50) > 30",
    "default(int(it.env.OMP), 1) > 2",
    "default(it.swappiness > 1 and it.busy, it.share > 0.2)",
    "known(it.share) and it.share > 0.2",
    "all(d.rotational for d in it.disks if d.name != 'b')",
    "count(d.rotational for d in default(it.disks, [])) > 0",
    "len(unique([d.name for d in it.disks])) > 0",
    "sum([len(b.allowed) for b in [it, box]]) > 3",
    "table('modes', it.mode, 'x') == 'bad'",
    "table('modes', it.mode) == 'bad'",
    "major(it.mode) == '2' or minor(it.mode) == '2.0'",
    "within(it.allowed, cpus('0-7'))",
    "any(any(d.name == e.name for e in box.disks) for d in it.disks)",
    "max(it.swappiness, default(it.share, 0)) > 20",
    "not startswith(lower(it.mode), 'nev')",
    "default(it.busy or it.swappiness > 5, False)",
    "not default(it.busy and False, True)",
    "known(any(d.rotational for d in it.disks))",
    "known(it.busy and it.swappiness > 5)",
    "[d.name for d in it.disks] == ['a']",
    "['a', it.mode] == ['a', 'never']",
    "[it.swappiness] == [5]",
    "[it.swappiness, 1] != [it.swappiness, 2]",
    "[it.swappiness] == [5, 6]",
    "it.swappiness in [5, it.share]",
    "it.mode not in ['never', box.mode]",
    "it.swappiness // 0 > 1 or it.busy",
    "len([it.swappiness, it.share]) == 2",
    "all([it.busy, box.busy])",
    "any([it.busy, box.busy]) and not all([it.busy, box.busy])",
    "it.mode < it.mode or it.busy",
]
TABLES = {"modes": {"never": "bad", "always": "good"}}

BOXES = st.builds(
    Box,
    swappiness=st.none() | st.integers(-5, 100),
    share=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
    mode=st.none() | st.sampled_from(["never", "always", "2.0", ""]),
    busy=st.none() | st.booleans(),
    allowed=st.none() | st.sampled_from([CpuSet(), CpuSet.parse("0-3"), CpuSet.parse("4-9")]),
    disks=st.none() | st.sampled_from([(), (Disk("a", True),), (Disk("b"),)]),
    env=st.none() | st.sampled_from([{}, {"OMP": "4"}, {"OMP": "x"}]),
)


PARAMS = {"limit": 3}


class Parameters(Record):
    """`p` as the reference sees it."""

    limit: int = 3


@settings(max_examples=200)
@given(st.sampled_from(CONDITIONS), BOXES, BOXES)
def test_the_evaluator_means_what_the_reference_says(text: str, item: Box, box: Box) -> None:
    """Known where the reference knows, with the same value; unknown where it does not."""
    value = compile_expression(text, ITEM, PARAMS)(Scope({"it": item, "box": box}, TABLES))
    expected = meaning(text, {"it": item, "box": box, "p": Parameters()}, TABLES)

    assert (None if isinstance(value, Unknown) else value) == expected


@settings(max_examples=80)
@given(st.sampled_from(CONDITIONS), BOXES, BOXES)
def test_an_answer_does_not_depend_on_what_is_recorded(text: str, item: Box, box: Box) -> None:
    """The judge first evaluates without a record of the facts, and again with one for what a person will see."""
    condition, scope = compile_expression(text, ITEM, PARAMS), Scope({"it": item, "box": box}, TABLES)
    scope.restart()
    first = condition(scope)
    assert scope.touched is None
    scope.record()
    again = condition(scope)

    assert isinstance(first, Unknown) == isinstance(again, Unknown)
    assert isinstance(first, Unknown) or first == again


@pytest.mark.parametrize(
    "text",
    [
        "all(d.name in [e.name for e in it.disks] for d in it.disks)",
        "len([d for d in it.disks if count(e.rotational for e in it.disks) > 1]) > 5",
        "any(len(it.disks) > 100000 for d in it.disks)",
        "any(it.disks == box.disks for d in it.disks)",
        "all(d in it.disks for d in it.disks)",
    ],
)
def test_the_budget_bounds_everything(text: str) -> None:
    """Neither loops nor what functions go through inside of them can take long: a crafted capture has lists of any length."""
    many = tuple(Disk(f"d{number}") for number in range(20_000))
    scope = Scope({"it": Box(disks=many), "box": Box(disks=(*many[:-1], Disk("other")))}, TABLES)
    with pytest.raises(RuleError, match="steps"):
        compile_expression(text, ITEM, PARAMS)(scope)
    assert scope.steps <= 2 * MAX_STEPS


@pytest.mark.parametrize(
    "text", ["it.swappiness > 99999999999999999999", f"it.swappiness > 0x{'f' * 40}", f"it.swappiness > {'9' * 4_300}"]
)
def test_a_number_that_no_fact_can_have_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        compile_expression(text, ITEM)


def test_a_product_stays_small() -> None:
    """Python writes large numbers slowly, and refuses those of more than 4,300 digits."""
    text = " * ".join(["it.swappiness"] * 30)
    assert isinstance(compile_expression(text, ITEM)(Scope({"it": Box(swappiness=1 << 62)})), Unknown)
