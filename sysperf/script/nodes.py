"""Parts of single nodes of a tree: the names in them, and the arguments of a call as they are written."""

from __future__ import annotations

import ast

MAX_CHAIN = 40


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of attributes of a name; empty for everything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < MAX_CHAIN:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def item_name(node: ast.AST) -> str:
    """``losses['total']`` for what has a name of its own in a dictionary; empty for everything else."""
    owner, key = dotted(node.value) if isinstance(node, ast.Subscript) else "", item_key(node)
    return f"{owner}[{key!r}]" if owner and key else ""


def item_key(node: ast.AST) -> str:
    """``params`` of ``group["params"]``; empty for everything else."""
    key = node.slice if isinstance(node, ast.Subscript) else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def asked_key(node: ast.AST) -> str:
    """``device`` of ``options["device"]`` and of ``options.get("device")``."""
    if not isinstance(node, ast.Call):
        return item_key(node)
    key = node.args[0] if last_name(node.func) == "get" and node.args else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def last_name(node: ast.AST) -> str:
    """The last part of what is called: ``step`` of ``self.optimizer.step``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def root_of(node: ast.expr) -> ast.expr:
    """What an attribute or an element belongs to in the end: ``a`` of ``a.b[0].c``."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def names_in(*parts: ast.AST) -> set[str]:
    """All names that stand in some parts of a source."""
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((given.value for given in call.keywords if given.arg == name), None)


def argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    """The value of an argument, by its name or its place."""
    value = keyword(call, name)
    if value is None and 0 <= place < len(call.args) and not any(isinstance(given, ast.Starred) for given in call.args[: place + 1]):
        value = call.args[place]
    return value


def arguments(call: ast.Call) -> list[ast.expr]:
    """The values of all arguments that are written."""
    return [*call.args, *(given.value for given in call.keywords)]


def is_open(call: ast.Call) -> bool:
    """Whether ``*args`` or ``**kwargs`` may give arguments that are not written."""
    return any(given.arg is None for given in call.keywords) or any(isinstance(given, ast.Starred) for given in call.args)
