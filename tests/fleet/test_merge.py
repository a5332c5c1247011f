"""Records of nodes become classes, findings, differences and unknowns; nobody is called wrong without a majority."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.engine import judging
from sysperf.evaluate.compare import weight
from sysperf.fleet import merge
from sysperf.fleet.classes import PARTS, classed, hardware_key
from sysperf.fleet.merge import Merge
from sysperf.model.fleet import FleetDifference, Policy, PolicyClass
from sysperf.model.node import NodeRecord
from tests.fleet.machines import FACTS, GPU, H100, LOGIN, lost_gpu, record

MATTERS = judging.load_rules().tables["matters"]
DRIVER = "driver.nvidia_version"


def merged(records: Iterable[NodeRecord]) -> Merge:
    whole = Merge(lambda fact: weight(fact, MATTERS))
    for each in records:
        whole.add(each)
    return whole


def named(differences: Iterable[FleetDifference]) -> dict[str, list[str]]:
    """Who differs in what."""
    return {each.fact: [node for held in each.values for node in held.nodes] for each in differences if each.kind == "differs"}


def fleet(count: int, odd: int, **facts: str) -> list[NodeRecord]:
    """So many nodes, of which the last `odd` ones have these facts."""
    alike = [record(f"n{number}") for number in range(1, count - odd + 1)]
    return [*alike, *(record(f"n{number}", facts) for number in range(count - odd + 1, count + 1))]


def test_equal_nodes_do_not_differ() -> None:
    """Nothing is said of them."""
    merge = merged(fleet(4, 0))

    assert merge.differences() == ()
    assert merge.unknown() == ()


def test_one_node_differs() -> None:
    """It is named with its value, what is expected, and how many have that."""
    (difference,) = merged(fleet(10, 1, **{DRIVER: "580.1"})).differences()

    assert (difference.kind, difference.expected, difference.known) == ("differs", "590.2", 10)
    assert [(held.value, held.nodes) for held in difference.values] == [("590.2", ()), ("580.1", ("n10",))]


@pytest.mark.parametrize(("count", "odd"), [(2, 1), (4, 2), (10, 4), (3, 1)])
def test_without_a_majority_nobody_is_wrong(count: int, odd: int) -> None:
    """Two nodes, a roll-out half done, two of three: groups are shown, all with their nodes."""
    (difference,) = merged(fleet(count, odd, **{DRIVER: "580.1"})).differences()

    assert difference.kind == "groups"
    assert sorted(len(held.nodes) for held in difference.values) == sorted((odd, count - odd))


@given(st.lists(st.sampled_from("abc?"), min_size=1, max_size=12))
def test_a_majority_is_two_thirds_of_the_known_and_three(values: list[str]) -> None:
    """Counted independently here; unknown is never different."""
    merge = merged(record(f"n{number}", {DRIVER: value}) for number, value in enumerate(values))
    known = [value for value in values if value != "?"]
    wrong = named(merge.differences()).get(DRIVER, [])
    top = max(set(known), key=known.count, default="")

    if known and known.count(top) >= 3 and 3 * known.count(top) >= 2 * len(known):
        assert set(wrong) == {f"n{number}" for number, value in enumerate(values) if value not in ("?", top)}
    else:
        assert wrong == []


def test_unknown_is_unknown() -> None:
    """What one node could not read is said of it, and it does not differ."""
    merge = merged([*fleet(4, 0), record("n5", {DRIVER: "?"}), record("n6", unknown=[{"area": "nic", "why": "no answer"}])])

    assert merge.differences() == ()
    assert [(each.area, each.nodes) for each in merge.unknown()] == [("nic", ("n6",)), (DRIVER, ("n5",))]


def test_a_lost_gpu_is_a_count_and_nothing_else() -> None:
    """The node stays in the class of those with 8; that the GPUs behind the lost one have moved up is no difference of its own."""
    merge = merged([*fleet(40, 0), record("n41", lost_gpu(), {**H100, "gpu": f"7 × {GPU}"})])

    assert len(merge.described()) == 1
    assert named(merge.differences()) == {"gpu.devices.count": ["n41"]}


def test_machines_with_fewer_gpus_are_a_class() -> None:
    """Ten with 4 GPUs beside forty with 8 are bought like that."""
    four = {**H100, "gpu": f"4 × {GPU}"}
    merge = merged([*fleet(40, 0), *(record(f"h{number}", {"gpu.devices.count": "4"}, four) for number in range(10))])

    assert [each.count for each in merge.described()] == [40, 10]
    assert merge.differences() == ()


def test_classes_are_not_compared() -> None:
    """Login nodes have another driver than the workers, and a worker that has theirs differs."""
    logins = [record(f"login{number}", {DRIVER: "580.1"}, LOGIN) for number in range(5)]
    (difference,) = merged([*fleet(9, 1, **{DRIVER: "580.1"}), *logins]).differences()

    assert named([difference]) == {DRIVER: ["n9"]}
    assert difference.of_class.startswith(f"8 × {GPU}")


def test_hardware_that_is_not_known_joins_its_only_like() -> None:
    """The GPUs of a node whose driver broke are unknown, and its driver is compared."""
    (difference,) = merged([*fleet(5, 0), record("n6", {DRIVER: "none"}, {**H100, "gpu": "?"})]).differences()

    assert named([difference]) == {DRIVER: ["n6"]}


def test_items_of_a_list_are_one_line() -> None:
    """Eight GPUs with another limit are one difference."""
    limits = {f"gpu.devices[{index}].power.limit_watts": "500.0" for index in range(8)}

    assert named(merged(fleet(5, 1, **limits)).differences()) == {"gpu.devices[0-7].power.limit_watts": ["n5"]}


def test_what_is_not_set_is_a_value() -> None:
    """A mapping that was read and does not have the key: a library other than PyTorch wants, on one node only."""
    name = "torch.installs[1].pin_mismatches.nccl"
    (difference,) = merged(fleet(5, 1, **{name: "2.20"})).differences()

    assert (difference.fact, difference.expected, named([difference])) == (name, "none", {name: ["n5"]})


def test_a_policy_names_who_is_not_like_it() -> None:
    """Also the majority; of what it does not say, the majority is expected."""
    policy = Policy(classes=(PolicyClass(hardware=H100, facts={DRIVER: "580.1"}),))
    differences = merged(fleet(5, 1, **{DRIVER: "580.1", "kernel.release": "6.9"})).differences(policy)

    assert named(differences) == {DRIVER: ["n1", "n2", "n3", "n4"], "kernel.release": ["n5"]}
    assert {each.fact: each.basis for each in differences} == {DRIVER: "golden", "kernel.release": "majority"}


def test_most_nodes_make_the_policy() -> None:
    """Without what differs, what is unknown, and the marks of mappings."""
    (policy,) = merged(fleet(6, 1, **{DRIVER: "580.1"})).policy().classes
    known = {fact: value for fact, value in FACTS.items() if value != "?" and not fact.endswith(".{}")}

    assert policy.hardware == H100
    assert policy.facts == known


def test_another_version_is_compared_in_what_both_know() -> None:
    """And is a difference, of the least weight."""
    newer = record("n5", {DRIVER: "580.1", "a.fact": "of the future"}, sysperf="9.0")
    differences = merged([*fleet(4, 0), newer]).differences()

    assert [each.fact for each in differences] == [DRIVER, "sysperf.version"]


def test_rare_before_frequent_and_weighty_before_light() -> None:
    """1 of 30 before 9 of 30; the driver before the kernel's clock."""
    facts: list[dict[str, str]] = [{}] * 20 + [{"kernel.release": "6.9"}] * 9 + [{DRIVER: "580.1"}]
    differences = merged(record(f"n{number}", each) for number, each in enumerate(facts)).differences()

    assert [each.fact for each in differences] == [DRIVER, "kernel.release"]


def test_the_missing_may_change_it() -> None:
    """Four of five agree; with five that did not answer, that is no majority for certain."""
    merge = merged(fleet(5, 1, **{DRIVER: "580.1"}))
    (certain,) = merge.differences()
    for number in range(5):
        merge.silence(f"m{number}", "unreachable", "no route")
    (doubtful,) = merge.differences()

    assert (certain.doubtful, doubtful.doubtful) == (False, True)


def test_findings_by_who_has_them() -> None:
    """The most severe first, then what the fewest have."""
    rules = [("a.b", "warning", 3), ("c.d", "error", 2), ("e.f", "warning", 1)]
    records = [
        record(
            f"n{number}", findings=[{"rule": rule, "severity": severity, "message": "x"} for rule, severity, many in rules if number < many]
        )
        for number in range(4)
    ]

    assert [(each.rule, each.nodes) for each in merged(records).findings()] == [
        ("c.d", ("n0", "n1")),
        ("e.f", ("n0",)),
        ("a.b", ("n0", "n1", "n2")),
    ]


@given(st.lists(st.dictionaries(st.sampled_from(PARTS), st.sampled_from(("1 × A", "2 × A", "?", "none"))), max_size=30))
def test_each_node_is_in_one_class(hardware: list[dict[str, str]]) -> None:
    """Whatever nodes say of themselves."""
    classes = classed([hardware_key(each) for each in hardware])

    assert sorted(number for numbers in classes.values() for number in numbers) == list(range(len(hardware)))


def test_what_no_fleet_can_have_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds of findings, areas, hardware and values by the thousand cost no memory; of whom something is left out is named."""
    monkeypatch.setattr(merge, "MAX_KINDS", 3)
    monkeypatch.setattr(merge, "MAX_VALUES", 50)
    alike = [record(f"n{number}") for number in range(4)]
    found = [{"rule": f"a.b{number}", "severity": "info"} for number in range(5)]
    unread = [{"area": f"area{number}", "why": "x"} for number in range(5)]
    many = merged([*alike, record("bad", {DRIVER: "1" * 90_000}, findings=found, unknown=unread)])
    values = merged([*alike, record("bad", {f"torch.installs[{number}].version": f"{number}" for number in range(60)})])
    left = {unknown.area: unknown.nodes for unknown in many.unknown() if unknown.why == merge.LEFT_OUT}

    assert left == {"findings": ("bad",), "areas": ("bad",)}
    assert [unknown.nodes for unknown in values.unknown() if unknown.area == "facts"] == [("bad",)]
    assert max(len(held.value) for difference in many.differences() for held in difference.values) < 400
    assert named(many.differences()) == {DRIVER: ["bad"]}


def test_two_long_values_differ_where_their_ends_do() -> None:
    """They are cut, and told apart all the same."""
    long = [record(f"n{number}", {DRIVER: "1" * 5_000 + ("x" if number == 3 else "y")}) for number in range(4)]

    assert named(merged(long).differences()) == {DRIVER: ["n3"]}
