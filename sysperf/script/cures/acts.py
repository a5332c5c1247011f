"""Whether a model acts in one environment: it is called for what the step before has given, so for one observation at a time."""

from __future__ import annotations

import ast

from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import Depends
from sysperf.script.nodes import arguments, names_in, root_of
from sysperf.script.syntax import Loop
from sysperf.startup import lazy

MIN_GIVEN = 3
"""What a step of an environment gives at least: an observation, a reward, and whether it has ended."""
_SEVERAL = lazy(r"(?i)envs\b|vec")
"""Names of several environments that step together."""
_LEARNS = frozenset(("backward", "zero_grad"))


def in_one_environment(source: Depends, statement: ast.stmt) -> bool:
    """Whether a statement is in a loop that steps one environment, or in a function that such a loop gives an observation."""
    function = source.tree.function_of(statement)
    return any(_is_observed(loop, statement) for loop in source.tree.ancestors(statement) if isinstance(loop, Loop)) or (
        function is not None
        and not any(called(node) in _LEARNS for node in ast.walk(function) if isinstance(node, ast.Call))
        and any(_acts(loop, function.name) for loop in source.tree.loops)
    )


def _is_observed(loop: Loop, statement: ast.stmt) -> bool:
    """Whether something that the statement calls is given an observation of the loop's environment."""
    observed = _observed(loop)
    calls = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return not isinstance(statement, Loop) and any(not observed.isdisjoint(names_in(*arguments(call))) for call in calls)


def _acts(loop: Loop, function: str) -> bool:
    """Whether a loop gives a function an observation of its environment."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and called(node) == function]
    observed = _observed(loop) if calls else set()
    return any(not observed.isdisjoint(names_in(*arguments(call))) for call in calls)


def _observed(loop: Loop) -> set[str]:
    """The names of a loop that hold observations of one environment, and what is made of these; none where several step together."""
    assigned = [node for node in ast.walk(loop) if isinstance(node, ast.Assign)]
    given = [node for node in assigned if _steps_one(node)]
    names = {
        target.elts[0].id
        for node in given
        for target in node.targets
        if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name)
    }
    for node in sorted(assigned, key=lambda one: one.lineno) * 2:  # the next round begins with what is made at the end of one
        if node not in given and not names.isdisjoint(names_in(node.value)) and not isinstance(node.value, ast.Compare):
            names |= names_in(*node.targets)
    return names


def _steps_one(node: ast.Assign) -> bool:
    """Whether it is ``observation, reward, done, ... = env.step(action)``."""
    call, target = node.value, node.targets[0]
    if not isinstance(call, ast.Call) or called(call) != "step" or not arguments(call) or not isinstance(target, ast.Tuple):
        return False
    return len(target.elts) >= MIN_GIVEN and not _SEVERAL.search(ast.unparse(root_of(call.func)) + ast.unparse(call.func))
