"""Kinds of kernels that a program could do without, or do faster: each is declared beside the fact that says what they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec


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


def any_of(*words: str) -> Callable[[str], bool]:
    """The question whether one of these words, in lower case, is in a kernel's name."""
    return lambda name: any(word in name for word in words)


def declared(record: type) -> dict[str, Kind]:
    """The kinds that a record's fields declare, by the names of the fields."""
    metas = ((name, meta) for name, annotation in record.__annotations__.items() for meta in getattr(annotation, "__metadata__", ()))
    return {name: meta.extra["kernels"] for name, meta in metas if "kernels" in (meta.extra or {})}
