"""What fields of the facts declare beside themselves: the kernels of which they say what these take, and what of a file they need.

What is absent is unknown and never zero: a field is unknown where the file does not hold what it needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec

from sysperf.model.record import Record, declared
from sysperf.trace.timeline import CALL_NAMES, CALLS, COPIES, DIRECTIONS, GRAPH_KERNELS, GRAPHS, KERNELS, MEMORY_KINDS

LAUNCHES = "launches"
"""Besides what readers say (`Timeline.absent`): which call launched an operation."""
IDLE = (KERNELS, COPIES, GRAPHS)
"""For the time in which a device did nothing: what is not in the file would look like it."""
GAPS = (*IDLE, CALLS, LAUNCHES, CALL_NAMES)
"""For what ended a gap, and so whom the device waited for."""
PAGEABLE = (COPIES, GRAPHS, DIRECTIONS, MEMORY_KINDS)
EVERY_KERNEL = (GRAPHS, GRAPH_KERNELS)


class Kind(NamedTuple):
    """Kernels of one kind, and what a fix leaves of their time."""

    is_one: Callable[[str], bool]
    """Whether a kernel is of this kind, by its name in lower case."""
    fix: str
    """The name by which a rule asks for the gain (`predict`)."""
    left: tuple[float, float]
    """The part of their time that stays at the low and at the high end of the gain."""
    assumes: str


def kernels(doc: str, is_one: Callable[[str], bool], *, fix: str, left: tuple[float, float], assumes: str) -> msgspec.Meta:
    """Document a field for the share of the window that kernels of one kind take: it is measured, and its gain is predicted by replay."""
    return msgspec.Meta(description=doc, extra={"kernels": Kind(is_one, fix, left, assumes)})


def needs(*words: str) -> msgspec.Meta:
    """Say what a field needs of the file; it is what its default says, unknown, where one of these is not there."""
    return msgspec.Meta(extra={"needs": frozenset(words)})


def any_of(*words: str) -> Callable[[str], bool]:
    """The question whether one of these words, in lower case, is in a kernel's name."""
    return lambda name: any(word in name for word in words)


R = TypeVar("R", bound=Record)


def known(record: R, absent: frozenset[str]) -> R:
    """The record without what its fields need of the file, and the file does not hold."""
    unknown = {name: default for name, needed, default in _needed(type(record)) if needed & absent}
    return msgspec.structs.replace(record, **unknown) if unknown else record


@functools.cache
def _needed(record: type[Record]) -> list[tuple[str, frozenset[str], object]]:
    """(field, what it needs, its default) of those that need anything."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(record)}
    return [(name, words, defaults[name]) for name, words in declared(record, "needs").items()]
