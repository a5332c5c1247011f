"""What kind of tensor an expression is, and whether it lies on a device: through conversions, names, and what is copied there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.file import File
from sysperf.script.gatherers.transfers import is_to_device, last_given
from sysperf.script.nodes import arguments, dotted, keyword, last_name
from sysperf.script.semantics.binding import Binding
from sysperf.script.semantics.value import Value, device_text
from sysperf.script.syntax import within
from sysperf.startup import lazy

MAX_DEPTH = 3
CHAINED = ("cpu", "detach", "float", "mean", "sum")
TENSORS = ("loss", "output", "batch", "tensor", "detached", "parameter")
_REDUCES = ("max", "min", "sum", "mean", "norm", "any", "all")
_MOVES = lazy(r"(\w+_)?to_(device|cuda|gpu)|(move|send|put)_(batch|data|tensors?|to|inputs?)(_\w+)?|cuda_batch|batch_cuda")
"""Functions that copy batches to a device."""
_UNPACKS = lazy(r"_*(unpack|prepare|process|get|split)_(batch|data|inputs?|samples?)(_\w+)?")
"""Functions that do so where they are given one at all."""
_PLACES = lazy(r"(\w+_)?(to|move|send|put|place|transfer)(_\w+)?")
"""Functions that do so where they are given one by its name."""


def moved_tensor(file: File, node: ast.expr, *, sure: bool = False) -> str:
    """What kind of tensor on a device an expression is: a batch lies there once it was copied."""
    of = tensor_of(file, node, sure=sure)
    return of if of != "batch" or is_moved(file, node) else ""


def is_moved(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether a batch, or a part of it, is copied to a device: its name has such a value, here or at a caller; or a framework moves it."""
    if {"lightning", "pytorch_lightning", "accelerate", "fabric"} & {name.partition(".")[0] for name in file.names.imports.values()}:
        return True
    names = {dotted(part) for part in within(node) if isinstance(part, ast.Name)}
    for name in names:
        for binding in file.names.lookup(node, name):
            callers = file.names.arguments(binding.parameter) if binding.parameter is not None and depth else []
            if any(is_moved(file, given, depth - 1) for given in callers):
                return True
            value = binding.value if not binding.element else _gone_through(file, binding)
            if value is not None and (value.lineno > node.lineno or node in within(value) or _is_size(value)):
                continue  # it is moved only later, or a number that tells nothing of where something lies
            calls = (part for part in within(value) if isinstance(part, ast.Call)) if value is not None else ()
            if any(sends(file, call) or _sends_within(file, call) for call in calls):
                return True
            if value is not None and depth and is_moved(file, value, depth - 1):
                return True
    return any(isinstance(part, ast.Call) and last_name(part.func) in ("to", "cuda") for part in within(node))


def _is_size(value: ast.expr) -> bool:
    """``x.shape[0]``, ``x.size(0)``, ``len(x)``."""
    value = value.value if isinstance(value, ast.Subscript) else value
    if isinstance(value, ast.Call):
        return last_name(value.func) in ("size", "numel", "dim", "len")
    return isinstance(value, ast.Attribute) and value.attr == "shape"


def _gone_through(file: File, binding: Binding) -> ast.expr | None:
    """The tensor whose rows a loop gives to a name: ``for row in batch``, ``for a, b in zip(first, second)``; None for a loader."""
    iterated = binding.value
    if isinstance(iterated, ast.Call) and last_name(iterated.func) == "zip" and binding.path and binding.path[0] < len(iterated.args):
        iterated = iterated.args[binding.path[0]]
    return iterated if isinstance(iterated, ast.Name | ast.Subscript) and file.values.is_a(iterated, "batch") else None


def sends(file: File, call: ast.Call) -> bool:
    """Whether a call copies what it is given to a device: ``x.to(device)``, ``to_device(batch, device)``, ``deep_to(x, device=device)``."""
    if last_name(call.func) in ("to", "cuda", "type"):
        return is_to_device(file, call)
    name = last_name(call.func)
    placed = keyword(call, "device") is not None and bool(_PLACES.fullmatch(name))
    unpacked = any(device_text(file.names, each) for each in arguments(call)) and bool(_UNPACKS.fullmatch(name))
    return bool(call.args) and (placed or unpacked or bool(_MOVES.fullmatch(name)))


def _sends_within(file: File, call: ast.Call) -> bool:
    """Whether a function of the file copies what it is given to a device: ``x, y = self.unpack(batch)``."""
    functions = file.names.functions.get(last_name(call.func), ()) if call.args else ()
    parts = within(functions[0]) if len(functions) == 1 else ()
    return any(isinstance(part, ast.Call) and sends(file, part) for part in parts)


def is_drawn(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether a loop gives a part of an expression its value, or what it unpacks: as the loader made it."""
    names = (part for part in within(node) if isinstance(part, ast.Name))
    bindings = [binding for name in names for binding in file.names.lookup(name, name.id)]
    unpacked = (part for binding in bindings if (part := _unpacked(binding)) is not None)
    return any(binding.element for binding in bindings) or (depth > 0 and any(is_drawn(file, value, depth - 1) for value in unpacked))


def _unpacked(binding: Binding) -> ast.expr | None:
    """What a name is given out of a batch: ``x, y = batch``, ``x = batch[0]``, ``x, y = batch[0], batch[1]``."""
    value, path = binding.value, binding.path
    if path and isinstance(value, ast.Tuple) and path[0] < len(value.elts):
        value = value.elts[path[0]]
    return value if isinstance(value, ast.Subscript) or (path and isinstance(value, ast.Name)) else None


def tensor_of(file: File, node: ast.expr, *, sure: bool = False) -> str:
    """What kind of tensor an expression is, through conversions that stay on its device; empty where it may be none.

    With `sure`, a name that sounds like one is not enough.
    """
    while (inner := _inner(node)) is not None:
        node = inner
    if isinstance(node, ast.Call) and last_name(node.func) in ("item", "len", "float", "int"):
        return ""
    values = values_of(file, node)
    kinds = {value.kind for value in values if not (sure and value.guess)}
    if kinds & {"number", "array"} or (sure and any(value.guess for value in values)):
        return ""
    return next((kind.replace("detached", "tensor") for kind in TENSORS if kind in kinds), "")


def _inner(node: ast.expr) -> ast.expr | None:
    """What a conversion on its device is made of: ``x`` of ``x.mean()``, of ``x.data``."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return node.value
    called = node.func if isinstance(node, ast.Call) else None
    return called.value if isinstance(called, ast.Attribute) and called.attr in CHAINED else None


def values_of(file: File, node: ast.expr) -> tuple[Value, ...]:
    """What an expression may be; of a name that its own statement gives another value, what it was before: ``loss = loss.item()``."""
    statement, name = file.tree.statement_of(node), dotted(node)
    if name and isinstance(statement, ast.Assign) and name in [dotted(target) for target in statement.targets]:
        return file.values.without(node, statement.value)
    if isinstance(node, ast.Name) and _is_number_now(file, node):
        return (Value("number"),)
    later = next((value for value in _conversions(file, node, name) if value.lineno > node.lineno), None) if name else None
    return file.values.without(node, later) if later is not None else file.values.of(node)


def _is_number_now(file: File, name: ast.Name) -> bool:
    """Whether a name was given a number just before, under which it was a tensor: ``loss = loss.item() * n``."""
    if not any(_is_number(binding.value) for binding in file.names.lookup(name, name.id)):
        return False
    return _is_number(last_given(file, name))


def _is_number(value: ast.expr | None) -> bool:
    """``loss.item() / n``."""
    if isinstance(value, ast.BinOp):
        return _is_number(value.left) or _is_number(value.right)
    return isinstance(value, ast.Call) and last_name(value.func) == "item"


def _conversions(file: File, node: ast.expr, name: str) -> Iterator[ast.expr]:
    """What makes a number of a name under the same name: ``loss = float(loss)``, ``loss = loss.item()``."""
    for binding in file.names.lookup(node, name):
        value = binding.value
        if isinstance(value, ast.Call) and last_name(value.func) in ("float", "int", "item") and not binding.path and not binding.element:
            given = value.args[0] if value.args else value.func.value if isinstance(value.func, ast.Attribute) else None
            if given is not None and name in dotted(given):
                yield value


def is_reduced(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REDUCES and not node.args
