"""A file that was parsed, with what its names, values and loops are: what all gatherers of facts share."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TypedDict

from sysperf.script.nodes import dotted, last_name
from sysperf.script.semantics.links import News
from sysperf.script.semantics.loops import Loops, Where
from sysperf.script.semantics.modules import Modules
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.outside import NO_MODULES, NOTHING
from sysperf.script.semantics.values import Values
from sysperf.script.source import Source
from sysperf.script.syntax import Tree
from sysperf.startup import lazy

MAX_TEXT = 60
_ON_TORCH = frozenset(("torch", "lightning", "pytorch_lightning", "accelerate", "transformers", "timm", "torchvision", "torch_geometric"))
_SIMULATORS = frozenset(("gym", "gymnasium", "pettingzoo", "envpool", "procgen", "supersuit", "dm_control", "isaacgym", "torchrl"))
_ACTED_IN = lazy(
    r"envs?|environments?|(next_)?(obs|observations?)|next_states?|dones?|terminated|truncated|episodes?|rollouts?|replay_buffer"
)
"""What a file names beside rewards and actions where an agent acts."""
OPEN = "…"
"""Stands for an argument that is no constant."""


class SiteFields(TypedDict):
    """The fields that every record of a place has, as a `facts.Site`."""

    line: int
    column: int
    end_line: int
    end_column: int
    function: str
    often: str
    guarded: bool


class File:
    """One file, parsed."""

    def __init__(self, source: Source, modules: Modules = NO_MODULES, news: News = NOTHING) -> None:
        """Parse. `modules` are the files that are linted together, and `news` what these say. Raises Unreadable."""
        self.source = source
        self.tree = Tree(source.text)
        self.names = Names(self.tree, source.path, modules, news)
        self.values = Values(self.tree, self.names)
        self.loops = Loops(self.tree, self.names, self.values)

    def site(self, node: ast.expr | ast.stmt, where: Where | None = None) -> SiteFields:
        """The fields that every record of a place has."""
        where = where or self.loops.where(node)
        line, column = self.source.place(self.source.offset(node.lineno, node.col_offset))
        end_line, end_column = self.source.place(self.source.offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset))
        return {
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "function": self.function_name(node),
            "often": where.often,
            "guarded": where.guarded,
        }

    def function_name(self, node: ast.AST) -> str:
        """The function around a node, with the classes and functions around that."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return ".".join(reversed([parent.name for parent in self.tree.ancestors(node) if isinstance(parent, kinds)]))

    def text(self, node: ast.expr | None) -> str:
        """An argument as text: a constant, or what a dotted name was imported from."""
        if node is None:
            return ""
        if isinstance(node, ast.Constant) and node.value is None:
            return "None"
        value = self.names.constant(node)
        if isinstance(value, str | int | float | bool):
            return str(value)[:MAX_TEXT]
        if isinstance(node, ast.Call) and self.names.qualified(node.func) == "torch.device" and node.args:
            return self.text(node.args[0])
        name = self.names.qualified(node)
        return name[:MAX_TEXT] if name.startswith("torch.") or dotted(node) == name != "" else OPEN

    def keywords(self, call: ast.Call) -> dict[str, str] | None:
        """The keyword arguments as text; None where ``**keywords`` may give others that this file does not write."""
        spread = [self.names.spread(given.value) for given in call.keywords if given.arg is None]
        if None in spread:
            return None
        items = {name: value for given in spread for name, value in (given or {}).items()}
        items |= {given.arg: given.value for given in call.keywords if given.arg}
        return {name: self.text(value) for name, value in items.items()}

    @cached_property
    def uses_torch(self) -> bool:
        """Whether torch, or what stands on it, is imported, also by the star of another file."""
        starred = "*" in self.names.imports and "torch" in self.words
        return starred or bool({name.partition(".")[0] for name in self.names.imports.values()} & _ON_TORCH)

    @cached_property
    def simulates(self) -> bool:
        """Whether networks learn from an environment: by its import, or by rewards and actions of one whose states are seen."""
        imported = {name.partition(".")[0] for name in self.names.imports.values()}
        words = self.words | {node.arg for node in self.tree.of(ast.arg)}
        learns = bool(words & {"reward", "rewards"}) and bool(words & {"action", "actions", "policy"})
        return bool(imported & _SIMULATORS) or (learns and any(_ACTED_IN.fullmatch(word) for word in words))

    @cached_property
    def words(self) -> frozenset[str]:
        """All names and attributes that the file uses."""
        return self.attributes | {node.id for node in self.tree.of(ast.Name)}

    @cached_property
    def attributes(self) -> frozenset[str]:
        """All attributes that the file uses."""
        return frozenset(node.attr for node in self.tree.of(ast.Attribute))

    @cached_property
    def closures(self) -> frozenset[str]:
        """The functions that an optimizer is given, which calls them: ``optimizer.step(closure)``."""
        steps = (call for call in self.tree.of(ast.Call) if last_name(call.func) == "step")
        return frozenset(given.id for call in steps for given in call.args if isinstance(given, ast.Name))

    @cached_property
    def items(self) -> frozenset[tuple[ast.AST | None, str]]:
        """The names, with their functions, of whose items something is asked that a tensor is asked itself: ``targets[0].device``."""
        asked = (each for each in self.tree.of(ast.Attribute) if each.attr in ("device", "dtype", "is_cuda"))
        items = (each.value for each in asked if isinstance(each.value, ast.Subscript) and isinstance(each.value.slice, ast.Constant))
        return frozenset((self.tree.function_of(each), name) for each in items if (name := dotted(each.value)))
