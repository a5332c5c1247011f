"""Closures that fetch a fact, and keep it as evidence where somebody asked for that."""

from __future__ import annotations

import functools

from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.scope import Node, Scope, Touched, Value


@functools.cache  # the same facts are named by many rules, and a long-lived agent keeps them all
def getter(root: str, steps: tuple[str | int, ...], path: str, reads: tuple[str, ...], absent_is_empty: bool, evident: bool) -> Node:
    """Returns the closure that fetches the fact at `path`, by its steps from `root`."""
    if evident and not absent_is_empty and 1 <= len(steps) <= 2 and all(isinstance(step, str) for step in steps):
        *parts, field = map(str, steps)
        return _field_getter(root, parts[0] if parts else "", field, path, reads)

    def run(scope: Scope) -> Value:
        value = scope.names.get(root)
        for step in steps:
            if value is None:
                break
            if isinstance(step, int):
                value = value[step] if step < len(value) else None
            elif isinstance(value, dict):
                value = value.get(step, "" if absent_is_empty else None)
            else:
                value = getattr(value, step, None)
        if value is None:
            return Unknown({path: ""}, {path: reads})
        if evident and scope.touched is not None:
            scope.touched[path] = Touched(value, reads)
        return value

    return run


def _field_getter(root: str, part: str, field: str, path: str, reads: tuple[str, ...]) -> Node:
    """The same without a loop for what most facts are: a field of an area or item, or of a `part` of it, as `proc.workers.count`."""
    unknown = Unknown({path: ""}, {path: reads})

    def run(scope: Scope) -> Value:
        record = scope.names.get(root)
        if part:
            record = record.get(part) if isinstance(record, dict) else getattr(record, part, None)
        value = record.get(field) if isinstance(record, dict) else getattr(record, field, None)
        if value is None:
            return unknown
        if scope.touched is not None:
            scope.touched[path] = Touched(value, reads)
        return value

    return run
