"""Whether only reports read what a statement keeps: a meter that counts in each step, a list that is printed when an epoch ends.

`needless` follows the names of one function. What is kept in attributes, containers and names of the file is followed here, in its graph.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from sysperf.script.cures import flows, needless
from sysperf.script.cures.apart import is_hidden
from sysperf.script.cures.definitions import LEARNED, OF_WEIGHTS, called
from sysperf.script.cures.depends import RANDOM, Depends
from sysperf.script.cures.keys import COMBINES, LOSS, Key
from sysperf.script.nodes import arguments, dotted, root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

_FILLS = lazy(
    r"^(?:append|appendleft|extend|add|update|insert|setdefault|pop|popleft|popitem|clear|remove|discard|sort|reverse|fill|\w+_)$"
)
"""Methods of containers and tensors that change nothing but these."""
_OVERRIDES = ("__setattr__", "__setitem__", "__getattr__", "__getattribute__", "__set__", "__get__", "__iadd__")
"""Methods by which keeping something may do more."""
_READS = frozenset((*LEARNED, *OF_WEIGHTS, "data", "grad", "requires_grad"))
"""Attributes by which a statement has something of weights: an average of them may be the model that is wanted."""
_NUMBERS = frozenset(("item", "tolist", "float", "int", "len", "bool", "str", "round"))
_GIVES = frozenset(("get", "values", "items", "copy"))
"""Methods that change nothing, and give what a container holds."""
_Assigned = ast.Assign | ast.AugAssign | ast.AnnAssign
_Stopping = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete, ast.Raise, ast.Assert, ast.Try)


def read_by_reports_alone(source: Depends, graph: flows.Flows, statement: ast.stmt) -> bool:
    """Whether a statement does nothing but keep something, of which prints and logs read all that is read."""
    kept = _Kept(source, graph, statement).keys()
    if is_hidden(source) or any(map(graph.named, _OVERRIDES)):
        return False
    reached = graph.reached(kept)
    if LOSS in reached or any(source.names_model(key[1]) for key in reached):
        return False
    if not any(needless.only_tells(call) and _has(graph, arguments(call), reached) for call in source.tree.of(ast.Call)):
        return False
    deciding = source.tree.of(ast.If, ast.While, ast.For, ast.Assert, ast.Match, ast.Call, ast.BoolOp, ast.IfExp)
    if any(_decides(source, graph, node, reached) for node in deciding) or _is_shared(source, graph, reached):
        return False
    stores = (node for node in source.tree.of(ast.Attribute) if isinstance(node.ctx, ast.Store) and graph.attribute(node) in reached)
    return all(_is_of_plain_object(source, node) for node in stores)


def _is_of_plain_object(source: Depends, store: ast.Attribute) -> bool:
    """Whether an attribute is given a value of which nobody out of sight knows: of an object whose class stands here, and has no other."""
    owner = source.tree.class_of(store) if dotted(store.value) == "self" else None
    return owner is not None and _is_plain(source, owner)


def _is_plain(source: Depends, made: ast.ClassDef) -> bool:
    names = {dotted(base) for base in made.bases} - {"object"}
    return all(name in source.classes and _is_plain(source, source.classes[name]) for name in names)


def _is_shared(source: Depends, graph: flows.Flows, reached: set[Key]) -> bool:
    """Whether what was kept is given to code of another file, or lies in a container of one."""
    stored = (part for part in source.tree.of(ast.Subscript) if isinstance(part.ctx, ast.Store))
    return any(_is_handed_out(source, graph, call, reached) for call in source.tree.of(ast.Call)) or any(
        _is_of_others(source, part) and not graph.keys_of(part.value).isdisjoint(reached) for part in stored
    )


def _is_handed_out(source: Depends, graph: flows.Flows, call: ast.Call, reached: set[Key]) -> bool:
    """Whether a function or a class out of sight is given what was kept, wherever its result goes."""
    root, name = root_of(call.func), called(call)
    if not isinstance(root, ast.Name) or source.definitions(root) or root.id in source.modules or needless.only_tells(call):
        return False
    is_known = name in needless.BUILTINS or name in source.classes or graph.named(name)
    return not (isinstance(call.func, ast.Name) and is_known) and _has(graph, arguments(call), reached)


def _is_of_others(source: Depends, part: ast.Subscript) -> bool:
    """Whether a container comes from another file, or is made by a function of one: who else reads it is not seen."""
    root = root_of(part)
    if not isinstance(root, ast.Name):
        return False
    made = [root_of(one.value.func) for one in source.definitions(root) if isinstance(one.value, ast.Call)]
    names = {each.id for each in (made if source.definitions(root) else [root]) if isinstance(each, ast.Name)}
    return not names.isdisjoint(source.foreign)


def _has(graph: flows.Flows, parts: Iterable[ast.AST], reached: set[Key]) -> bool:
    return any(not graph.keys_of(part).isdisjoint(reached) for part in parts)


def _decides(source: Depends, graph: flows.Flows, node: ast.AST, reached: set[Key]) -> bool:
    """Whether a place does more with what was kept than to make values of it, or to report it."""
    if isinstance(node, ast.Call):  # a model that was kept, or whatever else is called
        return isinstance(node.func, ast.Name) and graph.key_of(node.func) in reached
    if isinstance(node, ast.BoolOp | ast.IfExp):
        return _has(graph, [node], reached) and not _only_computes(source, graph, node)
    if isinstance(node, ast.If | ast.For):
        decides = _has(graph, [node.test if isinstance(node, ast.If) else node.iter], reached)
        return decides and not all(_only_tells(source, graph, part) for part in (*node.body, *node.orelse))
    return _has(graph, [node.subject if isinstance(node, ast.Match) else node.test], reached)  # type: ignore[attr-defined]


def _only_computes(source: Depends, graph: flows.Flows, node: ast.AST) -> bool:
    """Whether all that is called computes, reports or fills containers, in the functions of the file that are called, too."""
    waiting, seen = [node], set[ast.AST]()
    while waiting:
        for call in (part for part in ast.walk(waiting.pop()) if isinstance(part, ast.Call)):
            name, root = called(call), root_of(call.func)
            own = [function for function in graph.named(name) if function not in seen]
            seen.update(own)
            waiting += own
            if isinstance(root, ast.Name) and root.id in source.foreign:
                return False
            is_builtin = isinstance(call.func, ast.Name) and name in needless.BUILTINS
            is_library = isinstance(root, ast.Name) and root.id in source.modules and not needless.changes(name)
            if not (
                graph.named(name) or is_builtin or is_library or needless.is_pure(name) or needless.only_tells(call) or _FILLS.match(name)
            ):
                return False
    return True


def _only_tells(source: Depends, graph: flows.Flows, statement: ast.stmt) -> bool:
    """Whether a statement reports, or gives values, which the graph follows."""
    if isinstance(statement, ast.If | ast.For):
        return all(_only_tells(source, graph, part) for part in (*statement.body, *statement.orelse))
    if isinstance(statement, ast.Return):  # it ends a function: one that does nothing but make its value
        return isinstance(function := source.scope_of(statement), Function) and _only_computes(source, graph, function)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return needless.only_tells(statement.value) or _FILLS.match(called(statement.value)) is not None
    return isinstance(statement, _Assigned | ast.Pass)


class _Kept:
    """What a statement, and the functions of its file that it calls, keep beyond it."""

    def __init__(self, source: Depends, graph: flows.Flows, statement: ast.stmt) -> None:
        self.source, self._graph, self._statement = source, graph, statement
        self._functions: list[Function] = []
        self._found: set[Key] = set()
        self._values: list[ast.expr] = []
        """What is kept, where it is written down."""
        self._has_weights = False
        self._nodes = set(ast.walk(statement))
        self._uses: dict[Key, list[ast.Name]] = {}
        for name in source.tree.of(ast.Name):
            self._uses.setdefault(graph.key_of(name), []).append(name)

    def keys(self) -> set[Key]:
        """The names, attributes and containers in which it is; none where the statement does more, or nobody knows."""
        if not isinstance(self._statement, _Assigned | ast.Expr | ast.For):
            return set()
        if not all(map(self._takes, ast.walk(self._statement))):
            return set()
        for function in self._functions:  # it grows meanwhile
            if function.decorator_list or not all(self._takes(node) for part in function.body for node in ast.walk(part)):
                return set()
        return self._found if not self._has_weights or all(map(self._is_number, self._values)) else set()

    def _is_number(self, value: ast.expr) -> bool:
        """Whether a value is made of numbers: nobody can compute with it as with weights."""
        if isinstance(value, ast.Call):
            return called(value) in _NUMBERS
        if isinstance(value, ast.BinOp | ast.UnaryOp | ast.Tuple | ast.List | ast.Dict | ast.ListComp):
            return all(self._is_number(part) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr))
        return isinstance(value, ast.Constant | ast.JoinedStr)

    def _takes(self, node: ast.AST) -> bool:
        """Whether a node does nothing but compute, and keep."""
        if isinstance(node, (*_Stopping, Function, ast.ClassDef)):
            return False
        if isinstance(node, ast.Return):
            return self.source.scope_of(node) in self._functions
        if isinstance(node, ast.Name):
            return self._takes_name(node)
        if isinstance(node, ast.Attribute):
            return self._takes_attribute(node)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            self._keep(node.value)
        if isinstance(node, _Assigned) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self._values += [node.value for target in targets if not isinstance(target, ast.Name)]
        if isinstance(node, ast.With):
            return all(isinstance(item.context_expr, ast.Call) for item in node.items)
        return not isinstance(node, ast.Call) or self._takes_call(node)

    def _takes_name(self, name: ast.Name) -> bool:
        if isinstance(name.ctx, ast.Load):
            self._has_weights |= self.source.is_model(name)
            return True
        if not self._is_inner(name):
            key, parent = self._graph.key_of(name), self.source.tree.parents.get(name)
            self._found |= {key, (key, "in")} if isinstance(parent, ast.AugAssign) else {key}
        return True

    def _is_inner(self, name: ast.Name) -> bool:
        """Whether a name is one of the functions that are called, or of the statement alone."""
        key = self._graph.key_of(name)
        return key[0] in self._functions or all(one in self._nodes for one in self._uses.get(key, ()))

    def _takes_attribute(self, part: ast.Attribute) -> bool:
        if isinstance(part.ctx, ast.Store):
            self._found.add(self._graph.attribute(part))
        elif not (isinstance(parent := self.source.tree.parents.get(part), ast.Call) and parent.func is part):
            self._follow(self._graph.named(part.attr))  # a property
        self._has_weights |= part.attr in _READS
        return True

    def _keep(self, target: ast.AST) -> None:
        self._found |= self._graph.shared(target)

    def _follow(self, functions: Iterable[Function]) -> None:
        self._functions += [one for one in functions if one not in self._functions]

    def _takes_call(self, call: ast.Call) -> bool:
        func = call.func
        if isinstance(func, ast.Name):
            return needless.only_tells(call) or self._takes_function(func)
        return isinstance(func, ast.Attribute) and (needless.only_tells(call) or self._takes_method(call, func))

    def _takes_method(self, call: ast.Call, func: ast.Attribute) -> bool:
        name, root = func.attr, root_of(func)
        if isinstance(root, ast.Name) and not self.source.definitions(root) and root.id in self.source.modules:
            return self._takes_library(call)
        if (own := self._methods(func)) is not None:
            self._follow(own)
            return bool(own)
        if isinstance(root, ast.Name) and root.id in self.source.foreign:
            return False
        if self._graph.named(name) and not self._is_of_library(func.value):
            return False
        if needless.is_pure(name) or COMBINES.match(name):
            return True
        self._keep(func.value)
        self._values += arguments(call)
        return _FILLS.match(name) is not None

    def _takes_function(self, func: ast.Name) -> bool:
        if self.source.definitions(func):
            return False
        self._follow(own := self._graph.named(func.id))
        return bool(own) or func.id in needless.BUILTINS or (func.id in self.source.imported and not needless.changes(func.id))

    def _takes_library(self, call: ast.Call) -> bool:
        """Whether a function of a module that computes does nothing else, or nothing but change what it is given."""
        name = called(call)
        fills = isinstance(self.source.tree.parents.get(call), ast.Expr)
        written = call.args[:1] if fills else [word.value for word in call.keywords if word.arg == "out"]
        for part in written:
            self._keep(part)
        known = flows.FILLS_GIVEN.match(name) if fills else not needless.changes(name)
        return bool(known) and not RANDOM.search(ast.unparse(call.func))

    def _methods(self, func: ast.Attribute) -> Sequence[Function] | None:
        """The methods that are called of an object of a class of this file; None: it is of none, or nobody knows."""
        value = func.value
        if isinstance(value, ast.Name) and value.id == "self":
            owner = self.source.tree.class_of(func)
            owners = [owner] if owner is not None else []
        elif isinstance(value, ast.Name):
            owners = self._made_by([one.value for one in self.source.definitions(value)])
        elif isinstance(value, ast.Attribute):
            stores = [self.source.tree.parents.get(one) for one in self._graph.reads(value.attr) if isinstance(one.ctx, ast.Store)]
            owners = self._made_by([one.value if isinstance(one, ast.Assign | ast.AnnAssign) else None for one in stores])
        else:
            return None
        found = [part for owner in owners for part in owner.body if isinstance(part, Function) and part.name == func.attr]
        return found if owners and len(found) == len(owners) else [] if owners else None

    def _is_of_library(self, value: ast.expr) -> bool:
        """Whether an object is seen to be of no class of this file: a container, or what a module that computes has made."""
        if not isinstance(value, ast.Name):
            return isinstance(value, ast.Call) and needless.is_pure(called(value)) and called(value) not in _GIVES
        made = [one.value for one in self.source.definitions(value)]
        roots = [root_of(one.func) if isinstance(one, ast.Call) else None for one in made]
        return bool(made) and all(
            isinstance(one, ast.List | ast.Dict) or (isinstance(root, ast.Name) and root.id in self.source.modules)
            for one, root in zip(made, roots, strict=True)
        )

    def _made_by(self, values: Sequence[ast.expr | None]) -> list[ast.ClassDef]:
        """The classes of this file that made all of these; none where another one may have."""
        made = [
            self.source.classes.get(value.func.id) if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else None
            for value in values
        ]
        return [one for one in made if one is not None] if None not in made else []
