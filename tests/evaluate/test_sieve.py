"""The fast pass over long lists gives the judge every item that is not plainly fine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.evaluate.expression import Scope, compile_expression
from sysperf.evaluate.sieve import compile_sieve
from sysperf.model.cpuset import CpuSet

from .conftest import SCHEMA, Box, Disk

ITEM = SCHEMA.bind("it", Box)
CONDITIONS = [
    "it.swappiness > 30",
    "it.mode == 'never' and it.busy",
    "it.busy or it.swappiness > box.swappiness",
    "not it.busy",
    "it.env.OMP == '4'",
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


def exact(text: str, applies: str, item: Box, names: dict[str, Any]) -> str:
    """What the judge would say: fine, not applicable, or look."""
    scope = Scope({**names, "it": item}, TABLES)
    concerned = compile_expression(applies, ITEM, {"limit": 3})(scope)
    if concerned is False:
        return "skip"
    return "fine" if concerned is True and compile_expression(text, ITEM, {"limit": 3})(scope) is False else "look"


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(CONDITIONS), st.sampled_from(["True", "it.busy", "it.mode != ''"]), st.lists(BOXES, max_size=6), BOXES)
def test_nothing_that_matters_slips_through(text: str, applies: str, items: list[Box], box: Box) -> None:
    """Items that the sieve passes or skips are those that the exact evaluation passes or skips."""
    names = {"box": box}
    sieve = compile_sieve(
        ITEM, "it", compile_expression(applies, ITEM, {"limit": 3}), compile_expression(text, ITEM, {"limit": 3}), {"limit": 3}
    )

    found, skipped = sieve(items, names, TABLES)

    answers = [exact(text, applies, item, names) for item in items]
    assert {index for index, answer in enumerate(answers) if answer == "look"} <= set(found)
    assert skipped <= answers.count("skip")
    assert len(items) - len(found) - skipped <= answers.count("fine")


def test_text_never_becomes_code() -> None:
    """A subscript of something whose type nobody knows is text, whatever it says: such a condition is not translated."""
    condition = compile_expression("any(x['name or exit()'] == 'a' for x in [it.mode])", ITEM)
    sieve = compile_sieve(ITEM, "it", None, condition, {})

    assert sieve([Box(mode="a")], {}, {}) == ([0], 0)
    assert sieve.__name__ != "sieve"


@pytest.mark.parametrize("text", [text for text in CONDITIONS if not text.startswith("table(.modes., it.mode)")])
def test_known_items_are_decided_at_once(text: str) -> None:
    """On items with all facts known, only those that fire are handed on: the pass is worth its name."""
    fine = Box(20, 1.0, "0.5", True, CpuSet.parse("10-13"), (), {"OMP": ""})
    names = {"box": Box(swappiness=90, allowed=CpuSet.parse("0-3"))}
    condition = compile_expression(text, ITEM, {"limit": 3})
    sieve = compile_sieve(ITEM, "it", None, condition, {"limit": 3})

    found, _ = sieve([fine] * 5, names, TABLES)

    assert bool(found) == (condition(Scope({**names, "it": fine}, TABLES)) is not False)
