"""Facts of code of a known shape: attention written by hand, indexing by a condition, Python loops over a tensor's elements."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Pattern
from sysperf.script.file import File
from sysperf.script.loops import SAMPLE_METHODS
from sysperf.script.nodes import argument, dotted, keyword, last_name
from sysperf.script.syntax import Function, within
from sysperf.startup import lazy

_PRODUCTS = frozenset(("matmul", "bmm", "einsum"))
_COMPARED = lazy(r"(?i)test_\w+|(\w*_)?(ref|reference|naive|eager|slow)(_\w*)?")
"""Functions that test, or are there to be compared with a fast one."""
_TRIANGLES = frozenset(("tril", "triu", "generate_square_subsequent_mask"))
_MASK = lazy(r"(\w+_)?masks?(_\w+)?")
_REDUCES = lazy(r"(?i)\w*(loss|cross_entropy|nll|bce|mse|criterion|kl_div|accuracy)\w*|mean|sum|norm|std|var|prod|numel|item")
"""What makes one value of many."""
MAX_DEPTH = 5


def patterns(file: File) -> Iterator[Pattern]:
    """All of them."""
    yield from _attention(file)
    yield from _indexing(file)
    yield from _elements(file)
    yield from _causal_masks(file)
    yield from _work_in_samples(file)


def _attention(file: File) -> Iterator[Pattern]:
    """``softmax(q @ k.transpose(-2, -1)) @ v`` in one function."""
    for call in file.tree.of(ast.Call):
        if last_name(call.func) != "softmax":
            continue
        scores = _argument(file, call)
        function = file.tree.function_of(call)
        if function is None or _COMPARED.fullmatch(function.name) or file.text(argument(call, "dim", len(call.args) - 1)) in ("0", "1"):
            continue
        if scores is not None and _is_scores(file, scores, MAX_DEPTH) and not _is_of_channels(function):
            fused = "scaled_dot_product_attention" in file.words  # where that is possible
            if not fused and _is_multiplied_once(file, call, function):
                yield Pattern(**file.site(call), what="attention")


def _is_of_channels(function: Function) -> bool:
    """Whether queries and keys are normalized first: between channels, as a rule, for which no fused kernel is made."""
    calls = (part for part in within(function) if isinstance(part, ast.Call))
    return sum(last_name(call.func) == "normalize" for call in calls) > 1


def _is_multiplied_once(file: File, call: ast.Call, function: Function) -> bool:
    """Whether the weights go into one product and nowhere else: a fused kernel does not give them."""
    scaled = file.tree.parents.get(call)
    if isinstance(scaled, ast.BinOp) and isinstance(scaled.op, ast.Mult | ast.Div):
        return False  # by gates
    if any(_is_product(parent) for parent in file.tree.ancestors(call) if isinstance(parent, ast.expr)):
        return True
    statement = file.tree.statement_of(call)
    names = {dotted(target) for target in statement.targets} - {""} if isinstance(statement, ast.Assign) else set()
    for later in within(function):
        if (
            isinstance(later, ast.Assign)
            and later.lineno > call.lineno
            and isinstance(later.value, ast.Call)
            and not _is_product(later.value)
        ):
            used = {dotted(part) for part in within(later.value) if isinstance(part, ast.Name | ast.Attribute)}
            names |= {dotted(target) for target in later.targets if used & names} - {""}
    products = 0
    for part in within(function):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.lineno > call.lineno and part.id in names:
            multiplied = any(_is_product(parent) for parent in file.tree.ancestors(part) if isinstance(parent, ast.expr))
            products += multiplied
            if isinstance(file.tree.statement_of(part), ast.Return) and not multiplied:
                return False
    return products == 1 and not any(name.startswith("self.") for name in names)


def _argument(file: File, call: ast.Call) -> ast.expr | None:
    """What a softmax is taken of: a function's first argument, or the owner of the method."""
    if isinstance(call.func, ast.Attribute) and not file.names.qualified(call.func).startswith("torch."):
        return call.func.value
    return call.args[0] if call.args else None


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and last_name(node.func) in _PRODUCTS


def _is_scores(file: File, node: ast.expr, depth: int) -> bool:
    """A product with something transposed, through scaling, masking and names."""
    if depth == 0:
        return False
    if isinstance(node, ast.Call) and last_name(node.func) == "einsum" and any(dotted(part).startswith("self.") for part in node.args):
        return False  # with a parameter, it is a layer
    if _is_product(node):
        return any(
            (isinstance(part, ast.Call) and last_name(part.func) in ("transpose", "permute", "einsum"))
            or (isinstance(part, ast.Attribute) and part.attr in ("mT", "T"))
            for part in within(node)
        )
    if isinstance(node, ast.BinOp):
        return _is_scores(file, node.left, depth - 1) or _is_scores(file, node.right, depth - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _is_scores(file, node.func.value, depth - 1)
    name = dotted(node)
    bindings = file.names.lookup(node, name) if name else []
    return any(binding.value is not None and _is_scores(file, binding.value, depth - 1) for binding in bindings[:4])


def _indexing(file: File) -> Iterator[Pattern]:
    """``x[x > 0]``: the host must wait for how many elements that are. One statement is one place."""
    told: set[ast.stmt] = set()
    for node in file.tree.of(ast.Subscript):
        if not isinstance(node.ctx, ast.Load) or not file.values.is_a(node.value, "batch", "output", "tensor", "loss"):
            continue
        masks = isinstance(node.slice, ast.Compare) or any(isinstance(value.origin, ast.Compare) for value in file.values.of(node.slice))
        host = file.values.is_a(node.value, "array") or file.values.is_a(node.slice, "array")
        reduced = _is_reduced(file, node)
        if not host and (masks or (reduced and _is_named_mask(node.slice))):
            if (statement := file.tree.statement_of(node)) not in told:
                yield Pattern(**file.site(node), what="boolean-index", reduced=reduced)
            told.add(statement)


def _is_named_mask(node: ast.expr) -> bool:
    """``x[mask]``, ``x[~padding_mask]``, ``x[train_mask + val_mask]``."""
    if isinstance(node, ast.BinOp):
        return _is_named_mask(node.left) and _is_named_mask(node.right)
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Name | ast.Attribute) and bool(_MASK.fullmatch(last_name(node)))


def _is_reduced(file: File, node: ast.expr, *, follow: bool = True) -> bool | None:
    """Whether only a loss, a mean or the like is made of an expression, itself or by its name; None where that is not seen."""
    child: ast.AST = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.Call) and child is not parent.func and _REDUCES.fullmatch(last_name(parent.func)):
            return True
        if isinstance(parent, ast.Attribute) and _REDUCES.fullmatch(parent.attr):
            return True
        if isinstance(parent, ast.stmt):
            break
        child = parent
    statement, function = file.tree.statement_of(node), file.tree.function_of(node)
    names = {dotted(target) for target in statement.targets} - {""} if isinstance(statement, ast.Assign) else set()
    if not follow or function is None or len(names) != 1:
        return None
    uses = [part for part in within(function) if isinstance(part, ast.Name | ast.Attribute) and dotted(part) in names]
    later = [part for part in uses if isinstance(part.ctx, ast.Load) and part.lineno > statement.lineno]
    return (bool(later) and all(_is_reduced(file, part, follow=False) for part in later)) or None


def _elements(file: File) -> Iterator[Pattern]:
    """Find ``for i in range(n): … x[i] …`` within a step, where x is a tensor: a kernel or more for each element."""
    told: set[ast.Subscript] = set()
    for loop in file.tree.of(ast.For):
        counter = loop.target.id if isinstance(loop.target, ast.Name) else ""
        if not counter or not isinstance(loop.iter, ast.Call) or last_name(loop.iter.func) != "range" or loop in file.loops.steps:
            continue
        parts = (part for statement in loop.body for part in within(statement) if isinstance(part, ast.Subscript))
        element = next((part for part in parts if _is_element(file, part, counter, loop.iter)), None)
        if (
            element is not None
            and element not in told
            and not _recurs(loop)
            and not _may_be_none(file, element)
            and not _goes_through_layers(loop, counter)
            and file.loops.where(loop).often in ("step", "forward")
        ):
            told.add(element)
            yield Pattern(**file.site(element), what="element-loop")


def _is_element(file: File, part: ast.Subscript, counter: str, rounds: ast.Call) -> bool:
    """``x[i]`` where the loop goes over the size of a tensor: outputs, layers and lists are counted otherwise, and cost nothing."""
    index = part.slice.elts[0] if isinstance(part.slice, ast.Tuple) and part.slice.elts else part.slice
    if not isinstance(index, ast.Name) or index.id != counter or not _is_size(file, rounds):
        return False
    values = file.values.of(part.value)
    bound = [binding.value for binding in file.names.lookup(part, dotted(part.value)) if dotted(part.value)]
    if any(value is not None and _makes_list(value) for value in bound) or any(value.kind == "array" for value in values):
        return False
    return any(value.kind in ("output", "tensor") for value in values)


def _is_size(file: File, node: ast.expr) -> bool:
    """``x.shape[0]``, ``len(x)``, or a name that was given one."""
    parts = [part for part in within(node) if isinstance(part, ast.Name | ast.Attribute)]
    if any(last_name(part) in ("size", "shape", "len") for part in parts):
        return True
    given = [binding.value for part in parts for binding in file.names.lookup(part, dotted(part)) if isinstance(part, ast.Name)]
    return any(last_name(part) in ("size", "shape", "len") for value in given if value is not None for part in within(value))


def _makes_list(node: ast.expr) -> bool:
    """``[x]``, ``[x] + more``, ``[0] * n``."""
    if isinstance(node, ast.BinOp):
        return _makes_list(node.left) or _makes_list(node.right)
    return isinstance(node, ast.List | ast.ListComp | ast.Tuple)


def _goes_through_layers(loop: ast.For, counter: str) -> bool:
    """Whether each round calls a layer of its own: ``self.cells[i](x, h[i])``."""
    called = (part.func for statement in loop.body for part in within(statement) if isinstance(part, ast.Call))
    layers = (func.slice for func in called if isinstance(func, ast.Subscript) and dotted(func.value).startswith("self."))
    return any(isinstance(part, ast.Name) and part.id == counter for index in layers for part in within(index))


def _may_be_none(file: File, element: ast.Subscript) -> bool:
    """Whether somebody asks if it is None: then it is one of several outputs, and no element of a tensor."""
    asked = file.tree.parents.get(element)
    return isinstance(asked, ast.Compare) and isinstance(asked.ops[0], ast.Is | ast.IsNot)


def _recurs(loop: ast.For) -> bool:
    """Whether a round needs the result of the one before: ``h = cell(x[t], h)``."""
    for statement in (part for one in loop.body for part in within(one) if isinstance(part, ast.Assign)):
        given = {part.id for part in within(statement.value) if isinstance(part, ast.Name)}
        made = {
            part.id
            for target in statement.targets
            for part in within(target)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        if given & made:
            return True
    return False


def _causal_masks(file: File) -> Iterator[Pattern]:
    """A triangle of ones given as the mask of scaled_dot_product_attention, which `is_causal=True` makes needless."""
    for call in file.tree.of(ast.Call):
        if last_name(call.func) == "scaled_dot_product_attention" and keyword(call, "is_causal") is None:
            mask = keyword(call, "attn_mask")
            if mask is not None and _is_triangle(file, mask, MAX_DEPTH):
                yield Pattern(**file.site(call), what="causal-mask")


def _is_triangle(file: File, node: ast.expr, depth: int) -> bool:
    if depth == 0:
        return False
    if any(isinstance(part, ast.Call) and last_name(part.func) in _TRIANGLES for part in within(node)):
        return True
    name = dotted(node)
    bindings = file.names.lookup(node, name) if name else []
    return any(binding.value is not None and _is_triangle(file, binding.value, depth - 1) for binding in bindings[:4])


def _work_in_samples(file: File) -> Iterator[Pattern]:
    """What runs in workers and does not belong there: a copy to the GPU, more threads."""
    workers = {name for call in file.tree.of(ast.Call) for key in ("worker_init_fn", "collate_fn") if (name := _given(call, key))}
    for call in file.tree.of(ast.Call):
        function = file.tree.function_of(call)
        if function is None or not (
            function.name in workers or file.loops.where(call).often == "sample" or function.name in SAMPLE_METHODS
        ):
            continue
        if file.names.qualified(call.func) == "torch.set_num_threads" and file.text(call.args[0] if call.args else None) != "1":
            yield Pattern(**file.site(call), what="threads-in-worker")
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda" and not call.args:
            yield Pattern(**file.site(call), what="cuda-in-worker")


def _given(call: ast.Call, key: str) -> str:
    value = keyword(call, key)
    return last_name(value) if value is not None else ""
