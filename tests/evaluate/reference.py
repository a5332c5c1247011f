"""What the condition language means, as short as it can be said: a walk over the syntax tree, with None for an unknown."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sysperf.model.cpuset import CpuSet
from sysperf.model.version import Version

Names = Mapping[str, Any]
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda item, many: item in many,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len, "count": lambda many: sum(map(bool, many)), "sum": sum, "abs": abs, "int": int, "float": float, "ver": Version,
    "min": min, "max": max, "unique": lambda many: tuple(dict.fromkeys(many)),
    "major": lambda text: Version(text).major, "minor": lambda text: Version(text).minor, "cpus": CpuSet.parse,
    "matches": lambda text, pattern: re.search(pattern, text) is not None, "lower": str.lower, "startswith": str.startswith,
    "overlaps": lambda left, right: not left.isdisjoint(right), "within": lambda left, right: left.issubset(right),
    "assigned": lambda variables, *names: tuple(f"{name}={variables[name]}" for name in names if variables.get(name)),
}  # fmt: skip


def meaning(text: str, names: Names, tables: Mapping[str, Mapping[str, Any]]) -> Any:
    """The value of a condition; None when it is unknown."""
    return _value(ast.parse(text, mode="eval").body, {**names, "$tables": tables})


def kleene(values: Iterable[Any], decisive: bool) -> bool | None:
    """`or` and `any` with True as decisive, `and` and `all` with False."""
    seen = list(values)
    if any(value is not None and bool(value) is decisive for value in seen):
        return decisive
    return None if None in seen else not decisive


def _value(node: ast.expr, names: Names) -> Any:  # noqa: C901, PLR0911 - one line a construct
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names.get(node.id)
        case ast.Attribute():
            whole = _value(node.value, names)
            return whole.get(node.attr, "") if isinstance(whole, dict) else getattr(whole, node.attr, None)
        case ast.List():
            return tuple(_value(item, names) for item in node.elts)
        case ast.BoolOp():
            return kleene((_value(part, names) for part in node.values), isinstance(node.op, ast.Or))
        case ast.UnaryOp():
            inner = _value(node.operand, names)
            return None if inner is None else not inner if isinstance(node.op, ast.Not) else -inner
        case ast.IfExp():
            test = _value(node.test, names)
            return None if test is None else _value(node.body if test else node.orelse, names)
        case ast.BinOp():
            return _applied(OPERATORS[type(node.op)], _value(node.left, names), _value(node.right, names))
        case ast.Compare():
            chain = [_value(part, names) for part in (node.left, *node.comparators)]
            return kleene((_compared(op, left, right) for op, left, right in zip(node.ops, chain, chain[1:], strict=False)), False)
        case ast.GeneratorExp() | ast.ListComp():
            return _comprehended(node, names)
        case ast.Call(func=ast.Name()):
            return _called(node, names)
    raise NotImplementedError(type(node).__name__)


def _compared(op: ast.cmpop, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    match op:
        case ast.Eq():
            return _equal(left, right)
        case ast.NotEq():
            same = _equal(left, right)
            return None if same is None else not same
        case ast.NotIn():
            inside = _compared(ast.In(), left, right)
            return None if inside is None else not inside
        case ast.In() if isinstance(right, tuple):
            return kleene((None if item is None else left == item for item in right), True)
    answer = _applied(OPERATORS[type(op)], left, right)
    return None if answer is None else bool(answer)


def _equal(left: Any, right: Any) -> bool | None:
    if not (isinstance(left, tuple) and isinstance(right, tuple)):
        return bool(left == right)
    if len(left) != len(right):
        return False
    return kleene((None if None in pair else pair[0] == pair[1] for pair in zip(left, right, strict=True)), False)


def _applied(function: Callable[..., Any], *values: Any) -> Any:
    if any(value is None or (isinstance(value, tuple) and None in value) for value in values):
        return None
    try:
        return function(*values)
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return None


def _comprehended(node: ast.GeneratorExp | ast.ListComp, names: Names) -> tuple[Any, ...] | None:
    (loop,) = node.generators
    source = _value(loop.iter, names)
    if source is None:
        return None
    assert isinstance(loop.target, ast.Name)
    values = []
    for item in source:
        inner = {**names, loop.target.id: item}
        kept = kleene((_value(test, inner) for test in loop.ifs), False)
        if kept is not False:
            values.append(None if kept is None else _value(node.elt, inner))
    return tuple(values)


def _called(node: ast.Call, names: Names) -> Any:
    assert isinstance(node.func, ast.Name)
    values = [_value(argument, names) for argument in node.args]
    match node.func.id:
        case "known":
            return values[0] is not None
        case "default":
            return values[1] if values[0] is None else values[0]
        case "any" | "all" as name:
            return None if values[0] is None else kleene(values[0], name == "any")
        case "table":
            if None in values[:2]:
                return None
            return names["$tables"].get(values[0], {}).get(str(values[1]), values[2] if len(values) > 2 else None)
        case name:
            return _applied(FUNCTIONS[name], *values)
