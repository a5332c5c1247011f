"""Parsing: a source text becomes a tree whose nodes know their parents, or the reason why it cannot.

The standard library's `ast`, not libcst: on 100,000 lines of PyTorch's own code it takes 1.5 s and 245 MB, libcst with positions 40 s and
1.07 GB (benchmarks/lint.py). Nothing is lost by it, because fixes are edits at positions, and leave every other byte as it is.
"""

from __future__ import annotations

import ast
import functools
import sys
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from sysperf.script.source import Unreadable

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
MAX_NODES = 4_000_000
"""About ten times what a file of 100,000 lines has: a tree of that size takes 2.5 GB."""

_WITHOUT_PLACE = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
"""Nodes that `ast` shares between all places that use them."""


def parse(text: str) -> ast.Module:
    """The tree of a text. Raises Unreadable with the line of a mistake."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of doubtful escapes in strings: the script's own matter
            return ast.parse(text)
    except SyntaxError as error:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Unreadable(f"not Python {version}: {error.msg}", error.lineno or 0) from None
    except (RecursionError, MemoryError):
        raise Unreadable("nested too deeply to be parsed") from None
    except (ValueError, OverflowError) as error:  # a number of more than 4,300 digits, a lone surrogate
        raise Unreadable(f"cannot be parsed: {error}") from None


class Tree:
    """The nodes of a module in the order of the text, each with its parent."""

    def __init__(self, text: str) -> None:
        """Parse. Raises Unreadable."""
        self.module = parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: dict[type[ast.AST], list[ast.AST]] = {}
        self._functions: dict[ast.AST, Function | None] = {}
        self._walk()

    def _walk(self) -> None:
        """A stack of our own: a long chain of operators is deeper than Python's."""
        waiting: list[ast.AST] = [self.module]
        while waiting:
            node = waiting.pop()
            self.nodes.setdefault(type(node), []).append(node)
            children = [child for child in children_of(node) if not isinstance(child, _WITHOUT_PLACE)]
            for child in children:
                self.parents[child] = node
            if len(self.parents) > MAX_NODES:
                raise Unreadable(f"more than {MAX_NODES:,} parts")
            waiting.extend(reversed(children))

    def of(self, *types: type[Node]) -> Iterator[Node]:
        """All nodes of these types; in the order of the text for one type."""
        for type_ in types:
            yield from self.nodes.get(type_, [])  # type: ignore[misc]

    @cached_property
    def loops(self) -> list[Loop]:
        """All loops that are statements."""
        return [*self.of(ast.For), *self.of(ast.AsyncFor), *self.of(ast.While)]

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods."""
        return [*self.of(ast.FunctionDef), *self.of(ast.AsyncFunctionDef)]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The parents of a node, from the nearest to the module."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def function_of(self, node: ast.AST) -> Function | None:
        """The function whose body holds a node."""
        if node not in self._functions:
            parents = (parent for parent in self.ancestors(node) if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef))
            self._functions[node] = next(parents, None)
        return self._functions[node]

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose body holds a node."""
        return next((parent for parent in self.ancestors(node) if isinstance(parent, ast.ClassDef)), None)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def place_of(self, statement: ast.stmt) -> tuple[list[ast.stmt], int]:
        """The block that holds a statement, and its place there."""
        return self._places[statement]

    @cached_property
    def _places(self) -> dict[ast.stmt, tuple[list[ast.stmt], int]]:
        """Find the place of each statement once: a block may have 60,000."""
        blocks = (getattr(node, name, ()) for node in (self.module, *self.parents) for name in ("body", "orelse", "finalbody"))
        return {statement: (block, place) for block in blocks if isinstance(block, list) for place, statement in enumerate(block)}


@functools.lru_cache(maxsize=4)
def asked_again(text: str) -> Tree | None:
    """The tree of a text about which several things are asked; None where it is unreadable."""
    try:
        return Tree(text)
    except Unreadable:
        return None


def is_bound(function: Function) -> bool:
    """Whether what is called has its first argument already: a method of an object or of a class."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    return bool(arguments) and arguments[0].arg in ("self", "cls")


def children_of(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.AST))


def within(node: ast.AST, *, functions: bool = False) -> Iterator[ast.AST]:
    """A node and all parts of it; those of functions that are defined in it only with `functions`."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        if functions or part is node or not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting.extend(reversed([*children_of(part)]))
