"""What the rounds of a loop do anew, although one round could leave it to the next.

`sums`  a round adds up all rows from its own one on, or up to it: a sum that is carried on needs each row once.
`same`  a round asks for what no round changes, by a call that goes through all of a model, a list or a table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import RANDOM, Depends
from sysperf.script.nodes import dotted, names_in, root_of
from sysperf.startup import lazy

_SUMS = frozenset(("sum", "mean", "fsum"))
"""What can be carried on from one row to the next."""
_WALKS = lazy(r"^(?:state_dict|(?:named_)?(?:parameters|buffers|modules|children)|get_vocab|get_stoi|get_itos)$")
"""Methods that change nothing, and go through all of their object, whatever the values in it."""
_OF_VALUES = frozenset(("tolist", "unique", "argsort", "sorted", "set"))
"""Methods and functions of Python that go through all values."""
_FRESH = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp
_LEAVES = lazy(r"^(?:append|is_floating_point|is_complex|copy_|mul_|add_|lerp_|sub_|div_|requires_grad_|to|get_vocab|get_stoi|get_itos)$")
"""Methods that change nothing but a list or the values of a tensor."""
_JOINS = lazy(r"^(?:stack|cat|concatenate|array|asarray|tensor|as_tensor)$")
_Made = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
_Round = ast.For | ast.While | _Made


def sums_again(source: Depends, statement: ast.stmt, loop: _Round) -> bool:
    """Whether a statement adds up, in each round, rows that other rounds add up, too: ``sum(rows[i:])``, or an inner loop from `i` on."""
    own, body = _own(loop), _body(loop)
    made = _stored(body)
    nodes = [node for part in body for node in ast.walk(part)]
    sums: list[ast.AST] = [node for node in nodes if isinstance(node, ast.For) and _is_in(statement, node) and _adds_rest(node, own, made)]
    if not hasattr(statement, "body"):
        inside = {id(node) for node in nodes}
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and id(node) in inside]
        sums += [call for call in calls if _is_sum_of_rest(call, own, made)]
    if not sums or _ends(loop):
        return False
    changed = {name for name in names_in(loop) if any(source.is_in(node, loop) for node in source.changed(name))}
    others = [node for node in nodes if isinstance(node, ast.Call) and called(node) not in (*_SUMS, "append")]
    calm = all(_leaves(source, call) for call in others)
    return any(_is_of_rows_that_stay(source, node, changed, calm=calm) for node in sums)


def _ends(loop: _Round) -> bool:
    """Whether there is one round at most."""
    return isinstance(loop, ast.For | ast.While) and any(isinstance(part, ast.Return | ast.Break) for part in loop.body)


def _is_of_rows_that_stay(source: Depends, part: ast.AST, changed: set[str], *, calm: bool) -> bool:
    """Whether no round changes what a sum reads, and the work on a row changes nothing and draws nothing.

    What an attribute gives may be another one after any call that is not calm.
    """
    inner = list(ast.walk(part))
    work = [node for node in inner if isinstance(node, ast.Call) and called(node) not in (*_SUMS, "range", "enumerate", "reversed")]
    if (
        not all(_leaves(source, call) and not RANDOM.search(ast.unparse(call.func)) for call in work)
        or (names_in(part) - _stored([part])) & changed
    ):
        return False
    functions = {id(node.func) for node in inner if isinstance(node, ast.Call)}
    return calm or not any(isinstance(node, ast.Attribute) and id(node) not in functions for node in inner)


def _is_in(node: ast.AST, other: ast.AST) -> bool:
    return any(part is node for part in ast.walk(other))


def asks_again(source: Depends, statement: ast.stmt, loop: _Round) -> bool:
    """Whether a statement asks in each round for the same: no round changes what it is asked of, or calls what might."""
    body = _body(loop)
    nodes = [node for part in body for node in ast.walk(part)]
    if _ends(loop) or any(isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node in nodes):
        return False
    if any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) for node in nodes):
        return False
    if not all(_leaves(source, node) for node in nodes if isinstance(node, ast.Call)):
        return False
    inside = {id(node) for node in nodes}
    stored = _stored(body) | _own(loop)
    if hasattr(statement, "body"):
        return False  # its head does not
    asked = [node for node in ast.walk(statement) if id(node) in inside and isinstance(node, ast.Call)]
    found = [(node, of) for node in asked if (of := _asked(node)) is not None and _is_only_read(source, node)]
    if all(called(node) in _OF_VALUES for node, _ in found) and not _fills_new_ones_alone(source, nodes):
        return False
    return any(_stays(source, of, loop, stored) for _, of in found)


def _is_only_read(source: Depends, call: ast.Call) -> bool:
    """Whether an element of what a call gives is read, and nobody gets all of it, who may change it."""
    parent = source.tree.parents[call]
    is_part = (isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Load)) or isinstance(parent, ast.Compare)
    return is_part or (isinstance(parent, ast.Attribute) and needless.is_pure(parent.attr))


def _fills_new_ones_alone(source: Depends, nodes: Iterable[ast.AST]) -> bool:
    """Whether what is stored or appended in place goes into lists and tables that are made as such, and have one name."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not needless.is_pure(node.func.attr):
            if isinstance(root := root_of(node.func), ast.Name) and root.id in source.modules and not node.keywords:
                continue
            if _asked(node) is not None:
                continue
            target = node.func.value
        else:
            continue
        if not isinstance(target, ast.Name) or not all(isinstance(one.value, _FRESH) for one in source.definitions(target)):
            return False
    return True


def _own(loop: _Round) -> set[str]:
    """The names by which a loop counts."""
    targets = [loop.target] if isinstance(loop, ast.For) else [part.target for part in getattr(loop, "generators", ())]
    return {name for target in targets for name in names_in(target)}


def _body(loop: _Round) -> Sequence[ast.AST]:
    """What each round does."""
    if isinstance(loop, ast.For | ast.While):
        return loop.body
    inner = [part.iter for part in loop.generators[1:]] + [test for part in loop.generators for test in part.ifs]
    return [loop.key, loop.value, *inner] if isinstance(loop, ast.DictComp) else [loop.elt, *inner]


def _stored(parts: Iterable[ast.AST]) -> set[str]:
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_sum_of_rest(call: ast.Call, own: set[str], made: set[str]) -> bool:
    """Whether a sum goes through rows that begin, or end, with the loop's own one, and has nothing else of the round."""
    func, given = call.func, call.args[:1]
    is_library = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and bool(given)
    of = given[0] if given and (is_library or isinstance(func, ast.Name)) else func.value if isinstance(func, ast.Attribute) else None
    while isinstance(of, ast.Call) and _JOINS.match(called(of)) and of.args:
        of = of.args[0]
    if of is None or called(call) not in _SUMS or not _is_of_first_dimension(call, is_library or isinstance(func, ast.Name)):
        return False
    if not isinstance(of, ast.GeneratorExp | ast.ListComp):
        return _is_rest(of, own | made, own)
    head = of.generators[0]
    return len(of.generators) == 1 and _goes_through_rest(head.target, head.iter, [of.elt, *head.ifs], own, own | made)


def _is_of_first_dimension(call: ast.Call, is_given: bool) -> bool:
    """Whether rows are added up, and not what is in each of them."""
    others = [*call.args[is_given:], *(word.value for word in call.keywords)]
    return all(isinstance(part, ast.Constant) and part.value == 0 and part.value is not False for part in others)


def _is_rest(part: ast.expr, of_round: set[str], own: set[str]) -> bool:
    """Whether it is ``rows[i:]`` or ``rows[:i]``, of rows that are not the round's own."""
    if not isinstance(part, ast.Subscript) or not isinstance(part.slice, ast.Slice) or part.slice.step is not None:
        return False
    bounds = [bound for bound in (part.slice.lower, part.slice.upper) if bound is not None]
    return len(bounds) == 1 and bool(names_in(bounds[0]) & own) and not names_in(part.value) & of_round


def _goes_through_rest(target: ast.expr, head: ast.expr, work: Sequence[ast.AST], own: set[str], of_round: set[str]) -> bool:
    """Whether rows from the round's own one on, or up to it, are gone through, and the work on each is the same in other rounds."""
    if isinstance(head, ast.Call) and called(head) in ("enumerate", "reversed") and head.args:
        is_rest = _is_rest(head.args[0], of_round, own)
        places = names_in(target.elts[0]) if called(head) == "enumerate" and isinstance(target, ast.Tuple) else set[str]()
    else:
        is_rest, places = _is_rest(head, of_round, own) or _counts_from(head, own), set[str]()
    rows = names_in(target)
    return is_rest and _has_none_of(work, (of_round - rows) | places, rows)


def _counts_from(head: ast.expr, own: set[str]) -> bool:
    """Whether it is ``range(i, n)`` or ``range(i)``."""
    if not isinstance(head, ast.Call) or called(head) != "range" or not 1 <= len(head.args) <= 2:
        return False
    return sum(bool(names_in(part) & own) for part in head.args) == 1


def _has_none_of(work: Sequence[ast.AST], of_round: set[str], rows: set[str]) -> bool:
    """Whether names of the round stand in exponents alone: ``gamma ** (k - t)`` is carried on by a product with gamma."""
    nodes = [node for part in work for node in ast.walk(part)]
    powers = [
        node
        for node in nodes
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not names_in(node.left) & (of_round | rows)
    ]
    exponents = {id(part) for power in powers if _is_difference(power.right) for part in ast.walk(power.right)}
    return not any(isinstance(node, ast.Name) and node.id in of_round and id(node) not in exponents for node in nodes)


def _is_difference(part: ast.expr) -> bool:
    if isinstance(part, ast.BinOp):
        return isinstance(part.op, ast.Add | ast.Sub) and _is_difference(part.left) and _is_difference(part.right)
    return isinstance(part, ast.Name | ast.Constant)


def _adds_rest(loop: ast.For, own: set[str], made: set[str]) -> bool:
    """Whether an inner loop goes through the rows from the round's own one on, or up to it, and does nothing but add up."""
    sums = _stored(loop.body)
    return all(_adds(part, sums) for part in loop.body) and _goes_through_rest(loop.target, loop.iter, loop.body, own, own | (made - sums))


def _adds(statement: ast.stmt, sums: set[str]) -> bool:
    """Whether it is ``total += x``, ``total = total + weight * x`` or ``weight *= x``, with another sum in `x` as a factor alone."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name) and isinstance(statement.op, ast.Add | ast.Mult):
        added = statement.value
    elif (
        isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp) and isinstance(statement.value.op, ast.Add | ast.Mult)
    ):
        if len(statement.targets) != 1 or ast.unparse(statement.value.left) != ast.unparse(statement.targets[0]):
            return False
        added = statement.value.right
    else:
        return False
    return all(name not in names_in(added) or _is_factor(added, name) for name in sums)


def _is_factor(added: ast.expr, name: str) -> bool:
    """Whether a name stands in a product alone, once, or as an exponent."""
    if isinstance(added, ast.BinOp) and isinstance(added.op, ast.Mult):
        sides = (added.left, added.right), (added.right, added.left)
        return any(_is_factor(side, name) and name not in names_in(other) for side, other in sides)
    if isinstance(added, ast.BinOp) and isinstance(added.op, ast.Pow):
        return name not in names_in(added.left) and isinstance(added.right, ast.Name)
    return isinstance(added, ast.Name)


def _asked(call: ast.Call) -> ast.expr | None:
    """Return what a call goes through as a whole; None: it does not."""
    if isinstance(call.func, ast.Attribute):
        name = call.func.attr
        return call.func.value if (_WALKS.match(name) or name in _OF_VALUES) and not call.args and not call.keywords else None
    is_of_one = called(call) in _OF_VALUES and len(call.args) == 1 and not call.keywords
    return call.args[0] if is_of_one else None


def _stays(source: Depends, of: ast.expr, loop: ast.AST, stored: set[str]) -> bool:
    """Whether no round gives something of this name another value, or changes it in place."""
    path = dotted(of)
    if not path or path.partition(".")[0] in stored:
        return False
    last = path.rpartition(".")
    key = f".{last[2]}" if last[0] else last[2]
    return not any(source.is_in(node, loop) for node in source.changed(key))


def _leaves(source: Depends, call: ast.Call) -> bool:
    """Whether a call changes nothing but a list, or the values of a tensor."""
    name, root = called(call), root_of(call.func)
    if name in source.functions:
        return False
    if isinstance(call.func, ast.Name):
        return name in needless.BUILTINS or name == "print"
    is_library = isinstance(root, ast.Name) and root.id in source.modules and not source.definitions(root)
    return (is_library and not needless.changes(name)) or needless.is_pure(name) or _LEAVES.match(name) is not None
