"""Names of nodes: folded for the screen (``n[017,301]``), and lists of them as people write them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

from sysperf.model.errors import UsageError
from sysperf.model.node import MAX_NAME, is_name
from sysperf.model.text import natural, neutral
from sysperf.startup import lazy

MAX_NODES = 100_000
_LAST_NUMBER = lazy(r"(.*?)([0-9]{1,15})([^0-9]*)")
_JOB = lazy(r"[A-Za-z0-9_][A-Za-z0-9_.:\[\]-]{0,79}")
_RANGE = lazy(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")


def is_job(text: str) -> bool:
    """Whether it can be the name of a job: no option of a command, nothing that a shell or a terminal acts on."""
    return bool(_JOB.fullmatch(text))


def fold(names: Iterable[str], most: int = 0) -> str:
    """Names as ``n[1-32,40],login``, folded by their last number; with `most`, that many parts and how many nodes follow."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    parsed = [(name, _LAST_NUMBER.fullmatch(name)) for name in dict.fromkeys(neutral(name, MAX_NAME) for name in names)]
    padded = {(match[1], match[3], len(match[2])) for _, match in parsed if match and match[2].startswith("0") and len(match[2]) > 1}
    for name, match in parsed:
        if match is None:
            plain.append(name)
        else:
            key = (match[1], match[3], len(match[2]))
            groups.setdefault(key if key in padded else (match[1], match[3], 0), []).append(int(match[2]))
    parts = sorted([*plain, *itertools.starmap(_folded, groups.items())], key=natural)
    return _cut(parts, most, len(parsed))


def _folded(key: tuple[str, str, int], numbers: list[int]) -> str:
    before, behind, digits = key
    runs = ",".join(_run(first, last, digits) for first, last in _runs(sorted(numbers)))
    return f"{before}{runs}{behind}" if len(numbers) == 1 else f"{before}[{runs}]{behind}"


def _run(first: int, last: int, digits: int) -> str:
    return f"{first:0{digits}}" if first == last else f"{first:0{digits}}-{last:0{digits}}"


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """The first and last of each run of numbers that follow each other."""
    for _, run in itertools.groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


def _cut(parts: list[str], most: int, nodes: int) -> str:
    if not most or len(parts) <= most:
        return ",".join(parts)
    return f"{','.join(parts[:most])},… ({nodes} nodes)"


def expand(text: str) -> tuple[str, ...]:
    """The names in ``h[1-32],login``, in their order. Raises UsageError."""
    names: dict[str, None] = {}
    for part in filter(None, map(str.strip, re.split(r"[,\s]+(?![^\[]*\])", text))):
        for name in _expanded(part):
            if not is_name(name):
                raise UsageError(f"`{part[:80]}` is no name of a node", "names look like n[001-512] or gpu-7.example.org")
            names[name] = None
            _bound(len(names))
    return tuple(names)


def _bound(count: int) -> None:
    if count > MAX_NODES:
        raise UsageError(f"more than {MAX_NODES} nodes", "ask a part of them at a time")


def _expanded(part: str) -> Iterator[str]:
    choices: list[list[str]] = []
    many = 1
    for index, piece in enumerate(re.split(r"\[([^\[\]]*)\]", part)):
        choices.append(_numbers(piece, part) if index % 2 else [piece])
        many *= len(choices[-1])
        _bound(many)
    return map("".join, itertools.product(*choices))


def _numbers(text: str, part: str) -> list[str]:
    numbers: list[str] = []
    for each in text.split(","):
        match = _RANGE.fullmatch(each)
        last = match and (match[2] or match[1])
        if not match or not last or int(last) < int(match[1]):
            raise UsageError(f"`{part[:80]}` is no list of nodes", "ranges look like n[1-8,12]")
        _bound(len(numbers) + int(last) - int(match[1]) + 1)
        numbers += [f"{number:0{len(match[1])}}" for number in range(int(match[1]), int(last) + 1)]
    return numbers
