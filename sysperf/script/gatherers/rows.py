"""Copies to the host that need not be: of one row of a tensor after the other, and of results of which only a number is made."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.file import File
from sysperf.script.nodes import last_name
from sysperf.script.semantics.kinds import DESCRIBING
from sysperf.script.syntax import Function, within

MAX_DEPTH = 3
_TENSORS = ("output", "tensor", "detached", "loss", "batch")
_COMPARES = frozenset(("eq", "equal", "array_equal", "accuracy_score"))
"""Functions that make a number of what two tensors have in common."""
_METRICS = ("sklearn.metrics.", "scipy.stats.pearsonr", "scipy.stats.spearmanr", "scipy.stats.kendalltau")
"""Functions that measure on the host what has left the device."""
_CONVERTS = frozenset(("argmax", "round", "rint", "squeeze", "ravel", "reshape", "array", "asarray", "clip", "exp", "log"))
"""Functions of numpy whose result is measured like what they are given."""

_COUNTS = frozenset(("sum", "mean", "count_nonzero", "float", "item", "int", "bool", "all", "any"))


def is_row(file: File, node: ast.expr) -> bool:
    """Whether one row of a tensor is read in each round of a loop of its own, within that of a step: ``for row in output: row.cpu()``."""
    where = file.loops.where(node)
    for loop in _loops_within(file, node, where.loop):
        named = {part.id for part in within(loop.target) if isinstance(part, ast.Name)}
        counts = {part.id for part in within(loop.target) if isinstance(part, ast.Name) and file.values.is_a(part, "number")}
        for part in within(node):
            if isinstance(part, ast.Subscript) and _is_indexed(part, counts) and file.values.is_a(part.value, *_TENSORS):
                return True
            if isinstance(part, ast.Name) and part.id in named and file.values.is_a(part, *_TENSORS) and not _has_parts(file, part):
                return True
    return False


def _loops_within(file: File, node: ast.expr, step: ast.AST | None) -> Iterator[ast.For | ast.AsyncFor | ast.comprehension]:
    """The loops around a node that are no step, evaluation or epoch themselves."""
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            yield from parent.generators
        if parent is step or isinstance(parent, Function):
            return
        if isinstance(parent, ast.For | ast.AsyncFor):
            if parent in file.loops.steps or parent in file.loops.evaluations or file.loops.is_epoch(parent):
                return
            yield parent


def _is_indexed(part: ast.Subscript, named: set[str]) -> bool:
    """``output[i]``, ``output[i, :n]``: the first index counts the rounds."""
    first = part.slice.elts[0] if isinstance(part.slice, ast.Tuple) and part.slice.elts else part.slice
    return isinstance(first, ast.Name) and first.id in named


def _has_parts(file: File, name: ast.Name) -> bool:
    """Whether a name is asked for something by its name, or stands for an item of a dictionary: it is no row of a tensor."""
    parent = file.tree.parents.get(name)
    if isinstance(parent, ast.Subscript) and isinstance(parent.slice, ast.Constant) and isinstance(parent.slice.value, str):
        return True
    iterated = [binding.value for binding in file.names.lookup(name, name.id) if binding.element]
    return any(
        isinstance(each, ast.Call) and last_name(each.func) in ("items", "values", "parameters", "named_parameters") for each in iterated
    )


def is_only_measured(file: File, node: ast.AST, depth: int = MAX_DEPTH) -> bool:
    """Whether all that becomes of a copy is a number: ``(output.argmax(1).cpu() == y).sum()``, ``f1_score(y, labels)`` of each batch.

    On the device nobody waits for a count, and what a library computes on the host may get all batches at the end.
    """
    parent = file.tree.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr == "eq" or parent.attr in DESCRIBING or is_only_measured(file, parent, depth)
    if isinstance(parent, ast.Subscript):
        return parent.value is node and is_only_measured(file, parent, depth)
    if isinstance(parent, ast.Compare):
        return _is_counted(file, parent) if isinstance(parent.ops[0], ast.Eq) else is_only_measured(file, parent, depth)
    if isinstance(parent, ast.keyword):
        parent, node = file.tree.parents[parent], parent
    if isinstance(parent, ast.Call):
        return is_only_measured(file, parent, depth) if node is parent.func else _measures(file, parent, node, depth)
    if isinstance(parent, ast.Tuple) and isinstance(parent.ctx, ast.Load):
        parent = file.tree.parents.get(parent)
    name = _name_of(parent, node) if isinstance(parent, ast.Assign) and depth else ""
    uses = _uses_of(file, parent, name) if isinstance(parent, ast.Assign) and name else []
    return bool(uses) and all(is_only_measured(file, use, depth - 1) for use in uses)


def _measures(file: File, call: ast.Call, given: ast.AST, depth: int) -> bool:
    """Whether a function makes a number of what it is given: of a library of metrics, or of the file, or after one that converts it."""
    name = file.names.qualified(call.func)
    if last_name(call.func) in _COMPARES or name.startswith(_METRICS):
        return True
    if name.startswith("numpy.") and last_name(call.func) in _CONVERTS:
        return is_only_measured(file, call, depth)
    functions = file.names.functions.get(name, []) if isinstance(call.func, ast.Name) and depth else []
    if len(functions) != 1 or isinstance(given, ast.keyword) or any(isinstance(each, ast.Starred) for each in call.args):
        return False
    arguments = [*functions[0].args.posonlyargs, *functions[0].args.args]
    place = next((place for place, each in enumerate(call.args) if each is given), len(arguments))
    named = arguments[place].arg if place < len(arguments) else ""
    names = [part for part in within(functions[0]) if isinstance(part, ast.Name) and part.id == named]
    return bool(names) and all(isinstance(each.ctx, ast.Load) and is_only_measured(file, each, depth - 1) for each in names)


def _name_of(statement: ast.Assign, value: ast.AST) -> str:
    """The name under which a value is kept: also ``a, b = x.cpu(), y.cpu()``."""
    target = statement.targets[0] if len(statement.targets) == 1 else None
    if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple) and len(target.elts) == len(statement.value.elts):
        target = next(name for name, each in zip(target.elts, statement.value.elts, strict=True) if each is value)
    return target.id if isinstance(target, ast.Name) else ""


def _uses_of(file: File, statement: ast.Assign, name: str) -> list[ast.Name]:
    """The places that read a name after a statement gave it a value; empty where it may be read in another round, or later."""
    function = file.tree.function_of(statement)
    scope: ast.AST = function if function is not None else file.tree.module
    end = statement.end_lineno or statement.lineno
    own = set(within(statement))
    named = [part for part in within(scope) if isinstance(part, ast.Name) and part.id == name and part not in own]
    loop = next((parent for parent in file.tree.ancestors(statement) if isinstance(parent, ast.For | ast.AsyncFor | ast.While)), None)
    inside = set(within(loop)) if loop is not None else set[ast.AST]()
    given = [part.lineno for part in named if isinstance(part.ctx, ast.Store) and part in inside and part.lineno < statement.lineno]
    loads = [part for part in named if isinstance(part.ctx, ast.Load)]
    before = [part for part in loads if part.lineno <= end and part in inside]
    if any(part.lineno <= min(given, default=end) for part in before):
        return []
    if loop is None:
        return [part for part in loads if part.lineno > end]
    again = min(
        (part.lineno for part in named if part.lineno > end and part not in inside and isinstance(part.ctx, ast.Store)), default=None
    )
    if any(part.lineno > end and part not in inside and (again is None or part.lineno < again) for part in loads):
        return []  # what is measured behind the loop is not measured in each round
    return [part for part in loads if part.lineno > end and part in inside]


def _is_counted(file: File, compared: ast.Compare) -> bool:
    """Whether a comparison is added up, or made into a mean."""
    around = [parent for parent in file.tree.ancestors(compared) if isinstance(parent, ast.Call | ast.Attribute)]
    return any(last_name(each.func if isinstance(each, ast.Call) else each) in _COUNTS for each in around)
