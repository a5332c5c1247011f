"""Records of nodes as one fleet: what is found on whom, who differs from its class, what nobody knows of whom."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from sysperf.fleet.classes import MIN_CLASS, PARTS, Hardware, class_name, classed, hardware_key
from sysperf.fleet.names import fold
from sysperf.model.difference import NOT_SET, READ_WHOLE, UNKNOWN
from sysperf.model.fleet import (
    FleetDifference,
    FleetFinding,
    FleetUnknown,
    HardwareClass,
    Held,
    Policy,
    PolicyClass,
    Silent,
)
from sysperf.model.node import NodeRecord, NodeState
from sysperf.model.rule import SEVERITIES, Severity
from sysperf.model.text import natural

MAJORITY = 2 / 3
NOT_KNOWN = "it was read there and does not say"
VERSION = "sysperf.version"
OTHER_VERSION = "another sysperf: other rules, other facts"
MAX_FACTS = 20_000
"""Of all nodes together: each further one would cost memory, and no fleet has as many that matter."""
MAX_VALUES = 100_000
"""The same of values of all facts."""
MAX_KINDS = 1_000
"""The same of rules that find something, of areas with a reason, and of hardware."""
MAX_VALUE, MAX_MESSAGE = 300, 300
LEFT_OUT = "there is more of it than a fleet can have, and the rest of these nodes is left out"

K = TypeVar("K")
Weigh = Callable[[str], tuple[int, str] | None]
"""(rank, why it matters) of a fact; None of one that does not matter."""
Holders = dict[str, list[int]]
"""Who has each value."""


class _Said(NamedTuple):
    """What a rule says, and of whom."""

    message: str
    nodes: list[int]
    others: list[int]
    """Of whom it says something else."""


class _Values(NamedTuple):
    """What is known of one fact in one class."""

    of_class: Hardware
    holders: Holders
    dark: list[int]
    """Of whom it is not known."""


class Merge:
    """The nodes of a fleet, one after the other; what they share is kept once."""

    def __init__(self, weigh: Weigh) -> None:
        self._weigh = weigh
        self._weights: dict[str, tuple[int, str] | None] = {VERSION: (1 << 30, OTHER_VERSION)}
        self.names: list[str] = []
        self._hardware: list[Hardware] = []
        self._facts: dict[str, Holders] = {}
        self._dark: dict[str, list[int]] = {}
        self._said: dict[tuple[str, Severity], _Said] = {}
        self._unread: dict[tuple[str, str], list[int]] = {}
        self._value_count = 0
        self._left: dict[str, list[int]] = {}
        self._silent: dict[tuple[NodeState, str], list[str]] = {}
        self._shared: dict[Hardware, Hardware] = {}
        self.times: list[str] = []

    def add(self, record: NodeRecord) -> None:
        """Take what a node says of itself."""
        number = len(self.names)
        self.names.append(record.node)
        self.times.append(record.taken_at)
        self._hardware.append(self._shared_hardware(tuple(map(_short, hardware_key(record.hardware))), number))
        self._hold(VERSION, record.sysperf, number)
        for fact, value in record.comparables.items():
            if fact in self._facts or self._weight(fact) is not None:
                self._hold(fact, value, number)
        for finding in record.findings:
            kind = (_short(finding.rule), finding.severity)
            if self._is_new_and_full(self._said, kind, "findings", number):
                continue
            message = finding.message[:MAX_MESSAGE]
            said = self._said.setdefault(kind, _Said(message, [], []))
            if number not in said.nodes[-1:]:
                said.nodes.append(number)
            if message != said.message:
                said.others.append(number)
        for area in record.unknown:
            unread = (_short(area.area), area.why[:MAX_MESSAGE])
            if not self._is_new_and_full(self._unread, unread, "areas", number):
                self._unread.setdefault(unread, []).append(number)

    def silence(self, node: str, state: NodeState, reason: str) -> None:
        """Take that a node said nothing."""
        self._silent.setdefault((state, reason), []).append(node)

    def _hold(self, fact: str, value: str, number: int) -> None:
        if value == UNKNOWN:
            if fact in self._dark or len(self._dark) < MAX_FACTS:
                self._dark.setdefault(fact, []).append(number)
        elif fact in self._facts or len(self._facts) < MAX_FACTS:
            holders = self._facts.setdefault(fact, {})
            if (value := _short(value)) not in holders:
                if self._value_count == MAX_VALUES:
                    self._leave("facts", number)
                    return
                self._value_count += 1
            holders.setdefault(value, []).append(number)

    def _shared_hardware(self, key: Hardware, number: int) -> Hardware:
        """The same object for all that have it."""
        if self._is_new_and_full(self._shared, key, "hardware", number):
            return (UNKNOWN,) * len(PARTS)
        return self._shared.setdefault(key, key)

    def _is_new_and_full(self, kinds: Mapping[K, object], kind: K, what: str, number: int) -> bool:
        """Whether there is no room for this; then that is told of the node."""
        if kind in kinds or len(kinds) < MAX_KINDS:
            return False
        self._leave(what, number)
        return True

    def _leave(self, what: str, number: int) -> None:
        nodes = self._left.setdefault(what, [])
        if number not in nodes[-1:]:
            nodes.append(number)

    def _weight(self, fact: str) -> tuple[int, str] | None:
        """Weight of a fact; of the mark that a mapping was read, that of what is in it."""
        name = f"{fact}x" if fact.endswith(READ_WHOLE) else fact
        if name not in self._weights and len(self._weights) < MAX_FACTS:
            self._weights[name] = self._weigh(name)
        return self._weights.get(name)

    @cached_property
    def _classes(self) -> dict[Hardware, list[int]]:
        """The nodes of each class; asked for when all nodes are there."""
        return classed(self._hardware)

    def silent(self) -> tuple[Silent, ...]:
        """Nodes of which nothing is known, most first."""
        groups = sorted(self._silent.items(), key=lambda item: -len(item[1]))
        return tuple(Silent(state, reason, tuple(nodes)) for (state, reason), nodes in groups)

    def described(self) -> tuple[HardwareClass, ...]:
        """The classes, the largest first."""
        return tuple(
            HardwareClass(class_name(key), dict(zip(PARTS, key, strict=True)), len(nodes), self._named(nodes))
            for key, nodes in self._classes.items()
        )

    def findings(self) -> tuple[FleetFinding, ...]:
        """What is found, what is most severe first, then what the fewest nodes have."""
        found = [
            FleetFinding(rule, severity, said.message, self._named(said.nodes), alike=not said.others)
            for (rule, severity), said in self._said.items()
        ]
        return tuple(sorted(found, key=lambda finding: (SEVERITIES.index(finding.severity), len(finding.nodes), finding.rule)))

    def unknown(self) -> tuple[FleetUnknown, ...]:
        """What is not known of whom, though it is of most others."""
        areas = [FleetUnknown(area, why, self._named(nodes)) for (area, why), nodes in self._unread.items()]
        areas += [FleetUnknown(what, LEFT_OUT, self._named(nodes)) for what, nodes in self._left.items()]
        facts = {
            (_item_less(fact), tuple(values.dark)): None
            for fact, values in self._values()
            if values.dark and majority(values.holders) is not None
        }
        return (
            *sorted(areas, key=lambda unknown: unknown.area),
            *(FleetUnknown(fact, NOT_KNOWN, self._named(nodes)) for fact, nodes in facts),
        )

    def differences(self, policy: Policy | None = None) -> tuple[FleetDifference, ...]:
        """Nodes that differ from a policy or, without one, from the majority of its class; what matters most and is rarest first."""
        wanted = {hardware_key(each.hardware): each.facts for each in policy.classes} if policy else {}
        found = [*self._differences(wanted, missing=sum(map(len, self._silent.values())))]
        ranks = max((difference.rank for difference in found if difference.fact != VERSION), default=0) + 1
        return tuple(sorted(_joined(found), key=lambda difference: (-_importance(difference, ranks), difference.rank, difference.fact)))

    def policy(self) -> Policy:
        """What most nodes of each class are like: facts in which they agree."""
        agreed: dict[Hardware, dict[str, str]] = {}
        for fact, values in sorted(self._values(), key=lambda item: natural(item[0])):
            if fact != VERSION and (value := majority(values.holders)) is not None:
                agreed.setdefault(values.of_class, {})[fact] = value
        return Policy(classes=tuple(PolicyClass(hardware=dict(zip(PARTS, key, strict=True)), facts=facts) for key, facts in agreed.items()))

    def _differences(self, wanted: Mapping[Hardware, Mapping[str, str]], missing: int) -> Iterator[FleetDifference]:
        expected_counts = {
            (values.of_class, fact): wanted.get(values.of_class, {}).get(fact) or majority(values.holders)
            for fact, values in self._values()
            if fact.endswith(".count")
        }
        for fact, values in self._values():
            golden = wanted.get(values.of_class, {}).get(fact)
            holders = self._well_counted(fact, values, expected_counts)
            expected = golden or majority(holders)
            if not holders or (len(holders) == 1 and expected in (None, *holders)):
                continue
            rank, why = self._weights[fact] or (0, "")
            yield FleetDifference(
                fact=fact,
                of_class=class_name(values.of_class),
                kind="groups" if expected is None else "differs",
                expected=expected or "",
                basis="golden" if golden else "majority" if expected else "none",
                known=sum(map(len, holders.values())),
                values=tuple(self._held(value, who, expected) for value, who in sorted(holders.items(), key=lambda item: -len(item[1]))),
                matters=why,
                rank=rank,
                doubtful=not golden and _is_doubtful(holders, expected, len(values.dark) + missing),
            )

    def _values(self) -> Iterator[tuple[str, _Values]]:
        """Each fact in each class that knows it."""
        class_of = {number: key for key, numbers in self._classes.items() for number in numbers}
        for fact in self._facts:
            if fact.endswith(READ_WHOLE):
                continue
            by_class: dict[Hardware, Holders] = {}
            for value, nodes in self._all_values(fact):
                for number in nodes:
                    by_class.setdefault(class_of[number], {}).setdefault(value, []).append(number)
            dark: dict[Hardware, list[int]] = {}
            for number in self._dark.get(fact, ()):
                dark.setdefault(class_of[number], []).append(number)
            for key, holders in by_class.items():
                yield fact, _Values(key, holders, dark.get(key, []))

    def _all_values(self, fact: str) -> Iterator[tuple[str, list[int]]]:
        """Values with those who hold them; who read the whole mapping and has no such key holds none."""
        yield from self._facts[fact].items()
        if (read := self._facts.get(fact.rpartition(".")[0] + READ_WHOLE)) is not None:
            named = {number for nodes in self._facts[fact].values() for number in nodes}
            yield NOT_SET, [number for nodes in read.values() for number in nodes if number not in named]

    def _well_counted(self, fact: str, values: _Values, counts: Mapping[tuple[Hardware, str], str | None]) -> Holders:
        """Leave out who has more or fewer items: the count tells of them, and their third need not be anybody's third."""
        items = f"{fact.partition('[')[0]}.count"
        expected = counts.get((values.of_class, items)) if "[" in fact else None
        if expected is None:
            return values.holders
        odd = {number for value, nodes in self._facts[items].items() if value != expected for number in nodes}
        kept = {value: [number for number in nodes if number not in odd] for value, nodes in values.holders.items()}
        return {value: nodes for value, nodes in kept.items() if nodes}

    def _held(self, value: str, nodes: list[int], expected: str | None) -> Held:
        return Held(value, len(nodes), () if value == expected else self._named(nodes))

    def _named(self, numbers: list[int] | tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.names[number] for number in numbers)


def _short(text: str) -> str:
    """A text of bounded length, which differs where the whole differs."""
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}… {zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def majority(holders: Holders) -> str | None:
    """The value of at least two thirds of those that are known, and of three nodes; None where there is none."""
    if not holders:
        return None
    value = max(holders, key=lambda value: len(holders[value]))
    count = len(holders[value])
    return value if count >= MIN_CLASS and count >= MAJORITY * sum(map(len, holders.values())) else None


def _is_doubtful(holders: Holders, expected: str | None, missing: int) -> bool:
    """Whether the answer could be another one if those that are missing were known."""
    counts = sorted(map(len, holders.values()), reverse=True)
    known = sum(counts)
    if expected is not None:
        return counts[0] < MAJORITY * (known + missing)
    return counts[0] + missing >= max(MIN_CLASS, MAJORITY * (known + missing))


def _importance(difference: FleetDifference, ranks: int) -> float:
    """What matters most, and is rarest: 1 of 512 nodes before 200 of 512."""
    others = sum(held.count for held in difference.values if held.value != difference.expected)
    rarity = 1 - others / difference.known if difference.kind == "differs" else 0.0
    return (1 - min(difference.rank, ranks - 1) / ranks) * rarity


def _joined(differences: list[FleetDifference]) -> Iterator[FleetDifference]:
    """Items of one list of which the same is said, as one difference: ``gpu.devices[0-7].power.limit_watts``."""
    groups: dict[FleetDifference, list[str]] = {}
    for difference in differences:
        groups.setdefault(msgspec.structs.replace(difference, fact=_item_less(difference.fact)), []).append(difference.fact)
    for difference, facts in groups.items():
        yield msgspec.structs.replace(difference, fact=_with_items(facts))


def _item_less(fact: str) -> str:
    """``gpu.devices[3].name`` as ``gpu.devices.name``."""
    before, _, behind = fact.partition("[")
    return before + behind.partition("]")[2] if behind else fact


def _with_items(facts: list[str]) -> str:
    if len(facts) == 1:
        return facts[0]
    before, _, behind = facts[0].partition("[")
    items = fold(fact.partition("[")[2].partition("]")[0] for fact in facts)
    return f"{before}[{items.removeprefix('[').removesuffix(']') if items.count('[') == 1 else items}]{behind.partition(']')[2]}"
