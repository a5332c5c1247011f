"""What a name alone says: that of a class of the file by what it inherits, that of a function, and that of a value."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from sysperf.script.nodes import last_name
from sysperf.script.semantics.kinds import BY_NAME, DOES, HOSTED, NUMBERS, OPTIMIZER_CLASSES, SETTINGS, library_kind, made_by
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.value import Value
from sysperf.script.syntax import Tree

MAX_DEPTH = 4
_RUN = ("step", "zero_grad", "train", "eval", "forward", "parameters")
_SPLITS = ("train", "training", "val", "valid", "validation", "test", "eval")


def bases(names: Names) -> dict[str, str]:
    """What instances of the classes of a file are, by their names."""
    return {name: _base_kind(names, node, MAX_DEPTH) for name, node in names.classes.items()}


def _base_kind(names: Names, node: ast.ClassDef, depth: int) -> str:
    for base in node.bases:
        name = names.qualified(base)
        local = names.classes.get(name)
        inner = local is not None and local is not node and depth
        kind = _base_kind(names, local, depth - 1) if inner and local is not None else library_kind(name) or class_kind(names, base)
        if kind := kind or ("callback" if name.endswith("Callback") else ""):
            return "dataset" if kind == "memory-dataset" else kind  # an heir may do more with its rows
    methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    return "lightning" if {"training_step", "configure_optimizers"} <= methods else ""


def class_kind(names: Names, node: ast.expr) -> str:
    """What the objects of a class of another file are."""
    found = names.outside.class_of(node)
    return found.kind if found is not None else ""


def kind_of_call(names: Names, known: Mapping[str, str], name: str) -> str:
    """The kind of what a class or function makes, by its name alone; empty for what is not known."""
    if (kind := made_by(name)) or name not in names.classes:
        return kind
    return known[name] or ("optimizer" if OPTIMIZER_CLASSES.fullmatch(name) else "object")


def kind_of_method(name: str) -> str:
    """The kind of what a method gives whatever it is called on; empty for others."""
    if name in ("parameters", "buffers"):
        return "parameters"
    return "array" if name == "numpy" else "number" if name in NUMBERS or name.startswith("num_") else ""


def _is_run(tree: Tree, node: ast.expr) -> bool:
    """Whether settings hold a thing itself: ``config.model(x)``, ``config.optimizer.step()``, ``for x, y in config.loaders.train``."""
    parent = tree.parents.get(node)
    if isinstance(parent, ast.For):
        return parent.iter is node
    while isinstance(parent, ast.Attribute) and parent.attr in (*_RUN, *_SPLITS):
        node, parent = parent, tree.parents.get(parent)
    return (isinstance(parent, ast.Call) and parent.func is node) or (isinstance(parent, ast.For) and parent.iter is node)


def guessed(tree: Tree, names: Names, node: ast.expr, name: str) -> list[Value]:
    """What a name alone suggests; what is differentiated is a loss, whatever its name."""
    last = last_name(node).lstrip("_")
    if name and name in names.differentiated:
        return [Value("loss")]
    if HOSTED.fullmatch(last) or (
        isinstance(node, ast.Attribute) and SETTINGS.fullmatch(name.rpartition(".")[0]) and not _is_run(tree, node)
    ):
        return []
    kinds = [kind for kind, pattern in BY_NAME if pattern.fullmatch(last)]
    if not kinds and name in names.parameterized and name != "self":
        kinds = ["model"]
    called = DOES.fullmatch(last) and isinstance(call := tree.parents.get(node), ast.Call) and call.func is node
    return [] if called else [Value(kind, guess=True) for kind in kinds[:1]]
