"""Facts of expressions for which the host waits: values of tensors that are read, converted, shown or compared."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Sync
from sysperf.script.file import File
from sysperf.script.gatherers import needs, rows
from sysperf.script.gatherers.branches import asked
from sysperf.script.gatherers.other_types import is_other
from sysperf.script.gatherers.tensors import CHAINED, TENSORS, is_drawn, is_reduced, moved_tensor, tensor_of, values_of
from sysperf.script.gatherers.transfers import is_copied_back, target
from sysperf.script.nodes import argument, dotted, last_name
from sysperf.script.semantics.kinds import AS_NUMBERS
from sysperf.script.syntax import within
from sysperf.startup import lazy

_HOST_TYPES = frozenset(f"torch.{name}Tensor" for name in ("Bool", "Byte", "Int", "Long", "Float", "Double", "Half", "Short"))
"""Types of the host's memory: what is converted to one is copied there."""
_READS = ("item", "cpu", "numpy", "tolist")
_COPIES = ("cpu", "numpy", "tolist")
_OF_TENSORS = frozenset(("detach", "cpu", "argmax", "softmax", "squeeze", "unsqueeze", "norm"))
_RATE = lazy(r"(\w+_)?(lrs?|learning_rates?)")
_ASKS_NUMBER = ("math.isnan", "math.isinf", "math.isfinite")
_CONVERSIONS = ("float", "int", "bool", "print")


def syncs(file: File) -> Iterator[Sync]:
    """All expressions for which the host waits, of values that are tensors."""
    found = [each for each in (*_converted(file), *_shown(file), *_kept_on_host(file), *asked(file)) if not is_other(file, each[0])]
    copies = (node for node, how, of in found if how in _COPIES and of in ("output", "tensor") and not _is_needless(file, node, how))
    copying = {blocks[0] for node in copies if (blocks := needs.blocks_of(file, node))}
    for node, how, of in found:
        written = of != "loss" and how in _COPIES and needs.is_written(file, node)
        where = file.loops.where(node)
        beside = (how not in _COPIES or of in ("batch", "loss")) and where.often == "evaluation" and bool(copying)
        waited = beside and any(block in copying for block in needs.blocks_of(file, node))
        needed, paced = None if written or waited else needs.is_needed(file, node, of), needs.is_paced(file, node)
        alone = where.often == "evaluation" and not written and _is_needless(file, node, how)
        debug = _in_debug(file, node)
        yield Sync(**file.site(node, where), how=how, of=of, debug=debug, needed=needed, paced=paced, needless=alone)


def _is_needless(file: File, node: ast.expr, how: str) -> bool:
    """Whether a result of an evaluation leaves the device row by row, or only for a number that is computed of it."""
    number = how in ("float", "int") and isinstance(node, ast.Call) and is_reduced(node.args[0])
    return number or rows.is_row(file, node) or (how in _COPIES and rows.is_only_measured(file, node))


def _converted(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """``x.item()``, ``float(x)``: the expression, how it waits, and of what."""
    for call in file.tree.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and (how := _read_by(file, call)):
            if not _is_part(file, call) and (of := _read(file, call, call.func)):
                yield call, how, of
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "type" and call.args:
            host = isinstance(call.func.value, ast.Call) and file.names.qualified(call.func.value.func) == "torch.from_numpy"
            if not host and file.names.qualified(call.args[0]) in _HOST_TYPES and (of := moved_tensor(file, call.func.value)):
                yield call, "type", of
        elif (name := file.names.qualified(call.func)) in (*_ASKS_NUMBER, *AS_NUMBERS):
            asked = name in _ASKS_NUMBER and not isinstance(file.tree.parents.get(call), ast.Assign)  # which a condition tells
            if call.args and not asked and (of := moved_tensor(file, call.args[0], sure=True) or _summed(file, call.args[0])):
                yield call, "float", of
        elif isinstance(call.func, ast.Name) and call.func.id in _CONVERSIONS:
            sure = call.func.id in ("print", "bool")
            given = [each for each in call.args if not _reads(each)]
            if of := next((of for each in given if (of := moved_tensor(file, each, sure=sure) or _summed(file, each))), ""):
                yield call, call.func.id, of


def _summed(file: File, node: ast.expr) -> str:
    """What a name is that starts as a number, and to which losses are added on the device: ``total += loss.detach()``."""
    name = dotted(node)
    if name not in file.names.augmented or not name:
        return ""
    added = [part.value for part in file.tree.of(ast.AugAssign) if dotted(part.target) == name and isinstance(part.op, ast.Add)]
    here = [value for value in added if file.names.scope(value, name) is file.names.scope(node, name)]
    sure = bool(here) and all(tensor_of(file, value) in ("loss", "tensor", "parameter") for value in here)
    starts = [binding.value for binding in file.names.lookup(node, name)]
    return "loss" if sure and all(isinstance(value, ast.Constant) for value in starts) else ""


def _shown(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """A value in a text, a log or a bar: ``f"{loss}"``, ``"%f" % loss``, ``log.info("%s", loss)``, ``writer.add_scalar("loss", loss)``."""
    shown = [(each.value, "print") for each in file.tree.of(ast.FormattedValue)]
    for call in file.tree.of(ast.Call):
        if isinstance(call.func, ast.Attribute):
            shown += [(part, how) for given, how in _shown_by(call, call.func) for part in _parts(given)]
    for formatted in file.tree.of(ast.BinOp):
        if isinstance(formatted.op, ast.Mod) and _is_text(formatted.left):
            shown += [(part, "print") for part in _parts(formatted.right)]
    for value, how in shown:
        if of := _shown_tensor(file, value):
            yield value, how, of


def _shown_by(call: ast.Call, method: ast.Attribute) -> Iterator[tuple[ast.expr, str]]:
    """What a call turns into text."""
    given = [*call.args, *(named.value for named in call.keywords)]
    if method.attr == "format" and _is_text(method.value):
        yield from ((each, "print") for each in given)
    elif method.attr == "add_scalar":
        yield from ((each, method.attr) for each in (argument(call, "scalar_value", 1),) if each is not None)
    elif method.attr == "set_postfix":
        yield from ((each, method.attr) for each in given)
    elif method.attr in ("info", "warning", "debug") and len(call.args) > 1 and _is_text(call.args[0]):
        yield from ((each, "print") for each in call.args[1:])


def _parts(given: ast.expr) -> list[ast.expr]:
    if isinstance(given, ast.Dict):
        return given.values
    return given.elts if isinstance(given, ast.Tuple) else [given]


def _shown_tensor(file: File, value: ast.expr) -> str:
    """A loss, or one number that was computed of a batch; what a model gives as a whole may be a text."""
    if not isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
        return ""
    if (of := tensor_of(file, value, sure=True)) in ("loss", "tensor"):
        return of
    return "output" if is_reduced(value) and tensor_of(file, value) == "output" else ""


def _kept_on_host(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """What is written into a tensor in the host's memory: ``scores[i] = model(x).max()``."""
    for statement in file.tree.of(ast.Assign):
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Subscript) and not isinstance(value, ast.Constant) and file.values.kinds(target.value) == {"host"}:
            of = tensor_of(file, value, sure=True)
            yield from [(value, "copy", of)] if of in ("loss", "output", "tensor") else ()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _reads(node: ast.expr) -> bool:
    """Whether a part of an expression is told as a wait of its own: ``float(loss.cpu())``."""
    return any(isinstance(part, ast.Attribute) and part.attr in _READS for part in within(node))


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


def _read_by(file: File, call: ast.Call) -> str:
    """The method that copies a value to the host: ``item`` and its like, and ``cpu`` for ``to("cpu")``."""
    name = last_name(call.func)
    if name in ("item", "cpu") and any(given.arg != "memory_format" for given in call.keywords):
        return ""  # a method of something else
    return name if name in _READS else "cpu" if name == "to" and target(file, call) == "cpu" else ""


def _read(file: File, call: ast.Call, method: ast.Attribute) -> str:
    """What kind of tensor ``x.cpu().item()`` reads; where that is not known, by the method: nothing else has `item` where torch is used."""
    how = _read_by(file, call)
    owner, chain = method.value, {how}
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and (name := _read_by(file, owner) or _chained(owner)):
        if file.names.qualified(owner.func).startswith(("numpy.", "torch.")):
            break
        chain.add(name)
        owner = owner.func.value
    chain |= {last_name(part.func) for part in within(owner) if isinstance(part, ast.Call)}
    if ("numpy" in chain and "cpu" not in chain and not call.keywords) or is_copied_back(file, owner):
        return ""  # of a tensor on a device `numpy` raises: this one lies in the host's memory
    kinds = {value.kind for value in values_of(file, owner)}
    if of := tensor_of(file, owner):
        return of if "cpu" in chain and not is_drawn(file, owner) else moved_tensor(file, owner)
    if (
        "number" in kinds
        and (how != "item" or kinds == {"number"} or _is_asked(file, call, owner))
        and dotted(owner) not in file.names.augmented
    ):
        return ""  # of what is a number elsewhere only, `item` reads a tensor
    if kinds & {"array", "host", "model", "object", "lightning", "batch"} or _is_of_numpy(file, owner) or _RATE.fullmatch(last_name(owner)):
        return ""
    evident = how == "item" or (how == "cpu" and not isinstance(file.tree.parents.get(call), ast.Expr)) or chain & _OF_TENSORS
    return "tensor" if evident and (file.uses_torch or kinds & set(TENSORS)) and (not call.args or how == "cpu") else ""


def _chained(call: ast.Call) -> str:
    return last_name(call.func) if last_name(call.func) in CHAINED else ""


def _is_asked(file: File, call: ast.Call, owner: ast.expr) -> bool:
    """``x.item() if isinstance(x, torch.Tensor) else x``, where some of its values are numbers."""
    choice = file.tree.parents.get(call)
    test = choice.test if isinstance(choice, ast.IfExp) else None
    if not isinstance(test, ast.Call) or last_name(test.func) != "isinstance" or not test.args:
        return False
    return dotted(test.args[0]) == dotted(owner)


def _is_of_numpy(file: File, node: ast.expr) -> bool:
    return any(file.names.qualified(part).startswith(("numpy.", "math.")) for part in within(node) if isinstance(part, ast.Attribute))


def _in_debug(file: File, call: ast.expr) -> bool:
    for parent in file.tree.ancestors(call):
        if isinstance(parent, ast.Call) and last_name(parent.func) == "debug":
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False
