"""Whether gradients are recorded where code runs, and whether something there asks for them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from sysperf.script.file import File
from sysperf.script.nodes import dotted, last_name
from sysperf.script.syntax import Function, Loop, within
from sysperf.startup import lazy

MAX_DEPTH = 3
_NO_GRAD = frozenset(("no_grad", "inference_mode"))
_EVALUATION_MODE = lazy(r"(?i)(\w*_)?(eval|evaluation|evaluating|inference|validation|testing|test_mode|grad)(_\w+)?")
_DIFFERENTIATES = lazy(
    r"(compute_)?(forces?|virials?|stress|hessian|gradients?)|backward|grad|requires_grad_?|create_graph|vjp|jvp|jacobian|hessian|jac(rev|fwd)|functional_call|innerloop_ctx|enable_grad"
    r"|(?i:\w*(attack|adversarial|pgd|fgsm|perturb|saliency|attributions?|inner_?loop|adapt)(_\w+)?)"
)
"""What asks for gradients, or says that it does."""
_RUNS_WITHOUT = lazy(r"(on_)?(validation|test|predict)_(model_eval|step(_end)?|((epoch|batch)_)?(start|end))")
"""Hooks around which Lightning turns gradients off."""


def needs_gradients(file: File, scope: Function | Loop, choice: ast.If | None = None) -> bool:
    """Whether gradients are asked for in an evaluation, beside a condition for training.

    Attacks, saliency, forces, physics, and what learns in its evaluation do.
    """
    models = (each for each in file.names.classes.values() if file.values.base_of(each) == "model")
    scopes: list[ast.AST] = [scope, *(part for each in models for part in each.body if getattr(part, "name", "") == "forward")]
    seen = set(scopes)
    inside = {part for each in choice.body for part in within(each)} if choice is not None else set()
    for each in scopes:
        for part in within(each, functions=each is not scope):
            if part in inside:
                continue
            name = part.arg or "" if isinstance(part, ast.keyword) else last_name(part)
            if _DIFFERENTIATES.fullmatch(name) and not _is_turned_off(file, part):
                return True
            if isinstance(part, ast.Name | ast.Attribute):
                scopes += [more for more in file.names.functions.get(name, ()) if more not in seen]
                seen.update(file.names.functions.get(name, ()))
    return False


def _is_turned_off(file: File, part: ast.AST) -> bool:
    """Whether gradients of something are declined: ``p.requires_grad = False``, ``p.requires_grad_(False)``."""
    parent = part if isinstance(part, ast.keyword) else file.tree.parents.get(part)
    given = (
        parent.value
        if isinstance(parent, ast.Assign | ast.keyword)
        else next(iter(parent.args), None)
        if isinstance(parent, ast.Call)
        else None
    )
    return isinstance(given, ast.Constant) and given.value is False


def without_gradients(file: File, node: ast.AST, depth: int = MAX_DEPTH) -> bool:
    """Whether gradients are off where a node runs: a `with`, a decorator, a switch in the function, or at all its callers."""
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.With | ast.AsyncWith) and any(_is_no_grad(file, item.context_expr) for item in parent.items):
            return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            if _runs_without(file, parent) or _switches_off(file, parent):
                return True
            sites = file.names.call_sites(parent) if depth else []
            return bool(sites) and all(without_gradients(file, site, depth - 1) for site in sites)
    return _switches_off(file, file.tree.module)


def _runs_without(file: File, function: Function) -> bool:
    """Whether a decorator turns gradients off around a function, or Lightning does where it calls its hooks of evaluations."""
    if any(_is_no_grad(file, each) or _wraps_elsewhere(file, each) for each in function.decorator_list):
        return True
    owner = file.tree.parents.get(function)
    hooks = isinstance(owner, ast.ClassDef) and file.values.base_of(owner) in ("lightning", "callback")
    return hooks and _RUNS_WITHOUT.fullmatch(function.name) is not None


def _is_called_elsewhere(file: File, loop: Loop) -> bool:
    """Whether only another file, which may turn gradients off, calls the function around a loop, and that has no `eval()`."""
    function = file.tree.function_of(loop)
    if function is None or file.names.call_sites(function):
        return False
    return not any(isinstance(part, ast.Call) and last_name(part.func) == "eval" for part in within(function))


def _is_in_a_mode(file: File, node: ast.AST, depth: int = MAX_DEPTH) -> bool:
    """Whether a `with` of another file changes the model or the trainer there, or at a caller: ``with validation(self):``."""
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.With | ast.AsyncWith) and any(_changes(file, item.context_expr) for item in parent.items):
            return True
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return depth > 0 and any(_is_in_a_mode(file, site, depth - 1) for site in file.names.call_sites(parent))
    return False


def _changes(file: File, context: ast.expr) -> bool:
    given = context.args if isinstance(context, ast.Call) and last_name(context.func) not in file.names.functions else []
    return any(dotted(each) == "self" or file.values.is_a(each, "model", "lightning") for each in given)


def _is_no_grad(file: File, node: ast.expr, depth: int = 1) -> bool:
    """Whether a `with` or a decorator turns gradients off: by its name, by what the name was given, or by a function of the file."""
    if isinstance(node, ast.IfExp):
        return any(_is_no_grad(file, part, depth) for part in _operands(node))
    called = node.func if isinstance(node, ast.Call) else node
    name = file.names.qualified(called).rpartition(".")[2] or last_name(called)
    if name == "set_grad_enabled" and isinstance(node, ast.Call):
        return bool(node.args) and not (isinstance(node.args[0], ast.Constant) and node.args[0].value is True)
    if any(each in name.lower() for each in (*_NO_GRAD, "grad_state", "freeze", "frozen", "disable_grad")):
        return True
    given = [each.value for each in file.names.lookup(node, node.id)] if isinstance(node, ast.Name) else []
    inside = [part for each in file.names.functions.get(name, ()) for part in within(each, functions=True)] if depth else []
    given += [item.context_expr for part in inside if isinstance(part, ast.With) for item in part.items]
    return depth > 0 and any(_is_no_grad(file, each, depth - 1) for each in given if each is not None)


def _wraps_elsewhere(file: File, decorator: ast.expr) -> bool:
    """Whether a decorator of another file says that it is about evaluations: it may turn gradients off."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return last_name(called) not in file.names.functions and bool(_EVALUATION_MODE.fullmatch(last_name(called)))


def models_without(file: File, loop: Loop, counts: Callable[[Iterable[bool]], bool]) -> bool:
    """Whether gradients are off around the calls of models, in the body or in what it calls: all of them, or `any`."""
    calls = file.loops.model_calls(loop)
    return bool(calls) and counts(without_gradients(file, call, 0) or _is_called_without(file, loop, call) for call in calls)


def _is_called_without(file: File, loop: Loop, call: ast.Call) -> bool:
    """Whether a model is called by a function of the file that a loop only calls without gradients."""
    function = file.tree.function_of(call)
    inside = set(within(loop)) if function is not None and function is not file.tree.function_of(loop) else set[ast.AST]()
    sites = [site for site in file.names.call_sites(function) if site in inside] if function is not None else []
    return bool(sites) and all(without_gradients(file, site, 0) for site in sites)


def is_undecided(file: File, loop: Loop) -> bool:
    """Whether another file may turn gradients off, something asks for them, or one of two models that are called runs without them."""
    if _is_called_elsewhere(file, loop) or _is_in_a_mode(file, loop) or needs_gradients(file, loop):
        return True
    return models_without(file, loop, any)


def _switches_off(file: File, scope: ast.AST) -> bool:
    """Whether a statement turns gradients off: ``set_grad_enabled(False)``, ``stack.enter_context(no_grad())``, ``freeze(model)``."""
    calls = (part.value for part in within(scope) if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call))
    return any(
        last_name(call.func) in ("set_grad_enabled", "_set_grad_enabled")
        or ("freeze" in (name := last_name(call.func).lower()) and "unfreeze" not in name)
        or (name == "requires_grad_" and _is_false(call.args) and not _is_for_some(file, call))
        or (last_name(call.func) == "enter_context" and any(_is_no_grad(file, given) for given in call.args))
        for call in calls
    )


def _is_false(given: list[ast.expr]) -> bool:
    return any(isinstance(each, ast.Constant) and each.value is False for each in given)


def _is_for_some(file: File, call: ast.Call) -> bool:
    """Whether a condition in a loop chooses what has no gradients: ``for name, p in …: if name.startswith("encoder"): …``."""
    around = []
    for parent in file.tree.ancestors(call):
        if isinstance(parent, ast.For | Function):
            return isinstance(parent, ast.For) and ast.If in around
        around.append(type(parent))
    return False


def _operands(node: ast.expr) -> tuple[ast.expr, ...]:
    """Both sides of ``no_grad() if on else nullcontext()``, or an expression itself."""
    return (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,)
