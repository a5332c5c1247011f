"""One function that trains or evaluates, as its caller asks: ``run(model, loader)`` and ``run(model, loader, optimizer)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.file import File
from sysperf.script.gatherers.gradients import needs_gradients, without_gradients
from sysperf.script.nodes import keyword, last_name
from sysperf.script.semantics.loops import asked
from sysperf.script.syntax import Function, Loop, within


def evaluating_calls(file: File) -> Iterator[ast.Call]:
    """The calls that leave out what the backward pass asks for, where the model is called with gradients all the same."""
    for loop, advancing in file.loops.steps.items():
        function = file.tree.function_of(loop)
        choice = _choice(file, loop, advancing)
        if function is None or choice is None or not _keeps_gradients(file, loop, choice) or needs_gradients(file, function, choice):
            continue
        needs = [each for test in _meant(file, choice.test) for each in asked(test, otherwise=False)]
        sites = file.names.call_sites(function)
        evaluating = [each for each in sites if any(_leaves_out(file, each, function, name, there=there) for name, there in needs)]
        trained_in = {file.tree.function_of(each) for each in sites if each not in evaluating}
        for site in evaluating:
            if not (without_gradients(file, site) or _is_asked_for_gradients(file, site, trained_in)):
                yield site


def _choice(file: File, loop: Loop, advancing: ast.Call) -> ast.If | None:
    """The outermost condition in a loop in which its backward pass stands."""
    found = None
    child: ast.AST = advancing
    for parent in file.tree.ancestors(advancing):
        if parent is loop:
            return found
        if isinstance(parent, ast.If) and child in parent.body:
            found = parent
        child = parent
    return None


def _keeps_gradients(file: File, loop: Loop, choice: ast.If) -> bool:
    """Whether the loop calls a model beside its condition, and never without gradients."""
    calls = [part for part in within(loop) if isinstance(part, ast.Call) and file.loops.is_model(part)]
    beside = [call for call in calls if choice not in file.tree.ancestors(call)]
    return bool(beside) and not any(without_gradients(file, call, 0) for call in calls)


def _is_asked_for_gradients(file: File, site: ast.Call, trained_in: set[Function | None]) -> bool:
    """Whether what a call returns may be differentiated, a framework has turned gradients off before, or nobody here says who calls."""
    function = file.tree.function_of(site)
    scope: ast.AST = file.tree.module if function is None else function
    if any(isinstance(part, ast.Call) and last_name(part.func) in ("backward", "grad") for part in within(scope)):
        return True
    owner = file.tree.class_of(site)
    if owner is not None and file.values.base_of(owner) in ("lightning", "callback", "hf-trainer"):
        return True
    return function is not None and function not in trained_in and not file.names.call_sites(function)


def _meant(file: File, test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition, and what a name in it was given: ``training = optimizer is not None``."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
        bindings = file.names.lookup(part, part.id) if isinstance(part, ast.Name) else []
        value = bindings[0].value if len(bindings) == 1 and not bindings[0].path and not bindings[0].element else None
        yield part if value is None else value


def _leaves_out(file: File, site: ast.Call, function: Function, name: str, *, there: bool) -> bool:
    """Whether a call gives None or False for a parameter that must be something; or True for one that must be nothing."""
    places = [given.arg for given in (*function.args.posonlyargs, *function.args.args)]
    if name in places:
        return file.names.leaves_out(site, function, places.index(name), there)
    named = dict(zip((given.arg for given in function.args.kwonlyargs), function.args.kw_defaults, strict=True))
    value = (keyword(site, name) or named[name]) if name in named else None
    return isinstance(value, ast.Constant) and (value.value in (None, False) if there else value.value is True)
