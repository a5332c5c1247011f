"""Whether a line calls a model of which an optimizer has one part alone, as a new head, while gradients of all the rest are computed, too.

It is said of plain scripts: the model has a name of its own, it is only called, moved, loaded and switched, and its part replaced.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from sysperf.script.cures.needless import MAX_CHARS
from sysperf.script.cures.unoptimized import FREEZES, HANDLED, OPTIMIZER, without_gradients
from sysperf.script.nodes import last_name, root_of
from sysperf.script.syntax import Tree, asked_again
from sysperf.startup import lazy

_HEADS = lazy(r"^(?:fc|head|heads|classifier|last_linear|\w+_head|score|predictor)$")
_CUTS = frozenset(("no_grad", "inference_mode", "detach", "detach_", "set_grad_enabled"))


def trains_one_part(text: str, line: int) -> bool:
    """Whether the optimizers of a file have one part of a model that is called at a line, and nothing else of it."""
    tree = asked_again(text) if len(text) <= MAX_CHARS and not FREEZES.search(text) else None
    if tree is None or (paths := _optimized(tree)) is None:
        return False
    calls = [call for call in tree.of(ast.Call) if call.lineno == line and isinstance(call.func, ast.Name)]
    return any(
        len(parts := paths.get(name := last_name(call.func), set())) == 1
        and "" not in parts
        and not without_gradients(call, tree)
        and _is_only_called(name, next(iter(parts)), tree)
        for call in calls
    )


def _optimized(tree: Tree) -> dict[str, set[str]] | None:
    """The parts that optimizers have, by the names of their models, "" for a whole one; None: one has what nobody can follow."""
    found: dict[str, set[str]] = {}
    for call in tree.of(ast.Call):
        if not OPTIMIZER.match(last_name(call.func)):
            continue
        given = [node for node in ast.walk(call) if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters")]
        roots = [root_of(node) for node in given]
        if not given or not all(isinstance(root, ast.Name) for root in roots):
            return None
        for node, root in zip(given, roots, strict=True):
            found.setdefault(last_name(root), set()).add(_first_part(node))
    return found


def _first_part(node: ast.Attribute) -> str:
    """The attribute of the model at the beginning of ``model.fc.parameters``; empty: all of it."""
    name, value = "", node.value
    while isinstance(value, ast.Attribute | ast.Subscript):
        name, value = value.attr if isinstance(value, ast.Attribute) else name, value.value
    return name


def _is_only_called(name: str, part: str, tree: Tree) -> bool:
    """Whether a model has more than this part, and nobody freezes it, asks for its weights or hands it on."""
    made, replaced = None, False
    for use in (node for node in tree.of(ast.Name) if node.id == name):
        parent = tree.parents[use]
        if isinstance(use.ctx, ast.Store):
            made = parent.value if isinstance(parent, ast.Assign) and isinstance(parent.value, ast.Call) else None
            if made is None:
                return False
        elif isinstance(parent, ast.Attribute):
            replaced = replaced or (parent.attr == part and isinstance(parent.ctx, ast.Store))
            if parent.attr not in HANDLED and parent.attr != part:
                return False
        elif not (isinstance(parent, ast.Call) and parent.func is use):
            return False
    return made is not None and _has_more(tree, last_name(made.func), part, replaced=replaced)


def _has_more(tree: Tree, maker: str, part: str, *, replaced: bool) -> bool:
    """Whether a model has weights beside a part, for all that its class in the file shows; another file's has, where the part is a head."""
    own = next((node for node in tree.of(ast.ClassDef) if node.name == maker), None)
    if own is None:
        return replaced or _HEADS.match(part) is not None
    if any(last_name(node) in _CUTS for node in ast.walk(own) if isinstance(node, ast.Attribute | ast.Name)):
        return False
    return any(name != part for name in _layers(own))


def _layers(owner: ast.ClassDef) -> Iterable[str]:
    """The attributes to which a class gives a layer with weights, or several."""
    stores = (node for node in ast.walk(owner) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    return [
        target.attr
        for node in stores
        for target in node.targets
        if isinstance(target, ast.Attribute)
        and any(_WEIGHTED.search(last_name(call.func)) for call in ast.walk(node.value) if isinstance(call, ast.Call))
    ]


_WEIGHTED = lazy(r"^(?:Linear|Conv\d?d|ConvTranspose\d?d|Embedding|LSTM|GRU|RNN|Transformer\w*|MultiheadAttention)$")
