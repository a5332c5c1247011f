"""One file of a captured machine cannot be read: what it would have said is unknown, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sysperf.collect import AREAS, collect_area
from sysperf.host import Answers, Host
from sysperf.host.opening import open_tree
from sysperf.host.tree import Tree
from sysperf.model.record import plain
from sysperf.startup import lazy
from tests.collect.machines import every_machine
from tests.conftest import fixture_folder

DENIED = "Permission denied"
NUMBERS = lazy(r"[0-9a-f]*[0-9][0-9a-f]*")
SAMPLES_PER_KIND = 3
"""Of files that differ in their numbers only, such as cpu0/online and cpu1/online, so many are tried by the everyday suite."""

FALLBACKS = {
    # (fact, file): why another value is right
    ("cpu.online", "/sys/devices/system/cpu"): "/proc/cpuinfo lists the online CPUs, too (and this capture's was not edited with the rest)",
    ("cpu.kinds", "/sys/devices/system/cpu"): "follows from cpu.online",
    ("cpu.performance_cpus", "/sys/devices/system/cpu"): "follows from cpu.online",
    ("numa.nodes.cpus", "/sys/devices/system/cpu"): "follows from cpu.online",
    (
        "kernel.hypervisor",
        "/sys/class/dmi/id/sys_vendor",
    ): "the CPU's flag says that there is one: `other` is the name of those that do not tell theirs",
}


def host_of(tree: Tree, *, denied: str = "", record: bool = False) -> Host:
    """The captured machine, where one question gets no answer."""
    return Host("/captured", tree=tree, answers=Answers(errors={denied: DENIED} if denied else {}), record=record)


def facts_of(host: Host, area: str) -> Any:
    """An area's facts as plain data; None when they are unknown."""
    facts = collect_area(host, area).facts
    return None if facts is None else plain(facts)


def other_values(before: Any, after: Any, fact: str) -> Iterator[tuple[str, Any, Any]]:
    """(fact, value, other value) where a value is neither the same nor unknown."""
    if after is None or after == before:
        return
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for name in before:
            yield from other_values(before[name], after[name], f"{fact}.{name}")
    elif fact == "pcie.devices":
        known = {device["address"]: device for device in after}
        assert all(known[address]["kind"] is None for address in known.keys() - {device["address"] for device in before}), "a device more"
        yield from (
            difference for device in before for difference in other_values(device, known.get(device["address"], "gone"), "pcie.device")
        )
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple) and len(before) == len(after):
        for first, other in zip(before, after, strict=True):
            yield from other_values(first, other, fact)
    else:
        yield fact, before, after


def files_asked(host: Host, samples: int, seed: str) -> list[str]:
    """The questions about contents of files and folders that got an answer, so many of each kind."""
    answers = host.answers
    assert answers is not None
    asked = [key for key in answers.answers if key.startswith(("/", "names:"))]
    random.Random(seed).shuffle(asked)
    kinds: Counter[str] = Counter()
    chosen = []
    for key in asked:
        kind = NUMBERS.sub("N", key)
        kinds[kind] += 1
        if kinds[kind] <= samples:
            chosen.append(key)
    return chosen


def wrong_values(archive: str, samples: int) -> tuple[int, list[str]]:
    """(files tried, what became another value) over all areas of a captured machine."""
    tree = open_tree(archive)
    tried, wrong = 0, []
    for area in AREAS:
        first = host_of(tree, record=True)
        before = facts_of(first, area)
        for key in files_asked(first, samples, f"{archive} {area}") if before is not None else ():
            tried += 1
            path = key.removeprefix("names:")
            for fact, value, other in other_values(before, facts_of(host_of(tree, denied=key), area), area):
                if (fact, path) not in FALLBACKS:
                    wrong.append(f"without {path}: {fact} {str(value)[:80]} -> {str(other)[:80]}")
    return tried, wrong


@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_a_file_that_cannot_be_read_changes_no_fact_to_another_value(kind: str, name: str) -> None:
    """Every fact that used the file is the same or unknown; documented fallbacks are the only exceptions."""
    (archive,) = fixture_folder(kind).glob(f"{name}.tar.*")
    tried, wrong = wrong_values(str(archive), SAMPLES_PER_KIND)

    assert tried > 10
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), every_machine())
def test_no_file_at_all_changes_a_fact_to_another_value(kind: str, name: str) -> None:
    """The same for each file of each machine."""
    (archive,) = fixture_folder(kind).glob(f"{name}.tar.*")

    assert wrong_values(str(archive), 1 << 30)[1] == []


def test_the_kinds_of_files_are_told_by_their_numbers() -> None:
    """CPUs, nodes and PCI functions are of one kind each, so that a sample meets all kinds."""
    kinds = {NUMBERS.sub("N", path) for path in ("/sys/bus/pci/devices/0000:3b:00.0/class", "/sys/bus/pci/devices/0001:00:1f.7/class")}

    assert len(kinds) == 1
