"""Whether a statement computes for all places of a sequence, or by all experts, what is then taken of one, or multiplied by zero."""

from __future__ import annotations

import ast

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import Definitions, called
from sysperf.script.nodes import names_in, root_of

_EACH_PLACE = frozenset(("Linear", "LayerNorm", "RMSNorm", "GELU", "ReLU", "SiLU", "Tanh", "Sigmoid", "Dropout", "Identity", "Embedding"))
_OF_ONE = (ast.Constant, ast.UnaryOp)


def discards(source: Definitions, statement: ast.stmt) -> bool:
    """Whether layers that treat each place alone compute all, of which one is taken; or an expert, whose result a mask multiplies."""
    if _is_masked(source, statement):
        return True
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        name, scope = statement.targets[0].id, source.scope_of(statement)
        uses = [node for node in source.names[name] if scope is source.tree.module or scope in source.tree.ancestors(node)]
        loads = [node for node in uses if isinstance(node.ctx, ast.Load)]
        parents = [source.tree.parents.get(node) for node in loads]
        taken = [node for node in parents if isinstance(node, ast.Subscript)]
        return (
            len(loads) == len(uses) - 1
            and bool(loads)
            and len(taken) == len(loads)
            and len({ast.unparse(node) for node in taken}) == 1
            and isinstance(statement.value, ast.Call)
            and (_takes_one(taken[0], source, statement.value) or _takes_one_of_many(taken[0], statement.value))
        )
    return not hasattr(statement, "body") and any(
        isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and _takes_one(node, source, node.value)
        for node in ast.walk(statement)
    )


def _takes_one(part: ast.Subscript, source: Definitions, call: ast.Call) -> bool:
    """Whether one place of a sequence is taken, or some rows, and not one of the outputs."""
    if not _treats_each_place(source, call):
        return False
    if isinstance(part.slice, ast.Name | ast.Attribute):  # a mask or numbers of rows: outputs are the last dimension
        return True
    if not isinstance(part.slice, ast.Tuple):
        return False
    first, *rest = part.slice.elts
    if not rest or not (isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None):
        return False
    place, *more = rest
    if len(more) == 1 and isinstance(more[0], ast.Slice):
        return isinstance(place, _OF_ONE)
    return not more and isinstance(place, ast.UnaryOp) and isinstance(place.op, ast.USub) and not _has_one_output(source, call)


def _takes_one_of_many(part: ast.Subscript, call: ast.Call) -> bool:
    """Whether each of several layers computes all rows, and of each row the result of one is taken: `all[torch.arange(n), which]`."""
    several = [node for node in ast.walk(call) if isinstance(node, ast.ListComp | ast.GeneratorExp)]
    return any(
        isinstance(made.elt, ast.Call)
        and isinstance(made.elt.func, ast.Name)
        and made.elt.func.id == ast.unparse(made.generators[0].target)
        for made in several
    ) and (
        isinstance(part.slice, ast.Tuple)
        and len(part.slice.elts) > 1
        and all(isinstance(index, ast.Name | ast.Attribute | ast.Call) for index in part.slice.elts)
    )


def _layer(source: Definitions, call: ast.Call) -> ast.Call | None:
    """What made the layer that a method calls."""
    if not (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self"):
        return None
    owner = source.tree.class_of(call)
    assigned = [node for node in source.tree.of(ast.Assign) if source.tree.class_of(node) is owner]
    pairs = [pair for node in assigned for target in node.targets for pair in needless.pairs(target, node.value)]
    made = [value for target, value in pairs if isinstance(target, ast.Attribute) and target.attr == call.func.attr]
    return made[0] if len(made) == 1 and isinstance(made[0], ast.Call) else None


def _treats_each_place(source: Definitions, call: ast.Call) -> bool:
    made = _layer(source, call)
    if made is None:
        return False
    layers = made.args if called(made) == "Sequential" else [made]
    return all(isinstance(layer, ast.Call) and called(layer) in _EACH_PLACE for layer in layers) and bool(layers)


def _has_one_output(source: Definitions, call: ast.Call) -> bool:
    made = _layer(source, call)
    last = made.args[-1] if made is not None and called(made) == "Sequential" and made.args else made
    return isinstance(last, ast.Call) and any(isinstance(part, ast.Constant) and part.value == 1 for part in last.args[1:2])


def _is_masked(source: Definitions, statement: ast.stmt) -> bool:
    """Whether the layers of a loop compute all rows, and a comparison with the loop's number or name decides which of them count."""
    loop = source.loop_of(statement)
    if not isinstance(loop, ast.For) or not isinstance(statement, ast.Assign | ast.AugAssign | ast.Expr):
        return False
    own = names_in(loop.target)
    for node in ast.walk(statement):
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            continue
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if _calls_one_of(one, own) and _compares(source, other, own, loop, set()):
                return True
    return False


def _calls_one_of(part: ast.AST, own: set[str]) -> bool:
    calls = [node for node in ast.walk(part) if isinstance(node, ast.Call) and not any(isinstance(x, ast.Subscript) for x in node.args)]
    return any(isinstance(root := root_of(call.func), ast.Name) and root.id in own for call in calls) or any(
        isinstance(call.func, ast.Subscript) and any(isinstance(name, ast.Name) and name.id in own for name in ast.walk(call.func.slice))
        for call in calls
    )


def _compares(source: Definitions, part: ast.AST, own: set[str], loop: ast.For, seen: set[ast.AST]) -> bool:
    """Whether a factor is made of a comparison with what the loop counts, and not of elements that were chosen by it.

    Each value is looked at once: names may be made of each other.
    """
    if part in seen:
        return False
    seen.add(part)
    if any(isinstance(node, ast.Call) and called(node) in ("nonzero", "where", "masked_select", "index_select") for node in ast.walk(part)):
        return False
    for node in ast.walk(part):
        names = names_in(node)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and own & names:
            return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own:
            made = [one.value for one in source.definitions(node) if one.value is not None and source.is_in(one.node, loop)]
            if any(
                _compares(source, value, own, loop, seen)
                for value in made
                if not any(isinstance(x, ast.Name) and x.id == node.id for x in ast.walk(value))
            ):
                return True
    return False
