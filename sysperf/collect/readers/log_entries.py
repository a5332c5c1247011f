"""What the kernel's log says again and again is told once: the first text, how often, and when last."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

from msgspec.structs import replace

MAX_ENTRIES = 256


class Entry(Protocol):
    """What is told of lines that say the same: a record with their number, and the time of the newest."""

    @property
    def count(self) -> int: ...
    @property
    def last(self) -> str: ...


AnyKey = TypeVar("AnyKey", bound=Hashable)
AnyEntry = TypeVar("AnyEntry", bound=Entry)


def add(found: dict[AnyKey, AnyEntry], key: AnyKey, entry: AnyEntry) -> None:
    """Add the entry of one line: of a key the first text is kept, which is nearest to the cause, and the newest time."""
    if key in found:
        found[key] = replace(found[key], count=found[key].count + 1, last=entry.last)  # type: ignore[type-var]  # a protocol cannot say that it is a struct
    elif len(found) < MAX_ENTRIES:
        found[key] = entry
