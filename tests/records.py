"""Records of areas from what a test says of them: fields that a record requires, and the test does not name, are empty."""

from __future__ import annotations

import functools
import types
import typing
from typing import Any

import msgspec

from sysperf.collect import record_types
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import convert

_fields = functools.cache(msgspec.structs.fields)
"""A type's fields, whose annotations msgspec evaluates anew at each call."""

_EMPTY: dict[Any, object] = {int: 0, float: 0.0, str: "", bool: False, tuple: (), dict: {}, CpuSet: ""}


def area_facts(area: str, given: Any) -> Any:
    """The record of an area with these fields; one that is a record already is taken as it is."""
    if not isinstance(given, dict):
        return given
    record = record_types((area,))[area]
    return convert(filled(record, given), record)


def filled(as_type: Any, given: Any) -> Any:
    """The same data with every field that its records require."""
    origin, parts = typing.get_origin(as_type), typing.get_args(as_type)
    if origin in (types.UnionType, typing.Union):
        kept = [part for part in parts if part is not types.NoneType]
        return given if given is None or len(kept) != 1 else filled(kept[0], given)
    if origin is typing.Annotated:
        return filled(parts[0], given)
    if origin is tuple and isinstance(given, list | tuple):
        return [filled(parts[0], item) for item in given]
    if not (isinstance(as_type, type) and issubclass(as_type, msgspec.Struct) and isinstance(given, dict)):
        return given
    fields = _fields(as_type)
    known = {field.name: filled(field.type, given[field.name]) for field in fields if field.name in given}
    required = {field.name: _empty(field.type) for field in fields if field.required and field.name not in given}
    return {**required, **known, **{name: given[name] for name in given if name not in known}}


def _empty(as_type: Any) -> object:
    """None where that is allowed, else the least value of the type."""
    if typing.get_origin(as_type) is typing.Annotated:
        return _empty(typing.get_args(as_type)[0])
    if types.NoneType in typing.get_args(as_type):
        return None
    return _EMPTY.get(typing.get_origin(as_type) or as_type, {})
