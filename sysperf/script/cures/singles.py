"""Whether a loop calls a model for one row at a time, of which none needs what the model made of another: one call would do for all."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from sysperf.script.cures import flows, needless
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import Depends
from sysperf.script.cures.keys import Key
from sysperf.script.nodes import arguments, names_in, root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

MAX_FOLLOWED = 60
_Parts = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
_RESHAPES = ("view", "reshape")
_LEARNS = frozenset(("backward", "zero_grad", "grad"))
_GIVES_BATCHES = lazy(r"(?i)loader|batches|chunk|split|\bdl\b|_dl\b")
"""What gives several rows at once; a batch itself gives its rows."""
_BATCH = lazy(r"(?i)batch|chunk")
"""Names of several rows."""


def one_row_at_a_time(source: Depends, graph: flows.Flows, statement: ast.stmt) -> bool:
    """Whether a statement calls something with a batch of one, in a loop whose rounds need nothing of each other."""
    return any(
        _is_of_one(source, graph, statement, call, own, around)
        for call in ast.walk(statement if not hasattr(statement, "body") else ast.Pass())
        if isinstance(call, ast.Call) and _may_be_a_model(source, call)
        for own, around in _loops(source, statement, call)
    )


def _may_be_a_model(source: Depends, call: ast.Call) -> bool:
    root, name = root_of(call.func), called(call)
    is_library = isinstance(root, ast.Name) and root.id in source.modules
    return not (is_library or name in needless.BUILTINS or needless.is_pure(name) or needless.changes(name) or "learn" in name)


def _is_of_one(source: Depends, graph: flows.Flows, statement: ast.stmt, call: ast.Call, own: set[str], around: ast.AST) -> bool:
    if _depends(source, around, own, call.func) or _learns(graph, around) or _keeps_a_state(graph, call):
        return False
    given = arguments(call)
    rows = [part for part in given if _depends(source, around, own, part)]
    if rows[:1] != given[:1] or not rows or not all(_is_one(source, graph, around, own, call, part) for part in rows):
        return False
    made = {graph.key_of(node) for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    reached = graph.reached(made | _filled(graph, statement))
    leaves = [leaf for part in given for leaf in _followed(source, around, own, part)[0]]
    return all(_is_its_own(source, graph, leaf, around, own, reached) for leaf in leaves)


def _depends(source: Depends, around: ast.AST, own: set[str], part: ast.AST) -> bool:
    """Whether something is made of what the loop counts by."""
    return not names_in(*_followed(source, around, own, part)[0]).isdisjoint(own)


def _is_one(source: Depends, graph: flows.Flows, around: ast.AST, own: set[str], call: ast.Call, given: ast.expr) -> bool:
    """Whether an argument is made a batch of one row, before the call or in a function of the file that is called."""
    values = _followed(source, around, own, given)[1]
    if any((row := _row(node)) is not None and _depends(source, around, own, row) for value in values for node in ast.walk(value)):
        return True
    functions = [one for one in graph.named(called(call)) if one.name not in ("forward", "__call__")]
    return any(_row_of_a_parameter(function) for function in functions)


def _row_of_a_parameter(function: Function) -> bool:
    """Whether a function with one parameter makes a batch of one of it."""
    taken = [one.arg for one in (*function.args.args, *function.args.kwonlyargs) if one.arg not in ("self", "cls")]
    rows = (_row(node) for part in function.body for node in ast.walk(part))
    return len(taken) == 1 and any(row is not None and taken[0] in names_in(row) for row in rows)


def _learns(graph: flows.Flows, around: ast.AST) -> bool:
    """Whether each round makes gradients: a model that learns of each row needs the rows one by one."""
    return any(
        called(node) in _LEARNS for part in _with_functions(graph, [around]) for node in ast.walk(part) if isinstance(node, ast.Call)
    )


def _keeps_a_state(graph: flows.Flows, call: ast.Call) -> bool:
    """Whether what is called may keep something of a row for the next: `self.hidden = ...`."""
    waiting = [*graph.named(called(call)), *graph.named("forward"), *graph.named("__call__")]
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        for part in _with_functions(graph, waiting)
        for node in ast.walk(part)
    )


def _with_functions(graph: flows.Flows, parts: Iterable[ast.AST]) -> list[ast.AST]:
    """Parts of a file, and all functions of it that they call by name."""
    found = list(parts)
    for part in found:  # it grows meanwhile
        calls = (node for node in ast.walk(part) if isinstance(node, ast.Call))
        found += [one for call in calls for one in graph.named(called(call)) if one not in found]
    return found


def _loops(source: Depends, statement: ast.stmt, call: ast.Call) -> Iterable[tuple[set[str], ast.AST]]:
    """The comprehension around a call and the loop around its statement, with the names that they count by."""
    for parent in source.tree.ancestors(call):
        if isinstance(parent, _Parts) and not any(_gives_batches(source, part) for part in parent.generators):
            yield names_in(*(part.target for part in parent.generators)), parent
    if isinstance(loop := source.loop_of(statement), ast.For) and not _gives_batches(source, loop):
        yield names_in(loop.target), loop


def _gives_batches(source: Depends, loop: ast.For | ast.comprehension) -> bool:
    """Whether a loop goes over batches: what a loader gives, or parts of a tensor."""
    names = [node for node in ast.walk(loop.iter) if isinstance(node, ast.Name)]
    made = [one.value for name in names for one in source.definitions(name) if one.value is not None]
    return bool(
        _BATCH.search(ast.unparse(loop.target))
        or _GIVES_BATCHES.search(ast.unparse(loop.iter))
        or any("DataLoader" in ast.unparse(part) for part in made)
    )


def _followed(source: Depends, around: ast.AST, own: set[str], part: ast.AST) -> tuple[list[ast.expr], list[ast.AST]]:
    """What something is made of, back to what the loop counts by and what is made outside of it; and all values on the way."""
    leaves: list[ast.expr] = []
    values: list[ast.AST] = []
    waiting: list[ast.AST] = [part]
    while waiting and len(values) < MAX_FOLLOWED:
        value = waiting.pop()
        values.append(value)
        for name in (node for node in ast.walk(value) if isinstance(node, ast.Name)):
            several = source.definitions(name) if name.id not in own else ()
            inner = [one.value for one in several if one.value is not None and _is_before(source, one.node, name, around)]
            if inner and len(inner) == len(several):
                waiting += [one for one in inner if one not in values]
            else:
                leaves.append(_whole(source, name))
    if waiting:
        leaves.append(ast.Constant(...))  # it is made of more than is followed: of whatever there is
    return leaves, values


def _is_before(source: Depends, node: ast.AST, name: ast.Name, around: ast.AST) -> bool:
    """Whether a name gets its value earlier in the same round."""
    return source.is_in(node, around) and getattr(node, "lineno", name.lineno) < name.lineno


def _whole(source: Depends, name: ast.Name) -> ast.expr:
    """The name with the attributes and indices that are read of it."""
    whole: ast.expr = name
    while isinstance(parent := source.tree.parents.get(whole), ast.Attribute | ast.Subscript) and parent.value is whole:
        whole = parent
    return whole


def _row(node: ast.AST) -> ast.AST | None:
    """What is given the dimension of a batch: in `x[None]`, `x[i : i + 1]`, `x.unsqueeze(0)`, `x.view(1, -1)`, `tensor([x])`."""
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        return node if _is(first, None) or _is_one_long(first) else None
    if not isinstance(node, ast.Call):
        return None
    name, given = called(node), arguments(node)
    if name in ("unsqueeze", "expand_dims"):
        return node if any(_is(part, 0) for part in given) else None
    if name in _RESHAPES:
        return node if len(given) > 1 and _is(given[0], 1) and not _is(given[1], 1) else None
    return given[0] if name in ("tensor", "as_tensor", "stack", "array") and any(_has_one(one) for one in given[:1]) else None


def _has_one(made: ast.expr) -> bool:
    return isinstance(made, ast.List) and len(made.elts) == 1 and not isinstance(made.elts[0], ast.Starred)


def _is(part: ast.AST | None, value: object) -> bool:
    return isinstance(part, ast.Constant) and part.value is value


def _is_one_long(part: ast.expr) -> bool:
    """Whether a slice is `i : i + 1`, of whatever is in the place of `i`."""
    text = ast.unparse(part)
    return text == "{0}:{0} + 1".format(text.partition(":")[0])


def _filled(graph: flows.Flows, statement: ast.stmt) -> set[Key]:
    """The containers that a statement puts something in."""
    found: set[Key] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= graph.shared(node.value if isinstance(node, ast.Subscript) else node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in ("append", "extend", "add"):
            found |= graph.shared(node.func.value)
    return found | {(key, "in") for key in found}


def _is_its_own(source: Depends, graph: flows.Flows, leaf: ast.expr, around: ast.AST, own: set[str], reached: set[Key]) -> bool:
    """Whether what is read belongs to this round of the loop, or is the same in all of them."""
    root = root_of(leaf)
    if not isinstance(root, ast.Name):
        return False
    if root.id in own:
        return True
    part: ast.AST = leaf
    while isinstance(part, ast.Attribute | ast.Subscript):
        if isinstance(part, ast.Subscript) and not names_in(part.slice).isdisjoint(own):
            return _is_written_there_alone(source, part, around)
        part = part.value
    keys = {graph.key_of(root), *(graph.attribute(node) for node in ast.walk(leaf) if isinstance(node, ast.Attribute))}
    return keys.isdisjoint(reached)


def _is_written_there_alone(source: Depends, part: ast.Subscript, around: ast.AST) -> bool:
    """Whether the loop writes into a container only where it reads in the same round."""
    value, text = part.value, ast.unparse(part.slice)
    name = value.id if isinstance(value, ast.Name) else f".{value.attr}" if isinstance(value, ast.Attribute) else ""
    if isinstance(value, ast.Name) and any(source.is_in(one.node, around) for one in source.definitions(value)):
        return False
    places = [node for node in source.changed(name) if source.is_in(node, around)]
    uses = [one for node in places for one in (ast.walk(node) if isinstance(node, ast.Call) else [node])]
    whole = ast.unparse(value)
    found = [source.tree.parents.get(one) for one in uses if ast.unparse(one) == whole]
    found += [one for one in uses if isinstance(one, ast.Subscript) and ast.unparse(one.value) == whole]
    return bool(name) and all(isinstance(one, ast.Subscript) and ast.unparse(one.slice) == text for one in found)
