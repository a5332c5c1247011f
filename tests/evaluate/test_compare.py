"""Machines side by side: what differs and matters, nothing else."""

from __future__ import annotations

from sysperf.evaluate.compare import compare
from sysperf.model.record import Record
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
    first = Box(mode="a", disks=(Disk("sda", False), Disk("sdb", False)))
    second = Box(mode="b", disks=(Disk("sdb", True),))

    differences = compare([snapshot(first), snapshot(second)], MATTERS)

    assert [(diff.fact, diff.values) for diff in differences] == [
        ("box.mode", ("a", "b")),
        ("box.disks[sdb].rotational", ("no", "yes")),
        ("box.disks.count", ("2", "1")),
    ]
    assert differences[0].matters == "it decides"


def test_items_of_one_name_are_compared_one_by_one() -> None:
    """None stands for the others: the first of two that are called the same may be the one that differs."""
    first = Box(disks=(Disk("sda", False), Disk("sda", False)))
    second = Box(disks=(Disk("sda", True), Disk("sda", False)))

    differences = compare([snapshot(first), snapshot(second)], MATTERS)

    assert [(diff.fact, diff.values) for diff in differences] == [("box.disks[sda].rotational", ("no", "yes"))]


def test_what_nobody_read_is_not_different() -> None:
    """It is shown as `?` beside values that differ, and is no difference by itself; neither is an item that is not there."""
    differences = compare([snapshot(Box(mode="a")), snapshot(Box()), snapshot(None), snapshot(Box(mode="b"))], MATTERS)

    assert [difference.values for difference in differences] == [("a", "?", "?", "b")]
    assert compare([snapshot(Box(mode="a")), snapshot(Box()), snapshot(None)], MATTERS) == []


def test_a_key_that_a_mapping_does_not_have_is_known() -> None:
    """A variable that is set on one machine only is a difference; one of a mapping that nobody read is not."""
    matters = {"box.env.*": "it decides"}

    differences = compare([snapshot(Box(env={"OMP": "4"})), snapshot(Box(env={}))], matters)

    assert [(difference.fact, difference.values) for difference in differences] == [("box.env.OMP", ("4", "none"))]
    assert compare([snapshot(Box(env={"OMP": "4"})), snapshot(Box())], matters) == []


class Shell(Record):
    """What is listed in it."""

    preload: tuple[str, ...] | None = None


def test_lists_are_shown_as_their_items() -> None:
    """An empty one is *none*, and one that nobody read is no difference."""
    machines = [Snapshot(taken_at="", areas={"shell": Area(Shell(preload))}) for preload in (("a.so", "b\x1b.so"), (), None)]

    (difference,) = compare(machines, {"shell.preload": "it decides"})
    assert difference.values == ("a.so, b\\x1b.so", "none", "?")


class Install(Record):
    """What a PyTorch installation is matched by."""

    prefix: str
    version: str
    cuda: str | None = None
    python_version: str | None = "3.11"


class Installs(Record):
    installs: tuple[Install, ...]


def torch(*installs: Install) -> Snapshot:
    return Snapshot(taken_at="", areas={"torch": Area(Installs(installs))})


TORCH = {"torch.installs.version": "another PyTorch", "torch.installs.cuda": "another CUDA", "torch.installs.count": "which one runs"}


def test_a_pytorch_elsewhere_is_the_same_pytorch() -> None:
    """The folder says nothing about speed; one that is of another version on each machine is compared all the same."""
    here, there, other = Install("/a", "2.9", "12.8"), Install("/b", "2.9", "12.8"), Install("/a", "2.8", "12.8")

    assert compare([torch(here), torch(there)], TORCH) == []
    assert [differences.values for differences in compare([torch(here), torch(other)], TORCH)] == [("2.9", "2.8")]
    assert compare([torch(here, other), torch(Install("/z", "2.8", "12.8"), there)], TORCH) == []


def test_one_pytorch_more_is_one_difference() -> None:
    """Those of one version are compared, the other is counted."""
    here, there = Install("/a", "2.9", "12.8"), Install("/b", "2.9", "13.0")

    differences = compare([torch(here), torch(there, Install("/c", "2.8"))], TORCH)

    assert [(difference.fact, difference.values) for difference in differences] == [
        ("torch.installs[2.9].cuda", ("12.8", "13.0")),
        ("torch.installs.count", ("1", "2")),
    ]
