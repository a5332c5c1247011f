"""What the expression of a call says of the function that it calls: a name, a method of `self`, one of several."""

from __future__ import annotations

import ast

from sysperf.script.nodes import dotted, last_name

_OF_EVERY_MODEL = frozenset(("train", "eval", "forward", "step", "to", "update", "get", "save", "load", "backward", "__init__"))
"""Methods that say nothing of the class of what they are called on."""


def written_text(given: list[ast.expr]) -> str:
    """The first argument, where it is written as a text."""
    return given[0].value if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else ""


def function_of(node: ast.expr | None) -> str:
    """The function that a name or ``torch.compile(step)`` stands for; empty for others."""
    if isinstance(node, ast.Call) and len(node.args) == 1 and last_name(node.func) in ("compile", "script", "partial"):
        node = node.args[0]
    return node.id if isinstance(node, ast.Name) else ""


def method_of(node: ast.expr | None) -> str:
    """The method that ``self.auto`` names; empty for others."""
    return node.attr if isinstance(node, ast.Attribute) and dotted(node.value) == "self" else ""


def chosen(value: ast.expr | None) -> list[ast.expr | None]:
    """The things one of which is taken: of ``first if warm else second``, of ``{"auto": self.auto, "manual": self.manual}[mode]``."""
    if isinstance(value, ast.IfExp):
        return [value.body, value.orelse]
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Dict):
        return [*value.value.values]
    return [value]


def is_of_self(call: ast.Call) -> bool:
    """Whether a method is called on `self`."""
    return last_name(getattr(call.func, "value", call)) == "self"


def is_of_a_part(called: ast.expr) -> bool:
    """``self.actor.act``: a method of what an object holds, which has the same name as one of its own."""
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Attribute) and dotted(called).startswith("self.")


def may_call(called: ast.expr, is_method: bool) -> bool:
    """Whether a name that is called may be that of a function, or of a method, of the file."""
    if not isinstance(called, ast.Attribute):
        return not is_method
    on_self = isinstance(called.value, ast.Name) and called.value.id in ("self", "cls")
    return is_method and (on_self or called.attr not in _OF_EVERY_MODEL)
