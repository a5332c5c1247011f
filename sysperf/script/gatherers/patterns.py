"""Facts of code of a known shape: attention, masks, Python loops over a tensor's elements, work that workers should not do."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Pattern
from sysperf.script.file import File
from sysperf.script.gatherers import attention, masks, needs
from sysperf.script.nodes import dotted, keyword, last_name, names_in
from sysperf.script.semantics.binding import Binding
from sysperf.script.semantics.kinds import TENSORS
from sysperf.script.semantics.loops import SAMPLE_METHODS
from sysperf.script.syntax import within
from sysperf.startup import lazy

_SIZES = frozenset(("size", "shape", "len"))
_LISTS = lazy(r"(\w+_)?(preds|predictions|outs|outputs|feats|features|flows|maps|levels|stages|states|heads|results)")
"""Names of tensors of which a model has several."""
_SEVERAL = lazy(r"(?i)(\w+_)?(nms|non_max(imum)?_suppression|split|chunk|unbind|tensor_split|post_?process)(_\w+)?")
"""Functions that give a list, with one tensor for each picture or part."""
_STATEFUL = lazy(r"(?i)(\w*_)?(step|cell|lif|neurons?)(_(forward|fwd|fn|once|\d+))?|\w*Cell")
"""Names of what goes through time."""


def patterns(file: File) -> Iterator[Pattern]:
    """All of them."""
    yield from attention.patterns(file)
    yield from masks.patterns(file)
    yield from _elements(file)
    yield from _work_in_samples(file)


def _elements(file: File) -> Iterator[Pattern]:
    """Find ``for i in range(n): … x[i] …`` within a step, where x is a tensor: a kernel or more for each element."""
    yield from (Pattern(**file.site(call), what="element-loop") for call in file.tree.of(ast.Call) if _adds_up(file, call))
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
            and not needs.is_written(file, element)
            and not _recurs(loop, counter)
            and not _may_be_none(file, element)
            and not _goes_through_layers(loop, counter)
            and not _steps(file, element)
            and (where := file.loops.where(loop)).often in ("step", "forward")
            and not where.guarded
        ):
            told.add(element)
            yield Pattern(**file.site(element), what="element-loop")


def _adds_up(file: File, call: ast.Call) -> bool:
    """Whether Python's own `sum` goes through a tensor: ``sum(output.argmax(1) == y)``."""
    given = call.args[0] if len(call.args) == 1 and isinstance(call.func, ast.Name) and call.func.id == "sum" else None
    if not isinstance(given, ast.Compare) or file.loops.where(call).often not in ("step", "evaluation"):
        return False
    kinds = [file.values.kinds(side) for side in (given.left, *given.comparators)]
    return any(each & {"output", "tensor", "detached"} for each in kinds) and not any(each & {"array", "host", "number"} for each in kinds)


def _is_element(file: File, part: ast.Subscript, counter: str, rounds: ast.Call) -> bool:
    """``x[i]`` where the loop goes over the size of a tensor: outputs, layers and lists are counted otherwise, and cost nothing."""
    index = part.slice.elts[0] if isinstance(part.slice, ast.Tuple) and part.slice.elts else part.slice
    if not isinstance(index, ast.Name) or index.id != counter or not _is_size(file, rounds) or _counts_others(file, rounds, part.value):
        return False
    values = file.values.of(part.value)
    bound = list(_bound(file, part.value))
    if (
        _is_key(file, part)
        or (file.tree.function_of(part), dotted(part.value)) in file.items
        or last_name(part.value).endswith("list")
        or any(value is not None and (_makes_list(value) or _leaves_device(value)) for value in bound)
        or any(value.kind == "array" for value in values)
    ):
        return False
    tensors = [value for value in values if value.kind in ("output", "tensor")]
    if _LISTS.fullmatch(last_name(part.value)) and _is_counted_by_len(file, rounds) and not _is_called_a_tensor(file, part.value):
        tensors = [value for value in tensors if value.kind != "tensor" or not value.guess]  # a `forward` may be given a list
    return bool(tensors) and not (_is_result(file, part.value) and _is_counted(rounds))


def _is_key(file: File, part: ast.Subscript) -> bool:
    """Whether something is looked up by an element, or it is one of an array: ``codes_dict[text[i][j]]``, which text is good for."""
    node: ast.AST = part
    while isinstance(node, ast.Subscript):
        array = file.values.is_a(node.value, "array")
        parent = file.tree.parents.get(node)
        if array or (isinstance(parent, ast.Subscript) and node is parent.slice and "dict" in last_name(parent.value)):
            return True
        node = parent if isinstance(parent, ast.Subscript) and parent.value is node else ast.Pass()
    return False


def _is_result(file: File, node: ast.expr) -> bool:
    """Whether an expression is what a model gave that got its inputs by name, ``model(**batch)``: an object of several outputs."""
    bound = file.names.lookup(node, dotted(node)) if dotted(node) else []
    calls = [binding.value for binding in bound if isinstance(binding.value, ast.Call) and not binding.path and not binding.element]
    return bool(bound) and len(calls) == len(bound) and all(any(given.arg is None for given in call.keywords) for call in calls)


def _is_counted(rounds: ast.Call) -> bool:
    """Whether the rounds are ``len(x)``, which says nothing of tensors."""
    return all(isinstance(given, ast.Call) and last_name(given.func) == "len" for given in rounds.args)


def _bound(file: File, node: ast.expr) -> Iterator[ast.expr | None]:
    """What a name is given, here and by the callers of a function whose parameter it is."""
    for binding in file.names.lookup(node, dotted(node)) if dotted(node) else ():
        yield _said_to_be(binding) if binding.parameter is not None else binding.value
        for given in file.names.arguments(binding.parameter) if binding.parameter is not None else ():
            yield given
            yield from (other.value for other in (file.names.lookup(given, dotted(given)) if dotted(given) else ()))


def _said_to_be(binding: Binding) -> ast.expr | None:
    """An empty list for a parameter that an annotation calls one."""
    words = [last_name(part) for part in within(binding.annotation)] if binding.annotation is not None else []
    return ast.List([]) if {"list", "List", "Sequence", "tuple", "Tuple"} & set(words) else None


def _is_called_a_tensor(file: File, node: ast.expr) -> bool:
    bound = file.names.lookup(node, dotted(node)) if dotted(node) else []
    said = (part for binding in bound if binding.annotation is not None for part in within(binding.annotation))
    return any(last_name(part) == "Tensor" for part in said)


def _is_size(file: File, node: ast.expr) -> bool:
    """``x.shape[0]``, ``len(x)``, or a name that was given one."""
    return bool(_sizes(file, node))


def _is_counted_by_len(file: File, node: ast.expr) -> bool:
    return _sizes(file, node) == {"len"}


def _sizes(file: File, node: ast.expr) -> set[str]:
    """What tells how many rounds there are: ``shape``, ``size``, ``len``, itself or by the names in an expression."""
    parts = [part for part in within(node) if isinstance(part, ast.Name | ast.Attribute)]
    told = {last_name(part) for part in parts} & _SIZES
    given = [binding.value for part in parts if isinstance(part, ast.Name) for binding in file.names.lookup(part, part.id)]
    return told or {last_name(part) for value in given if value is not None for part in within(value)} & _SIZES


def _counts_others(file: File, rounds: ast.expr, tensor: ast.expr) -> bool:
    """Whether the rounds are as many as a list of something else has items: then what is indexed beside it is a list, too."""
    parts = [part for part in within(rounds) if isinstance(part, ast.Name)]
    given = [binding.value for part in parts for binding in file.names.lookup(part, part.id) if binding.value is not None]
    calls = [part for value in (rounds, *given) for part in within(value) if isinstance(part, ast.Call)]
    counted = [call.args[0] for call in calls if last_name(call.func) == "len" and call.args]
    own = [dotted(part.value) for part in within(rounds) if isinstance(part, ast.Attribute) and part.attr == "shape"]
    if own and all(each.startswith("self.") and each != dotted(tensor) for each in own):
        return True  # the levels of a model, of each of which it gives a tensor
    return bool(counted) and not any(dotted(each) == dotted(tensor) or file.values.is_a(each, *TENSORS) for each in counted)


def _makes_list(node: ast.expr) -> bool:
    """``[x]``, ``[x] + more``, ``[0] * n``, ``x.split(n)``."""
    if isinstance(node, ast.Call):
        return bool(_SEVERAL.fullmatch(last_name(node.func)))
    if isinstance(node, ast.BinOp):
        return _makes_list(node.left) or _makes_list(node.right)
    return isinstance(node, ast.List | ast.ListComp | ast.Tuple)


def _leaves_device(node: ast.expr) -> bool:
    """``image.detach().cpu()``, ``image.cpu().clamp(0, 1)``: what lies in the host's memory costs no kernels."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "cpu":
            return True
        node = node.func.value
    return False


def _goes_through_layers(loop: ast.For, counter: str) -> bool:
    """Whether each round calls a layer or an operation of its own: ``self.cells[i](x, h[i])``, ``getattr(self, f"path{i}")(x[i])``."""
    parts = [part for statement in loop.body for part in within(statement)]
    made_of: dict[str, set[str]] = {}
    for statement in (part for part in parts if isinstance(part, ast.Assign)):
        for target in statement.targets:
            made_of.setdefault(dotted(target), set()).update(names_in(statement.value))
    layers = (part.func for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Subscript | ast.Call))
    chosen = {name for layer in layers for name in names_in(layer.slice if isinstance(layer, ast.Subscript) else layer)}
    return counter in chosen or any(counter in _all_of(name, made_of) for name in chosen)


def _steps(file: File, element: ast.Subscript) -> bool:
    """Whether a part that keeps a state takes one element after the other: ``self.cell(x[t])``, ``self.step_forward(x[t])``."""
    parent = file.tree.parents.get(element)
    return isinstance(parent, ast.Call) and element in parent.args and bool(_STATEFUL.fullmatch(last_name(parent.func)))


def _may_be_none(file: File, element: ast.Subscript) -> bool:
    """Whether somebody asks if it is None: then it is one of several outputs, and no element of a tensor."""
    asked = file.tree.parents.get(element)
    return isinstance(asked, ast.Compare) and isinstance(asked.ops[0], ast.Is | ast.IsNot)


def _recurs(loop: ast.For, counter: str) -> bool:
    """Whether a round needs the result of the one before: ``h = cell(x[t], h)``, ``h[0] = cell(x[t], h[0])``, ``d[i] = d[i - 1]``."""
    made_of: dict[str, set[str]] = {}
    for statement in (part for one in loop.body for part in within(one) if isinstance(part, ast.Assign)):
        given = {part.id for part in within(statement.value) if isinstance(part, ast.Name)}
        made = {
            part.id
            for target in statement.targets
            for part in within(target)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        if given & made or any(_is_carried(target, statement.value, counter) for one in statement.targets for target in within(one)):
            return True
        for name in made:
            made_of.setdefault(name, set()).update(given)
    return any(name in _all_of(name, made_of) for name in made_of)


def _all_of(name: str, made_of: dict[str, set[str]]) -> set[str]:
    """The names that one is made of, by way of others."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = made_of.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _is_carried(target: ast.AST, value: ast.expr, counter: str) -> bool:
    """Whether an item is made of an item of the same list that an earlier round has made."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.ctx, ast.Store):
        return False
    place = ast.dump(target.slice)
    own = any(isinstance(part, ast.Name) and part.id == counter for part in within(target.slice))
    used = (part for part in within(value) if isinstance(part, ast.Subscript) and dotted(part.value) == dotted(target.value) != "")
    return any(not own or ast.dump(part.slice) != place for part in used)


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
