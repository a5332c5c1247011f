"""Machines side by side: which facts differ, and which of those matter for speed.

What matters is data: the table ``matters`` of rules/drift.toml gives fact patterns, most important first, each with the
reason. Facts that are not in it (temperatures, free memory, process numbers) differ between any two machines.
"""

from __future__ import annotations

import fnmatch
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from sysperf.evaluate.schema import is_record
from sysperf.evaluate.scope import Value
from sysperf.model.difference import ABSENT, NOT_SET, READ_WHOLE, UNKNOWN, Difference
from sysperf.model.snapshot import Snapshot
from sysperf.model.text import neutral, size

_KEYS = ("prefix", "index", "name", "id", "address")
_MAX_FACTS = 200_000


def compare(machines: Sequence[Snapshot], matters: Mapping[str, str]) -> list[Difference]:
    """The differences that matter, most important first."""
    patterns = tuple(matters)
    flat = [dict(_wanted(machine, patterns)) for machine in _by_what_they_are(machines)]
    differences = []
    for fact in dict.fromkeys(name for facts in flat for name in facts if not name.endswith(READ_WHOLE)):
        values = tuple(_value(facts, fact, machine) for facts, machine in zip(flat, machines, strict=True))
        if len({*values} - {UNKNOWN, ABSENT}) > 1:  # an item that is not there shows in the count; what nobody read may be the same
            pattern = _first_match(_pattern_name(fact), patterns)
            differences.append(Difference(fact.partition(".")[0], fact, values, matters[patterns[pattern]], pattern))
    return sorted(differences, key=lambda difference: (difference.rank, difference.fact))


def comparables(machine: Snapshot, matters: Mapping[str, str]) -> dict[str, str]:
    """The facts of one machine that matter, as texts; sizes as installed, in which kernels do not differ."""
    patterns = tuple(matters)
    facts = dict(_wanted(_by_what_they_are([machine])[0], patterns))
    sizes = {fact: size(installed_bytes(int(value))) for fact, value in facts.items() if fact.endswith("total_bytes") and value.isdigit()}
    return {fact: value for fact, value in (facts | sizes).items() if not fact.endswith(READ_WHOLE) or weight(f"{fact}x", matters)}


def weight(fact: str, matters: Mapping[str, str]) -> tuple[int, str] | None:
    """(0 for what matters most, why it matters) of a fact; None of one that does not."""
    patterns = tuple(matters)
    place = _first_match(_pattern_name(fact), patterns)
    return (place, matters[patterns[place]]) if place < len(patterns) else None


def installed_bytes(count: int) -> int:
    """The size of the modules, of what a kernel or driver left of it: the next eighth of a power of two."""
    step = 1 << max(0, count.bit_length() - 4)
    return -(-count // step) * step


def _by_what_they_are(machines: Sequence[Snapshot]) -> list[Snapshot]:
    """The machines with PyTorch installations named by what they are: where a folder is says nothing about speed.

    As many everywhere: by their rank among the others, so that one on each machine is compared whatever its version.
    """
    counts = {len(getattr(machine.areas["torch"].facts, "installs", ())) for machine in machines if "torch" in machine.areas}
    return [_renamed(machine, by_rank=len(counts) == 1) for machine in machines]


def _renamed(machine: Snapshot, *, by_rank: bool) -> Snapshot:
    area = machine.areas.get("torch")
    facts: Value = area.facts if area else None
    if area is None or facts is None or not facts.installs:
        return machine
    ranked = sorted(facts.installs, key=lambda install: (str(install.version), str(install.cuda), str(install.python_version)))
    seen: dict[str, int] = {}
    named = []
    for rank, install in enumerate(ranked, 1):
        seen[str(install.version)] = same = seen.get(str(install.version), 0) + 1
        name = str(rank) if by_rank else f"{install.version}{f' #{same}' if same > 1 else ''}"
        named.append(msgspec.structs.replace(install, prefix=name))
    renamed = msgspec.structs.replace(area, facts=msgspec.structs.replace(facts, installs=tuple(named)))
    return msgspec.structs.replace(machine, areas={**machine.areas, "torch": renamed})


def _wanted(machine: Snapshot, patterns: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name, area in machine.areas.items():
        for count, (fact, value) in enumerate(_flatten(area.facts, name)):
            if count > _MAX_FACTS:
                return
            if fact.endswith(READ_WHOLE) or _first_match(_pattern_name(fact), patterns) < len(patterns):
                yield fact, value


def _first_match(name: str, patterns: tuple[str, ...]) -> int:
    exact, wild = _sorted_out(patterns)
    place = exact.get(name, len(patterns))
    return next((index for index, pattern in wild if index < place and fnmatch.fnmatchcase(name, pattern)), place)


@functools.lru_cache(maxsize=4)
def _sorted_out(patterns: tuple[str, ...]) -> tuple[dict[str, int], tuple[tuple[int, str], ...]]:
    """(places of plain names, places and patterns of the others): a thousand facts by eighty patterns take a fifth of an audit."""
    wild = tuple((index, pattern) for index, pattern in enumerate(patterns) if set(pattern) & {*"*?["})
    return {pattern: index for index, pattern in reversed([*enumerate(patterns)]) if (index, pattern) not in wild}, wild


def _pattern_name(fact: str) -> str:
    """``gpu.devices[3].name`` as the table writes it: ``gpu.devices.name``."""
    return "".join(part.partition("]")[2] if "]" in part else part for part in fact.split("["))


def _value(flat: Mapping[str, str], fact: str, machine: Snapshot) -> str:
    if fact in flat:
        return flat[fact]
    if fact.rpartition(".")[0] + READ_WHOLE in flat:
        return NOT_SET
    area = machine.areas.get(fact.partition(".")[0])
    return UNKNOWN if area is None or area.facts is None else ABSENT


def _flatten(value: Value, path: str) -> Iterator[tuple[str, str]]:
    if is_record(type(value)):
        for name in value.__struct_fields__:
            yield from _flatten(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, dict):
        yield path + READ_WHOLE, ""
        for name, item in value.items():
            yield from _flatten(item, f"{path}.{neutral(str(name), 80)}")
    elif isinstance(value, tuple) and value and is_record(type(value[0])):
        yield f"{path}.count", str(len(value))
        seen: Counter[str] = Counter()
        for index, item in enumerate(value):
            identity = _identity(item, index)
            seen[identity] += 1
            yield from _flatten(item, f"{path}[{identity}{f' #{seen[identity]}' if seen[identity] > 1 else ''}]")
    else:
        yield path, _text(value)


def _identity(item: Value, index: int) -> str:
    key = next((key for key in _KEYS if getattr(item, key, None) is not None), None)
    return neutral(str(getattr(item, key)), 120).replace("[", "(").replace("]", ")") if key else str(index)


def _text(value: Value) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, tuple):
        return ", ".join(neutral(str(item), 80) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return neutral(str(value), 200) or "none"
