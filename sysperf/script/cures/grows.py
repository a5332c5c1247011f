"""Whether a statement goes through all of a text, a list or a tensor to which its loop adds, as generation without a cache does."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import Definitions, called
from sysperf.script.syntax import Loop
from sysperf.startup import lazy

_Part = ast.Name | ast.Subscript | ast.Call
_GROWS = frozenset(("append", "extend", "appendleft", "insert"))
_JOINS = lazy(r"^(?:cat|concat|concatenate|[vh]stack|append)$")
_CACHES = lazy(r"past|cache|hidden|state|memory|carry|incremental")
_MAKES_TENSORS = lazy(r"^(?:tensor|as_tensor|LongTensor|from_numpy|array|asarray|stack|cat|concatenate|unsqueeze|to|long|view|reshape)$")
"""Calls by which all elements stay."""
_TAKES_FEW = lazy(r"^(?:len|sample|choice|choices|randrange|next|enumerate|range|isinstance|print|type|id|bool)$")


def goes_through(source: Definitions, statement: ast.stmt, *, of_model: bool = False) -> bool:
    """Whether a call gets the whole of a text, a list or a tensor to which the loop around it adds."""
    if isinstance(statement, ast.Return):
        return False  # it is done once
    loop, names = source.loop_of(statement), _names_read(source, statement)
    if of_model and loop is not None and any(_is_all_of(source, name, loop) for name in names):
        return True
    while loop is not None:
        if any(_is_whole(source, name, loop, of_model=of_model) for name in names):
            return True
        loop = source.loop_of(loop)
    return False


def _is_all_of(source: Definitions, name: ast.Name, loop: Loop) -> bool:
    """Whether a name is made, in each round, of all elements of what grows: ``x = torch.tensor([[index[w] for w in words]])``."""
    several = source.definitions(name)
    if len(several) != 1 or not isinstance(made := several[0].node, ast.Assign) or source.loop_of(made) is not loop:
        return False
    calls = [node for node in ast.walk(made.value) if isinstance(node, ast.Call)]
    return bool(calls) and all(_MAKES_TENSORS.match(called(call)) for call in calls) and goes_through(source, made)


def adds(statement: ast.stmt) -> bool:
    """Whether a statement is the one that makes something longer."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AugAssign) else []
    return any(isinstance(target, ast.Name) and _joins(statement, target.id) for target in targets)


def _names_read(source: Definitions, statement: ast.stmt) -> list[ast.Name]:
    """The names that a statement reads; each once of those that stand side by side, as in a tuple of 60,000."""
    nodes = (node for node in ast.walk(statement.iter if isinstance(statement, ast.For) else statement) if isinstance(node, ast.Name))
    return list({(node.id, source.tree.parents.get(node)): node for node in nodes if isinstance(node.ctx, ast.Load)}.values())


def _is_whole(source: Definitions, name: ast.Name, loop: Loop, *, of_model: bool) -> bool:  # noqa: PLR0911 - one answer for each way to hand a value on
    """Whether a name that grows in a loop is handed to a call as a whole."""
    call = source.tree.parents.get(name)
    while isinstance(call, ast.IfExp | ast.Starred | ast.List | ast.Tuple | ast.keyword):
        call = source.tree.parents.get(call)
    if isinstance(call, ast.Attribute) and isinstance(source.tree.parents.get(call), ast.Call):
        method = source.tree.parents[call]
        if (
            not isinstance(method, ast.Call)
            or not (needless.is_pure(call.attr) or call.attr == "join")
            or call.attr in ("get", "item", "size", "dim")
        ):
            return False
        call = method
    iterated = (isinstance(call, ast.For) and call.iter is name) or isinstance(call, ast.comprehension)
    if not iterated and (not isinstance(call, ast.Call) or _TAKES_FEW.match(called(call)) or called(call) in _GROWS):
        return False
    if isinstance(call, ast.comprehension) and any(_is_new(source, part, name.id, loop) for part in ast.walk(source.tree.parents[call])):
        return False
    if isinstance(call, ast.Call):
        handed = [ast.unparse(part).lower() for part in (*call.args, *(word.value for word in call.keywords))]
        if any(_CACHES.search(word) for word in (*handed, *(word.arg or "" for word in call.keywords))):
            return False
        if any(_is_new(source, part, name.id, loop) for part in ast.walk(call)):
            return False
        if of_model and _JOINS.match(called(call)):
            return False
    return _grows(source, name, loop)


def _is_new(source: Definitions, part: ast.AST, name: str, loop: Loop) -> bool:
    """Whether a call gets something else that each step makes anew, as attention gets its query: the work is new then."""
    if not isinstance(part, ast.Name) or not isinstance(part.ctx, ast.Load) or part.id == name:
        return False
    made = [one for one in source.definitions(part) if source.is_in(one.node, loop) and not isinstance(one.node, ast.comprehension)]
    return bool(made) and not _grows(source, part, loop)


def _grows(source: Definitions, name: ast.Name, loop: Loop) -> bool:
    """Whether a loop adds to a value with each step, and never begins it anew."""
    inside = [one for one in source.definitions(name) if source.is_in(one.node, loop)]
    outside = [one for one in source.definitions(name) if not source.is_in(one.node, loop)]
    if not outside or (any(isinstance(one.node, ast.arg) for one in outside) and not inside):
        return False
    joined = [one for one in inside if _joins(one.node, name.id)]
    if len(joined) != len(inside):
        return False
    starts = [one.value for one in outside]
    if joined:
        return not any(_adds_part(one.node) for one in joined) or all(_is_text(source, value) for value in starts)
    changes = [node for node in source.changed(name.id) if source.is_in(node, loop)]
    if any(isinstance(node, ast.Subscript) and (isinstance(node.ctx, ast.Del) or isinstance(node.slice, ast.Slice)) for node in changes):
        return False
    calls = [node for node in changes if isinstance(node, ast.Call)]
    adds = [node for node in calls if called(node) in _GROWS]
    is_list = all(isinstance(value, ast.List | ast.ListComp) or _is_of(value, ("list", "split", "tolist")) for value in starts)
    return is_list and bool(adds) and len(adds) == len(calls)


def _adds_part(node: ast.AST) -> bool:
    """Whether it is ``text += letters[i]`` or ``text = text + letter``, which adds to a number as well as to a text."""
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.BinOp) and isinstance(node.value.right, _Part)
    return isinstance(node, ast.AugAssign) and isinstance(node.value, _Part)


def _is_text(source: Definitions, value: ast.expr | None) -> bool:
    """Whether a value is a text: written down, or a parameter with a text by default."""
    if isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        return True
    several = source.definitions(value) if isinstance(value, ast.Name) else ()
    return bool(several) and all(isinstance(one.node, ast.arg) and _is_text_argument(source, one.node) for one in several)


def _is_text_argument(source: Definitions, argument: ast.arg) -> bool:
    """Whether a parameter is a text by its annotation, or by default."""
    function = source.tree.function_of(argument)
    if function is None or argument.annotation is not None:
        return isinstance(argument.annotation, ast.Name) and argument.annotation.id == "str"
    names = [*function.args.posonlyargs, *function.args.args]
    default = dict(zip(reversed(names), reversed(function.args.defaults), strict=False)).get(argument)
    return isinstance(default, ast.Constant) and isinstance(default.value, str)


def _is_of(value: ast.expr | None, makers: Sequence[str]) -> bool:
    return isinstance(value, ast.Call) and called(value) in makers


def _joins(node: ast.AST, name: str) -> bool:
    """Whether a statement makes a longer one of a text, a list or a tensor."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add) and (isinstance(node.value, ast.List | ast.JoinedStr | ast.ListComp) or _adds_part(node))
    if not isinstance(node, ast.Assign):
        return False
    value = node.value
    if isinstance(value, ast.Call) and _JOINS.match(called(value)) and value.args:
        parts = value.args[0].elts if isinstance(value.args[0], ast.List | ast.Tuple) else value.args
        return any(isinstance(part, ast.Name) and part.id == name for part in parts)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return isinstance(value.left, ast.Name) and value.left.id == name and isinstance(value.right, ast.List | ast.JoinedStr | _Part)
    return False
