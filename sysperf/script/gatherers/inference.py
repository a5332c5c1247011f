"""no_grad to inference_mode in functions whose results only become numbers: tensors made there can never meet autograd again."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Pattern
from sysperf.script.file import File
from sysperf.script.gatherers.gradients import without_gradients
from sysperf.script.nodes import dotted, last_name
from sysperf.script.semantics.kinds import LOSS_METHODS
from sysperf.script.syntax import Function, within

_UNSAFE = frozenset(("backward", "grad", "requires_grad_", "copy_", "load_state_dict", "append", "extend", "save", "put", "send", "yield_"))
_WRAPPERS = frozenset(("FullyShardedDataParallel", "FSDP", "fully_shard", "DistributedDataParallel", "DDP"))
"""What keeps parameters or buffers of its own between calls: made in inference mode, they break the next training step."""


def patterns(file: File) -> Iterator[Pattern]:
    """The calls of no_grad that may be inference_mode, and the first result of a model in each function that is detached as a whole."""
    told: set[ast.AST | None] = set()
    for call in file.tree.of(ast.Call):
        if file.names.qualified(call.func) == "torch.no_grad" and not call.args and _function(file, call) is not None:
            yield Pattern(**file.site(call), what="no-grad-evaluation")
        elif last_name(call.func) == "detach" and (function := file.tree.function_of(call)) not in told and _is_of_model(file, call):
            told.add(function)
            if not without_gradients(file, call):
                yield Pattern(**file.site(call), what="detached-result")


def _is_of_model(file: File, call: ast.Call) -> bool:
    """Whether what a model gives is detached as a whole: ``target = teacher(x).detach()``."""
    made = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(made, ast.Call) or not file.loops.is_model(made):
        return False
    return last_name(made.func) == "forward" or not LOSS_METHODS.fullmatch(last_name(made.func))


def _function(file: File, call: ast.Call) -> Function | None:
    """The function that a decorator or a `with` of no_grad is about, where all that leaves it are numbers."""
    parent = file.tree.parents.get(call)
    decorated = isinstance(parent, ast.FunctionDef) and call in parent.decorator_list
    function = parent if decorated and isinstance(parent, ast.FunctionDef) else file.tree.function_of(call)
    if function is None or not (decorated or isinstance(parent, ast.withitem)):
        return None
    evaluates = any(part in file.loops.evaluations for part in within(function))
    return function if evaluates and _keeps_to_itself(file, function) and _models_keep_nothing(file) else None


def _keeps_to_itself(file: File, function: Function) -> bool:
    """Tell whether no tensor leaves: results are numbers, and nothing outside is assigned or called with a name that keeps things."""
    for part in within(function):
        if isinstance(part, ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal):
            return False
        if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
            return False
        if isinstance(part, ast.Call) and last_name(part.func) in _UNSAFE:
            return False
        if isinstance(part, ast.Return) and part.value is not None and not _is_number(file, part.value):
            return False
    return True


def _is_number(file: File, node: ast.expr, within_names: frozenset[str] = frozenset()) -> bool:
    """A number in Python for certain: also a name that is made of numbers only, itself among them (`total = total / n`)."""
    if isinstance(node, ast.Tuple):
        return all(_is_number(file, part, within_names) for part in node.elts)
    if isinstance(node, ast.BinOp):
        return _is_number(file, node.left, within_names) and _is_number(file, node.right, within_names)
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("item", "len", "float", "int", "size", "numel")
    if isinstance(node, ast.Name):
        return node.id in within_names or _is_counted(file, node, within_names | {node.id})
    return isinstance(node, ast.Constant)


def _is_counted(file: File, node: ast.Name, within_names: frozenset[str]) -> bool:
    function = file.tree.function_of(node)
    added = [
        statement.value
        for statement in file.tree.of(ast.AugAssign)
        if dotted(statement.target) == node.id and file.tree.function_of(statement) is function
    ]
    values = [binding.value for binding in file.names.lookup(node, node.id)]
    return bool(values) and all(value is not None and _is_number(file, value, within_names) for value in (*values, *added))


def _models_keep_nothing(file: File) -> bool:
    """Every model of this file is written here, and neither it nor a wrapper keeps tensors: those of inference mode break training."""
    models = [node for node in file.names.classes.values() if file.values.base_of(node) == "model"]
    if not models or file.words & _WRAPPERS or any("opacus" in name for name in file.names.imports.values()):
        return False
    for model in models:
        for function in model.body:
            if isinstance(function, ast.FunctionDef) and function.name != "__init__":
                stores = (part for part in within(function) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store))
                if any(dotted(part).startswith("self.") for part in stores):
                    return False
    return True
