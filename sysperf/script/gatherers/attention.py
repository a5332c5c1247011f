"""Attention that is written by hand, and masks that a fused kernel does not need."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Pattern
from sysperf.script.file import File
from sysperf.script.nodes import argument, dotted, keyword, last_name
from sysperf.script.syntax import Function, within
from sysperf.startup import lazy

_PRODUCTS = frozenset(("matmul", "bmm", "einsum"))
_COMPARED = lazy(r"(?i)(test|check|verify)_\w+|(\w*_)?(ref|reference(?!_(point|frame|image))|naive|eager|slow)(_\w*)?")
"""Functions that test, or are there to be compared with a fast one."""
_TRIANGLES = frozenset(("tril", "triu", "generate_square_subsequent_mask"))
_NOT_OVER_KEYS = ("0", "1", "-2", "-3")
"""Axes of a softmax that are not the last one: keys compete for nothing there."""
_KEEPS = lazy(
    r"(?i)\w*(drop|dp)\w*|identity|(to|type|type_as|float|half|bfloat16|contiguous|clone|view|reshape|flatten|unflatten|(un)?squeeze"
    r"|rearrange|repeat|expand|masked_fill_?|nan_to_num|where|transpose|permute|softmax)"
)
"""What may be done to weights on their way into the product: dropout, and other shapes and types."""
MAX_DEPTH = 5


def patterns(file: File) -> Iterator[Pattern]:
    """Both of them."""
    yield from _attention(file)
    yield from _causal_masks(file)


def _attention(file: File) -> Iterator[Pattern]:
    """``softmax(q @ k.transpose(-2, -1)) @ v`` in one function."""
    for call in file.tree.of(ast.Call):
        if last_name(call.func) != "softmax":
            continue
        scores = _argument(file, call)
        function = file.tree.function_of(call)
        if function is None or _COMPARED.fullmatch(function.name):
            continue
        if file.text(argument(call, "dim", len(call.args) - 1)) in _NOT_OVER_KEYS:
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
            if used & names and not _KEEPS.fullmatch(last_name(later.value.func)):
                return False  # what is done to them is not known
            names |= {dotted(target) for target in later.targets if used & names} - {""}
    if any(
        isinstance(part, ast.Assign) and dotted(part.value) in names and dotted(part.targets[0]).startswith("self.")
        for part in within(function)
    ):
        return False  # somebody reads them later
    products = 0
    for part in within(function):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.lineno > call.lineno and part.id in names:
            multiplied = any(_is_product(parent) for parent in file.tree.ancestors(part) if isinstance(parent, ast.expr))
            products += multiplied
            if not multiplied and (isinstance(file.tree.statement_of(part), ast.Return) or _is_kept_or_scaled(file, part)):
                return False
    return products == 1 and not any(name.startswith("self.") for name in names)


def _is_kept_or_scaled(file: File, weights: ast.Name) -> bool:
    """Whether weights are put into a tuple, or multiplied by a mask of heads."""
    parent = file.tree.parents.get(weights)
    return isinstance(parent, ast.Tuple) or (isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult))


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
    if isinstance(node, ast.Call) and last_name(node.func) == "einsum" and not _crosses(file, node):
        return False
    if _is_product(node):
        return any(_is_transposed(part) for part in within(node))
    if isinstance(node, ast.BinOp):
        return _is_scores(file, node.left, depth - 1) or _is_scores(file, node.right, depth - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _is_scores(file, node.func.value, depth - 1)
    name = dotted(node)
    bindings = file.names.lookup(node, name) if name else []
    return any(binding.value is not None and _is_scores(file, binding.value, depth - 1) for binding in bindings[:4])


def _crosses(file: File, call: ast.Call) -> bool:
    """Whether an equation gives a score of each query with each key: not where a query has keys of its own, ``b n d, b n k d -> b n k``."""
    if any(dotted(part).startswith("self.") for part in call.args):
        return False  # with a parameter, it is a layer
    written = next((each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)), "")
    inputs, _, output = written.partition("->")
    by_words = file.names.qualified(call.func).startswith("einops.")
    sides = [set(side.split() if by_words else side) - set(" .") for side in inputs.split(",")]
    kept = set(output.split() if by_words else output)
    return not output or all(any((one - other) & kept for other in sides if other is not one) for one in sides)


def _is_transposed(node: ast.AST) -> bool:
    """``k.transpose(-2, -1)``, ``k.mT``; what belongs to the module is a layer's weight or a table, whose softmax is no attention."""
    if isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        return not dotted(node.value).startswith("self.")
    return isinstance(node, ast.Call) and last_name(node.func) in ("transpose", "permute", "einsum")


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
