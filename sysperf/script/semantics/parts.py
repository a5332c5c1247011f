"""The expressions that others pass on: parts of an expression, and what a function returns."""

from __future__ import annotations

import ast

from sysperf.script.nodes import dotted, last_name
from sysperf.script.syntax import Function

MAX_VALUES = 8


def alternatives(node: ast.AST) -> list[ast.expr]:
    """The expressions whose values an expression passes on."""
    if isinstance(node, ast.Starred | ast.Await | ast.NamedExpr):
        return [node.value]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.ListComp):
        return [node.elt]
    if isinstance(node, ast.IfExp):
        return [node.body] if _asks_for_tensor(node.test, node.orelse) else [node.body, node.orelse]
    return node.elts if isinstance(node, ast.Tuple | ast.List) and len(node.elts) <= MAX_VALUES else []


def _asks_for_tensor(test: ast.expr, otherwise: ast.expr) -> bool:
    """``x.item() if isinstance(x, torch.Tensor) else x``: what is left as it is, is no tensor."""
    if not isinstance(test, ast.Call) or last_name(test.func) != "isinstance" or len(test.args) != 2:
        return False
    return "Tensor" in last_name(test.args[1]) and bool(dotted(otherwise)) and dotted(test.args[0]) == dotted(otherwise)


def is_abstract(function: Function) -> bool:
    """Whether a function only says what others of its name do."""
    texts = (part.value if isinstance(part, ast.Expr) else part for part in function.body)
    return all(isinstance(part, ast.Pass | ast.Raise | ast.Constant) for part in texts)


def returns(function: Function) -> list[ast.expr]:
    """The expressions that a function returns or yields, at most eight."""
    expressions: list[ast.expr] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting and len(expressions) < MAX_VALUES:
        node = waiting.pop(0)
        if isinstance(node, ast.Return) and node.value is not None:
            expressions.append(node.value)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case)]
    return expressions
