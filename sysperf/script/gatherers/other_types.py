"""Places where a condition says that a value is no tensor: the other branch of ``torch.is_tensor(x)``, that of ``isinstance(x, float)``."""

from __future__ import annotations

import ast

from sysperf.script.file import File
from sysperf.script.nodes import dotted, last_name
from sysperf.script.syntax import Function, within


def is_other(file: File, node: ast.expr) -> bool:
    """Whether what an expression reads is no tensor where it stands."""
    names = {dotted(part) for part in within(node) if isinstance(part, ast.Name | ast.Attribute)} - {""}
    child: ast.AST = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            holds = child is parent.body if isinstance(parent, ast.IfExp) else child in parent.body
            if any(name in names and is_tensor is not holds for name, is_tensor in _asked(parent.test)):
                return True
        if isinstance(child, ast.stmt) and not isinstance(parent, ast.ClassDef):
            block, place = file.tree.place_of(child)
            left = (each for each in block[:place] if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Return | ast.Continue))
            if any(name in names and is_tensor for each in left for name, is_tensor in _asked(each.test)):
                return True
        if isinstance(parent, Function):
            return False
        child = parent
    return False


def _asked(test: ast.expr) -> list[tuple[str, bool]]:
    """What a condition asks the type of, and whether it holds for tensors."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return [(name, not is_tensor) for name, is_tensor in _asked(test.operand)]
    if not isinstance(test, ast.Call) or not test.args or not dotted(test.args[0]):
        return []
    if last_name(test.func) == "is_tensor":
        return [(dotted(test.args[0]), True)]
    if last_name(test.func) != "isinstance" or len(test.args) != len(("value", "type")):
        return []
    types = [last_name(part) for part in within(test.args[1]) if isinstance(part, ast.Name | ast.Attribute)]
    if types == ["float"]:
        return [(dotted(test.args[0]), False)]
    return [(dotted(test.args[0]), any("Tensor" in name for name in types))] if types else []
