"""Comparison and arithmetic of values that may be unknown, and which types may be compared."""

from __future__ import annotations

import _ast as ast  # its syntax nodes alone: `ast` itself costs 1.5 ms

from sysperf.evaluate.functions import Unknown, unknown_of
from sysperf.evaluate.schema import kind
from sysperf.evaluate.scope import Node, Scope, Value
from sysperf.evaluate.syntax import written
from sysperf.model.errors import RuleError
from sysperf.model.record import TypeForm


def comparison(left: Node, right: Node, test: Value) -> Node:
    """One comparison, as most are."""

    def run(scope: Scope) -> Value:
        first, second = left(scope), right(scope)
        if first.__class__ is Unknown or second.__class__ is Unknown:
            return unknown_of(first, second)
        return test(scope, first, second)

    return run


def check_size(value: Value) -> None:
    """Refuse a number that no fact can have: Python would take long to write it, or refuse to."""
    if isinstance(value, int) and abs(value) >> 64:
        raise RuleError("a whole number has more than 64 bits")


def as_list(values: Value) -> Value:
    """The values as a tuple; unknown stays unknown."""
    return values if isinstance(values, Unknown) else tuple(values)


def exhausted(run: Node) -> Node:
    """Returns a closure whose value is a tuple and not a generator."""
    return lambda scope: as_list(run(scope))


_ORDERED = {"number", "version", "text", "any"}


def check_comparable(node: ast.Compare, op: ast.cmpop, left: TypeForm, right: TypeForm) -> None:
    """Refuse to compare values of different types, or to order what has no order. Raises RuleError."""
    left_kind, right_kind = kind(left), kind(right)
    if isinstance(op, ast.In | ast.NotIn):
        if right_kind in ("number", "truth", "version", "record"):
            raise RuleError(f"`{written(node)[:60]}`: nothing can be in a {right_kind}")
        return
    if "any" in (left_kind, right_kind):
        return
    mixed = left_kind != right_kind
    unordered = not isinstance(op, ast.Eq | ast.NotEq) and left_kind not in _ORDERED
    if mixed or unordered:
        raise RuleError(f"`{written(node)[:60]}` compares {left_kind} with {right_kind}")
