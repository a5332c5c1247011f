"""What each fact means and where it is read: the names that rules use, generated from the records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import get_args

from sysperf.evaluate.schema import element, fields, is_record, kind
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import Record, TypeForm, origin_of
from sysperf.model.version import Version

_NAMES = {int: "whole number", float: "number", str: "text", bool: "yes or no", CpuSet: "CPU list", Version: "version"}


class Description(Record):
    """One fact."""

    fact: str
    type: str
    doc: str
    reads: tuple[str, ...]


def describe(area: str, record: type) -> Iterator[Description]:
    """The facts of a record, those of the records inside it too."""
    for name, field in fields(record).items():
        path = f"{area}.{name}"
        yield Description(path, type_name(field.type), field.doc, field.reads)
        inner = field.type if is_record(field.type) else element(field.type)
        if is_record(inner):
            yield from describe(path if inner is field.type else f"{path}[]", inner)


def type_name(annotation: TypeForm) -> str:
    """A type in words: ``list of CPU list``, ``text``."""
    if origin_of(annotation) is tuple:
        inner = element(annotation)
        return "list" if is_record(inner) else f"list of {type_name(inner)}"
    if origin_of(annotation) is dict:
        return f"mapping to {type_name(get_args(annotation)[1])}"
    if is_record(annotation):
        return "record"
    return _NAMES.get(annotation, kind(annotation))


def render(described: list[Description], *, width: int) -> str:
    """The descriptions as text."""
    lines: list[str] = []
    for description in described:
        lines.append(f"{description.fact}  ({description.type})")
        lines += textwrap.wrap(description.doc, width, initial_indent="    ", subsequent_indent="    ")
        lines += [f"    read from {read}" for read in description.reads]
    return "\n".join(lines)
