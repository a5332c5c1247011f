"""Elements of tensors that a condition or a mask chooses, and whether anything else than their sum is needed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Pattern
from sysperf.script.file import File
from sysperf.script.gatherers.tensors import moved_tensor, tensor_of
from sysperf.script.nodes import dotted, last_name
from sysperf.script.syntax import within
from sysperf.startup import lazy

_MASK = lazy(r"(\w+_)?masks?(_\w+)?")
_REDUCES = lazy(r"(?i)\w*(loss|cross_entropy|nll|bce|mse|criterion|kl_div|accuracy)\w*|mean|sum|norm|std|var|prod|numel|item")
"""What makes one value of many."""


def patterns(file: File) -> Iterator[Pattern]:
    """``x[x > 0]``: the host must wait for how many elements that are. One mask of a function is one place, where a sum follows if any."""
    found: dict[tuple[ast.AST | None, str], tuple[ast.Subscript, bool | None]] = {}
    for node in file.tree.of(ast.Subscript):
        if not isinstance(node.ctx, ast.Load) or not _lies_on_device(file, node) or isinstance(file.tree.statement_of(node), ast.Assert):
            continue
        masks = isinstance(node.slice, ast.Compare) or any(isinstance(value.origin, ast.Compare) for value in file.values.of(node.slice))
        if not masks and not _is_named_mask(node.slice):
            continue
        host = file.values.is_a(node.value, "array") or file.values.is_a(node.slice, "array")
        reduced = is_reduced(file, node)
        if not host and (masks or reduced):
            key = (file.tree.function_of(node), _mask_of(node.slice))
            if key not in found or (reduced and not found[key][1]):
                found[key] = (node, reduced)
    told: set[ast.stmt] = set()
    for node, reduced in found.values():
        if (statement := file.tree.statement_of(node)) not in told:
            yield Pattern(**file.site(node), what="boolean-index", reduced=reduced)
        told.add(statement)


def _lies_on_device(file: File, node: ast.Subscript) -> bool:
    """Whether a tensor is indexed, or by a mask of one that was copied to a device: it chooses among what lies there, too."""
    if file.values.is_a(node.value, "batch", "output", "tensor", "loss"):
        return True
    sides = (node.slice.left, *node.slice.comparators) if isinstance(node.slice, ast.Compare) else ()
    return any(moved_tensor(file, side, sure=tensor_of(file, side) != "batch") for side in sides)


def _mask_of(node: ast.expr) -> str:
    """What chooses the elements: ``mask`` and ``~mask`` need the same places."""
    return ast.dump(node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert) else node)


def _is_named_mask(node: ast.expr) -> bool:
    """``x[mask]``, ``x[~padding_mask]``, ``x[train_mask + val_mask]``."""
    if isinstance(node, ast.BinOp):
        return _is_named_mask(node.left) and _is_named_mask(node.right)
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Name | ast.Attribute) and bool(_MASK.fullmatch(last_name(node)))


def is_reduced(file: File, node: ast.expr, *, follow: bool = True) -> bool | None:
    """Whether only a loss, a mean or the like is made of an expression, itself or by its name; None where that is not seen."""
    child: ast.AST = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.Call) and child is not parent.func and _REDUCES.fullmatch(last_name(parent.func)):
            return True
        if isinstance(parent, ast.Attribute) and _REDUCES.fullmatch(parent.attr):
            return True
        if isinstance(parent, ast.stmt):
            break
        child = parent
    statement, function = file.tree.statement_of(node), file.tree.function_of(node)
    names = {dotted(target) for target in statement.targets} - {""} if isinstance(statement, ast.Assign) else set()
    if not follow or function is None or len(names) != 1:
        return None
    uses = [part for part in within(function) if isinstance(part, ast.Name | ast.Attribute) and dotted(part) in names]
    later = [part for part in uses if isinstance(part.ctx, ast.Load) and part.lineno > statement.lineno]
    return (bool(later) and all(is_reduced(file, part, follow=False) for part in later)) or None
