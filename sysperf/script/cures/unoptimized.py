"""Whether a line calls a model whose weights no optimizer of the file has, with gradients on, for one whose weights an optimizer has.

It is said of plain scripts: the model has a name of its own, which is only called, moved, loaded and switched.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from sysperf.script.cures.needless import MAX_CHARS
from sysperf.script.syntax import Function, Tree, asked_again
from sysperf.startup import lazy

OPTIMIZER = lazy(r"^(?:SGD|ASGD|Adam\w*|NAdam|RAdam|Adagrad|Adadelta|Adafactor|RMSprop|Rprop|LBFGS|Lion|Muon|\w*Optimizer)$")
HANDLED = frozenset(("eval", "train", "to", "cuda", "cpu", "float", "load_state_dict", "state_dict"))
_OFF = frozenset(("no_grad", "inference_mode", "set_grad_enabled"))
FREEZES = lazy(r"requires_grad_\(|\brequires_grad *= *(?!True)|freez|frozen")
"""Of a file with such a word nothing is said: the function that makes the model may freeze it."""


def calls_unoptimized(text: str, line: int) -> bool:
    """Whether gradients are computed of weights at a line that nobody updates."""
    tree = asked_again(text) if len(text) <= MAX_CHARS and not FREEZES.search(text) else None
    if tree is None:
        return False
    names = [node for node in ast.walk(tree.module) if isinstance(node, ast.Name)]
    optimized = _optimized(tree)
    calls = [
        node
        for node in ast.walk(tree.module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.lineno == line and node.func.id not in optimized
    ]
    return bool(optimized) and any(
        _is_only_called([name for name in names if name.id == call.func.id], tree)
        and not without_gradients(call, tree)
        and _goes_into(call, optimized, tree)
        for call in calls
        if isinstance(call.func, ast.Name)
    )


def _optimized(tree: Tree) -> set[str]:
    """The names of the models whose parameters optimizers get."""
    made = (call for call in ast.walk(tree.module) if isinstance(call, ast.Call) and OPTIMIZER.match(_called(call)))
    return {
        name.id
        for call in made
        for part in ast.walk(call)
        if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters")
        for name in ast.walk(part)
        if isinstance(name, ast.Name)
    }


def _is_only_called(uses: Iterable[ast.Name], tree: Tree) -> bool:
    """Whether a name is given a new object, and is otherwise called, moved, loaded and switched: nobody freezes it or hands it on."""
    made = False
    for use in uses:
        parent = tree.parents[use]
        if isinstance(use.ctx, ast.Store):
            made = made or _is_made(use, parent)
        elif isinstance(parent, ast.Attribute):
            if parent.attr not in HANDLED:
                return False
        elif not (isinstance(parent, ast.Call) and parent.func is use):
            return False
    return made


def _is_made(name: ast.Name, parent: ast.AST) -> bool:
    """Whether the call of a class, or of a function, gives it."""
    if isinstance(parent, ast.Assign):
        return isinstance(parent.value, ast.Call)
    return isinstance(parent, ast.Tuple) and name in parent.elts


def without_gradients(node: ast.AST, tree: Tree) -> bool:
    """Whether no_grad() is around a call, or what it gives is cut off at once."""
    parent = tree.parents.get(node)
    if isinstance(parent, ast.Attribute) and parent.attr in ("detach", "data"):
        return True
    while parent is not None:
        if isinstance(parent, ast.With) and any(_is_off(item.context_expr) for item in parent.items):
            return True
        if isinstance(parent, Function) and any(map(_is_off, parent.decorator_list)):
            return True
        parent = tree.parents.get(parent)
    return False


def _is_off(value: ast.expr) -> bool:
    called = value.func if isinstance(value, ast.Call) else value
    return (called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else "") in _OFF


def _goes_into(call: ast.Call, optimized: set[str], tree: Tree) -> bool:
    """Whether a model with an optimizer is called on what a call gives, by its name, and nothing cuts that off."""
    outer = [
        node
        for node in ast.walk(tree.module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in optimized
    ]
    if any(part is call for node in outer for part in ast.walk(node)):
        return True
    parent = tree.parents.get(call)
    given = {target.id for target in parent.targets if isinstance(target, ast.Name)} if isinstance(parent, ast.Assign) else set[str]()
    uses = [node for node in ast.walk(tree.module) if isinstance(node, ast.Name) and node.id in given and isinstance(node.ctx, ast.Load)]
    cut = any(isinstance(parent := tree.parents[use], ast.Attribute) and parent.attr in ("detach", "detach_", "data") for use in uses)
    inner = {id(part) for node in outer for part in ast.walk(node)}
    return not cut and any(id(use) in inner for use in uses)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""
