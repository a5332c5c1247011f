"""Functions in which something would be said, were they known to run often: only these are worth being looked at again."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from sysperf.script.facts import Script
from sysperf.script.file import File
from sysperf.script.nodes import last_name
from sysperf.script.semantics.kinds import AS_NUMBERS, LOADERS
from sysperf.script.syntax import Function, Tree

WORD, RELAY, FACT, FORWARD = 1, 2, 3, 4
"""What stands in a function: a word that tells something of a tensor, a call of another file, a fact, a fact of a forward pass."""
MAKERS = frozenset(name.rpartition(".")[2] for name in LOADERS)
_WORDS = frozenset(
    (
        "item",
        "cpu",
        "numpy",
        "tolist",
        "type",
        "float",
        "int",
        "bool",
        "print",
        "format",
        "isnan",
        "isinf",
        "isfinite",
        "any",
        "all",
        "append",
    )
)
_OF_MATH = frozenset(name.rpartition(".")[2] for name in AS_NUMBERS)
_OF_FORWARD = ("torch.tensor", "torch.nonzero", ".nonzero", "torch.masked_select", ".masked_select", "torch.unique", "torch.argwhere")


def waiting(file: File, script: Script | None, relays: Iterable[int]) -> dict[str, int]:
    """The functions that others can call, by the most that stands in them; `relays` are lines with calls of other files.

    Where no facts are given, calls of other files are all that matters.
    """
    functions = {name: function for function in file.tree.functions if (name := file.names.outside.name_of(function))}
    own = (*_facts(script), *_words(file)) if script is not None else ()
    facts = (*own, *((line, RELAY) for line in relays))
    found = by_function(file.tree, functions, facts)
    return {name: what for name, what in found.items() if file.loops.of_function(functions[name]).often not in ("step", "evaluation")}


def by_function(tree: Tree, functions: Mapping[str, Function], facts: Iterable[tuple[int, int]]) -> dict[str, int]:
    """The most that stands on the lines of each function, or of those of its file that it calls, by however many others."""
    spans = sorted((function.lineno, function.end_lineno or function.lineno, name) for name, function in functions.items())
    starts = [start for start, _, _ in spans]

    def around(line: int) -> str:
        start, end, name = spans[max(0, bisect_right(starts, line) - 1)]
        return name if start <= line <= end else ""

    found: dict[str, int] = {}
    for line, what in facts if spans else ():
        found[around(line)] = max(found.get(around(line), 0), what)
    found.pop("", None)
    callers: dict[str, set[str]] = {name.rpartition(".")[2]: set() for name in functions}
    for call in tree.of(ast.Call) if found else ():
        if (called := last_name(call.func)) in callers and (caller := around(call.lineno)):
            callers[called].add(caller)
    reached = [*found]
    while reached:
        name = reached.pop()
        more = [caller for caller in callers[name.rpartition(".")[2]] if found.get(caller, 0) < found[name]]
        found |= dict.fromkeys(more, found[name])
        reached += more
    return found


def _facts(script: Script) -> Iterator[tuple[int, int]]:
    """The lines of facts that are not known to be of a step."""
    often = ("step", "evaluation", "forward")
    for copy in script.transfers or ():
        if copy.often not in often and copy.line is not None:
            yield copy.line, FORWARD if copy.of == "factory" else FACT
    for call in script.calls or ():
        if call.often not in often and call.line is not None:
            yield call.line, FORWARD if call.what in _OF_FORWARD else FACT
    for pattern in script.patterns or ():
        if pattern.often not in often and pattern.line is not None:
            yield pattern.line, FORWARD
    for place in (*(script.syncs or ()), *(script.loaders or ())):
        if place.line is not None:
            yield place.line, FACT


def _words(file: File) -> Iterator[tuple[int, int]]:
    """The lines with words that say something where a value is a tensor."""
    calls = ((call, last_name(call.func)) for call in file.tree.of(ast.Call))
    yield from ((call.lineno, WORD) for call, name in calls if name in _WORDS or (name in _OF_MATH and _is_math(file, call)))
    yield from ((index.lineno, WORD) for index in file.tree.of(ast.Subscript) if isinstance(index.slice, ast.Compare))
    yield from ((test.lineno, WORD) for test in file.tree.of(ast.Compare) if isinstance(test.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE))
    yield from ((shown.lineno, WORD) for shown in file.tree.of(ast.FormattedValue))


def _is_math(file: File, call: ast.Call) -> bool:
    return file.names.qualified(call.func) in AS_NUMBERS
