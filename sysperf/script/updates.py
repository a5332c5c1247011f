"""Loops that change parameters one by one: averages of weights, optimizers and clipping by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Pattern
from sysperf.script.file import File
from sysperf.script.kinds import OF_MODELS, OPTIMIZER_CLASSES
from sysperf.script.loops import Where
from sysperf.script.nodes import last_name
from sysperf.script.syntax import Function, within
from sysperf.startup import lazy

_IN_PLACE = frozenset(("add_", "sub_", "mul_", "div_", "lerp_", "copy_", "addcmul_", "addcdiv_", "clamp_"))
_GIVEN_BY = frozenset((*OF_MODELS, "param_groups"))
_AVERAGES = lazy(r"\w*(EMA|Ema(?![a-z])|MovingAverage|Averaged?(Model|Weights|Parameters))\w*")
"""Classes that keep averages of weights."""
_AVERAGING = lazy(r"_*(soft_update|polyak)\w*|\w*(ema|momentum|moving_average)_update\w*|\w*update_(ema|momentum|moving_averages?)(_\w+)?")
"""Functions that bring an average nearer to the weights of now."""


def patterns(file: File) -> Iterator[Pattern]:
    """The first loop of each function that changes what it goes through, where that are parameters or their gradients."""
    told: set[ast.AST | None] = set()
    for loop in file.tree.of(ast.For) if file.words & _GIVEN_BY else ():
        function = file.tree.function_of(loop)
        if function in told or loop in file.loops.steps or not _gives_parameters(file, loop):
            continue
        if changed := next((part for statement in loop.body for part in within(statement) if _changes(file, part)), None):
            told.add(function)
            where = file.loops.where(changed)
            if function is not None and not where.often and _is_called_each_step(file, function):
                where = Where("step", where.guarded)
            yield Pattern(**file.site(loop.iter, where), what="update-by-parameter")


def _gives_parameters(file: File, loop: ast.For) -> bool:
    """Whether a loop gives parameters to a name, itself or beside others."""
    return any(isinstance(part, ast.Name) and file.values.kinds(part) == {"parameter"} for part in within(loop.target))


def _changes(file: File, part: ast.AST) -> bool:
    """``p.data.mul_(decay).add_(q.data)``, ``p.data = …``, ``p -= rate * p.grad``."""
    if isinstance(part, ast.Call):
        method = part.func
        return isinstance(method, ast.Attribute) and method.attr in _IN_PLACE and file.values.kinds(method.value) == {"parameter"}
    if isinstance(part, ast.AugAssign):
        return isinstance(part.target, ast.Name | ast.Attribute) and file.values.kinds(part.target) == {"parameter"}
    targets = part.targets if isinstance(part, ast.Assign) else []
    return any(_is_data(file, target) for target in targets) and isinstance(part, ast.Assign) and _computes(part.value)


def _is_data(file: File, target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr in ("data", "grad") and file.values.kinds(target.value) == {"parameter"}


def _computes(value: ast.expr) -> bool:
    """Whether something is computed, rather than handed over: ``p.grad = other.grad``."""
    return isinstance(value, ast.BinOp | ast.Call)


def _is_called_each_step(file: File, function: Function) -> bool:
    """Whether a function that nobody here calls is for each step: the `step` of an optimizer, or by its name it keeps an average."""
    if file.names.call_sites(function):
        return False
    owner = file.tree.parents.get(function)
    names = [owner.name, *map(last_name, owner.bases)] if isinstance(owner, ast.ClassDef) else []
    if function.name == "step" and any(OPTIMIZER_CLASSES.fullmatch(base) for base in names[1:]):
        return True
    keeps = function.name in ("update", "step", "__call__") and any(_AVERAGES.fullmatch(name) for name in names)
    return keeps or bool(_AVERAGING.fullmatch(function.name))
