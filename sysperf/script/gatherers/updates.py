"""Loops that change parameters one by one: averages of weights, optimizers and clipping by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Pattern
from sysperf.script.file import File
from sysperf.script.nodes import last_name
from sysperf.script.semantics.kinds import OF_MODELS, OPTIMIZER_CLASSES
from sysperf.script.semantics.loops import Where
from sysperf.script.syntax import Function, within
from sysperf.startup import lazy

_IN_PLACE = frozenset(("add_", "sub_", "mul_", "div_", "lerp_", "copy_", "addcmul_", "addcdiv_", "clamp_"))
_ELEMENTWISE = frozenset(("detach", "clone", "pow", "square", "abs"))
"""Methods that keep a gradient's size."""
_TO_A_NUMBER = frozenset(("sum", "norm", "vector_norm"))
_GIVEN_BY = frozenset((*OF_MODELS, "param_groups"))
_AVERAGES = lazy(r"\w*(EMA|Ema(?![a-z])|MovingAverage|Averaged?(Model|Weights|Parameters))\w*")
"""Classes that keep averages of weights."""
_AVERAGING = lazy(r"_*(soft_update|polyak)\w*|\w*(ema|momentum|moving_average)_update\w*|\w*update_(ema|momentum|moving_averages?)(_\w+)?")
"""Functions that bring an average nearer to the weights of now."""
_HANDS_OVER = frozenset(("to", "cpu", "cuda", "float", "half", "bfloat16", "double", "type", "detach", "clone", "contiguous", "zeros_like"))
_OWN_KERNELS = lazy(
    r"all_reduce|reduce(_scatter\w*)?|all_gather\w*|broadcast|cpu|coalesce|_?indices|_?values|sparse_\w+|make_sparse|index_add_"
    r"|\w*(summon_full_params|GatheredParameters|to_local|full_tensor)|rand\w*_like|normal_|bernoulli\w*"
    r"|mm|bmm|matmul|einsum|kron|qr|svd|eigh?|matrix_\w+|linalg|inverse|cholesky\w*|(?i:\w*(newton_?schulz|zeropower|orthogonal|precond)\w*)"
)
"""What no operator for all parameters at once does: of matrices, ranks, shards, the host, sparse gradients, random numbers."""
_SHARDS = frozenset(("FSDP", "FullyShardedDataParallel", "fully_shard", "DTensor", "deepspeed"))


def patterns(file: File) -> Iterator[Pattern]:
    """The first loop of each function that changes what it goes through, where that are parameters or their gradients."""
    told: set[ast.AST | None] = set()
    for loop in file.tree.of(ast.For) if file.words & _GIVEN_BY and not _is_of_others(file) else ():
        function = file.tree.function_of(loop)
        if function in told or loop in file.loops.steps or not _gives_parameters(file, loop):
            continue
        changed = next((part for statement in loop.body for part in within(statement) if _changes(file, part)), None)
        if changed is not None and not _is_of_its_own(file, loop, changed):
            told.add(function)
            where = file.loops.where(changed)
            if function is not None and not where.often and _is_called_each_step(file, function):
                where = Where("step", where.guarded)
            yield Pattern(**file.site(loop.iter, where), what="update-by-parameter")


def _is_of_others(file: File) -> bool:
    """Whether the tensors of a file are those of a library beside PyTorch: ``from other import Tensor``, and nothing of torch."""
    return not file.uses_torch and any(name.endswith(".Tensor") for name in file.names.imports.values())


def _gives_parameters(file: File, loop: ast.For) -> bool:
    """Whether a loop gives parameters to a name, itself or beside others."""
    return any(isinstance(part, ast.Name) and file.values.kinds(part) == {"parameter"} for part in within(loop.target))


def _changes(file: File, part: ast.AST) -> bool:
    """``p.data.mul_(decay).add_(q.data)``, ``p.data = …``, ``p -= rate * p.grad``."""
    if isinstance(part, ast.Call):
        method = part.func
        if not isinstance(method, ast.Attribute) or method.attr not in _IN_PLACE or file.values.kinds(method.value) != {"parameter"}:
            return False
        return method.attr != "copy_" or any(_computes(given) for given in part.args)
    if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Subscript):
        return _adds_to_its_own(file, part)
    if isinstance(part, ast.AugAssign):
        own = isinstance(part.target, ast.Name | ast.Attribute) and file.values.kinds(part.target) == {"parameter"}
        return own or _sums_up(file, part)
    targets = part.targets if isinstance(part, ast.Assign) else []
    return any(_is_data(file, target) for target in targets) and isinstance(part, ast.Assign) and _computes(part.value)


def _adds_to_its_own(file: File, part: ast.AugAssign) -> bool:
    """``fisher[name] += p.grad ** 2``: to a tensor that is kept for each parameter."""
    called = {last_name(each.func) for each in within(part.value) if isinstance(each, ast.Call)}
    return _reads_gradient(file, part.value) and called <= _ELEMENTWISE


def _sums_up(file: File, part: ast.AugAssign) -> bool:
    """``total += torch.sum(p.grad ** 2)``: one number of all gradients, on their device."""
    called = {last_name(each.func) for each in within(part.value) if isinstance(each, ast.Call)}
    return _reads_gradient(file, part.value) and bool(called & _TO_A_NUMBER) and called <= _ELEMENTWISE | _TO_A_NUMBER


def _reads_gradient(file: File, value: ast.expr) -> bool:
    gradients = (each for each in within(value) if isinstance(each, ast.Attribute) and each.attr == "grad")
    return any(file.values.kinds(each.value) == {"parameter"} for each in gradients)


def _asks_of_class(part: ast.AST, loop: ast.For) -> bool:
    """``if isinstance(p, ManifoldParameter):``: parameters of a class of its own have operators of their own."""
    asked = part.args[0] if isinstance(part, ast.Call) and last_name(part.func) == "isinstance" and part.args else None
    return isinstance(asked, ast.Name) and any(isinstance(given, ast.Name) and given.id == asked.id for given in within(loop.target))


def _is_of_its_own(file: File, loop: ast.For, changed: ast.AST) -> bool:
    """Whether parameters are changed one by one for a reason: by products of matrices, shards, limits of their own; or it is compiled."""
    function = file.tree.function_of(loop)
    if file.words & _SHARDS or "deepspeed" in file.names.imports or (function is not None and _is_compiled(file, function)):
        return True
    if _is_second_way(file, loop):
        return True
    parts = [part for statement in loop.body for part in within(statement)]
    if any((isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult)) or _asks_of_class(part, loop) for part in parts):
        return True
    asks = [part for part in parts if isinstance(part, ast.If) and any(last_name(each) == "is_sparse" for each in within(part.test))]
    if any(_OWN_KERNELS.fullmatch(last_name(part)) for part in parts) or any(not isinstance(each.body[0], ast.Raise) for each in asks):
        return True
    around = [part for part in file.tree.ancestors(loop) if isinstance(part, ast.With)]
    if any(_OWN_KERNELS.fullmatch(last_name(part)) for each in around for item in each.items for part in within(item)):
        return True
    return _is_clipped_alone(loop, changed, parts)


def _is_second_way(file: File, loop: ast.For) -> bool:
    """Whether the other branch does the same to all parameters at once: ``if group["foreach"]: torch._foreach_lerp_(…)``."""
    choices = [part for part in file.tree.ancestors(loop) if isinstance(part, ast.If)]
    others = [each.body for each in choices if not any(loop in within(statement) for statement in each.body)]
    names = {last_name(part.func) for body in others for statement in body for part in within(statement) if isinstance(part, ast.Call)}
    return any(name.startswith("_foreach_") for name in names)


def _is_clipped_alone(loop: ast.For, changed: ast.AST, parts: list[ast.AST]) -> bool:
    """Whether each gradient has a limit of its own: by its name, or by a norm."""
    if not isinstance(changed, ast.Call) or not any(last_name(part) == "grad" for part in within(changed.func)):
        return False
    targets = {part.id for part in within(loop.target) if isinstance(part, ast.Name)}
    named = any(isinstance(part, ast.Name) and part.id in targets for given in changed.args for part in within(given))
    limits = last_name(changed.func) == "clamp_" and named
    return limits or any(isinstance(part, ast.Call) and last_name(part.func) in ("norm", "vector_norm") for part in parts)


def _is_compiled(file: File, function: Function) -> bool:
    """Whether torch.compile makes few kernels of a function: as its decorator, or by a call with it."""
    if any(file.names.qualified(each.func if isinstance(each, ast.Call) else each) == "torch.compile" for each in function.decorator_list):
        return True
    compiled = (call for call in file.tree.of(ast.Call) if file.names.qualified(call.func) == "torch.compile")
    return any(last_name(given) == function.name for call in compiled for given in call.args)


def _is_data(file: File, target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr in ("data", "grad") and file.values.kinds(target.value) == {"parameter"}


def _computes(value: ast.expr) -> bool:
    """Whether something is computed, rather than handed over: ``p.grad = other.grad``."""
    return isinstance(value, ast.BinOp) or (isinstance(value, ast.Call) and last_name(value.func) not in _HANDS_OVER)


def _is_called_each_step(file: File, function: Function) -> bool:
    """Whether a function that nobody here calls is for each step: the `step` of an optimizer, or by its name it keeps an average."""
    if file.names.call_sites(function):
        return False
    owner = file.tree.parents.get(function)
    names = [owner.name, *map(last_name, owner.bases)] if isinstance(owner, ast.ClassDef) else []
    if function.name == "step" and any(OPTIMIZER_CLASSES.fullmatch(base) for base in names[1:]):
        return True
    keeps = function.name in ("update", "step", "__call__") and any(_AVERAGES.fullmatch(name) for name in names)
    return keeps or bool(_AVERAGING.fullmatch(function.name))
