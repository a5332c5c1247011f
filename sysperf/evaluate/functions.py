"""The operators and functions of the condition language, on values that may be unknown."""

from __future__ import annotations

import _ast as ast  # its syntax nodes alone: `ast` itself costs 1.5 ms
import math
import operator
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import lru_cache

from sysperf.evaluate.schema import ANYTHING
from sysperf.evaluate.scope import Scope, Value
from sysperf.model.cpuset import CpuSet
from sysperf.model.record import TypeForm
from sysperf.model.version import Version

MAX_BITS = 128
"""Of a whole number that is calculated: larger ones are an unknown, since Python cannot write them quickly."""
ITEMS_PER_STEP = 16
"""So many elements of a list cost as much as one turn of a loop."""
MAX_TEXT = 1_024
"""Only this much of a text is searched by `matches`; with two repetitions at most, that bounds its time."""

Comparison = Callable[[Scope, Value, Value], Value]


class Unknown:
    """A value that nobody knows: the facts it depends on, with a reason where the fact itself does not have one."""

    __slots__ = ("facts", "reads")

    def __init__(self, facts: dict[str, str], reads: dict[str, tuple[str, ...]] | None = None) -> None:
        self.facts = facts
        self.reads = reads or {}

    def __add__(self, other: Unknown) -> Unknown:
        return Unknown({**self.facts, **other.facts}, {**self.reads, **other.reads})

    def __bool__(self) -> bool:
        raise TypeError("an unknown is neither true nor false")


def unknown_of(*values: Value) -> Unknown | None:
    """The doubts among the values, joined; None when all are known."""
    doubt: Unknown | None = None
    for value in values:
        if isinstance(value, Unknown):
            doubt = value if doubt is None else doubt + value
    return doubt


def because(what: str, reason: str) -> Unknown:
    """An unknown that is not a fact's own."""
    return Unknown({what: reason})


def _arithmetic(symbol: str, function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def run(left: Value, right: Value) -> Value:
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return because(f"{symbol} on {left!r:.40} and {right!r:.40}", "only numbers can be calculated with")
        try:
            value = function(left, right)
        except (ZeroDivisionError, OverflowError) as error:
            return because(f"{left!r:.40} {symbol} {right!r:.40}", str(error))
        if isinstance(value, int) and abs(value) >> MAX_BITS:
            return because(f"{symbol} on large numbers", f"the result has more than {MAX_BITS} bits")
        return value

    return run


ARITHMETIC: dict[type[ast.operator], Callable[[Value, Value], Value]] = {
    ast.Add: _arithmetic("+", operator.add),
    ast.Sub: _arithmetic("-", operator.sub),
    ast.Mult: _arithmetic("*", operator.mul),
    ast.Div: _arithmetic("/", operator.truediv),
    ast.FloorDiv: _arithmetic("//", operator.floordiv),
    ast.Mod: _arithmetic("%", operator.mod),
}


def _ordered(symbol: str, function: Callable[[Value, Value], Value]) -> Comparison:
    def run(_scope: Scope, left: Value, right: Value) -> Value:
        try:
            return bool(function(left, right))
        except TypeError:
            return because(f"{left!r:.40} {symbol} {right!r:.40}", "these cannot be compared")

    return run


def _equal(scope: Scope, left: Value, right: Value) -> Value:
    """Lists are compared element by element: one known difference decides, else an unknown element leaves it open."""
    if left.__class__ is not tuple or right.__class__ is not tuple:
        return left == right
    scope.spend(len(left) // ITEMS_PER_STEP)
    if len(left) != len(right):
        return False
    doubt = unknown_of(*left, *right)
    if doubt is None:
        return left == right
    pairs = (
        (first, second)
        for first, second in zip(left, right, strict=True)
        if not isinstance(first, Unknown) and not isinstance(second, Unknown)
    )
    return doubt if all(first == second for first, second in pairs) else False


def _unequal(scope: Scope, left: Value, right: Value) -> Value:
    answer = _equal(scope, left, right)
    return answer if isinstance(answer, Unknown) else not answer


def _contains(scope: Scope, left: Value, right: Value) -> Value:
    scope.spend(_length(right) // ITEMS_PER_STEP)
    if isinstance(right, tuple):
        doubt = unknown_of(*right)
        if doubt is not None:
            return True if any(not isinstance(item, Unknown) and item == left for item in right) else doubt
    try:
        return left in right
    except TypeError:
        return because(f"{left!r:.40} in {right!r:.40}", "nothing can be in that")


def _not_contains(scope: Scope, left: Value, right: Value) -> Value:
    answer = _contains(scope, left, right)
    return answer if isinstance(answer, Unknown) else not answer


COMPARISONS: dict[type[ast.cmpop], Comparison] = {
    ast.Eq: _equal,
    ast.NotEq: _unequal,
    ast.Lt: _ordered("<", operator.lt),
    ast.LtE: _ordered("<=", operator.le),
    ast.Gt: _ordered(">", operator.gt),
    ast.GtE: _ordered(">=", operator.ge),
    ast.In: _contains,
    ast.NotIn: _not_contains,
}


def each(scope: Scope, source: Value, name: str, keep: list[Value], value: Value) -> Iterator[Value]:
    """The values of a comprehension, one by one; an element whose filter is unknown is unknown.

    `any` and `all` stop at the element that decides, so that the evidence is about that one.
    """
    outer = scope.names.get(name)
    try:
        for item in source:
            scope.spend()
            scope.names[name] = item
            kept = _kept(scope, keep)
            if isinstance(kept, Unknown):
                yield kept
            elif kept:
                yield value(scope)
    finally:
        scope.names[name] = outer


def _kept(scope: Scope, keep: list[Value]) -> Value:
    doubt: Unknown | None = None
    for test in keep:
        answer = test(scope)
        if isinstance(answer, Unknown):
            doubt = answer if doubt is None else doubt + answer
        elif not answer:
            return False
    return doubt if doubt is not None else True


def _items(value: Value) -> tuple[Value, ...]:
    return tuple(value) if isinstance(value, tuple | CpuSet | dict) else (value,)


def _length(value: Value) -> int:
    """How many elements a function goes through; a text counts as nothing, its length is bounded where it is read."""
    return len(value) if isinstance(value, tuple | dict) else 0


def _strict(function: Callable[..., Value]) -> Callable[..., Value]:
    """A function that is unknown as soon as an argument, or an element of one, is; that fails as an unknown too."""

    def run(scope: Scope, *args: Value) -> Value:
        scope.spend(sum(map(_length, args)) // ITEMS_PER_STEP)
        doubt = unknown_of(*args, *(item for arg in args if arg.__class__ is tuple for item in arg))
        if doubt is not None:
            return doubt
        try:
            return function(*args)
        except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
            return because(", ".join(f"{arg!r:.40}" for arg in args), str(error)[:200])

    return run


def _decided(values: Value, decisive: bool) -> Value:
    """Whether one of the values is `decisive`; unknown when none is seen to be and one is unknown."""
    if isinstance(values, Unknown):
        return values
    doubt: Unknown | None = None
    for value in values:
        if isinstance(value, Unknown):
            doubt = value if doubt is None else doubt + value
        elif bool(value) is decisive:
            if isinstance(values, Generator):
                values.close()
            return decisive
    return doubt if doubt is not None else not decisive


def _any(_scope: Scope, values: Value) -> Value:
    return _decided(values, True)


def _all(_scope: Scope, values: Value) -> Value:
    return _decided(values, False)


def _known(_scope: Scope, value: Value) -> bool:
    return not isinstance(value, Unknown)


def _default(_scope: Scope, value: Value, otherwise: Value) -> Value:
    return otherwise if isinstance(value, Unknown) else value


def _table(scope: Scope, name: Value, key: Value, *otherwise: Value) -> Value:
    doubt = unknown_of(name, key)
    if doubt is not None:
        return doubt
    rows = scope.tables.get(name, {})
    if str(key) in rows:
        row = rows[str(key)]
        return tuple(row) if isinstance(row, list) else row
    return otherwise[0] if otherwise else because(f"table {name}", f"has no entry {str(key)[:40]!r}")


@lru_cache(maxsize=512)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _matches(text: str, pattern: str) -> bool:
    return _pattern(pattern).search(text[:MAX_TEXT]) is not None


def _smallest(*values: Value) -> Value:
    return min(_items(values[0]) if len(values) == 1 else values)


def _largest(*values: Value) -> Value:
    return max(_items(values[0]) if len(values) == 1 else values)


def _whole(value: Value) -> int:
    return int(value.strip() if isinstance(value, str) else value)


def _version(value: Value) -> Version:
    return value if isinstance(value, Version) else Version(value)


def _unique(values: Value) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(_items(values)))


def _assigned(variables: Mapping[str, str], *names: str) -> tuple[str, ...]:
    return tuple(f"{name}={variables[name]}" for name in names if variables.get(name))


FUNCTIONS: dict[str, tuple[Callable[..., Value], int, int, TypeForm]] = {
    # name: (function of scope and arguments, fewest arguments, most arguments, result type; None: that of the first)
    "known": (_known, 1, 1, bool),
    "default": (_default, 2, 2, None),
    "any": (_any, 1, 1, bool),
    "all": (_all, 1, 1, bool),
    "len": (_strict(len), 1, 1, int),
    "count": (_strict(lambda values: sum(1 for value in values if value)), 1, 1, int),
    "min": (_strict(_smallest), 1, 9, ANYTHING),
    "max": (_strict(_largest), 1, 9, ANYTHING),
    "sum": (_strict(sum), 1, 1, float),
    "abs": (_strict(abs), 1, 1, float),
    "ceil": (_strict(math.ceil), 1, 1, int),
    "round": (_strict(round), 1, 2, float),
    "unique": (_strict(_unique), 1, 1, None),
    "int": (_strict(_whole), 1, 1, int),
    "float": (_strict(float), 1, 1, float),
    "ver": (_strict(_version), 1, 1, Version),
    "major": (_strict(lambda value: _version(value).major), 1, 1, str),
    "minor": (_strict(lambda value: _version(value).minor), 1, 1, str),
    "matches": (_strict(_matches), 2, 2, bool),
    "startswith": (_strict(lambda text, start: text.startswith(start)), 2, 2, bool),
    "endswith": (_strict(lambda text, end: text.endswith(end)), 2, 2, bool),
    "lower": (_strict(lambda text: text.lower()), 1, 1, str),
    "cpus": (_strict(CpuSet.parse), 1, 1, CpuSet),
    "overlaps": (_strict(lambda first, second: not first.isdisjoint(second)), 2, 2, bool),
    "within": (_strict(lambda first, second: first.issubset(second)), 2, 2, bool),
    "assigned": (_strict(_assigned), 2, 16, tuple[str, ...]),
    "table": (_table, 2, 3, ANYTHING),
}
