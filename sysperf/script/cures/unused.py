"""Whether gradients of a model are computed at a line that calls it, and nobody uses them, as of a generator in the step of its critic.

Another model's optimizer steps then, and these gradients are cleared before the model's own backward pass. It is said where all is
followed: who gets the models and the optimizers, and that what goes into the model is data.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from sysperf.script.cures import origin
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import Depends
from sysperf.script.cures.unoptimized import HANDLED, OPTIMIZER, without_gradients
from sysperf.script.nodes import arguments, keyword, last_name, names_in
from sysperf.script.syntax import Function
from sysperf.startup import lazy

_LOOKS = lazy(
    r"^(?:grad|requires_grad_|requires_grad|register_hook|register_full_backward_hook|freeze\w*|unfreeze\w*|set_requires_grad|add_param_group)$"
)
"""Of a file with such a name nothing is said: it uses gradients, or switches them on and off."""
_CUTS = lazy(
    r"^(?:detach_?|data|no_grad|inference_mode|set_grad_enabled|arg\w+|item|numpy|tolist|long|int|bool|round|sign|topk|sort|multinomial|eq|ne|gt|lt|ge|le)$"
)
"""What no gradient goes through."""
MAX_ROUNDS, MAX_STEPS = 6, 64
_OF_LEARNING = HANDLED | {"parameters", "zero_grad", "apply"}
_OF_OPTIMIZERS = frozenset(("step", "zero_grad", "state_dict", "load_state_dict", "param_groups"))
_SCHEDULER = lazy(r"(?:^|_)sched|Scheduler$|LR$|Restarts$|Plateau$")


class Learning(NamedTuple):
    """Models of a file, by what updates them."""

    models: dict[str, set[str]]
    """By the names of the optimizers."""

    @property
    def all(self) -> set[str]:
        """The names of all models that an optimizer has."""
        return set[str]().union(*self.models.values())


def gradients(source: Depends, statement: ast.stmt) -> str:
    """The kind of a statement that calls a model; empty: somebody may use its gradients."""
    if not isinstance(statement, ast.Assign | ast.Return) or _looks_at_gradients(source):
        return ""
    learning = _learning(source)
    if learning is None:
        return ""
    calls: dict[str, list[ast.Call]] = {}
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        calls.setdefault(last_name(call.func), []).append(call)
    for model, several in calls.items():
        if model not in learning.all or model in source.functions or any(without_gradients(call, source.tree) for call in several):
            continue
        if all(_is_cleared(source, statement, call, learning) for call in several):
            return "detached"
    return ""


def _looks_at_gradients(source: Depends) -> bool:
    names = (node.attr for node in source.tree.of(ast.Attribute))
    return any(map(_LOOKS.match, (*names, *source.calls, *source.functions))) or any(
        word.arg == "requires_grad" for call in source.tree.of(ast.Call) for word in call.keywords
    )


def _learning(source: Depends) -> Learning | None:
    """Each optimizer's name with the names of the models whose weights it gets; None where it gets others, or steps out of sight."""
    found: dict[str, set[str]] = {}
    for call in source.tree.of(ast.Call):
        if not OPTIMIZER.match(called(call)):
            continue
        statement = source.tree.statement_of(call)
        given = _weights_of(call.args[0] if call.args else keyword(call, "params"))
        if not isinstance(statement, ast.Assign) or statement.value is not call or given is None:
            return None
        names = [last_name(target) for target in statement.targets]
        if not all(names):
            return None
        for name in names:
            found.setdefault(name, set()).update(given)
    are_known = all(_of(step) in found or _SCHEDULER.search(_of(step)) for step in source.calls.get("step", ()))
    followed = origin.names_of(source, set(found), _OF_OPTIMIZERS, wrappers=_SCHEDULER)
    return Learning(found) if found and are_known and followed == set(found) else None


def _weights_of(given: ast.expr | None) -> set[str] | None:
    """The models whose `parameters()` these are, one by one or as a sum of lists."""
    if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Add):
        left, right = _weights_of(given.left), _weights_of(given.right)
        return None if left is None or right is None else left | right
    if not isinstance(given, ast.Call):
        return None
    if called(given) in ("list", "tuple", "chain"):
        parts = [_weights_of(part) for part in given.args]
        return None if None in parts else set[str]().union(*(part for part in parts if part is not None))
    name = last_name(given.func.value) if isinstance(given.func, ast.Attribute) and given.func.attr == "parameters" else ""
    return {name} if name not in ("", "self") else None


def _calls_in(source: Depends, scope: ast.AST, name: str) -> list[ast.Call]:
    return sorted((call for call in source.calls.get(name, ()) if source.scope_of(call) is scope), key=lambda call: call.lineno)


def _of(call: ast.Call) -> str:
    """The name of the object of which a method is called."""
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _is_cleared(source: Depends, statement: ast.stmt, made: ast.Call, learning: Learning) -> bool:
    """Whether the next step is one of an optimizer of others, and the model's gradients are cleared before they are made for its own."""
    scope, model = source.scope_of(statement), last_name(made.func)
    step = next(
        (call for call in _calls_in(source, scope, "step") if call.lineno > statement.lineno and _of(call) in learning.models), None
    )
    if step is None or model in (others := learning.models[_of(step)]):
        return False
    passes = [call for call in _calls_in(source, scope, "backward") if statement.lineno < call.lineno < step.lineno]
    if any(call.keywords or call.args for call in passes) or not {_of(call) for call in passes} & _made_of(source, scope, statement):
        return False
    own = [name for name, models in learning.models.items() if model in models]
    steps = [call for call in source.calls.get("step", ()) if _of(call) in own]
    if not 0 < len(steps) <= MAX_STEPS or not all(_clears(source, one, {model, *own}, passes) for one in steps):
        return False
    data = origin.Data(source, learning.all)
    return _are_apart(source, {model}, others) and all(map(data.is_data, arguments(made))) and _goes_to(source, made, others, step, set())


def _clears(source: Depends, step: ast.Call, names: set[str], others: Sequence[ast.Call]) -> bool:
    """Whether gradients are cleared before the backward pass of a step, after that of the others."""
    scope = source.scope_of(step)
    passes = [call for call in _calls_in(source, scope, "backward") if call.lineno < step.lineno]
    if not passes:
        return False
    clears = [call for call in _calls_in(source, scope, "zero_grad") if _of(call) in names and call.lineno < passes[-1].lineno]
    clears = [call for call in clears if _branches(source, call) <= _branches(source, passes[-1])]
    makers = {function.name for one in others if isinstance(function := source.scope_of(one), Function)}
    again = [*others, *(call for name in makers for call in source.calls.get(name, ()))]
    return bool(clears) and not any(source.scope_of(one) is scope and clears[-1].lineno < one.lineno < step.lineno for one in again)


def _branches(source: Depends, node: ast.AST) -> set[ast.AST]:
    """The conditions and loops on which it depends whether a line runs."""
    return {parent for parent in source.tree.ancestors(node) if isinstance(parent, ast.If | ast.While | ast.For | ast.Try)}


def _are_apart(source: Depends, models: set[str], others: set[str]) -> bool:
    """Whether models have no layer in common, as far as the file shows, nor anybody who may look at them."""
    followed = [origin.names_of(source, several, _OF_LEARNING) for several in (models, others)]
    if followed[0] is None or followed[1] is None or followed[0] & followed[1]:
        return False
    return not _have_parts_in_common(source, followed[0], followed[1])


def _have_parts_in_common(source: Depends, models: set[str], others: set[str]) -> bool:
    """Whether what makes some models is given others, or a layer that those are given, too."""
    parts, of_others = (
        {last_name(node) for call in _makers(source, several) for part in arguments(call) for node in ast.walk(part)}
        for several in (models, others)
    )
    return bool(parts & others) or any(_is_object(source, name) for name in parts & of_others if name)


def _makers(source: Depends, names: set[str]) -> list[ast.Call]:
    """The calls that make what has one of these names."""
    found = []
    for store in (node for name in names for node in source.names.get(name, ()) if isinstance(node.ctx, ast.Store)):
        statement = source.tree.statement_of(store)
        value = source.given_to(statement).get(store) if isinstance(statement, ast.Assign) else None
        found += [node for node in ast.walk(value) if isinstance(node, ast.Call)] if value is not None else []
    return found


def _is_object(source: Depends, name: str) -> bool:
    """Whether a name is given a layer, or an object of a class."""
    values = [one.value for node in source.names.get(name, ()) for one in source.definitions(node)]
    return any(isinstance(value, ast.Call) and (source.makes_layer(value) or called(value)[:1].isupper()) for value in values)


def _goes_to(source: Depends, made: ast.AST, models: set[str], step: ast.Call, seen: set[ast.AST]) -> bool:  # noqa: PLR0911 - one answer for each way
    """Whether only these models get what a call makes, before a step; assignments that are seen are asked once."""
    child, parent = made, source.tree.parents[made]
    while isinstance(parent, ast.List | ast.Tuple | ast.Call | ast.Attribute) and not isinstance(child, ast.stmt):
        if isinstance(parent, ast.Call) and child is not parent.func:
            if last_name(parent.func) in models:
                return True
            if not origin.is_computing(source, parent) or _CUTS.match(called(parent)):
                return False
        elif isinstance(parent, ast.Attribute) and (_CUTS.match(parent.attr) or not origin.is_tensor_method(parent.attr)):
            return False
        child, parent = parent, source.tree.parents[parent]
    if not isinstance(parent, ast.Assign) or parent.value is not child:
        return False
    if parent in seen:
        return True
    seen.add(parent)
    if not all(isinstance(target, ast.Name) for target in parent.targets):
        return False
    names = {target.id for target in parent.targets if isinstance(target, ast.Name)}
    uses = [
        node
        for name in names
        for node in source.names[name]
        if isinstance(node.ctx, ast.Load) and any(one.node is parent for one in source.definitions(node))
    ]
    scope = source.scope_of(parent)
    return bool(uses) and all(
        source.scope_of(use) is scope and parent.lineno < use.lineno < step.lineno and _goes_to(source, use, models, step, seen)
        for use in uses
    )


def _made_of(source: Depends, scope: ast.AST, statement: ast.stmt) -> set[str]:
    """The names that are made of what a statement makes."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    made = names_in(*targets)
    statements = [node for node in source.tree.of(ast.Assign, ast.AugAssign) if source.scope_of(node) is scope]
    for _ in range(MAX_ROUNDS):
        waiting: list[ast.stmt] = []
        for one in statements:
            if one is statement or not any(isinstance(node, ast.Name) and node.id in made for node in ast.walk(one.value)):  # type: ignore[attr-defined]
                waiting.append(one)
                continue
            made |= {node.id for node in ast.walk(one) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        statements = waiting
    return made
