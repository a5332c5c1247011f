"""Whether gradients of a model are computed at a line that calls it, and nobody uses them.

`detached`   another model's optimizer steps, and this one's gradients are cleared before its own backward pass, as of a generator in the
             step of its critic.
`unlearned`  no optimizer has its weights, as of a teacher that a loss keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import Depends
from sysperf.script.cures.unoptimized import HANDLED, OPTIMIZER, without_gradients
from sysperf.script.nodes import arguments, dotted, keyword, last_name
from sysperf.script.syntax import Function
from sysperf.startup import lazy

_LOOKS = lazy(r"^(?:grad|requires_grad_|requires_grad|register_hook|register_full_backward_hook|freeze\w*|unfreeze\w*|set_requires_grad)$")
"""Of a file with such a name nothing is said: it uses gradients, or switches them on and off."""
_CUTS = lazy(
    r"^(?:detach_?|data|no_grad|inference_mode|set_grad_enabled|arg\w+|item|numpy|tolist|long|int|bool|round|sign|topk|sort|multinomial|eq|ne|gt|lt|ge|le)$"
)
"""What no gradient goes through."""
MAX_ROUNDS = 6
_WEIGHTED = lazy(
    r"^(?:Linear|Bilinear|Conv\w+|LSTM\w*|GRU\w*|RNN\w*|Embedding\w*|BatchNorm\w*|LayerNorm|GroupNorm|Transformer\w+|MultiheadAttention|Parameter)$"
)


def gradients(source: Depends, statement: ast.stmt) -> str:
    """The kind of a statement that calls a model; empty: somebody may use its gradients."""
    if not isinstance(statement, ast.Assign | ast.Return) or _looks_at_gradients(source):
        return ""
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        model = last_name(call.func)
        if not model or model in source.functions or without_gradients(call, source.tree):
            continue
        optimizers = _optimizers(source)
        if optimizers is None or not optimizers:
            return ""
        if any(model in models for models in optimizers.values()):
            if _is_cleared(source, statement, call, optimizers):
                return "detached"
            continue
        learned = set[str]().union(*optimizers.values())
        if _is_unlearned(source, model, learned) and _goes_to_loss(source, statement, call, learned):
            return "unlearned"
    return ""


def _looks_at_gradients(source: Depends) -> bool:
    names = (node.attr for node in source.tree.of(ast.Attribute))
    return any(map(_LOOKS.match, (*names, *source.calls, *source.functions))) or any(
        word.arg == "requires_grad" for call in source.tree.of(ast.Call) for word in call.keywords
    )


def _optimizers(source: Depends) -> dict[str, set[str]] | None:
    """Each optimizer's name with the names of the models whose weights it gets; None where it gets others, too."""
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
    return found


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


def _is_cleared(source: Depends, statement: ast.stmt, made: ast.Call, optimizers: dict[str, set[str]]) -> bool:
    """Whether the next step is one of an optimizer of others, and the model's gradients are cleared before they are made for its own."""
    scope, model = source.scope_of(statement), last_name(made.func)
    step = next((call for call in _calls_in(source, scope, "step") if call.lineno > statement.lineno and _of(call) in optimizers), None)
    if step is None or model in optimizers[_of(step)] or not _is_between(source, statement, made, optimizers[_of(step)]):
        return False
    passes = [call for call in _calls_in(source, scope, "backward") if statement.lineno < call.lineno < step.lineno]
    if not passes or any(call.keywords or call.args for call in passes):
        return False
    own = [name for name, models in optimizers.items() if model in models]
    steps = [call for call in source.calls.get("step", ()) if _of(call) in own]
    given = _given_names(statement)
    return bool(steps) and all(_clears(source, one, {model, *own}, passes) for one in steps) and _ends_there(source, statement, given, step)


def _is_between(source: Depends, statement: ast.stmt, made: ast.Call, learning: set[str]) -> bool:
    """Whether models that learn in this step are given what a call makes, and the call is given nothing of theirs."""
    scope = source.scope_of(statement)
    calls = [
        call for name in learning for call in source.tree.of(ast.Call) if last_name(call.func) == name and source.scope_of(call) is scope
    ]
    own = set[str]().union(*(_made_of(source, scope, source.tree.statement_of(call))[0] for call in calls))
    given = [node for part in arguments(made) for node in ast.walk(part)]
    if any(isinstance(node, ast.Name) and node.id in own for node in given) or any(call in given for call in calls):
        return False
    names = _made_of(source, scope, statement)[0]
    handed = [node for call in calls for part in arguments(call) for node in ast.walk(part)]
    return made in handed or any(isinstance(node, ast.Name) and node.id in names for node in handed)


def _clears(source: Depends, step: ast.Call, names: set[str], others: Sequence[ast.Call]) -> bool:
    """Whether gradients are cleared before the backward pass of a step, after that of the others."""
    scope = source.scope_of(step)
    passes = [call for call in _calls_in(source, scope, "backward") if call.lineno < step.lineno]
    if not passes:
        return False
    clears = [call for call in _calls_in(source, scope, "zero_grad") if _of(call) in names and call.lineno < passes[-1].lineno]
    clears = [call for call in clears if _branches(source, call) <= _branches(source, passes[-1])]
    return bool(clears) and not any(source.scope_of(one) is scope and clears[-1].lineno < one.lineno < step.lineno for one in others)


def _branches(source: Depends, node: ast.AST) -> set[ast.AST]:
    """The conditions and loops on which it depends whether a line runs."""
    return {parent for parent in source.tree.ancestors(node) if isinstance(parent, ast.If | ast.While | ast.For | ast.Try)}


def _given_names(statement: ast.stmt) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _ends_there(source: Depends, statement: ast.stmt, given: set[str], step: ast.Call) -> bool:
    """Whether what a statement makes is used between it and a step alone, by calls, and nothing cuts it off."""
    if not isinstance(statement, ast.Assign) or not all(isinstance(target, ast.Name) for target in statement.targets):
        return False
    scope = source.scope_of(statement)
    for use in (
        node for name in given for node in source.names.get(name, ()) if source.scope_of(node) is scope and node not in statement.targets
    ):
        around = source.tree.statement_of(use)
        if (
            not isinstance(use.ctx, ast.Load)
            or not statement.lineno < use.lineno < step.lineno
            or not isinstance(around, ast.Assign | ast.Expr)
        ):
            return False
        if isinstance(around, ast.Assign) and not all(isinstance(target, ast.Name) for target in around.targets):
            return False
        if _cuts([around]) or called_any(around, ("append", "add", "extend", "put", "push")):
            return False
    return not _cuts([statement])


def called_any(part: ast.AST, names: Iterable[str]) -> bool:
    """Whether a function of one of these names is called."""
    return any(isinstance(node, ast.Call) and called(node) in names for node in ast.walk(part))


def _cuts(parts: Iterable[ast.AST]) -> bool:
    nodes = [node for part in parts for node in ast.walk(part)]
    names = (last_name(node) for node in nodes if isinstance(node, ast.Attribute | ast.Name))
    return any(map(_CUTS.match, names)) or any(isinstance(node, ast.Compare) for node in nodes)


def _is_unlearned(source: Depends, model: str, learned: set[str]) -> bool:
    """Whether a model is made in this file, and who gets it only calls it, or keeps it by its name in an object without an optimizer."""
    uses: list[ast.expr] = [*source.names.get(model, ()), *(node for node in source.tree.of(ast.Attribute) if node.attr == model)]
    made = [use for use in uses if isinstance(use.ctx, ast.Store) and _is_made_here(source, use)]  # type: ignore[attr-defined]
    keepers = {
        owner.name
        for use in uses
        if isinstance(use, ast.Attribute) and isinstance(use.ctx, ast.Store) and (owner := source.tree.class_of(use))
    }
    if not made or any(_is_of(source, name, keepers) for name in learned):
        return False
    return all(use in made or _only_passes(source, use, model) for use in uses)


def _is_made_here(source: Depends, use: ast.expr) -> bool:
    if not isinstance(use, ast.Name):
        return False  # a part of an object, which may be a part of a model
    statement = source.tree.statement_of(use)
    value = source.given_to(statement).get(use) if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Call) and _makes_weights(source, value)


def _makes_weights(source: Depends, value: ast.Call) -> bool:
    """Whether a call makes layers with weights, itself or by a function or a class of the file: a loss is a module without."""
    own = source.functions.get(called(value)) or source.classes.get(called(value))
    nodes = [*ast.walk(value), *(ast.walk(own) if own is not None else ())]
    return any(isinstance(node, ast.Call) and _WEIGHTED.match(called(node)) for node in nodes)


def _is_of(source: Depends, name: str, classes: set[str]) -> bool:
    """Whether what a name is given may be an object of one of these classes: it has their weights, too."""
    stores = [node for node in source.names.get(name, ()) if isinstance(node.ctx, ast.Store)]
    statements = [source.tree.statement_of(node) for node in stores]
    values = [source.given_to(one).get(node) for one, node in zip(statements, stores, strict=True) if isinstance(one, ast.Assign)]
    kept = [source.tree.statement_of(call) for made in classes for call in source.calls.get(made, ())]
    holders = {last_name(target) for one in kept if isinstance(one, ast.Assign) for target in one.targets} | classes
    known = [value for value in values if isinstance(value, ast.Call) and not any(last_name(node) in holders for node in ast.walk(value))]
    return not values or len(known) != len(stores)


def _only_passes(source: Depends, use: ast.expr, model: str) -> bool:
    """Whether a use calls a model, loads or switches it, or hands it on by the same name within the file."""
    parent = source.tree.parents[use]
    if isinstance(parent, ast.Attribute):
        return parent.attr in HANDLED
    if isinstance(parent, ast.Call) and parent.func is use:
        return True
    assign = source.tree.parents.get(parent) if isinstance(parent, ast.Tuple) else parent
    if isinstance(assign, ast.Assign):
        return _hands_on(source, assign, use, model)
    call = source.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and use in arguments(call) and _takes(source, call, use, model)


def _hands_on(source: Depends, assign: ast.Assign, use: ast.expr, model: str) -> bool:
    """Whether an assignment gives a model to an attribute of its name, and nothing else the model."""
    own = [(to, of) for to, of in source.given_to(assign).items() if to is use or of is use]
    whole = [(to, of) for to, of in own if to in source.tree.parents and not isinstance(source.tree.parents[to], ast.Attribute)]
    of_self = (not isinstance(to, ast.Attribute) or dotted(to.value) == "self" for to, _ in whole)
    return bool(whole) and all(of_self) and all(last_name(to) == last_name(of) == model for to, of in whole)


def _takes(source: Depends, call: ast.Call, use: ast.expr, model: str) -> bool:
    """Whether a class or a function of the file takes an argument by the same name."""
    name = called(call)
    owner = source.classes.get(name)
    makers = [part for part in owner.body if isinstance(part, Function) and part.name == "__init__"] if owner is not None else []
    function = makers[0] if makers else source.functions.get(name)
    if function is None or any(isinstance(part, ast.Starred) for part in call.args):
        return False
    names = [one.arg for one in function.args.args][bool(makers) :]
    if use in call.args:
        return names[call.args.index(use) :][:1] == [model]
    return any(word.value is use and word.arg == model for word in call.keywords)


def _goes_to_loss(source: Depends, statement: ast.stmt, call: ast.Call, learned: set[str]) -> bool:
    """Whether what a statement makes reaches a backward pass of its function, or of one that calls it, and is made of data."""
    scope = source.scope_of(statement)
    made, parts = _made_of(source, scope, statement)
    if _cuts(parts):
        return False
    if isinstance(scope, Function) and any(isinstance(part, ast.Return) for part in parts):
        calls = _training_calls(source, scope)
        return bool(calls) and all(_is_of_data(source, call, learned, each) for each in calls)
    passes = _calls_in(source, scope, "backward")
    return any(_of(one) in made for one in passes) and _is_of_data(source, call, learned)


def _is_of_data(source: Depends, call: ast.Call, learned: set[str], outer: ast.Call | None = None) -> bool:
    """Whether a call is given nothing of models that learn, whose gradients would go through it; nor by the call of its function."""
    scope, names = source.scope_of(call), learned | _parameters_of(source, learned)
    own = _outputs(source, scope, names)
    nodes = [node for part in arguments(call) for node in ast.walk(part)]
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    if read & own or any(isinstance(node, ast.Call) for node in nodes):
        return False
    taken = [one.arg for one in scope.args.args if one.arg != "self"] if isinstance(scope, Function) else []
    if outer is None:
        return read.isdisjoint(taken)
    given = dict(zip(taken, outer.args, strict=False)) | {word.arg: word.value for word in outer.keywords}
    parts = [given.get(name) for name in taken if name in read]
    return all(isinstance(part, ast.Name) and _is_no_output(source, outer, part.id, names) for part in parts)


def _is_no_output(source: Depends, place: ast.Call, name: str, names: set[str]) -> bool:
    """Whether a name is made, in the function around a call, of nothing that one of these models gives."""
    scope = source.scope_of(place)
    own = _outputs(source, scope, names)
    taken = {one.arg for one in scope.args.args} if isinstance(scope, Function) else set[str]()
    return name not in own | taken


def _outputs(source: Depends, scope: ast.AST, names: set[str]) -> set[str]:
    """The names in a function that are made of what models with these names give."""
    calls = [one for one in source.tree.of(ast.Call) if source.scope_of(one) is scope and last_name(one.func) in names]
    return set[str]().union(*(_made_of(source, scope, source.tree.statement_of(one))[0] for one in calls))


def _made_of(source: Depends, scope: ast.AST, statement: ast.stmt) -> tuple[set[str], list[ast.stmt]]:
    """The names that are made of what a statement makes, and the statements that do so."""
    made, parts = _given_names(statement), [statement]
    statements = [node for node in source.tree.of(ast.Assign, ast.AugAssign, ast.Return) if source.scope_of(node) is scope]
    for _ in range(MAX_ROUNDS):
        for one in statements:
            value = one.value  # type: ignore[attr-defined]
            if one in parts or value is None or not any(isinstance(node, ast.Name) and node.id in made for node in ast.walk(value)):
                continue
            parts.append(one)
            made |= {node.id for node in ast.walk(one) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return made, parts


def _training_calls(source: Depends, function: Function) -> list[ast.Call]:
    """The calls of a function, with gradients on, in those that go back through a graph."""
    owner = source.tree.class_of(function)
    names = {function.name}
    if owner is not None and function.name in ("forward", "__call__"):
        made = [source.tree.statement_of(call) for call in source.calls.get(owner.name, ())]
        names = {last_name(target) for one in made if isinstance(one, ast.Assign) for target in one.targets}
    calls = [call for name in names | _parameters_of(source, names) for call in source.calls.get(name, ())]
    return [call for call in calls if _calls_in(source, source.scope_of(call), "backward") and not without_gradients(call, source.tree)]


def _parameters_of(source: Depends, names: set[str]) -> set[str]:
    """The names by which functions of the file take what has one of these names."""
    found: set[str] = set()
    for function in source.tree.functions:
        taken = [one.arg for one in function.args.args]
        for call in source.calls.get(function.name, ()):
            found |= {to for to, part in zip(taken, call.args, strict=False) if isinstance(part, ast.Name) and part.id in names}
    return found
