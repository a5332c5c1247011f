"""Facts of expressions for which the host waits: values of tensors that are read, converted, shown or compared."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script import needs
from sysperf.script.bindings import Binding
from sysperf.script.facts import Sync
from sysperf.script.file import File
from sysperf.script.nodes import dotted, last_name
from sysperf.script.syntax import within
from sysperf.script.transfers import is_copied_back, is_to_device, target
from sysperf.script.values import Value
from sysperf.startup import lazy

MAX_DEPTH = 3
_HOST_TYPES = frozenset(f"torch.{name}Tensor" for name in ("Bool", "Byte", "Int", "Long", "Float", "Double", "Half", "Short"))
"""Types of the host's memory: what is converted to one is copied there."""
_READS = ("item", "cpu", "numpy", "tolist")
_COPIES = ("cpu", "numpy", "tolist")
_CHAINED = ("cpu", "detach", "float", "mean", "sum")
_OF_TENSORS = frozenset(("detach", "cpu", "argmax", "softmax", "squeeze", "unsqueeze", "norm"))
_REDUCES = ("max", "min", "sum", "mean", "norm", "any", "all")
_ASKS = ("torch.isnan", "torch.isinf", "torch.isfinite", "math.isnan", "math.isinf", "math.isfinite")
_AS_NUMBERS = ("math.isnan", "math.isinf", "math.isfinite")
"""Functions of Python that ask a number, and make one of a tensor."""
_CONVERSIONS = ("float", "int", "bool", "print")
_MOVES = lazy(r"(\w+_)?to_(device|cuda|gpu)|(move|send|put)_(batch|data|tensors?|to|inputs?)(_\w+)?|cuda_batch|batch_cuda")
"""Functions that copy batches to a device."""
_TENSORS = ("loss", "output", "batch", "tensor", "detached")


def syncs(file: File) -> Iterator[Sync]:
    """All expressions for which the host waits, of values that are tensors."""
    found = [*_converted(file), *_shown(file), *_kept_on_host(file), *_asked(file)]
    copying = {needs.copied_in(file, node) for node, how, of in found if how in _COPIES and of in ("output", "tensor")} - {None}
    for node, how, of in found:
        written = of != "loss" and how in _COPIES and needs.is_written(file, node)
        where = file.loops.where(node)
        waited = (how not in _COPIES or of == "batch") and where.often == "evaluation" and where.loop in copying
        needed, paced = None if written or waited else needs.is_needed(file, node, of), needs.is_paced(file, node)
        yield Sync(**file.site(node), how=how, of=of, debug=_in_debug(file, node), needed=needed, paced=paced)


def _converted(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """``x.item()``, ``float(x)``: the expression, how it waits, and of what."""
    for call in file.tree.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and (how := _read_by(file, call)):
            if not _is_part(file, call) and (of := _read(file, call, call.func)):
                yield call, how, of
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "type" and call.args:
            host = isinstance(call.func.value, ast.Call) and file.names.qualified(call.func.value.func) == "torch.from_numpy"
            if not host and file.names.qualified(call.args[0]) in _HOST_TYPES and (of := _moved_tensor(file, call.func.value)):
                yield call, "type", of
        elif file.names.qualified(call.func) in _AS_NUMBERS and isinstance(file.tree.parents.get(call), ast.Assign):
            if call.args and (of := _moved_tensor(file, call.args[0], sure=True)):
                yield call, "float", of
        elif isinstance(call.func, ast.Name) and call.func.id in _CONVERSIONS:
            sure = call.func.id in ("print", "bool")
            given = [each for each in call.args if not _reads(each)]
            if of := next((of for each in given if (of := _moved_tensor(file, each, sure=sure) or _summed(file, each))), ""):
                yield call, call.func.id, of


def _summed(file: File, node: ast.expr) -> str:
    """What a name is that starts as a number, and to which losses are added on the device: ``total += loss.detach()``."""
    name = dotted(node)
    if name not in file.names.augmented or not name:
        return ""
    added = [part.value for part in file.tree.of(ast.AugAssign) if dotted(part.target) == name and isinstance(part.op, ast.Add)]
    here = [value for value in added if file.names.scope(value, name) is file.names.scope(node, name)]
    sure = bool(here) and all(_tensor(file, value) in ("loss", "tensor") for value in here)
    starts = [binding.value for binding in file.names.lookup(node, name)]
    return "loss" if sure and all(isinstance(value, ast.Constant) for value in starts) else ""


def _shown(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """A value in a text, a log or a bar: ``f"{loss}"``, ``"%f" % loss``, ``log.info("%s", loss)``, ``bar.set_postfix(loss=loss)``."""
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
    if (of := _tensor(file, value, sure=True)) in ("loss", "tensor"):
        return of
    return "output" if _is_reduced(value) and _tensor(file, value) == "output" else ""


def _is_reduced(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REDUCES and not node.args


def _kept_on_host(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """What is written into a tensor in the host's memory: ``scores[i] = model(x).max()``."""
    for statement in file.tree.of(ast.Assign):
        target, value = statement.targets[0], statement.value
        if isinstance(target, ast.Subscript) and not isinstance(value, ast.Constant) and file.values.kinds(target.value) == {"host"}:
            of = _tensor(file, value, sure=True)
            yield from [(value, "copy", of)] if of in ("loss", "output", "tensor") else ()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _asked(file: File) -> Iterator[tuple[ast.expr, str, str]]:
    """Conditions on tensors."""
    asked: list[ast.If | ast.Assert | ast.IfExp] = [*file.tree.of(ast.If), *file.tree.of(ast.Assert), *file.tree.of(ast.IfExp)]
    for test in (node.test for node in asked):
        if of := _compared(file, test):
            yield test, "if", of


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
    kinds = {value.kind for value in _values(file, owner)}
    if of := _tensor(file, owner):
        return of if "cpu" in chain and not _is_drawn(file, owner) else _moved_tensor(file, owner)
    if (
        "number" in kinds
        and (how != "item" or kinds == {"number"} or _is_asked(file, call, owner))
        and dotted(owner) not in file.names.augmented
    ):
        return ""  # of what is a number elsewhere only, `item` reads a tensor
    if kinds & {"array", "host", "model", "object", "lightning", "batch"} or _is_of_numpy(file, owner):
        return ""
    evident = how == "item" or (how == "cpu" and not isinstance(file.tree.parents.get(call), ast.Expr)) or chain & _OF_TENSORS
    return "tensor" if evident and (file.uses_torch or kinds & set(_TENSORS)) and (not call.args or how == "cpu") else ""


def _chained(call: ast.Call) -> str:
    return last_name(call.func) if last_name(call.func) in _CHAINED else ""


def _is_asked(file: File, call: ast.Call, owner: ast.expr) -> bool:
    """``x.item() if isinstance(x, torch.Tensor) else x``, where some of its values are numbers."""
    choice = file.tree.parents.get(call)
    test = choice.test if isinstance(choice, ast.IfExp) else None
    if not isinstance(test, ast.Call) or last_name(test.func) != "isinstance" or not test.args:
        return False
    return dotted(test.args[0]) == dotted(owner)


def _moved_tensor(file: File, node: ast.expr, *, sure: bool = False) -> str:
    """What kind of tensor on a device an expression is: a batch lies there once it was copied."""
    of = _tensor(file, node, sure=sure)
    return of if of != "batch" or is_moved(file, node) else ""


def is_moved(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether a batch, or a part of it, is copied to a device: its name has such a value, here or at a caller; or a framework moves it."""
    if {"lightning", "accelerate", "fabric"} & {name.partition(".")[0] for name in file.names.imports.values()}:
        return True
    names = {dotted(part) for part in within(node) if isinstance(part, ast.Name)}
    for name in names:
        for binding in file.names.lookup(node, name):
            callers = file.names.arguments(binding.parameter) if binding.parameter is not None and depth else []
            if any(is_moved(file, given, depth - 1) for given in callers):
                return True
            value = binding.value if not binding.element else None
            if value is not None and value.lineno > node.lineno:
                continue  # it is moved only later
            calls = (part for part in within(value) if isinstance(part, ast.Call)) if value is not None else ()
            if any(_sends(file, call) for call in calls):
                return True
            if value is not None and depth and is_moved(file, value, depth - 1):
                return True
    return any(isinstance(part, ast.Call) and last_name(part.func) in ("to", "cuda") for part in within(node))


def _sends(file: File, call: ast.Call) -> bool:
    """Whether a call copies what it is given to a device: ``x.to(device)``, ``to_device(batch, device)``."""
    if last_name(call.func) in ("to", "cuda"):
        return is_to_device(file, call)
    return bool(_MOVES.fullmatch(last_name(call.func))) and bool(call.args)


def _is_drawn(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether a loop gives a part of an expression its value, or what it unpacks: as the loader made it."""
    names = (part for part in within(node) if isinstance(part, ast.Name))
    bindings = [binding for name in names for binding in file.names.lookup(name, name.id)]
    unpacked = (part for binding in bindings if (part := _unpacked(binding)) is not None)
    return any(binding.element for binding in bindings) or (depth > 0 and any(_is_drawn(file, value, depth - 1) for value in unpacked))


def _unpacked(binding: Binding) -> ast.expr | None:
    """What a name is given out of a batch: ``x, y = batch``, ``x = batch[0]``, ``x, y = batch[0], batch[1]``."""
    value, path = binding.value, binding.path
    if path and isinstance(value, ast.Tuple) and path[0] < len(value.elts):
        value = value.elts[path[0]]
    return value if isinstance(value, ast.Subscript) or (path and isinstance(value, ast.Name)) else None


def _is_of_numpy(file: File, node: ast.expr) -> bool:
    return any(file.names.qualified(part).startswith(("numpy.", "math.")) for part in within(node) if isinstance(part, ast.Attribute))


def _tensor(file: File, node: ast.expr, *, sure: bool = False) -> str:
    """What kind of tensor an expression is, through conversions that stay on its device; empty where it may be none.

    With `sure`, a name that sounds like one is not enough.
    """
    while (inner := _inner(node)) is not None:
        node = inner
    if isinstance(node, ast.Call) and last_name(node.func) in ("item", "len", "float", "int"):
        return ""
    values = _values(file, node)
    kinds = {value.kind for value in values if not (sure and value.guess)}
    if kinds & {"number", "array"} or (sure and any(value.guess for value in values)):
        return ""
    return next((kind.replace("detached", "tensor") for kind in _TENSORS if kind in kinds), "")


def _inner(node: ast.expr) -> ast.expr | None:
    """What a conversion on its device is made of: ``x`` of ``x.mean()``, of ``x.data``."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return node.value
    called = node.func if isinstance(node, ast.Call) else None
    return called.value if isinstance(called, ast.Attribute) and called.attr in _CHAINED else None


def _values(file: File, node: ast.expr) -> tuple[Value, ...]:
    """What an expression may be; of a name that its own statement gives another value, what it was before: ``loss = loss.item()``."""
    statement, name = file.tree.statement_of(node), dotted(node)
    if name and isinstance(statement, ast.Assign) and name in [dotted(target) for target in statement.targets]:
        return file.values.without(node, statement.value)
    later = next((value for value in _conversions(file, node, name) if value.lineno > node.lineno), None) if name else None
    return file.values.without(node, later) if later is not None else file.values.of(node)


def _conversions(file: File, node: ast.expr, name: str) -> Iterator[ast.expr]:
    """What makes a number of a name under the same name: ``loss = float(loss)``, ``loss = loss.item()``."""
    for binding in file.names.lookup(node, name):
        value = binding.value
        if isinstance(value, ast.Call) and last_name(value.func) in ("float", "int", "item") and not binding.path and not binding.element:
            given = value.args[0] if value.args else value.func.value if isinstance(value.func, ast.Attribute) else None
            if given is not None and name in dotted(given):
                yield value


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
        if any(_tensor(file, part, sure=True) == "loss" for part in sides):
            return "loss"
        return "tensor" if any(_is_computed(file, part) for part in sides) else ""
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr in ("any", "all", "sum") and not test.args:
        return _compared(file, test.func.value)
    if isinstance(test, ast.Call) and test.args and file.names.qualified(test.func) in _ASKS:
        return _tensor(file, test.args[0])
    return "tensor" if isinstance(test, ast.Name) and _is_read_elsewhere(file, test) else ""


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
        or (known and kinds == {"tensor"})
        or (_is_reduced(node) and (bool(kinds & {"output"}) or ("batch" in kinds and is_moved(file, node))))
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


def _in_debug(file: File, call: ast.expr) -> bool:
    for parent in file.tree.ancestors(call):
        if isinstance(parent, ast.Call) and last_name(parent.func) == "debug":
            return True
        if isinstance(parent, ast.stmt):
            return False
    return False
