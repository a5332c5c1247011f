"""Defaults of a script's options: of an argparse parser, click, a dataclass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from sysperf.script.nodes import keyword, last_name
from sysperf.script.syntax import Tree
from sysperf.startup import lazy

Constant = Any  # any: a literal of the script: a number, a text, a list, or None
_CLASSES = lazy(r"\w*(Args|Arguments|Config|CFG|Options|Params|Settings|Hparams|Hyperparameters)")
_BASES = ("NamedTuple", "BaseModel", "BaseSettings", "Tap")


def defaults(tree: Tree) -> dict[str, Constant]:
    """The default of each option by its name; None where it is no literal, or two differ."""
    found: dict[str, Constant] = {}
    for name, default in (*_of_classes(tree), *_of_parsers(tree)):
        value = default.value if isinstance(default, ast.Constant) else None
        found[name] = value if found.get(name, value) == value else None
    return found


def _of_classes(tree: Tree) -> Iterator[tuple[str, ast.expr | None]]:
    """The fields of classes that hold options: ``workers: int = 4`` of a dataclass."""
    for node in {node.name: node for node in tree.of(ast.ClassDef)}.values():
        for statement in node.body if _holds_options(node) else ():
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                yield statement.target.id, _field_default(statement.value)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                yield statement.targets[0].id, statement.value


def _holds_options(node: ast.ClassDef) -> bool:
    """Tell whether a class is a record of options: a dataclass, or one that is named so."""
    decorators = (decorator.func if isinstance(decorator, ast.Call) else decorator for decorator in node.decorator_list)
    if any("dataclass" in last_name(decorator) for decorator in decorators):
        return True
    return bool(_CLASSES.fullmatch(node.name)) or any(last_name(base) in _BASES for base in node.bases)


def _field_default(value: ast.expr | None) -> ast.expr | None:
    """The default of a field: as it stands, or of ``field(default=…)``."""
    return keyword(value, "default") if isinstance(value, ast.Call) and last_name(value.func) in ("field", "Field") else value


def _of_parsers(tree: Tree) -> Iterator[tuple[str, ast.expr]]:
    """The options that calls such as ``add_argument`` declare, with a literal as their default."""
    for call in tree.of(ast.Call):
        if last_name(call.func) in ("add_argument", "add_option", "option"):
            words = [argument.value for argument in call.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
            long = next((word for word in words if word.startswith("--")), words[0] if words else "")
            name, default = keyword(call, "dest"), keyword(call, "default")
            key = name.value if isinstance(name, ast.Constant) else long.lstrip("-").replace("-", "_")
            if isinstance(default, ast.Constant) and isinstance(key, str):
                yield key, default
