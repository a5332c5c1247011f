"""Whether work has no part in the training that is beside it: it needs nothing that a model gave, or nothing of training needs it.

Both are seen in the graph of all of a file (`flows`). What is not seen there is no proof.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from sysperf.script.cures import flows
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import SIZES, Depends
from sysperf.script.cures.keys import LOSS, MODEL, SEED, WEIGHTS, Key
from sysperf.script.nodes import root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

MAKERS = ("__init__", "__post_init__", "__new__", "setup")
HIDES = frozenset(("setattr", "delattr", "exec", "eval"))
"""Built-in functions that change what no name shows."""
_INNER = frozenset(("__dict__", "__defaults__", "__kwdefaults__", "__code__", "__globals__", "__closure__"))
TABLES = frozenset(("vars", "globals", "locals"))
_COPIES = lazy(
    r"^(?:clone|detach|deepcopy|copy|state_dict|(?:named_)?(?:parameters|modules)|cpu|numpy|to|items|values|dict|list|tuple|zip|enumerate|requires_grad_)$"
)
_HARMLESS = frozenset(
    ("property", "staticmethod", "classmethod", "lru_cache", "cache", "no_grad", "inference_mode", "jit", "njit", "overload")
)
"""Decorators that bring nothing in."""


def hides(source: Depends, call: ast.Call) -> bool:
    """Whether a call may change what no name shows."""
    if not isinstance(call.func, ast.Name):
        return False
    return call.func.id in HIDES or (call.func.id in TABLES and not isinstance(source.tree.parents.get(call), ast.Call | ast.keyword))


def is_hidden(source: Depends) -> bool:
    """Whether a file may change what no name shows."""
    return any(hides(source, call) for call in source.tree.of(ast.Call)) or any(one.attr in _INNER for one in source.tree.of(ast.Attribute))


def needs_no_model(source: Depends, graph: flows.Flows, statement: ast.stmt, work: Sequence[ast.AST]) -> bool:
    """Whether nothing that work reads can have anything of a model, and whether it may be done by another process.

    That has copies of what the work keeps from step to step. So nobody else may change this, or read what the work changes.
    """
    if SEED in graph.of_models or any(not graph.keys_of(part).isdisjoint((MODEL, WEIGHTS)) for part in work):
        return False
    return not is_hidden(source) and _Work(source, graph, statement).is_apart(work)


def no_loss_needs(source: Depends, graph: flows.Flows, statement: ast.stmt) -> bool:
    """Whether what a statement computes of the weights is seen to go into no loss, and to nobody out of sight."""
    if not any(
        isinstance(node, ast.BinOp | ast.Compare) or (isinstance(node, ast.Call) and not _COPIES.match(called(node)))
        for node in ast.walk(statement)
    ):
        return False
    if isinstance(statement, ast.Return):
        made: set[Key] = {(source.scope_of(statement), "return")}
    else:
        made = {graph.key_of(node) for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return LOSS not in graph.reached(made, beyond_weights=False)


class _Work:
    """A statement, and the functions of its file that do its work."""

    def __init__(self, source: Depends, graph: flows.Flows, statement: ast.stmt) -> None:
        self.source, self.tree, self._graph = source, source.tree, graph
        self._home = source.scope_of(statement)
        self._functions: list[Function] = []
        self._nodes: list[ast.AST] = []

    def is_apart(self, work: Sequence[ast.AST]) -> bool:
        for part in work:
            self._take(part)
        for function in self._functions:  # it grows meanwhile
            given = (one for one in (*function.args.defaults, *function.args.kw_defaults) if one is not None)
            for part in (*function.body, *given, *filter(self._brings, function.decorator_list)):
                self._take(part)
        return all(self._is_apart(node) for node in self._nodes)

    def _take(self, part: ast.AST) -> None:
        waiting = [part]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Attribute) and node.attr in SIZES:
                continue  # it is known without the model
            self._nodes.append(node)
            waiting += ast.iter_child_nodes(node)
            self._functions += [one for one in self._called(node) if one not in self._functions]

    def _called(self, node: ast.AST) -> Sequence[Function]:
        """The functions that a node calls: by name, as a property, as an operator of an object."""
        if isinstance(node, ast.Attribute):
            return self._graph.named(node.attr)
        if not isinstance(node, ast.Name):
            return ()
        found = list(self._graph.named(node.id)) if not self.source.definitions(node) else []
        makers = {
            called(part)
            for one in self.source.definitions(node)
            if one.value is not None
            for part in ast.walk(one.value)
            if isinstance(part, ast.Call)
        }
        for made in (self.source.classes[name] for name in {*makers, node.id} & self.source.classes.keys()):
            found += [part for part in made.body if isinstance(part, Function) and part.name.startswith("__")]
        return found

    def _brings(self, decorator: ast.expr) -> bool:
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        return name not in _HARMLESS

    def _is_apart(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return self._is_apart_name(node)
        if isinstance(node, ast.Attribute):
            return self._is_apart_attribute(node)
        if isinstance(node, ast.Call):
            return self._is_apart_call(node)
        return not isinstance(node, ast.Global | ast.Nonlocal)

    def _is_apart_name(self, name: ast.Name) -> bool:
        key = self._graph.key_of(name)
        if key[0] in self._functions and key[0] is not self._home:
            return True  # its arguments are those of the calls, which `depends` has followed
        if not isinstance(name.ctx, ast.Load):
            return True
        if key in self._graph.of_models or self.source.is_model(name):
            return False
        if self.source.scope_of(name) is self._home:
            return True
        return all(self._is_early(one.node) for one in self.source.definitions(name))

    def _is_early(self, node: ast.AST) -> bool:
        """Whether a place is no part of a loop, or one of the work itself or of a constructor."""
        function = self.tree.function_of(node)
        return (
            self._is_ours(function)
            if function is not None
            else self.source.loop_of(node) is None and not isinstance(node, ast.For | ast.While)
        )

    def _is_ours(self, function: Function | None) -> bool:
        return function is not None and (function in self._functions or function.name in MAKERS)

    def _is_apart_attribute(self, part: ast.Attribute) -> bool:
        key = f".{part.attr}"
        if not isinstance(part.ctx, ast.Load):
            function = self.tree.function_of(part)
            others = (other for other in self._graph.reads(part.attr) if isinstance(other.ctx, ast.Load))
            return function is self._home or all(self._is_ours(self.tree.function_of(other)) for other in others)
        if self._graph.attribute(part) in self._graph.of_models:
            return False
        parent = self.tree.parents.get(part)
        if isinstance(parent, ast.Call) and parent.func is part:
            return True
        return all(self._is_early(node) for node in self.source.changed(key))

    def _is_apart_call(self, call: ast.Call) -> bool:
        """A function of another file is known by what this file gives it: it may keep a model."""
        root = root_of(call.func)
        if not isinstance(root, ast.Name) or root.id not in self.source.foreign or self.source.definitions(root):
            return True
        return root.id not in self._graph.given_models
