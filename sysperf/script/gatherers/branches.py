"""Conditions on tensors: what Python must wait for before it goes on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.file import File
from sysperf.script.gatherers import rows
from sysperf.script.gatherers.tensors import MAX_DEPTH, is_moved, is_reduced, moved_tensor, tensor_of
from sysperf.script.nodes import dotted
from sysperf.script.semantics.binding import Binding

_ASKS = ("torch.isnan", "torch.isinf", "torch.isfinite", "math.isnan", "math.isinf", "math.isfinite")


def asked(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """Conditions on tensors."""
    asked: list[ast.If | ast.Assert | ast.IfExp] = [*file.tree.of(ast.If), *file.tree.of(ast.Assert), *file.tree.of(ast.IfExp)]
    for test in (node.test for node in asked):
        if of := _compared(file, test) or _of_rows(file, test):
            yield test, "if", of
    for loop in file.tree.of(ast.While):
        if _compared(file, loop.test) == "parameter":  # of others it is known that they end the loop
            yield loop.test, "if", "parameter"


def _joined(test: ast.expr) -> list[ast.expr]:
    """The conditions that a condition is made of: by `and` and `not`, or a truth or a count that is compared."""
    if isinstance(test, ast.BoolOp):
        return test.values
    if isinstance(test, ast.UnaryOp):
        return [test.operand]
    return [test.left] if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq | ast.NotEq) else []


def _compared(file: File, test: ast.expr) -> str:
    """The tensor in a condition whose value Python must wait for; identity and membership need none."""
    if parts := _joined(test):
        return next((of for part in parts if (of := _compared(file, part))), "")
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE):
        sides = (test.left, *test.comparators)
        if any(tensor_of(file, part, sure=True) == "loss" for part in sides):
            return "loss"
        return next((_kind(file, part) for part in sides if _is_computed(file, part)), "")
    if isinstance(test, ast.Call):
        return _called(file, test)
    if isinstance(test, ast.Attribute):
        return "parameter" if _is_own(file, test) else ""  # its truth
    return "tensor" if isinstance(test, ast.Name) and _is_read_elsewhere(file, test) else ""


def _of_rows(file: File, test: ast.expr) -> str:
    """``if label == prediction:``, of rows of tensors."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return ""
    sides = [moved_tensor(file, side) for side in (test.left, *test.comparators)]
    return "tensor" if all(sides) and rows.is_row(file, test) else ""


def _called(file: File, test: ast.Call) -> str:
    """The tensor whose values a call asks for: ``x.any()``, ``torch.isnan(x)``."""
    if isinstance(test.func, ast.Attribute) and test.func.attr in ("any", "all", "sum") and not test.args:
        return _compared(file, test.func.value) or _asked_whole(file, test.func.value)
    return tensor_of(file, test.args[0]) if test.args and file.names.qualified(test.func) in _ASKS else ""


def _is_own(file: File, node: ast.expr) -> bool:
    """Whether an expression is a parameter or a buffer of the model itself: ``self.initialized``."""
    named = bool(file.words & {"Parameter", "register_buffer"}) and dotted(node).startswith("self.")
    return named and file.values.kinds(node) == {"parameter"}


def _kind(file: File, node: ast.expr) -> str:
    return "parameter" if file.values.kinds(node) == {"parameter"} else "tensor"


def _is_mask(file: File, node: ast.expr) -> bool:
    return isinstance(node, ast.Compare) and bool(_asked_whole(file, node))


def _asked_whole(file: File, node: ast.expr) -> str:
    """What kind of tensor ``x.any()`` is asked of: one on a device for certain, or a comparison of some that lie there."""
    if isinstance(node, ast.Compare):
        return next((of for side in (node.left, *node.comparators) if (of := moved_tensor(file, side))), "")
    values = file.values.of(node)
    if not values or any(value.guess or value.kind not in ("tensor", "parameter", "detached", "output") for value in values):
        return ""
    compared = [value.origin for value in values if isinstance(value.origin, ast.Compare)]
    return _kind(file, node) if all(_asked_whole(file, each) for each in compared) else ""


def _is_computed(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether an expression is one value of a tensor on a device for certain: what `detach()` gave, the greatest of a batch."""
    if _is_read_elsewhere(file, node):
        return True
    bindings = file.names.lookup(node, node.id) if isinstance(node, ast.Name) and depth else []
    given = [binding for binding in bindings if isinstance(binding.value, ast.Call)]
    if given and len(given) == len(bindings) and all(_is_computed_as(file, each, depth - 1) for each in given):
        return True
    kinds = file.values.kinds(node)
    known = isinstance(node, ast.Name) and bool(kinds) and not any(value.guess for value in file.values.of(node))
    return (
        kinds == {"detached"}
        or (known and kinds <= {"tensor", "parameter"})
        or (kinds == {"parameter"} and (is_reduced(node) or _is_own(file, node)))
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_reduced(node) and _is_mask(file, node.func.value))
        or (is_reduced(node) and (bool(kinds & {"output"}) or ("batch" in kinds and is_moved(file, node))))
    )


def _is_computed_as(file: File, binding: Binding, depth: int) -> bool:
    return binding.value is not None and not binding.path and not binding.element and _is_computed(file, binding.value, depth)


def _is_read_elsewhere(file: File, node: ast.expr) -> bool:
    """Whether `item` is called of a name, and nothing that it is given is a number but where it starts."""
    name = dotted(node)
    if not name or (file.names.scope(node, name), name) not in file.names.read:
        return False
    given = [binding.value for binding in file.names.lookup(node, name) if not isinstance(binding.value, ast.Constant)]
    return bool(given) and all(value is not None and not file.values.is_a(value, "number", "array", "host") for value in given)
