"""Whether a recurrent cell goes along a sequence that is there: no place of it is made of what the cell gave at one before."""

from __future__ import annotations

import ast

from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import Depends
from sysperf.script.cures.rounds import is_made_of
from sysperf.script.nodes import names_in
from sysperf.script.syntax import Loop
from sysperf.startup import lazy

_CELLS = lazy(r"\b(?:LSTM|GRU|RNN)Cell\(")
MIN_GIVEN = 2
"""A cell is given its input, and what it gave before."""
_ADDS = frozenset(("append", "appendleft", "extend", "insert", "add", "put", "push", "update"))
MAX_NODES = 1_200
"""Of a loop, which are followed."""


def along_a_sequence(source: Depends, statement: ast.stmt) -> bool:
    """Whether a statement calls such a cell in a loop of its own, so that nn.LSTM, nn.GRU or nn.RNN could take the whole sequence."""
    loop = source.loop_of(statement)
    if not isinstance(loop, ast.For) or not isinstance(statement, ast.Assign) or _learns(loop):
        return False
    calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call) and len(node.args) >= MIN_GIVEN]
    cells = [call for call in calls if is_made_of(source, call.func, _CELLS.search, 1)]
    made = _made_of(loop, names_in(*statement.targets)) if cells else set()
    return bool(cells) and all(made.isdisjoint(names_in(call.args[0])) for call in cells)


def _learns(loop: Loop) -> bool:
    return any(isinstance(node, ast.Call) and called(node) == "backward" for node in ast.walk(loop))


def _made_of(loop: Loop, names: set[str]) -> set[str]:
    """Add what a round or a later one makes of these names, lists that it adds to included."""
    found = set(names)
    body = [node for part in loop.body for node in ast.walk(part)][:MAX_NODES]
    given = [(names_in(*node.targets), names_in(node.value)) for node in body if isinstance(node, ast.Assign)]
    given += [(names_in(node.target), names_in(node.value)) for node in body if isinstance(node, ast.AugAssign)]
    calls = [node for node in body if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    given += [(names_in(node.func), names_in(*node.args)) for node in calls if called(node) in _ADDS]
    for _ in given:
        larger = found.union(*(targets for targets, of in given if not found.isdisjoint(of)))
        if larger == found:
            break
        found = larger
    return found
