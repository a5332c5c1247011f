"""Whether a value is data, which no gradient goes back to, and who in a file gets an object.

Both are answered from what is seen completely: a name or a function of which more may be true makes the answer no.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Set as AbstractSet

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import Definition, called
from sysperf.script.cures.depends import Depends
from sysperf.script.cures.unoptimized import without_gradients
from sysperf.script.nodes import argument, arguments, is_open, last_name, root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

_MAKES_DATA = lazy(r"^(?:rand\w*|normal|zeros\w*|ones\w*|full\w*|empty\w*|eye|arange|linspace|tensor|as_tensor|from_numpy|device|detach)$")
"""What they make has no graph, whatever they are given."""
_MOVES = lazy(r"^(?:to|cuda|cpu|float|half|double|long|contiguous|size|clone)$")
"""Methods of tensors whose arguments are places and types."""
_LOADERS = lazy(r"(?i)loader|dataset|^(?:data|dl|batches)$|_dl$")
_GOES_ON = frozenset(("enumerate", "zip", "tqdm", "trange", "iter", "islice", "range"))
_HIDDEN = ast.NamedExpr | ast.Lambda | ast.Await | ast.Yield | ast.YieldFrom | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
MAX_DEPTH = 12
MAX_NAMES = 24


class Data:
    """Answers of one file, in which some models learn."""

    def __init__(self, source: Depends, learned: AbstractSet[str]) -> None:
        self._source, self._learned = source, learned
        self._known: dict[tuple[ast.AST, str], bool] = {}

    def is_data(self, part: ast.AST, depth: int = 0) -> bool:
        """Whether an expression is made of data alone: of what loaders give, of random numbers, by functions of tensors."""
        if depth > MAX_DEPTH:
            return False
        if isinstance(part, ast.Name):
            return self._is_name_of_data(part, depth)
        if isinstance(part, ast.Call):
            return self._is_call_for_data(part, depth)
        if isinstance(part, _HIDDEN):
            return False
        return all(
            self.is_data(one, depth + 1) for one in ast.iter_child_nodes(part) if not isinstance(one, ast.expr_context | ast.operator)
        )

    def _is_call_for_data(self, call: ast.Call, depth: int) -> bool:
        if _MAKES_DATA.match(called(call)) and not (isinstance(call.func, ast.Name) and call.func.id in self._source.functions):
            return True
        if isinstance(call.func, ast.Attribute) and is_tensor_method(call.func.attr) and not _is_module(self._source, call.func):
            given = [] if _MOVES.match(call.func.attr) else arguments(call)
            return all(self.is_data(one, depth + 1) for one in (call.func.value, *given))
        return is_computing(self._source, call) and all(self.is_data(one, depth + 1) for one in arguments(call))

    def _is_name_of_data(self, name: ast.Name, depth: int) -> bool:
        several = self._source.definitions(name)
        if not several or name.id in self._learned:
            return False
        key = (self._source.scope_of(several[0].node), name.id)
        if key not in self._known:
            self._known[key] = True  # x = x.to(device)
            moved = (isinstance(node, ast.Call) and _MOVES.match(called(node)) for node in self._source.changed(name.id))
            self._known[key] = all(moved) and all(self._is_given_data(one, depth + 1) for one in several)
        return self._known[key]

    def _is_given_data(self, one: Definition, depth: int) -> bool:
        if isinstance(one.node, ast.arg):
            return self._is_argument_of_data(one.node, depth)
        if isinstance(one.node, ast.For) and one.value is not None:
            return self._goes_through_data(one.value, depth)
        return isinstance(one.node, ast.Assign | ast.AugAssign | ast.AnnAssign) and one.value is not None and self.is_data(one.value, depth)

    def _goes_through_data(self, part: ast.expr, depth: int) -> bool:
        """Whether a loop goes through a loader, by its name, or through numbers."""
        if isinstance(part, ast.Call) and called(part) == "range":
            return True
        if isinstance(part, ast.Call) and called(part) in _GOES_ON:
            return bool(part.args) and all(self._goes_through_data(one, depth) for one in part.args)
        root = root_of(part)
        if not isinstance(part, ast.Name | ast.Attribute) or not isinstance(root, ast.Name) or root.id in self._learned:
            return False
        several = self._source.definitions(part) if isinstance(part, ast.Name) else ()
        return _LOADERS.search(last_name(part)) is not None and all(self._is_loader(one, depth + 1) for one in several)

    def _is_loader(self, one: Definition, depth: int) -> bool:
        if isinstance(one.node, ast.arg):
            given = self._given_for(one.node)
            return depth <= MAX_DEPTH and given is not None and all(self._goes_through_data(part, depth) for part in given)
        return isinstance(one.value, ast.Call) and _LOADERS.search(called(one.value)) is not None

    def _is_argument_of_data(self, one: ast.arg, depth: int) -> bool:
        given = self._given_for(one)
        return bool(given) and all(self.is_data(part, depth + 1) for part in given or ())

    def _given_for(self, one: ast.arg) -> list[ast.expr] | None:
        """What the calls of its function give for an argument; None: nobody knows."""
        function = self._source.tree.function_of(one)
        if function is None:
            return None
        taken = [each.arg for each in function.args.args]
        taken = taken[taken[:1] == ["self"] :]
        is_method = self._source.tree.class_of(function) is not None
        named = (call for call in self._source.calls.get(function.name, ()) if isinstance(call.func, ast.Attribute) == is_method)
        calls = [call for call in named if not without_gradients(call, self._source.tree)]
        if one.arg not in taken or any(map(is_open, calls)):
            return None
        given = [argument(call, one.arg, taken.index(one.arg)) for call in calls]
        return [part for part in given if part is not None] if None not in given else None


def is_tensor_method(name: str) -> bool:
    """Whether a method of a tensor gives another one, and changes nothing."""
    return needless.is_pure(name) or _MOVES.match(name) is not None


def is_computing(source: Depends, call: ast.Call) -> bool:
    """Whether a function of a library is called that computes: none that makes layers or takes one."""
    return _is_module(source, call.func) and not called(call)[:1].isupper() and not needless.changes(called(call))


def _is_module(source: Depends, func: ast.expr) -> bool:
    root = root_of(func)
    return isinstance(func, ast.Attribute) and isinstance(root, ast.Name) and root.id in source.modules and not source.definitions(root)


def names_of(
    source: Depends, names: AbstractSet[str], allowed: AbstractSet[str], wrappers: re.Pattern[str] | None = None
) -> set[str] | None:
    """All names by which a file has some objects, or objects that keep one; None: somebody else may get them, or a part of them.

    They are called, methods and attributes of them that are allowed are used, and functions and classes of the file get them.
    """
    found, waiting = set(names), sorted(names)
    while waiting:
        name = waiting.pop()
        for use in (*source.names.get(name, ()), *(node for node in source.tree.of(ast.Attribute) if node.attr == name)):
            further = _gets(source, use, found | allowed, wrappers)
            if further is None or len(found) > MAX_NAMES:
                return None
            waiting += further - found
            found |= further
    return found


def _gets(source: Depends, use: ast.expr, allowed: AbstractSet[str], wrappers: re.Pattern[str] | None) -> set[str] | None:  # noqa: PLR0911 - one answer for each use
    """The names that get an object by a use of it; None: nobody knows."""
    if not isinstance(use.ctx, ast.Load):  # type: ignore[attr-defined]
        return _keeper(source, use) if _is_made_or_handed_on(source, use, allowed) else None
    parent = source.tree.parents[use]
    if isinstance(parent, ast.Attribute):
        return set() if parent.attr in allowed else None
    if isinstance(parent, ast.Call) and parent.func is use:
        return set()
    assign = source.tree.parents.get(parent) if isinstance(parent, ast.Tuple) else parent
    if isinstance(assign, ast.Assign):
        targets = [to for to, value in source.given_to(assign).items() if value is use and isinstance(to, ast.Name | ast.Attribute)]
        own = [to for to in targets if not isinstance(source.tree.parents[to], ast.Attribute)]
        return {last_name(to) for to in own} if own else None
    call = source.tree.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or use not in arguments(call):
        return None
    if wrappers is not None and wrappers.search(called(call)):
        return set()
    return _taken(source, call, use)


def _is_made_or_handed_on(source: Depends, store: ast.expr, names: AbstractSet[str]) -> bool:
    """Whether a name or an attribute is given something new, or what has one of the names."""
    statement = source.tree.statement_of(store)
    value = source.given_to(statement).get(store) if isinstance(statement, ast.Assign) else None
    return isinstance(value, ast.Call | ast.Constant) or (value is not None and last_name(value) in names)


def _keeper(source: Depends, store: ast.expr) -> set[str] | None:
    """The names of the objects of a class that keeps something as an attribute of its own."""
    if isinstance(store, ast.Name):
        return set()
    owner = source.tree.class_of(store)
    if not isinstance(store, ast.Attribute) or not isinstance(store.value, ast.Name) or store.value.id != "self" or owner is None:
        return None
    found = set[str]()
    if owner.bases and not source.calls.get(owner.name):
        return None  # it is a part of what another file makes
    for made in source.calls.get(owner.name, ()):
        statement = source.tree.statement_of(made)
        if isinstance(statement, ast.Expr) and statement.value is made:
            continue
        if not isinstance(statement, ast.Assign) or statement.value is not made or not all(map(last_name, statement.targets)):
            return None
        found |= {last_name(target) for target in statement.targets}
    derived = any(last_name(base) == owner.name for one in source.classes.values() for base in one.bases)
    return None if derived else found


def _taken(source: Depends, call: ast.Call, use: ast.expr) -> set[str] | None:
    """The name by which a class or a function of the file takes an argument."""
    owner = source.classes.get(called(call))
    makers = [part for part in owner.body if isinstance(part, Function) and part.name == "__init__"] if owner is not None else []
    function = makers[0] if makers else None if owner is not None else source.functions.get(called(call))
    if function is None or is_open(call):
        return None
    taken = [one.arg for one in function.args.args]
    taken = taken[bool(makers) or taken[:1] == ["self"] :]
    if use in call.args:
        place = call.args.index(use)
        return {taken[place]} if place < len(taken) else None
    return {word.arg for word in call.keywords if word.value is use and word.arg} or None
