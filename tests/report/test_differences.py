"""Machines side by side."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from sysperf.model.difference import Difference
from sysperf.report import differences
from sysperf.report.terminal import cells
from tests.golden import ROOT, Golden
from tests.report.hostile import harmless, texts

FOLDER = ROOT / "tests/report/golden"

WHY = "A governor that saves power leaves the copy threads at low clocks."
FOUND = [
    Difference("power", "power.governors", ("performance", "powersave"), WHY, 0),
    Difference("torch", "torch.installs[/opt/venv].version", ("2.13.0+cu130", "2.9.1+cu128"), "Kernels differ from version to version.", 3),
    Difference("memory", "memory.thp_enabled", ("madvise", "?"), "Huge pages save page-table walks.", 7),
]


@pytest.mark.parametrize("width", [60, 100])
def test_two_machines_stand_beside_each_other(width: int, golden: Golden) -> None:
    """A table where it fits, one below the other where it does not."""
    text = differences.render(FOUND, ["/tmp/fast.tar.zst", "."], width=width)

    golden(FOLDER / f"differences-{width}.txt", text)
    assert max(map(cells, text.splitlines())) <= width


def test_of_many_machines_the_odd_one_out_is_named() -> None:
    """Values with their machines, the rarest last."""
    names = [f"node{number}.json" for number in range(40)]
    values = tuple("powersave" if number == 17 else "performance" for number in range(40))

    text = differences.render([Difference("power", "power.governors", values, WHY, 0)], names)

    assert "    performance  node0, node1, node2, node3, node4, node5 and 33 more\n    powersave  node17\n" in text


def test_nothing_differs() -> None:
    """It says of which machines."""
    assert differences.render([], ["a.json", "b.json"]) == "No difference between a and b that matters for speed.\n"


def test_names_that_are_not_unique_keep_their_paths() -> None:
    """Two captures of one name in two folders."""
    assert "x/node.tar and y/node.tar" in differences.render([], ["x/node.tar", "y/node.tar"])


def test_markdown_is_one_table(golden: Golden) -> None:
    """For a pull request."""
    golden(FOLDER / "differences.md", differences.render(FOUND, ["fast.json", "slow.json"], "markdown"))


@given(text=texts)
@settings(max_examples=20)
def test_foreign_text_is_printable(text: str) -> None:
    """Names and values of other machines are neutral in both formats, on wide and narrow terminals."""
    listed = [Difference(text, text, (text, "x"), text, 0)]

    for format, width in (("text", 60), ("text", 2_000), ("markdown", 100)):  # noqa: A001 - the option's name
        assert harmless(differences.render(listed, [text, "b"], format, width=width))
