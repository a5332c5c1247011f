"""Facts of copies between devices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Transfer
from sysperf.script.file import File
from sysperf.script.gatherers.makers import DATALOADER, TIMM, truth
from sysperf.script.nodes import argument, dotted, is_open, keyword, last_name
from sysperf.script.semantics.binding import default_of
from sysperf.script.semantics.kinds import DESCRIBING, FROM_ARRAYS, MADE_ON_CPU, SETTINGS
from sysperf.script.semantics.value import device_text
from sysperf.script.syntax import Function, within

MAX_DEPTH = 3
MAX_BEFORE = 20
"""Statements of a block in which it is looked for what a name was given last."""
_ON_HOST = ({"array"}, {"host"})
"""What has left the device, and what was made beside it."""
_COPYING = ("tensor", "Tensor", "FloatTensor", "LongTensor", "BoolTensor")
_WAITS = ("synchronize", "wait", "wait_event", "wait_stream")
_WRITTEN = (ast.List, ast.Tuple, ast.Constant, ast.UnaryOp)
_DRAWS = frozenset(("normal", "uniform", "rand", "randn", "random", "random_sample", "randint", "standard_normal", "binomial", "laplace"))
"""Functions of numpy that draw numbers of a distribution."""
_NUMERIC = frozenset(
    (
        "len", "int", "float", "bool", "round", "abs", "min", "max", "sum", "range", "pow", "sqrt", "log", "log2", "log10", "exp", "ceil",
        "floor", "cos", "sin", "tan", "size", "dim", "numel", "prod", "item", "arange", "linspace", "ones", "zeros", "full", "eye",
        "random", "rand", "randn", "randint", "uniform", "normal", "randrange", "time", "finfo",
    )
)  # fmt: skip
"""Calls that give numbers: of sizes, of what is written here, or by chance."""


def is_to_device(file: File, call: ast.Call) -> bool:
    """Whether `.to(…)` or `.cuda(…)` copies to an accelerator."""
    return target(file, call) in ("cuda", "device", "xpu", "mps")


def target(file: File, call: ast.Call) -> str:
    """Return where `.to(…)`, `.cuda(…)` or `.cpu()` copies to; empty where it only converts."""
    method = last_name(call.func)
    if method in ("cuda", "cpu"):
        return method
    if method == "type":
        return "cuda" if call.args and _is_cuda_type(file, call.args[0]) else ""
    given = argument(call, "device", 0)
    if given is not None and dotted(given) and file.values.is_a(given, "batch", "output"):
        return "device"  # that of another tensor
    if isinstance(given, ast.Name) and _was_moved(file, given):
        return "device"
    asynchronous = keyword(call, "non_blocking") is not None and isinstance(given, ast.Name)  # a conversion is none
    return device_text(file.names, given) or ("device" if asynchronous else "")


def _is_cuda_type(file: File, node: ast.expr) -> bool:
    """``torch.cuda.FloatTensor``, also by a name that stands for it where there is a GPU."""
    bound = [each.value for each in file.names.lookup(node, node.id)] if isinstance(node, ast.Name) else []
    parts = [part for value in (node, *bound) for part in ((value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,))]
    return any(part is not None and file.names.qualified(part).startswith("torch.cuda.") for part in parts)


def _was_moved(file: File, name: ast.Name) -> bool:
    """Whether a name stands for what was copied to a device."""
    values = (binding.value for binding in file.names.lookup(name, name.id) if not binding.path and not binding.element)
    moved = (value for value in values if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute))
    return any(last_name(value.func) in ("to", "cuda") and device_text(file.names, argument(value, "device", 0)) for value in moved)


def prepared(file: File) -> set[ast.AST]:
    """The loaders that a framework was given: it moves their batches itself."""
    calls = (call for call in file.tree.of(ast.Call) if last_name(call.func) in ("prepare", "setup_dataloaders"))
    given = (value for call in calls for part in call.args for value in file.values.of(part))
    return {value.origin for value in given if value.kind == "loader" and value.origin is not None}


def transfers(file: File) -> Iterator[Transfer]:
    """All copies of batches, models and new tensors."""
    moved_already = prepared(file)
    told: set[tuple[ast.AST, str]] = set()
    for call in file.tree.of(ast.Call):
        if to := _made_of_random_numbers(file, call):
            yield Transfer(**file.site(call), of="factory", to=to, non_blocking=False, pinned_here=False, constant=True)
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("to", "cuda", "cpu", "type"):
            continue
        to = target(file, call)
        owner = call.func.value
        pinned_here = isinstance(owner, ast.Call) and last_name(owner.func) == "pin_memory"
        of = _moves(file, owner) or ("tensor" if pinned_here else "")
        if of == "factory" and (key := _alternative(file, call)) is not None:
            if key in told:
                continue
            told.add(key)
        if to and of and not (of == "batch" and any(value.origin in moved_already for value in file.values.of(owner))):
            yield Transfer(
                **file.site(call),
                of=of,
                to=to,
                non_blocking=_non_blocking(file, call),
                pinned=_pinned(file, owner),
                constant=_is_constant(file, made_here(file, owner)),
                pinned_here=pinned_here,
                read=_is_read(file, call) if to == "cpu" else None,
            )


def _made_of_random_numbers(file: File, call: ast.Call) -> str:
    """The device on which a tensor is made of numbers that numpy draws: ``torch.cuda.FloatTensor(np.random.normal(size=n))``."""
    if not call.args or not last_name(call.func).lower().endswith(("tensor", "from_numpy")):
        return ""
    if file.names.qualified(call.func) in FROM_ARRAYS:
        to = device_text(file.names, keyword(call, "device"))
    else:
        to = "cuda" if isinstance(call.func, ast.Name | ast.Attribute) and _is_cuda_type(file, call.func) else ""
    return to if to not in ("", "cpu") and _is_drawn_by_numpy(file, call.args[0]) else ""


def _is_drawn_by_numpy(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """``np.random.normal(0, 1, (n, m)).astype("float32")``, also by a name: no data, which a choice among some would be."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("astype", "reshape"):
        node = node.func.value
    if isinstance(node, ast.Call):
        package, _, function = file.names.qualified(node.func).rpartition(".")
        return package == "numpy.random" and function in _DRAWS
    made = last_given(file, node) if isinstance(node, ast.Name) and depth else None
    return made is not None and _is_drawn_by_numpy(file, made, depth - 1)


def _is_read(file: File, copy: ast.Call) -> bool | None:
    """Whether the function that copies something to the host reads it; False where it waits by itself, None where it gives it on."""
    around = file.tree.function_of(copy) or file.tree.module
    if any(isinstance(part, ast.Call) and last_name(part.func) in _WAITS for part in within(around)):
        return False
    statement = file.tree.statement_of(copy)
    names = {dotted(target) for target in statement.targets} if isinstance(statement, ast.Assign) and statement.value is copy else set()
    loads = [part for part in within(around) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
    uses = [part for part in loads if part.id in names and part.lineno > copy.lineno]
    if uses and _waits_between(file, copy, min(use.lineno for use in uses)):
        return False
    return any(_reads(file.tree.parents.get(use)) for use in (copy, *uses)) or None


def _waits_between(file: File, copy: ast.Call, line: int) -> bool:
    """Whether a copy to the host that waits comes after one that does not, before what that gave is looked at: it waits for both."""
    block, place = file.tree.place_of(file.tree.statement_of(copy))
    parts = (part for later in block[place + 1 :] if later.lineno < line for part in within(later))
    copies = [part for part in parts if isinstance(part, ast.Call) and last_name(part.func) in ("to", "cpu")]
    return any(target(file, part) == "cpu" and _non_blocking(file, part) is False for part in copies)


def _reads(parent: ast.AST | None) -> bool:
    """Whether what a value stands in needs its numbers."""
    shown = isinstance(parent, ast.Call) and last_name(parent.func) in ("print", "float", "int", "bool")
    computed = isinstance(parent, ast.Attribute) and parent.attr not in DESCRIBING
    return shown or computed or isinstance(parent, ast.BinOp | ast.Compare | ast.FormattedValue | ast.Subscript)


def _is_constant(file: File, made: ast.Call | None) -> bool | None:
    """Whether a tensor is made of sizes, of values that are written here, or of an attribute; None where others give its values."""
    given = made.args[0] if made is not None and last_name(made.func) in _COPYING and made.args else None
    return True if given is None or is_written(file, given) or _is_drawn_by_numpy(file, given) else None


def _stands_for_written(file: File, name: ast.Name) -> bool:
    """Whether a name was given a list that is written out, before it becomes a tensor under the same name."""
    statement = file.tree.statement_of(name)
    bound = [each for each in file.names.lookup(name, name.id) if each.value is not getattr(statement, "value", None)]
    lists = [each.value for each in bound if isinstance(each.value, ast.List | ast.Tuple) and each.value.elts and not each.path]
    return bool(bound) and len(lists) == len(bound)


def is_written(file: File, node: ast.expr) -> bool:
    """``3``, ``[0, n]``, ``self.weights``, ``args.weights``, ``len(x) / 2``: no data that were read for this step."""
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return any(isinstance(side, ast.List) for side in sides) or all(is_written(file, side) for side in sides)
    if isinstance(node, ast.Call):
        own = dotted(node.func).startswith("self.") or last_name(node.func) in _NUMERIC
        return own or (_is_function(file, node.func) and all(is_written(file, given) for given in node.args))
    if isinstance(node, ast.List | ast.Tuple) and any(_is_handed_in(file, each) for each in node.elts):
        return False
    if isinstance(node, ast.Name) and _stands_for_written(file, node):
        return True
    owner = dotted(node).rpartition(".")[0]
    return isinstance(node, _WRITTEN) or owner == "self" or bool(SETTINGS.fullmatch(owner)) or file.values.kinds(node) == {"number"}


def _is_function(file: File, called: ast.expr) -> bool:
    """Whether what is called is a function, of a module or by its name: no method of data."""
    module = dotted(called.value).partition(".")[0] if isinstance(called, ast.Attribute) else ""
    return isinstance(called, ast.Name) or module in file.names.imports


def _is_handed_in(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> bool:
    """Whether a name stands for what a caller of its function gives, which no call of the file shows: ``[timestep]``."""
    bound = file.names.lookup(node, node.id) if isinstance(node, ast.Name) and depth else []
    return any(
        (each.parameter is not None and not file.names.arguments(each.parameter) and default_of(each.parameter) is None)
        or (isinstance(each.value, ast.Name) and not each.path and not each.element and _is_handed_in(file, each.value, depth - 1))
        for each in bound
    )


def _alternative(file: File, call: ast.Call) -> tuple[ast.AST, str] | None:
    """The outermost condition in whose branches a name is given one of several values, and the name: of these, one is made."""
    statement = file.tree.statement_of(call)
    name = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
    around = None
    for parent in file.tree.ancestors(statement):
        if not isinstance(parent, ast.If):
            break
        around = parent
    return (around, name) if around is not None and name else None


def _moves(file: File, owner: ast.expr) -> str:
    """What is copied; empty where that is not known."""
    if (made := made_here(file, owner)) is not None:
        copied = not is_empty(made) and keyword(made, "device") is None and not is_open(made)
        return "factory" if copied else "tensor"
    kinds = file.values.kinds(owner)
    return next((kind for kind in ("batch", "model", "loss", "output", "tensor") if kind in kinds), "")


def is_empty(made: ast.Call) -> bool:
    """``Tensor()``, ``tensor([])``, ``empty(0)``: nothing is copied."""
    first = made.args[0] if made.args else None
    if first is None or last_name(made.func) in _COPYING:
        return not (made.args or made.keywords) or (isinstance(first, ast.List | ast.Tuple) and not first.elts)
    return isinstance(first, ast.Constant) and first.value == 0 and last_name(made.func) in ("empty", "zeros", "ones", "rand", "randn")


def made_here(file: File, node: ast.expr, depth: int = MAX_DEPTH) -> ast.Call | None:
    """The call that makes a tensor on the CPU: through methods on it, arithmetic, a name that has no other value, a helper."""
    if isinstance(node, ast.Name):
        return _named(file, node, depth)
    if isinstance(node, ast.BinOp):
        return made_here(file, node.left, depth) or made_here(file, node.right, depth)
    if not isinstance(node, ast.Call) or (name := file.names.qualified(node.func)) in MADE_ON_CPU:
        return node if isinstance(node, ast.Call) else None
    if name in FROM_ARRAYS and node.args and _is_drawn_by_numpy(file, node.args[0]):
        return node
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call | ast.BinOp):
        return made_here(file, node.func.value, depth)
    given = node.args[:1] if last_name(node.func) == "Variable" else _returned(file, node)
    return made_here(file, given[0], depth - 1) if given and depth else None


def _named(file: File, node: ast.Name, depth: int) -> ast.Call | None:
    """The call that makes what a name stands for, in the same function and loop; a sum on the host is none."""
    if node.id in file.names.augmented:
        return None
    values = [binding.value for binding in file.names.lookup(node, node.id) if not binding.path and not binding.element]
    others = [value for value in values if value is not None and not (isinstance(value, ast.Call) and _root(value) == node.id)]
    if len(others) != 1 or not isinstance(others[0], ast.Call | ast.BinOp) or not depth:
        return None
    here = file.tree.function_of(others[0]) is file.tree.function_of(node) and _same_loop(file, others[0], node)
    return made_here(file, others[0], depth - 1) if here else None


def _returned(file: File, call: ast.Call) -> list[ast.expr]:
    """The one call that a function of the file gives back."""
    functions = file.names.functions.get(last_name(call.func), [])
    found = [part.value for part in within(functions[0]) if isinstance(part, ast.Return)] if len(functions) == 1 else []
    return [value for value in found if isinstance(value, ast.Call)] if len(found) == 1 else []


def _root(node: ast.expr) -> str:
    """The name that a chain of methods begins with."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_copied_back(file: File, node: ast.expr) -> bool:
    """Whether all that an expression is made of was copied to the host just before: ``x = x.cpu() / n``."""
    names = [part for part in within(node) if isinstance(part, ast.Name) and part.id not in file.names.imports]
    return bool(names) and all(file.values.kinds(name) in _ON_HOST or _comes_home(last_given(file, name)) for name in names)


def _comes_home(value: ast.expr | None) -> bool:
    while isinstance(value, ast.Call | ast.Attribute | ast.BinOp):
        if isinstance(value, ast.Call) and last_name(value.func) in ("cpu", "numpy", "tolist") and not value.args:
            return True
        value = value.left if isinstance(value, ast.BinOp) else value.func if isinstance(value, ast.Call) else value.value
    return False


def last_given(file: File, name: ast.Name) -> ast.expr | None:
    """What a name was given last, in a block around it; None where a branch or a round of a loop may give it something else."""
    child: ast.AST = file.tree.statement_of(name)
    for parent in file.tree.ancestors(child):
        block, place = file.tree.place_of(child) if isinstance(child, ast.stmt) else ([], 0)
        for earlier in reversed(block[max(0, place - MAX_BEFORE) : place]):
            if isinstance(earlier, ast.Assign) and [dotted(target) for target in earlier.targets] == [name.id]:
                return earlier.value
            if _gives(earlier, name.id):
                return None
        rounds = isinstance(parent, ast.For | ast.AsyncFor | ast.While)
        if place > MAX_BEFORE or isinstance(parent, Function) or (rounds and _gives(parent, name.id)):
            return None
        child = parent
    return None


def _gives(statement: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store) for part in within(statement))


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
