"""Machines side by side: what differs and matters, nothing else."""

from __future__ import annotations

from sysperf.evaluate.compare import compare
from sysperf.model.snapshot import Area, Snapshot

from .conftest import Box, Disk

MATTERS = {"box.mode": "it decides", "box.disks.rotational": "spinning disks are slow", "box.disks.count": "fewer disks"}


def snapshot(box: Box | None) -> Snapshot:
    return Snapshot(taken_at="", areas={"box": Area(box)})


def test_equal_machines_do_not_differ() -> None:
    """What is not in the table may differ."""
    assert compare([snapshot(Box(mode="a", swappiness=1)), snapshot(Box(mode="a", swappiness=2))], MATTERS) == []


def test_what_differs_is_named_in_the_order_of_its_weight() -> None:
    """Items are matched by what identifies them, not by their place."""
    one = Box(mode="a", disks=(Disk("sda", False), Disk("sdb", False)))
    two = Box(mode="b", disks=(Disk("sdb", True),))

    found = compare([snapshot(one), snapshot(two)], MATTERS)

    assert [(diff.fact, diff.values) for diff in found] == [
        ("box.mode", ("a", "b")),
        ("box.disks[sda].rotational", ("no", "–")),
        ("box.disks[sdb].rotational", ("no", "yes")),
        ("box.disks.count", ("2", "1")),
    ]
    assert found[0].matters == "it decides"


def test_unknown_and_absent_are_different() -> None:
    """A fact nobody could read is `?`, one that the other machine does not have is a dash."""
    found = compare([snapshot(Box(mode="a")), snapshot(Box()), snapshot(None)], MATTERS)

    assert found[0].values == ("a", "?", "?")
