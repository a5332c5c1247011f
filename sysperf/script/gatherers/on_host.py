"""What only the host can use: places where it computes, libraries for CPUs, buffers of samples. What goes there must leave the device."""

from __future__ import annotations

import ast

from sysperf.script.file import File
from sysperf.script.nodes import dotted, last_name
from sysperf.script.semantics.kinds import FROM_ARRAYS, MADE_ON_CPU
from sysperf.script.syntax import Function, within
from sysperf.startup import lazy

MAX_DEPTH = 3
_OF_HOST = frozenset(("pack_padded_sequence", "linear_sum_assignment"))
"""Functions that take what the host has."""
_HOST_LIBRARIES = frozenset(("scipy", "sklearn", "skimage", "cv2", "faiss", "ot", "lap", "networkx", "rdkit", "numba"))
"""Packages that compute on CPUs what PyTorch has no function for."""
_HOST_PLACES = lazy(r"CPU|(?i:coco_?(eval|detection|keypoint|segmentation|panoptic|format|results))")
"""Functions and classes for CPUs, and for results in COCO's format, which only its library for CPUs reads."""
_BUFFER = lazy(r"(?i)(\w+_)?(buffer|replay|memory|rb)")
"""Names of what keeps samples."""


def is_of_the_host(file: File, node: ast.expr) -> bool:
    """Whether only the host can use a value: a class for CPUs, priorities that a buffer of samples keeps."""
    around = (parent for parent in file.tree.ancestors(node) if isinstance(parent, ast.Call))
    names = [last_name(call.func) for call in around]
    if _is_one_of_two_places(file, node) or _is_where_the_host_computes(file, node):
        return True
    return (
        bool(_HOST_PLACES.search(file.function_name(node)))
        or any("priorit" in name or name in _OF_HOST for name in names)
        or _is_of_buffer(file, node)
    )


def _is_one_of_two_places(file: File, node: ast.expr) -> bool:
    """``x.cpu() if device is None else x.to(device)``: what is asked for is the host."""
    owner = dotted(node.func.value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    child: ast.AST = node
    for parent in file.tree.ancestors(node) if owner else ():
        if isinstance(parent, ast.IfExp):
            other: list[ast.AST] = [parent.orelse if child is parent.body else parent.body]
        else:
            other = list(parent.orelse if child in parent.body else parent.body) if isinstance(parent, ast.If) else []
        calls = (part.func for each in other for part in within(each) if isinstance(part, ast.Call))
        if any(isinstance(call, ast.Attribute) and call.attr in ("to", "cuda") and dotted(call.value) == owner for call in calls):
            return True
        child = parent
    return False


def _is_where_the_host_computes(file: File, node: ast.expr) -> bool:
    """Whether tensors of a GPU do not come here: ``if x.is_cuda: return``, ``if x.device.type == "cpu":``."""
    child: ast.AST = file.tree.statement_of(node)
    for parent in file.tree.ancestors(child):
        if isinstance(parent, ast.If) and _asks_device(parent.test) == ("cpu" if child in parent.body else "cuda"):
            return True
        block, place = file.tree.place_of(child) if isinstance(child, ast.stmt) else ([], 0)
        left = (each for each in block[:place] if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Return | ast.Raise))
        if any(_asks_device(each.test) == "cuda" for each in left):
            return True
        if isinstance(parent, Function):
            return False
        child = parent
    return False


def _asks_device(test: ast.expr) -> str:
    """The device of which a condition says that something lies there: empty where it asks for something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return {"cuda": "cpu", "cpu": "cuda"}.get(_asks_device(test.operand), "")
    if isinstance(test, ast.Attribute):
        return {"is_cuda": "cuda", "is_cpu": "cpu"}.get(test.attr, "")
    said = test.comparators[0] if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) else None
    asked = isinstance(test, ast.Compare) and dotted(test.left).endswith(("device", "device.type"))
    return str(said.value) if asked and isinstance(said, ast.Constant) and said.value in ("cuda", "cpu") else ""


def feeds_a_library(file: File, node: ast.expr) -> bool:
    """Whether a library for CPUs computes with a copy, and what it finds becomes a tensor: ``torch.tensor(rows[tree.query(key)])``."""
    function = file.tree.function_of(node)
    if function is None or not _HOST_LIBRARIES & {name.partition(".")[0] for name in file.names.imports.values()}:
        return False
    copies, found = {node}, set[str]()
    given = set[str]()
    for part in within(function):
        if not isinstance(part, ast.Assign):
            continue
        inside = list(within(part.value))
        names = {each.id for target in part.targets for each in within(target) if isinstance(each, ast.Name)}
        calls = [each for each in inside if isinstance(each, ast.Call)]
        if any(_is_library(file, call) and _mentions(call, copies, given) for call in calls) or _mentions(part.value, set(), found):
            found |= names
        elif _mentions(part.value, copies, given):
            given |= names
        if any(file.names.qualified(call.func) in (*FROM_ARRAYS, *MADE_ON_CPU) and _mentions(call, set(), found) for call in calls):
            return True
    return False


def _is_library(file: File, call: ast.Call) -> bool:
    """Whether a function of a library for CPUs is called, or a method of what one made."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = [binding.value for binding in file.names.lookup(owner, dotted(owner))] if owner is not None and dotted(owner) else []
    names = [file.names.qualified(each.func) for each in (call, *made) if isinstance(each, ast.Call)]
    return any(name.partition(".")[0] in _HOST_LIBRARIES for name in names)


def _mentions(node: ast.AST, nodes: set[ast.expr], names: set[str]) -> bool:
    return any(part in nodes or (isinstance(part, ast.Name) and part.id in names) for part in within(node))


def _is_of_buffer(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether all that an expression is made of comes out of a buffer of samples, which lies in the host's memory as a rule, uncopied."""
    parts = [part for part in within(node) if isinstance(part, ast.Name) and part.id not in file.names.imports]
    if not parts or any(isinstance(part, ast.Attribute) and part.attr in ("to", "cuda") for part in within(node)):
        return False
    return all(_BUFFER.fullmatch(part.id) or (depth > 0 and _is_bound_to_buffer(file, part, depth)) for part in parts)


def _is_bound_to_buffer(file: File, name: ast.Name, depth: int) -> bool:
    values = [binding.value for binding in file.names.lookup(name, name.id)]
    return bool(values) and all(
        value is not None and value.lineno <= name.lineno and _is_of_buffer(file, value, depth - 1) for value in values
    )
