"""Facts of copies between devices, and of expressions for which the host waits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Sync, Transfer
from sysperf.script.file import File
from sysperf.script.makers import DATALOADER, TIMM, truth
from sysperf.script.nodes import argument, dotted, is_open, keyword, last_name
from sysperf.script.syntax import within
from sysperf.script.values import device_text

_TENSORS = ("loss", "output", "batch", "tensor", "detached")
_MADE_ON_CPU = frozenset(
    f"torch.{name}"
    for name in (  # noqa: SIM905 - a list of one word a line would be longer than the code
        "tensor zeros ones empty full rand randn randint arange eye linspace randperm normal Tensor FloatTensor LongTensor BoolTensor"
    ).split()
)
_READS = ("item", "cpu", "numpy", "tolist")
_CHAINED = ("cpu", "detach", "float", "mean", "sum")
_OF_TENSORS = frozenset(("detach", "cpu", "argmax", "softmax", "squeeze", "unsqueeze", "norm"))
_ASKED = ("torch.isnan", "torch.isinf", "torch.isfinite", "math.isnan", "math.isinf", "math.isfinite")
_CONVERSIONS = ("float", "int", "bool", "print")


def is_to_device(file: File, call: ast.Call) -> bool:
    """Whether `.to(…)` or `.cuda(…)` copies to an accelerator."""
    return target(file, call) in ("cuda", "device", "xpu", "mps")


def target(file: File, call: ast.Call) -> str:
    """Return where `.to(…)`, `.cuda(…)` or `.cpu()` copies to; empty where it only converts."""
    method = last_name(call.func)
    if method in ("cuda", "cpu"):
        return method
    return device_text(file.names, argument(call, "device", 0))


def prepared(file: File) -> set[ast.AST]:
    """The loaders that a framework was given: it moves their batches itself."""
    calls = (call for call in file.tree.of(ast.Call) if last_name(call.func) in ("prepare", "setup_dataloaders"))
    given = (value for call in calls for part in call.args for value in file.values.of(part))
    return {value.origin for value in given if value.kind == "loader" and value.origin is not None}


def transfers(file: File) -> Iterator[Transfer]:
    """All copies of batches, models and new tensors."""
    moved_already = prepared(file)
    for call in file.tree.of(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda", "cpu"):
            continue
        to = target(file, call)
        owner = call.func.value
        pinned_here = isinstance(owner, ast.Call) and last_name(owner.func) == "pin_memory"
        of = _moves(file, owner) or ("tensor" if pinned_here else "")
        if to and of and not (of == "batch" and any(value.origin in moved_already for value in file.values.of(owner))):
            yield Transfer(
                **file.site(call),
                of=of,
                to=to,
                non_blocking=_non_blocking(file, call),
                pinned=_pinned(file, owner),
                pinned_here=pinned_here,
            )


def _moves(file: File, owner: ast.expr) -> str:
    """What is copied; empty where that is not known."""
    if (made := _made_here(file, owner)) is not None:
        return "factory" if keyword(made, "device") is None and not is_open(made) else "tensor"
    kinds = file.values.kinds(owner)
    return next((kind for kind in ("batch", "model", "loss", "output", "tensor") if kind in kinds), "")


def _made_here(file: File, node: ast.expr) -> ast.Call | None:
    """The call that makes a tensor on the CPU: through methods on it, and a name that has no other value in its function."""
    if isinstance(node, ast.Name):
        values = [binding.value for binding in file.names.lookup(node, node.id) if not binding.path and not binding.element]
        others = [value for value in values if not (isinstance(value, ast.Call) and _root(value) == node.id)]
        made = _made_here(file, others[0]) if len(others) == 1 and isinstance(others[0], ast.Call) else None
        return (
            made
            if made is not None and file.tree.function_of(made) is file.tree.function_of(node) and _same_loop(file, made, node)
            else None
        )
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        node = node.func.value
    return node if isinstance(node, ast.Call) and file.names.qualified(node.func) in _MADE_ON_CPU else None


def _root(node: ast.expr) -> str:
    """The name that a chain of methods begins with."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _same_loop(file: File, made: ast.AST, node: ast.AST) -> bool:
    loops = [
        next((parent for parent in file.tree.ancestors(each) if isinstance(parent, ast.For | ast.While)), None) for each in (made, node)
    ]
    return loops[0] is loops[1]


def _non_blocking(file: File, call: ast.Call) -> bool | None:
    given = argument(call, "non_blocking", 2 if last_name(call.func) == "to" else 1)
    if given is None:
        return None if is_open(call) else False
    value = file.names.constant(given)
    return value if isinstance(value, bool) else None


def _pinned(file: File, owner: ast.expr) -> bool | None:
    """Whether the loaders of a batch pin; None where one of them is not in this file or does not say."""
    answers = []
    for value in file.values.of(owner):
        if value.kind == "batch":
            loader = value.origin if isinstance(value.origin, ast.Call) else None
            maker = TIMM if loader is not None and last_name(loader.func) == "create_loader" else DATALOADER
            answers.append(truth(file, loader, *maker.pin) if loader is not None else None)
    return all(answers) if answers and None not in answers else None


def syncs(file: File) -> Iterator[Sync]:
    """All expressions for which the host waits, of values that are tensors."""
    for call in file.tree.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _READS:
            if not _is_part(file, call) and (of := _read(file, call, call.func)):
                yield Sync(**file.site(call), how=call.func.attr, of=of, debug=_in_debug(file, call))
        elif isinstance(call.func, ast.Name) and call.func.id in _CONVERSIONS:
            sure = call.func.id in ("print", "bool")
            if of := next((of for given in call.args if (of := _tensor(file, given, sure=sure))), ""):
                yield Sync(**file.site(call), how=call.func.id, of=of, debug=False)
    for shown in file.tree.of(ast.FormattedValue):
        if isinstance(shown.value, ast.Name | ast.Attribute) and (of := _tensor(file, shown.value, sure=True)) == "loss":
            yield Sync(**file.site(shown.value), how="print", of=of, debug=_in_debug(file, shown))
    for condition in file.tree.of(ast.If):
        if of := _compared(file, condition.test):
            yield Sync(**file.site(condition.test), how="if", of=of, debug=False)


def _is_part(file: File, call: ast.Call) -> bool:
    """``x.cpu()`` of ``x.cpu().data.numpy()``: one wait, told once."""
    node: ast.AST | None = file.tree.parents.get(call)
    while isinstance(node, ast.Attribute) or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        if isinstance(node, ast.Attribute) and node.attr in _READS and isinstance(file.tree.parents.get(node), ast.Call):
            return True
        parent = file.tree.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is not node:
            return False  # an argument of another call
        node = parent
    return False


def _read(file: File, call: ast.Call, method: ast.Attribute) -> str:
    """What kind of tensor ``x.cpu().item()`` reads; where that is not known, by the method: nothing else has `item` where torch is used."""
    owner, chain = method.value, {method.attr}
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr in (*_READS, *_CHAINED):
        if file.names.qualified(owner.func).startswith(("numpy.", "torch.")):
            break
        chain.add(owner.func.attr)
        owner = owner.func.value
    kinds = file.values.kinds(owner)
    if of := _tensor(file, owner):
        return of if of != "batch" or _is_moved(file, owner) else ""
    if "number" in kinds and dotted(owner) not in file.names.augmented:
        return ""
    if kinds & {"array", "model", "object", "lightning", "batch"} or _is_of_numpy(file, owner):
        return ""
    chain |= {last_name(part.func) for part in within(owner) if isinstance(part, ast.Call)}
    evident = (
        method.attr == "item" or (method.attr == "cpu" and not isinstance(file.tree.parents.get(call), ast.Expr)) or chain & _OF_TENSORS
    )
    return "tensor" if evident and file.uses_torch and not call.args else ""


def _is_moved(file: File, node: ast.expr) -> bool:
    """Whether a batch, or a part of it, is copied to a device: its name is given such a value, or a framework moves it."""
    if {"lightning", "accelerate", "fabric"} & {name.partition(".")[0] for name in file.names.imports.values()}:
        return True
    names = {dotted(part) for part in within(node) if isinstance(part, ast.Name)}
    for name in names:
        for binding in file.names.lookup(node, name):
            values = within(binding.value) if binding.value is not None and not binding.element else ()
            if any(isinstance(part, ast.Call) and last_name(part.func) in ("to", "cuda") and is_to_device(file, part) for part in values):
                return True
    return any(isinstance(part, ast.Call) and last_name(part.func) in ("to", "cuda") for part in within(node))


def _is_of_numpy(file: File, node: ast.expr) -> bool:
    return any(file.names.qualified(part).startswith(("numpy.", "math.")) for part in within(node) if isinstance(part, ast.Attribute))


def _tensor(file: File, node: ast.expr, *, sure: bool = False) -> str:
    """What kind of tensor an expression is, through conversions that stay on its device; empty where it may be none.

    With `sure`, a name that sounds like one is not enough.
    """
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHAINED:
        node = node.func.value
    if isinstance(node, ast.Call) and last_name(node.func) in ("item", "len", "float", "int"):
        return ""
    values = file.values.of(node)
    kinds = {value.kind for value in values if not (sure and value.guess)}
    if kinds & {"number", "array"} or (sure and any(value.guess for value in values)):
        return ""
    return next((kind.replace("detached", "tensor") for kind in _TENSORS if kind in kinds), "")


def _compared(file: File, test: ast.expr) -> str:
    """The tensor in a condition whose value Python must wait for; identity and membership need none."""
    if isinstance(test, ast.BoolOp):
        return next((of for part in test.values if (of := _compared(file, part))), "")
    if isinstance(test, ast.UnaryOp):
        return _compared(file, test.operand)
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE):
        return next((of for part in (test.left, *test.comparators) if (of := _tensor(file, part, sure=True)) == "loss"), "")
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr in ("any", "all") and not test.args:
        return _compared(file, test.func.value)
    if isinstance(test, ast.Call) and test.args and file.names.qualified(test.func) in _ASKED:
        return _tensor(file, test.args[0])
    return ""


def _in_debug(file: File, call: ast.expr) -> bool:
    for parent in file.tree.ancestors(call):
        if isinstance(parent, ast.Call) and last_name(parent.func) == "debug":
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False
