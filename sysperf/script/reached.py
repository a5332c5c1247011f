"""Which functions of a program's files run, given those that were seen running: what they name runs, and what that names.

A file may hold functions that this run never calls, and a place in them says nothing about it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sysperf.script.source import Unreadable
from sysperf.script.syntax import Function, parse

MODULE = "<module>"
MAX_CHARS = 1 << 20
"""Of a longer file, everything counts as running: parsing it takes longer than it is worth."""


_LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class SeenFile(NamedTuple):
    """A file of a program, and the functions of it that were on a stack, by their names without a class."""

    text: str
    functions: frozenset[str]
    module: bool = False
    """Its top level was seen as the innermost of the program's calls: a script without functions, or between them."""


def reached(files: Sequence[SeenFile]) -> list[frozenset[str] | None]:
    """Return, by file, the names of its functions and classes at the top level that run; None where that is unknown."""
    parsed = [_definitions(file.text) for file in files]
    known = [(file, names) for file, names in zip(files, parsed, strict=True) if names is not None]
    pending = [name for file, names in known for name in _seen(file, names)]
    running: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in running:
            running.add(name)
            pending += [other for _, names in known for other in names.get(name, (set(), set()))[1]]
    return [None if names is None else frozenset(running & set(names)) for names in parsed]


def loops(text: str) -> list[range]:
    """Return the lines of each loop and comprehension of a file; none of one that cannot be parsed."""
    try:
        module = parse(text) if len(text) <= MAX_CHARS else None
    except Unreadable:
        module = None
    nodes = ast.walk(module) if module is not None else ()
    return [range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in nodes if isinstance(node, _LOOPS)]


Names = dict[str, tuple[set[str], set[str]]]
"""By the name at the top level: functions that are defined within it, and all names that it uses."""


def _definitions(text: str) -> Names | None:
    if len(text) > MAX_CHARS:
        return None
    try:
        module = parse(text)
    except Unreadable:
        return None
    definitions: Names = {MODULE: (set(), set())}
    for node in module.body:
        name = node.name if isinstance(node, Function | ast.ClassDef) else MODULE
        inside, used = definitions.setdefault(name, (set(), set()))
        _collect(node, inside, used)
    return definitions


def _collect(node: ast.AST, inside: set[str], used: set[str]) -> None:
    for part in ast.walk(node):
        if isinstance(part, Function):
            inside.add(part.name)
        elif isinstance(part, ast.Name):
            used.add(part.id)
        elif isinstance(part, ast.Attribute):
            used.add(part.attr)


def _seen(file: SeenFile, names: Names) -> Iterable[str]:
    """The names at the top level within which a function was seen; the top level itself where that was seen alone."""
    seen = [name for name, (inside, _) in names.items() if name != MODULE and inside & file.functions]
    return [*seen, MODULE] if file.module or not seen else seen
