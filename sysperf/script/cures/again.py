"""What the rounds of a loop do anew, although one round could leave it to the next.

`sums`  a round adds up all rows from its own one on, or up to it: a sum that is carried on needs each row once.
`same`  a round asks for what no round changes, by a call that goes through all of a model, a list or a table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import Depends
from sysperf.script.nodes import dotted, root_of
from sysperf.startup import lazy

_SUMS = frozenset(("sum", "mean", "max", "min", "prod", "any", "all", "fsum", "amax", "amin"))
"""What can be carried on from one row to the next."""
_WALKS = lazy(r"^(?:state_dict|(?:named_)?(?:parameters|buffers|modules|children)|get_vocab|get_stoi|get_itos|tolist|unique|argsort)$")
"""Methods that change nothing, and go through all of their object."""
_COPIES = frozenset(("list", "sorted", "set", "frozenset", "dict", "tuple"))
"""Functions of Python that make a new one of all of what they are given."""
_LEAVES = lazy(r"^(?:append|is_floating_point|is_complex|copy_|mul_|add_|lerp_|sub_|div_|requires_grad_|to|get_vocab|get_stoi|get_itos)$")
"""Methods that change nothing but a list or the values of a tensor."""
_JOINS = lazy(r"^(?:stack|cat|concatenate|array|asarray|tensor|as_tensor)$")
_Made = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
_Round = ast.For | ast.While | _Made


def sums_again(statement: ast.stmt, loop: _Round) -> bool:
    """Whether a statement adds up, in each round, rows that other rounds add up, too: ``sum(rows[i:])``, or an inner loop from `i` on."""
    own, body = _own(loop), _body(loop)
    made = _stored(body)
    nodes = [node for part in body for node in ast.walk(part)]
    if any(isinstance(node, ast.For) and _is_in(statement, node) and _adds_rest(node, own, made) for node in nodes):
        return True
    calls = [node for node in nodes if isinstance(node, ast.Call) and not hasattr(statement, "body") and _is_in(node, statement)]
    return any(_is_sum_of_rest(call, own, made) for call in calls)


def _is_in(node: ast.AST, other: ast.AST) -> bool:
    return any(part is node for part in ast.walk(other))


def asks_again(source: Depends, statement: ast.stmt, loop: _Round) -> bool:
    """Whether a statement asks in each round for the same: no round changes what it is asked of, or calls what might."""
    body = _body(loop)
    nodes = [node for part in body for node in ast.walk(part)]
    if any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) for node in nodes):
        return False
    if not all(_leaves(source, node) for node in nodes if isinstance(node, ast.Call)):
        return False
    inside = {id(node) for node in nodes}
    stored = _stored(body) | _own(loop)
    if hasattr(statement, "body"):
        return False  # its head does not
    asked = (_asked(node) for node in ast.walk(statement) if id(node) in inside and isinstance(node, ast.Call))
    return any(of is not None and _stays(source, of, loop, stored) for of in asked)


def _own(loop: _Round) -> set[str]:
    """The names by which a loop counts."""
    targets = [loop.target] if isinstance(loop, ast.For) else [part.target for part in getattr(loop, "generators", ())]
    return {name for target in targets for name in _names(target)}


def _body(loop: _Round) -> Sequence[ast.AST]:
    """What each round does."""
    if isinstance(loop, ast.For | ast.While):
        return loop.body
    inner = [part.iter for part in loop.generators[1:]] + [test for part in loop.generators for test in part.ifs]
    return [loop.key, loop.value, *inner] if isinstance(loop, ast.DictComp) else [loop.elt, *inner]


def _names(part: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}


def _stored(parts: Iterable[ast.AST]) -> set[str]:
    return {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_sum_of_rest(call: ast.Call, own: set[str], made: set[str]) -> bool:
    """Whether a sum goes through rows that begin, or end, with the loop's own one, and has nothing else of the round."""
    func, given = call.func, call.args[:1]
    is_library = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and bool(given)
    of = given[0] if given and (is_library or isinstance(func, ast.Name)) else func.value if isinstance(func, ast.Attribute) else None
    while isinstance(of, ast.Call) and _JOINS.match(called(of)) and of.args:
        of = of.args[0]
    if of is None or called(call) not in _SUMS:
        return False
    if not isinstance(of, ast.GeneratorExp | ast.ListComp):
        return _is_rest(of, own | made, own)
    head = of.generators[0]
    return len(of.generators) == 1 and _goes_through_rest(head.target, head.iter, [of.elt, *head.ifs], own, own | made)


def _is_rest(part: ast.expr, of_round: set[str], own: set[str]) -> bool:
    """Whether it is ``rows[i:]`` or ``rows[:i]``, of rows that are not the round's own."""
    if not isinstance(part, ast.Subscript) or not isinstance(part.slice, ast.Slice) or part.slice.step is not None:
        return False
    bounds = [bound for bound in (part.slice.lower, part.slice.upper) if bound is not None]
    return len(bounds) == 1 and bool(_names(bounds[0]) & own) and not _names(part.value) & of_round


def _goes_through_rest(target: ast.expr, head: ast.expr, work: Sequence[ast.AST], own: set[str], of_round: set[str]) -> bool:
    """Whether rows from the round's own one on, or up to it, are gone through, and the work on each is the same in other rounds."""
    if isinstance(head, ast.Call) and called(head) in ("enumerate", "reversed") and head.args:
        is_rest = _is_rest(head.args[0], of_round, own)
        places = _names(target.elts[0]) if called(head) == "enumerate" and isinstance(target, ast.Tuple) else set[str]()
    else:
        is_rest, places = _is_rest(head, of_round, own) or _counts_from(head, own), set[str]()
    rows = _names(target)
    return is_rest and _has_none_of(work, (of_round - rows) | places, rows)


def _counts_from(head: ast.expr, own: set[str]) -> bool:
    """Whether it is ``range(i, n)`` or ``range(i)``."""
    if not isinstance(head, ast.Call) or called(head) != "range" or not 1 <= len(head.args) <= 2:
        return False
    return sum(bool(_names(part) & own) for part in head.args) == 1


def _has_none_of(work: Sequence[ast.AST], of_round: set[str], rows: set[str]) -> bool:
    """Whether names of the round stand in exponents alone: ``gamma ** (k - t)`` is carried on by a product with gamma."""
    nodes = [node for part in work for node in ast.walk(part)]
    powers = [
        node for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _names(node.left) & (of_round | rows)
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
    return all(name not in _names(added) or _is_factor(added, name) for name in sums)


def _is_factor(added: ast.expr, name: str) -> bool:
    """Whether a name stands in a product alone, once, or as an exponent."""
    if isinstance(added, ast.BinOp) and isinstance(added.op, ast.Mult):
        sides = (added.left, added.right), (added.right, added.left)
        return any(_is_factor(side, name) and name not in _names(other) for side, other in sides)
    if isinstance(added, ast.BinOp) and isinstance(added.op, ast.Pow):
        return name not in _names(added.left) and isinstance(added.right, ast.Name)
    return isinstance(added, ast.Name)


def _asked(call: ast.Call) -> ast.expr | None:
    """Return what a call goes through as a whole; None: it does not."""
    if isinstance(call.func, ast.Attribute):
        return call.func.value if _WALKS.match(call.func.attr) and not call.args else None
    return call.args[0] if called(call) in _COPIES and len(call.args) == 1 and not call.keywords else None


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
