"""How the loop around a line works, as far as its source tells: what it goes through, and whether a round needs what one before has made.

`parameters` it goes through the tensors of a model: weights, gradients, a copy of them.
`layers`     it calls several layers, and none is given what another one made.
`gradients`  it makes the gradients of one row at a time, in one graph.
`sums`       each round adds up rows that other rounds add up, too (`again`).
`same`       each round asks for the same, which takes going through all of a model or a list (`again`).
`chain`      a round needs what one before has made. That none does is never proven: what is called may keep anything.
`inner`      a round of an outer loop does, and none of the innermost one is seen to.
`plain`      no round of any is seen to.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from sysperf.script.cures import again, flows
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import Depends
from sysperf.script.nodes import names_in, root_of
from sysperf.script.syntax import Loop
from sysperf.startup import lazy

MAX_FOLLOWED = 4
MAX_NODES = 4_000
_OF_PARAMETERS = lazy(r"\b(?:named_)?(?:parameters|buffers)\(|\bstate_dict\(|\bparam_groups\b|\.grad\b(?!\()")
_LAYERS = lazy(r"\bModule(?:List|Dict)\(")
_Made = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
_Round = ast.For | ast.While | _Made
_FOLDED = frozenset(("max", "min", "maximum", "minimum", "cat", "hstack", "vstack", "concatenate"))


def ways(source: Depends, graph: flows.Flows, statement: ast.stmt) -> tuple[str, ...]:
    """What is seen of the loops around a statement and in it, those of steps left out."""
    loops = _loops(source, graph, statement)
    if not loops or sum(1 for _ in ast.walk(loops[-1])) > MAX_NODES:
        return ()
    found = [name for name, told in (("parameters", _of_parameters), ("layers", _of_layers)) if told(source, loops[0])]
    found += ["gradients"] if any(map(_makes_gradients, loops)) else []
    found += ["sums"] if any(again.sums_again(source, statement, loop) for loop in loops) else []
    found += ["same"] if again.asks_again(source, statement, loops[0]) else []
    needing = [_needs_rounds_before(source, loop) for loop in loops if not isinstance(loop, ast.While)]
    if not needing:
        return tuple(found)
    is_inner = any(needing) and isinstance(loops[0], ast.For) and not needing[0]
    return (*found, *(["chain"] if any(needing) else ["plain"]), *(["inner"] if is_inner else []))


def calls_layers(source: Depends, statement: ast.stmt) -> bool:
    """Whether a statement calls layers of a list one by one, each with what is there before the loop."""
    loop = source.loop_of(statement)
    found: list[_Round] = [loop] if isinstance(loop, ast.For) else []
    found += [node for node in ast.walk(statement) if isinstance(node, _Made) and not hasattr(statement, "body")]
    return any(_of_layers(source, one) and not _needs_rounds_before(source, one) for one in found)


def _loops(source: Depends, graph: flows.Flows, statement: ast.stmt) -> list[_Round]:
    """The loops around a statement, the innermost first, up to one of steps; where there is none, those in it."""
    found: list[_Round] = []
    loop: Loop | None = statement if isinstance(statement, ast.For | ast.While) else source.loop_of(statement)
    while isinstance(loop, ast.For | ast.While) and not _is_of_steps(graph, loop):
        found.append(loop)
        loop = source.loop_of(loop)
    if not found and not hasattr(statement, "body"):
        found += [node for node in ast.walk(statement) if isinstance(node, _Made)][:1]
    return found


def _is_of_steps(graph: flows.Flows, loop: Loop) -> bool:
    return graph.trains(loop) and not _makes_gradients(loop)


def _makes_gradients(loop: ast.AST) -> bool:
    """Whether each round goes back through a graph that is kept for the next one, for gradients of its own; `backward()` adds them up."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    keeps = any(
        called(node) == "grad" and any(word.arg == "retain_graph" and not _is_false(word.value) for word in node.keywords) for node in calls
    )
    return keeps and not any(called(node) in ("step", "zero_grad") for node in calls)


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def _heads(loop: _Round) -> list[tuple[ast.expr, ast.expr]]:
    """What a loop counts by, and what it goes through."""
    if isinstance(loop, ast.For):
        return [(loop.target, loop.iter)]
    return [(part.target, part.iter) for part in loop.generators] if not isinstance(loop, ast.While) else []


def _of_parameters(source: Depends, loop: _Round) -> bool:
    return any(is_made_of(source, iterated, _OF_PARAMETERS.search, MAX_FOLLOWED) for _, iterated in _heads(loop))


def is_made_of(source: Depends, part: ast.expr, words: Callable[[str], object], depth: int) -> bool:
    """Whether an expression has these words in it, or what its names and attributes are made of."""
    if words(ast.unparse(part)):
        return True
    return depth > 0 and any(is_made_of(source, value, words, depth - 1) for value in _values(source, part))


def _values(source: Depends, part: ast.expr) -> Iterable[ast.expr]:
    """What the names in an expression are given, and the attributes of the object, where that is written in this file."""
    for node in ast.walk(part):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield from (one.value for one in source.definitions(node) if one.value is not None and not isinstance(one.node, ast.For))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            owner = source.tree.class_of(node)
            for store in source.changed(f".{node.attr}"):
                statement = source.tree.statement_of(store)
                if isinstance(statement, ast.Assign) and source.tree.class_of(store) is owner:
                    yield statement.value


def _of_layers(source: Depends, loop: _Round) -> bool:
    """Whether a loop goes through layers that are kept in a list, and calls each."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    for target, iterated in _heads(loop):
        names = names_in(target)
        if is_made_of(source, iterated, _LAYERS.search, 1) and any(_is_one_of(call.func, names) for call in calls):
            return True
        if any(
            isinstance(call.func, ast.Subscript)
            and names_in(call.func.slice) & names
            and is_made_of(source, call.func.value, _LAYERS.search, 1)
            for call in calls
        ):
            return True
    return False


def _is_one_of(func: ast.expr, names: set[str]) -> bool:
    return isinstance(func, ast.Name) and func.id in names


def _needs_rounds_before(source: Depends, loop: _Round) -> bool:
    """Whether a round reads a name or an element that one before may have given its value; sums and lists are made of all rounds."""
    if isinstance(loop, _Made):
        return any(isinstance(node, ast.NamedExpr) for node in ast.walk(loop))
    body = loop.body
    nodes = [node for part in body for node in ast.walk(part)]
    own = {name for target, _ in _heads(loop) for name in names_in(target)}
    stores = [store for store in nodes if isinstance(store, ast.Subscript | ast.Attribute) and not _is_made_in_round(source, body, store)]
    if any(_reads_first(source, body, name) for name in _stored(nodes) - own):
        return True
    return any(_is_read_elsewhere(source, nodes, store, own) for store in stores)


def _is_made_in_round(source: Depends, body: Sequence[ast.stmt], store: ast.Subscript | ast.Attribute) -> bool:
    """Whether a container is one that each round makes for itself."""
    root = root_of(store)
    return isinstance(root, ast.Name) and _reads_first(source, body, root.id) is False


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _reads_first(source: Depends, body: Sequence[ast.stmt], name: str) -> bool | None:
    """Whether a round may read a name before it gives it a value; None: it does neither for certain.

    `total += x` and `best = max(best, x)` are no such reading.
    """
    for statement in body:
        if (found := _of_one(source, statement, name)) is not None:
            return found
    return None


def _of_one(source: Depends, statement: ast.stmt, name: str) -> bool | None:
    blocks = [block for field in ("body", "orelse", "finalbody") if (block := getattr(statement, field, []))]
    inner = {part for block in blocks for part in block}
    head = [node for part in ast.iter_child_nodes(statement) if part not in inner for node in ast.walk(part)]
    named = [node for node in head if isinstance(node, ast.Name) and node.id == name and not _is_its_own(source, node)]
    if any(isinstance(node.ctx, ast.Load) and not _is_folded(source, node, name) for node in named):
        return True
    if any(isinstance(node.ctx, ast.Store) for node in named) and not isinstance(statement, ast.AugAssign):
        return None if any(isinstance(node.ctx, ast.Load) for node in named) else False
    found = [_reads_first(source, block, name) for block in blocks]
    if any(found):
        return True
    return False if found and None not in found and (len(found) > 1 or isinstance(statement, ast.With)) else None


def _is_its_own(source: Depends, name: ast.Name) -> bool:
    """Whether a name is one of a comprehension or of a lambda, and none of the round."""
    makers = (parent.args.args for parent in source.tree.ancestors(name) if isinstance(parent, ast.Lambda))
    return source.comprehension_of(name) is not None or any(one.arg == name.id for several in makers for one in several)


def _is_folded(source: Depends, load: ast.Name, name: str) -> bool:
    """Whether a name is read only to add to it: `total = total + x`, `best = max(best, x)`, `if x > best: best = x`."""
    statement = source.tree.statement_of(load)
    if isinstance(statement, ast.If):
        return _keeps_best(statement, name)
    if isinstance(statement, ast.AugAssign):
        return name not in names_in(statement.value)
    return isinstance(statement, ast.Assign) and _adds_to(source, statement, name)


def _adds_to(source: Depends, statement: ast.Assign, name: str) -> bool:
    """Whether a name is given itself and more: a decay of it within `max()` or `cat()` is no sum."""
    parent, value = source.tree.parents.get(statement), statement.value
    if isinstance(parent, ast.If) and _keeps_best(parent, name):
        return True
    if isinstance(value, ast.Call) and called(value) in _FOLDED:
        given = [one for part in value.args for one in (part.elts if isinstance(part, ast.List | ast.Tuple) else [part])]
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Sub):
        given = _terms(value)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        given = [value.left, value.right]
    else:
        return False
    others = [one for one in given if not (isinstance(one, ast.Name) and one.id == name)]
    is_target = any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)
    return is_target and len(others) == len(given) - 1 and not any(name in names_in(one) for one in others)


def _terms(value: ast.expr) -> list[ast.expr]:
    """The parts of a sum; what is subtracted is one part, with all that is in it."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return [*_terms(value.left), *_terms(value.right)]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        return [*_terms(value.left), ast.UnaryOp(ast.USub(), value.right)]
    return [value]


def _keeps_best(statement: ast.If, name: str) -> bool:
    """Whether it is `if x > best: best = x`; what else stands there is done for it alone."""
    test = statement.test
    given = [part for part in statement.body if isinstance(part, ast.Assign)]
    if not isinstance(test, ast.Compare) or statement.orelse or len(given) != len(statement.body):
        return False
    others = [side for side in (test.left, *test.comparators) if not (isinstance(side, ast.Name) and side.id == name)]
    if len(others) != 1 or len(test.comparators) != 1 or any(name in names_in(part) for part in (others[0], *(one.value for one in given))):
        return False
    targets = [target for part in given for target in part.targets]
    is_kept = sum(isinstance(target, ast.Name) and target.id == name for target in targets) == 1
    return is_kept and all(isinstance(target, ast.Name) for target in targets)


def _is_read_elsewhere(source: Depends, nodes: Iterable[ast.AST], store: ast.Subscript | ast.Attribute, own: set[str]) -> bool:
    """Whether a round writes to an element or an attribute that another one may read: at an index that is not the round's own."""
    if not isinstance(store.ctx, ast.Store) or (isinstance(store, ast.Attribute) and names_in(store) & own):
        return False
    whole = ast.unparse(store.value if isinstance(store, ast.Subscript) else store)
    index = ast.unparse(store.slice) if isinstance(store, ast.Subscript) else ""
    is_own = isinstance(store, ast.Subscript) and any(_is_plain(part, own) for part in _parts(store.slice))
    reads = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load)]
    around = [source.tree.parents.get(node) for node in reads if ast.unparse(node) == whole]
    others = [one for one in around if not (isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store))]
    return not all(is_own and isinstance(one, ast.Subscript) and ast.unparse(one.slice) == index for one in others)


def _parts(index: ast.expr) -> Sequence[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _is_plain(part: ast.expr, own: set[str]) -> bool:
    return isinstance(part, ast.Name) and part.id in own
