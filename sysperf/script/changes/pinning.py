"""Pinned memory: loaders whose batches may be pinned, and the copies of those that need not wait.

What lies on a device cannot be pinned, and raises: a loader is changed where its samples lie in the host's memory for certain.
"""

from __future__ import annotations

import ast

from sysperf.script.changes.edits import Change, Edit, add_keyword, change_of, span
from sysperf.script.file import File
from sysperf.script.gatherers.transfers import is_to_device
from sysperf.script.nodes import argument, arguments, dotted, is_open, keyword, last_name
from sysperf.script.semantics.kinds import ARRAYS, FROM_ARRAYS, LOADERS, MADE_ON_CPU
from sysperf.script.semantics.value import device_text
from sysperf.script.syntax import within

MAX_DEPTH = 5
_OF_LIBRARIES = ("torchvision.datasets.", "torchaudio.datasets.", "torchtext.datasets.")
_SPLITS = ("torch.utils.data.Subset", "torch.utils.data.random_split", "torch.utils.data.ConcatDataset")


def pin(file: File, call: ast.Call) -> Change | None:
    """Add pin_memory=True, and non_blocking=True to all copies of the batches, where those come from loaders of this file alone."""
    rule = "dataloader.pin-memory-off"
    if file.names.qualified(call.func) not in LOADERS or last_name(call.func) == "create_loader":
        return None
    if argument(call, "pin_memory", 7) is not None or is_open(call) or _is_for_the_host(file, call):
        return None
    copies = [copy for copy in _copies(file) if any(value.origin is call and not value.guess for value in file.values.of(_owner(copy)))]
    if not copies or any(value.origin is not call for copy in copies for value in file.values.of(_owner(copy)) if value.kind == "batch"):
        return None
    if not _gives_host_memory(file, call, copies):
        return None
    missing = [copy for copy in copies if argument(copy, "non_blocking", _place(copy)) is None]
    return change_of(
        call, rule, add_keyword(file, call, "pin_memory=True", rule), *(_non_blocking_edit(file, copy, rule) for copy in missing)
    )


def _is_for_the_host(file: File, call: ast.Call) -> bool:
    """Whether the function around a loader computes on the CPU unless it is told: ``device="cpu"``. There it would pin in vain."""
    function = file.tree.function_of(call)
    given = [*function.args.defaults, *function.args.kw_defaults] if function is not None else []
    return any(isinstance(part, ast.Constant) and part.value == "cpu" for each in given if each is not None for part in within(each))


def _gives_host_memory(file: File, call: ast.Call, copies: list[ast.Call]) -> bool:
    """Whether the samples of a loader lie in the host's memory for certain: what is on a device cannot be pinned, and raises."""
    collate = argument(call, "collate_fn", 6)
    functions = file.names.functions.get(last_name(collate), []) if collate is not None else []
    if collate is not None and (len(functions) != 1 or _names_device(functions[0])):
        return False
    given = argument(call, "dataset", 0)
    if given is None or _is_tensors(file, given):
        return False
    return _copies_all(file, call, copies) or _is_on_host(file, given, MAX_DEPTH)


def _copies_all(file: File, call: ast.Call, copies: list[ast.Call]) -> bool:
    """Whether each part of a batch is copied to the device by its name: none of them was there before."""
    copied = {dotted(_owner(copy)) for copy in copies}
    loops = [loop for loop in file.tree.loops if not isinstance(loop, ast.While) and file.loops.iterates(loop, call)]
    names = {
        part.id for loop in loops for part in within(loop.target) if isinstance(part, ast.Name) and not file.values.is_a(part, "number")
    }
    return bool(names) and names <= copied


def _is_tensors(file: File, node: ast.expr) -> bool:
    """Whether a data set was made of tensors that may lie anywhere, with a model, or for a device; or is one: ``DataLoader(X)``."""
    if isinstance(node, ast.Name) and ARRAYS.fullmatch(node.id) and not file.values.is_a(node, "array", "dataset"):
        return True
    made = [node, *(binding.value for binding in file.names.lookup(node, dotted(node)) if binding.value is not None)]
    calls = [part for value in made for part in within(value) if isinstance(part, ast.Call)]
    if any(file.names.qualified(each.func) == "torch.utils.data.TensorDataset" for each in calls):
        return not all(_is_on_host(file, value, MAX_DEPTH) for value in made)
    return any(_may_be_tensor(file, given) or device_text(file.names, given) for each in calls for given in arguments(each))


def _is_on_host(file: File, node: ast.expr, depth: int) -> bool:
    """A data set of a library, or a class of this file that knows no device and was given nothing that may lie on one."""
    if depth and dotted(node):
        values = [binding.value for binding in file.names.lookup(node, dotted(node))]
        return bool(values) and all(value is not None and _is_on_host(file, value, depth - 1) for value in values)
    if not depth or not isinstance(node, ast.Call):
        return False
    name = file.names.qualified(node.func)
    if name in _SPLITS:
        return bool(node.args) and _is_on_host(file, node.args[0], depth - 1)
    if name == "torch.utils.data.TensorDataset":
        return all(_is_made_on_host(file, given) for given in node.args)
    return _is_plain_dataset(file, name) and not any(_may_be_tensor(file, given) for given in arguments(node))


def _is_plain_dataset(file: File, name: str) -> bool:
    written = file.names.classes.get(name)
    if written is None:
        return name.startswith(_OF_LIBRARIES)
    return file.values.base_of(written) == "dataset" and not _names_device(written)


def _names_device(node: ast.AST) -> bool:
    words = {last_name(part) for part in within(node, functions=True)}
    return bool(words & {"cuda", "device", "to", "DEVICE", "gpu"})


def _is_made_on_host(file: File, node: ast.expr) -> bool:
    """A tensor of a factory without a device, or of NumPy's memory: what is made of another tensor lies where that does."""
    if dotted(node):
        values = [binding.value for binding in file.names.lookup(node, dotted(node))]
        return len(values) == 1 and isinstance(values[0], ast.Call) and _is_made_on_host(file, values[0])
    if not isinstance(node, ast.Call) or keyword(node, "device") is not None or is_open(node):
        return False
    name = file.names.qualified(node.func)
    if name in FROM_ARRAYS and name != "torch.from_numpy":
        return bool(node.args) and _is_of_host(file, node.args[0])
    return name in MADE_ON_CPU or name == "torch.from_numpy"


def _is_of_host(file: File, node: ast.expr) -> bool:
    """An array, a list of numbers, or what gives one."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("numpy", "to_numpy", "tolist", "astype", "fit_transform", "transform"):
        return True
    written = isinstance(node, ast.List | ast.ListComp) and not any(isinstance(part, ast.Name) for part in within(node))
    return written or last_name(node) == "values" or file.values.kinds(node) in ({"array"}, {"number"})


def _may_be_tensor(file: File, node: ast.expr) -> bool:
    """Whether an argument of a data set may be a tensor, or something that a model has made."""
    if isinstance(node, ast.Constant | ast.Lambda | ast.JoinedStr):
        return False
    if ARRAYS.fullmatch(last_name(node)) and not file.values.is_a(node, "array"):
        return True
    for part in within(node):
        if isinstance(part, ast.Call) and last_name(part.func) in ("to", "cuda", "encode", "forward", "predict", "embed"):
            return True
        if isinstance(part, ast.expr) and file.values.kinds(part) & {"tensor", "host", "output", "batch", "loss", "detached", "model"}:
            return True
    return False


def _copies(file: File) -> list[ast.Call]:
    return [
        call
        for call in file.tree.of(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "cuda") and is_to_device(file, call)
    ]


def _owner(call: ast.Call) -> ast.expr:
    assert isinstance(call.func, ast.Attribute)  # noqa: S101 - `_copies` gives nothing else
    return call.func.value


def _place(call: ast.Call) -> int:
    return 2 if last_name(call.func) == "to" else 1


def do_not_wait(file: File, call: ast.Call) -> Change | None:
    """Add non_blocking=True to a copy of a pinned batch."""
    rule = "transfer.blocking"
    return None if argument(call, "non_blocking", _place(call)) is not None else change_of(call, rule, _non_blocking_edit(file, call, rule))


def _non_blocking_edit(file: File, call: ast.Call, rule: str) -> Edit | None:
    """``x.cuda()`` has no argument to put it behind."""
    if call.args or call.keywords:
        return add_keyword(file, call, "non_blocking=True", rule)
    start, end = span(file, call.func)[1], span(file, call)[1]
    return Edit(start, end, "(non_blocking=True)", rule) if file.source.text[start:end] == "()" else None
