"""Facts of copies between devices, and of expressions for which the host waits."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Sync, Transfer
from sysperf.script.file import File
from sysperf.script.makers import DATALOADER, TIMM, truth
from sysperf.script.names import argument, is_open, keyword, last_name
from sysperf.script.values import device_text

_TENSORS = ("loss", "output", "batch", "tensor", "detached")
_MADE_ON_CPU = frozenset(
    f"torch.{name}"
    for name in ("tensor", "zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "eye", "linspace", "randperm")
)
_CONVERSIONS = ("float", "int", "bool", "print")
_PLACE_OF_DEVICE = {"to": ("device", 0), "cuda": ("device", 0)}


def is_to_device(file: File, call: ast.Call) -> bool:
    """Whether `.to(…)` or `.cuda(…)` copies to an accelerator."""
    return target(file, call) in ("cuda", "device", "xpu", "mps")


def target(file: File, call: ast.Call) -> str:
    """Return where `.to(…)`, `.cuda(…)` or `.cpu()` copies to; empty where it only converts."""
    method = last_name(call.func)
    if method in ("cuda", "cpu"):
        return method
    return device_text(file.names, argument(call, "device", 0))


def transfers(file: File) -> Iterator[Transfer]:
    """All copies of batches, models and new tensors."""
    for call in file.tree.of(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda", "cpu"):
            continue
        to = target(file, call)
        of = _moves(file, call.func.value)
        if to and of:
            owner = call.func.value
            yield Transfer(
                **file.site(call),
                of=of,
                to=to,
                non_blocking=_non_blocking(file, call),
                pinned=_pinned(file, owner),
                pinned_here=isinstance(owner, ast.Call) and last_name(owner.func) == "pin_memory",
            )


def _moves(file: File, owner: ast.expr) -> str:
    """What is copied; empty where that is not known."""
    if isinstance(owner, ast.Call) and file.names.qualified(owner.func) in _MADE_ON_CPU:
        return "factory" if keyword(owner, "device") is None and not is_open(owner) else "tensor"
    kinds = file.values.kinds(owner)
    return next((kind for kind in ("batch", "model", "loss", "output", "tensor") if kind in kinds), "")


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
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("item", "cpu", "numpy", "tolist"):
            if not _is_part(file, call) and (of := _tensor(file, call.func.value)):
                yield Sync(**file.site(call), how=call.func.attr, of=of, debug=_in_debug(file, call))
        elif isinstance(call.func, ast.Name) and call.func.id in _CONVERSIONS:
            for given in call.args:
                if of := _tensor(file, given):
                    yield Sync(**file.site(call), how=call.func.id, of=of, debug=False)
                    break
    for condition in file.tree.of(ast.If):
        if of := _compared(file, condition.test):
            yield Sync(**file.site(condition.test), how="if", of=of, debug=False)


def _is_part(file: File, call: ast.Call) -> bool:
    """``x.cpu()`` of ``x.cpu().numpy()``: one wait, told once."""
    parent = file.tree.parents.get(call)
    return isinstance(parent, ast.Attribute) and parent.attr in ("item", "numpy", "tolist")


def _tensor(file: File, node: ast.expr) -> str:
    """What kind of tensor an expression is, through conversions that stay on its device; empty where it may be none."""
    while (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "detach", "float", "mean", "sum")
    ):
        node = node.func.value
    if isinstance(node, ast.Call) and last_name(node.func) in ("item", "len", "float", "int"):
        return ""
    kinds = file.values.kinds(node)
    if "number" in kinds:
        return ""
    return next((kind.replace("detached", "tensor") for kind in _TENSORS if kind in kinds), "")


def _compared(file: File, test: ast.expr) -> str:
    """The tensor in a comparison with a number, which Python must wait for; identity and membership need no value."""
    if isinstance(test, ast.BoolOp):
        return next((of for part in test.values if (of := _compared(file, part))), "")
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE):
        return next((of for part in (test.left, *test.comparators) if (of := _tensor(file, part)) == "loss"), "")
    return ""


def _in_debug(file: File, call: ast.Call) -> bool:
    for parent in file.tree.ancestors(call):
        if isinstance(parent, ast.Call) and last_name(parent.func) == "debug":
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False
