"""A place that gives a name a value, and what the name stands for by it."""

from __future__ import annotations

import ast
from typing import NamedTuple

from sysperf.script.syntax import Function


class Binding(NamedTuple):
    """One place that gives a name a value: an expression, an element of it (`element`), or a part of what it unpacks to.

    `path` leads to the part from the outside inwards: ``i, (x, y) = …`` gives x by (1, 0).
    `annotation` is what a function says of its parameter.
    """

    value: ast.expr | None
    path: tuple[int, ...] = ()
    element: bool = False
    parameter: tuple[Function, int] | None = None
    annotation: ast.expr | None = None


def whole(binding: Binding) -> ast.expr | None:
    """What a name stands for as a whole: of ``a, b = x, y`` the one beside it."""
    if not binding.path:
        return binding.value
    parts = binding.value.elts if isinstance(binding.value, ast.Tuple) and not binding.element else []
    return parts[binding.path[0]] if len(binding.path) == 1 and binding.path[0] < len(parts) else None


def default_of(parameter: tuple[Function, int]) -> ast.expr | None:
    """The default value of a parameter."""
    function, index = parameter
    arguments = [*function.args.posonlyargs, *function.args.args]
    place = index - (len(arguments) - len(function.args.defaults))
    return function.args.defaults[place] if 0 <= place < len(function.args.defaults) and index >= 0 else None
