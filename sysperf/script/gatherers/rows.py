"""Copies to the host that need not be: of one row of a tensor after the other, and of results that are only compared."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.file import File
from sysperf.script.nodes import last_name
from sysperf.script.syntax import Function, within

MAX_DEPTH = 3
_TENSORS = ("output", "tensor", "detached", "loss", "batch")
_COMPARES = frozenset(("eq", "equal", "array_equal", "accuracy_score"))
"""Functions that make a number of what two tensors have in common."""


_COUNTS = frozenset(("sum", "mean", "count_nonzero", "float", "item", "int", "bool", "all", "any"))


def is_row(file: File, node: ast.expr) -> bool:
    """Whether one row of a tensor is read in each round of a loop of its own, within that of a step: ``for row in output: row.cpu()``."""
    where = file.loops.where(node)
    for loop in _loops_within(file, node, where.loop):
        named = {part.id for part in within(loop.target) if isinstance(part, ast.Name)}
        for part in within(node):
            if isinstance(part, ast.Subscript) and _is_indexed(part, named) and file.values.is_a(part.value, *_TENSORS):
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


def is_only_compared(file: File, node: ast.AST, depth: int = MAX_DEPTH) -> bool:
    """Whether all that becomes of a copy is a count: ``(output.argmax(1).cpu() == y).sum()``; on the device, nobody waits for that."""
    parent = file.tree.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr == "eq" or is_only_compared(file, parent, depth)
    if isinstance(parent, ast.Compare):
        return isinstance(parent.ops[0], ast.Eq) and _is_counted(file, parent)
    if isinstance(parent, ast.Call):
        return is_only_compared(file, parent, depth) if node is parent.func else last_name(parent.func) in _COMPARES
    if not isinstance(parent, ast.Assign) or not depth or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return False
    function, name = file.tree.function_of(parent), parent.targets[0].id
    scope: ast.AST = function if function is not None else file.tree.module
    uses = [part for part in within(scope) if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load)]
    later = [use for use in uses if use.lineno > (parent.end_lineno or parent.lineno)]
    return bool(later) and len(later) == len(uses) and all(is_only_compared(file, use, depth - 1) for use in later)


def _is_counted(file: File, compared: ast.Compare) -> bool:
    """Whether a comparison is added up, or made into a mean."""
    around = [parent for parent in file.tree.ancestors(compared) if isinstance(parent, ast.Call | ast.Attribute)]
    return any(last_name(each.func if isinstance(each, ast.Call) else each) in _COUNTS for each in around)
