"""Calls that run what they are given: ``map(f, xs)``, ``checkpoint(f, x)``, ``run(x)`` of ``run = partial(f, model)``."""

from __future__ import annotations

import ast

from sysperf.script.nodes import is_open, last_name
from sysperf.script.syntax import Tree

_WITH_ARGUMENTS = frozenset(("checkpoint", "tree_map"))
"""What calls its first argument with the others."""
_OF_EACH = frozenset(("map", "filter"))
"""What calls its first argument with each element of the others."""


def called_through(tree: Tree, call: ast.Call) -> ast.Call | None:
    """The call that another one makes, as if it were written at its place."""
    name = last_name(call.func)
    if not call.args or not isinstance(call.args[0], ast.Name | ast.Attribute):
        return None
    if isinstance(call.func, ast.Name) and name in _OF_EACH:
        return _written(tree, call, call.args[0], [_element(tree, given) for given in call.args[1:]], [])
    if isinstance(call.func, ast.Attribute) and name == "step" and len(call.args) == 1:  # of an optimizer, with a closure
        return _written(tree, call, call.args[0], [], [])
    return _written(tree, call, call.args[0], call.args[1:], call.keywords) if name in _WITH_ARGUMENTS else None


def completed(tree: Tree, call: ast.Call, kept: ast.expr | None) -> ast.Call | None:
    """The call of the function of which ``partial(f, model)`` keeps some arguments, with those that are given later."""
    if not isinstance(kept, ast.Call) or last_name(kept.func) != "partial" or len(kept.args) < 2 or is_open(kept):
        return None
    return _written(tree, call, kept.args[0], [*kept.args[1:], *call.args], [*kept.keywords, *call.keywords])


def _written(tree: Tree, at: ast.Call, called: ast.expr, given: list[ast.expr], named: list[ast.keyword]) -> ast.Call:
    made = ast.copy_location(ast.Call(called, given, named), at)
    tree.parents[made] = at
    return made


def _element(tree: Tree, iterated: ast.expr) -> ast.expr:
    """One element of what is gone through."""
    made = ast.copy_location(ast.Subscript(iterated, ast.Constant(0), ast.Load()), iterated)
    tree.parents[made] = tree.parents[iterated]
    return made
