"""The syntax of conditions: parsed, and asked for the names in it, without checking or compiling anything."""

from __future__ import annotations

import _ast as ast  # its syntax nodes alone: `ast` itself costs 1.5 ms
import warnings
from collections.abc import Iterable, Iterator
from typing import cast

from sysperf.model.errors import RuleError

MAX_LENGTH = 2_000


def parse(text: str) -> ast.expr:
    """The syntax tree of an expression. Raises RuleError on anything that is not one."""
    if len(text) > MAX_LENGTH:
        raise RuleError(f"the expression is longer than {MAX_LENGTH} characters")
    if "\\" in text:
        raise RuleError(f"`{text[:80]}` has a backslash", "in a pattern write [.] for a dot and [0-9] for a digit")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python only warns about is no expression of ours
            tree = compile(text.strip(), "<expression>", "eval", ast.PyCF_ONLY_AST, dont_inherit=True)
            return cast("ast.Expression", tree).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RuleError(f"`{text[:80]}` is no expression: {getattr(error, 'msg', error)}") from None


def names_in(text: str) -> frozenset[str]:
    """The areas, lists and items that an expression looks at, from its syntax alone: nothing is checked or compiled.

    The agent asks this of every rule, and most rules never need their condition. Raises RuleError when it is no expression.
    """
    return frozenset(_free_names(parse(text), frozenset("p")))


def _free_names(node: ast.AST, bound: frozenset[str]) -> Iterator[str]:
    """The names that stand for facts: no functions, and none that are bound, as `p` and what a comprehension binds."""
    if isinstance(node, ast.Name):
        if node.id not in bound:
            yield node.id
        return
    children: Iterable[ast.AST] = node.args if isinstance(node, ast.Call) else _children(node)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        yield from (name for loop in node.generators for name in _free_names(loop.iter, bound))
        bound |= {loop.target.id for loop in node.generators if isinstance(loop.target, ast.Name)}
        children = (node.elt, *(test for loop in node.generators for test in loop.ifs))
    for child in children:
        yield from _free_names(child, bound)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes directly below this one."""
    for field in node._fields:
        value = getattr(node, field)
        yield from (child for child in (value if isinstance(value, list) else (value,)) if isinstance(child, ast.AST))


def written(node: ast.AST) -> str:
    """An expression as it is written, for messages."""
    from ast import unparse  # noqa: PLC0415 - errors only

    return unparse(node)


def unchain(node: ast.expr) -> tuple[str, list[str | int]]:
    """``a.b['x'][0].c`` as its root name and its steps. Raises RuleError when it is anything else."""
    steps: list[str | int] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            check_name(node.attr)
            steps.append(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str | int):
            if isinstance(node.slice.value, str):
                check_name(node.slice.value)
            steps.append(node.slice.value)
        else:
            raise RuleError(f"`{written(node)[:60]}`: facts are reached by names, dots and constant subscripts only")
        node = node.value
    check_name(node.id)
    return node.id, steps[::-1]


def check_name(name: str) -> None:
    """Refuse a private name. Raises RuleError."""
    if name.startswith("_"):
        raise RuleError(f"`{name}`: names that begin with _ are not part of the condition language")
