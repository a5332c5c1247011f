"""Which kind of cure fits a line that takes much of each step, as far as the source of its file proves it.

`fixed`      nothing that it reads changes from step to step: it can be made once.
`grows`      it goes through all of what the loop makes longer: each step costs more than the one before.
`sums`, `same`  each round of its loop does what others have done (`again`).
`discarded`  it computes for all places, or by all experts, what is then taken of one, or multiplied by zero.
`singles`    it calls a model for one row at a time, of which none needs what was made of another.
`acts`       it calls a model for one observation of one environment at a time (`acts`).
`cells`      it calls a recurrent cell for one place of a sequence after the other (`cells`).
`layers`     it calls layers of a list one by one, of which none is given what another one made.
`detached`  it calls a model whose gradients nobody uses (`unused`).
`rows`       it makes the same of a sample in each pass, out of what is stored: all can be made once.
`reported`   only prints and logs use what it makes.
`weights`    it depends on the weights alone, and no loss is made of it: it need not be done in each step.
`data`       it depends on data alone: other processes can make it while the model computes.
`outputs`    it depends on what a model gave, and no loss is made of it.
`loss`       it is a part of the loss, or hands it on.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Sequence

from sysperf.script.cures import (
    acts,
    apart,
    discards,
    each_pass,
    flows,
    grows,
    lookups,
    needless,
    objects,
    reports,
    rounds,
    singles,
    stays,
    unused,
)
from sysperf.script.cures.cells import along_a_sequence
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import DATA, EARLIER, EFFECT, MODEL, WEIGHTS, Depends, TooTangled
from sysperf.script.cures.keys import shares
from sysperf.script.nodes import names_in, root_of
from sysperf.script.syntax import Function, Loop, asked_again, children_of
from sysperf.startup import lazy

MAX_CALLERS = 3
_STEPS = lazy(r"clip|grad|zero_|^step$|scale|backward|optimizer")


@functools.lru_cache(maxsize=4)
def _source(text: str) -> Depends | None:
    try:
        return Depends(tree) if len(text) <= needless.MAX_CHARS and (tree := asked_again(text)) is not None else None
    except RecursionError:
        return None


@functools.lru_cache(maxsize=4)
def _graph(source: Depends) -> flows.Flows | None:
    try:
        return flows.Flows(source)
    except TooTangled:
        return None


def cure(text: str, line: int) -> str:
    """The kind of cure that fits the statement at a line of a file; empty where the source proves none."""
    if (source := _source(text)) is None:
        return ""
    statement = _statement(source, line)
    if statement is None:
        return ""
    try:
        found = _kind(source, statement, text, line)
    except (TooTangled, RecursionError):
        found = ""
    return found if found in ("reported", "fixed", "discarded", "grows") else _of_rounds(text, line) or found


def _of_rounds(text: str, line: int) -> str:
    """What the rounds of the loop around a line do anew."""
    return next((way for way in of_loop(text, line) if way in ("sums", "same")), "")


def of_part(text: str, line: int, function: str) -> str:
    """The kind of cure that fits what a line calls, where the source proves none of all that it does."""
    if (source := _source(text)) is None or (statement := _statement(source, line)) is None:
        return ""
    calls = [node for part in _work(statement) or () for node in ast.walk(part) if isinstance(node, ast.Call) and called(node) == function]
    try:
        same = [source.on(call, statement) <= {EARLIER} and stays.gives_the_same(source, statement, call) for call in calls]
    except (TooTangled, RecursionError):
        return ""
    return "fixed" if same and all(same) else ""


def of_sample(text: str, line: int) -> str:
    """The kind of cure that fits a line that makes a sample of a data set: that it depends on data alone is no news."""
    if (
        (found := cure(text, line)) in ("fixed", "sums", "same")
        or (source := _source(text)) is None
        or (statement := _statement(source, line)) is None
    ):
        return found if found in ("fixed", "sums", "same") else ""
    try:
        if objects.made_for_each(source, statement):
            return "fixed"
        return "rows" if each_pass.is_the_same(source, statement) else ""
    except (TooTangled, RecursionError):
        return ""


def of_call(text: str, line: int) -> str:
    """The kind of cure that fits a line that calls a model: what it is called with, and what becomes of its result."""
    if (source := _source(text)) is None or (statement := _statement(source, line)) is None:
        return ""
    try:
        if discards.discards(source, statement):
            return "discarded"
        if grows.goes_through(source, statement, of_model=True):
            return "grows"
        if (graph := _graph(source)) and singles.one_row_at_a_time(source, graph, statement):
            return "singles"
        ways = {"cells": along_a_sequence, "acts": acts.in_one_environment, "layers": rounds.calls_layers}
        return next((way for way, is_so in ways.items() if is_so(source, statement)), "") or unused.gradients(source, statement)
    except RecursionError:
        return ""


def of_loop(text: str, line: int) -> tuple[str, ...]:
    """How the loop around a line, or in it, works (`rounds`)."""
    if (source := _source(text)) is None or (statement := _statement(source, line)) is None:
        return ()
    try:
        return rounds.ways(source, graph, statement) if (graph := _graph(source)) else ()
    except RecursionError:
        return ()


def searches_list(text: str, line: int) -> bool:
    """Whether a line looks for something in a list, element by element."""
    if (source := _source(text)) is None or (statement := _statement(source, line)) is None:
        return False
    try:
        return lookups.searches(source, statement)
    except RecursionError:
        return False


def _kind(source: Depends, statement: ast.stmt, text: str, line: int) -> str:  # noqa: PLR0911 - one answer for each kind
    reported = source.trains and (needless.only_reported(text, line) or _is_kept_for_reports(source, statement))
    if reported and _is_beside_training(source, statement):
        return "reported"
    if discards.discards(source, statement):
        return "discarded"
    if grows.goes_through(source, statement) and not grows.adds(statement):
        return "grows"
    work = _work(statement)
    if work is None or not any(isinstance(node, ast.Call | ast.BinOp) for part in work for node in ast.walk(part)):
        return ""
    on = frozenset[str]().union(*(source.on(part, statement) for part in work))
    on -= frozenset[str]() if source.trains else {WEIGHTS}
    if on <= {EARLIER} and _gives_a_value(statement):
        return "fixed" if not _is_changed_later(source, statement) and stays.stays(source, statement, work) else ""
    if WEIGHTS in on and on <= {WEIGHTS, EFFECT} and _gives_a_value(statement) and not _steps(statement):
        return "weights" if (graph := _graph(source)) and apart.no_loss_needs(source, graph, statement) else ""
    if DATA in on and on <= {DATA, EFFECT} and _gives_a_value(statement):
        return "data" if (graph := _graph(source)) and apart.needs_no_model(source, graph, statement, work) else ""
    if not on & {MODEL, EARLIER}:
        return ""
    return "loss" if _is_of_training(source, statement) else "outputs"


def _statement(source: Depends, line: int) -> ast.stmt | None:
    """The innermost statement at a line; of a compound one its head."""
    found: ast.stmt | None = None
    block: list[ast.stmt] = source.tree.module.body
    while (inner := next((node for node in block if node.lineno <= line <= (node.end_lineno or node.lineno)), None)) is not None:
        found = inner
        parts = inner.cases if isinstance(inner, ast.Match) else [inner]  # a case has no line of its own
        block = [part for one in parts for part in children_of(one) if isinstance(part, ast.stmt | ast.ExceptHandler)]  # type: ignore[misc]
    return found if isinstance(found, ast.stmt) and not isinstance(found, Function | ast.ClassDef) and line <= _last_line(found) else None


def _last_line(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    return (body[0].lineno - 1 if body[0].lineno > node.lineno else node.lineno) if body else (node.end_lineno or node.lineno)


def _work(statement: ast.stmt) -> Sequence[ast.AST] | None:
    """What a statement computes."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr):
        return [statement.value] if statement.value is not None else None
    if isinstance(statement, ast.For):
        return [statement.iter, *statement.body]
    return None


def _gives_a_value(statement: ast.stmt) -> bool:
    """Whether a statement gives names of its own a value, or the caller one, and is no step of a sum."""
    if isinstance(statement, ast.Return):
        return True
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AnnAssign) else []
    return bool(targets) and all(isinstance(part, ast.Name) for target in targets for part in _flat(target))


def _is_changed_later(source: Depends, statement: ast.stmt) -> bool:
    """Whether what a statement makes is seen to be changed in place, as a list that is filled is: a new one is needed each time."""
    written = _written(source, source.scope_of(statement))
    for name in _with_views(source, statement):
        places = [node for node in source.changed(name.id) if source.scope_of(node) is source.scope_of(name)]
        if any(isinstance(one.node, ast.AugAssign) for one in source.definitions_at(name, name.id)):
            return True
        if any(not isinstance(node, ast.Call) or _fills(source, node) for node in places) or name.id in written:
            return True
    return False


def _written(source: Depends, scope: ast.AST) -> set[str]:
    """The names of what a function of a library fills by `out`, or what is filled by a view of it: ``table.view(-1)[0] = 1``."""
    calls = [call for call in source.tree.of(ast.Call) if source.scope_of(call) is scope]
    found = {root.id for call in calls for word in call.keywords if word.arg == "out" and isinstance(root := root_of(word.value), ast.Name)}
    views = [part.value for part in source.tree.of(ast.Subscript) if isinstance(part.ctx, ast.Store) and source.scope_of(part) is scope]
    views += [call.func.value for call in calls if isinstance(call.func, ast.Attribute) and needless.changes(called(call))]
    return found.union(*(_viewed(view) for view in views if isinstance(view, ast.Call)))


def _with_views(source: Depends, statement: ast.stmt) -> list[ast.Name]:
    """The names that a statement gives a value, and those of parts and views of it: ``rows = table.view(-1)``."""
    found = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    scope = source.scope_of(statement)
    given = [one for one in source.tree.of(ast.Assign) if one is not statement and source.scope_of(one) is scope]
    for name in found:  # it grows meanwhile
        targets = (part for one in given if name.id in _viewed(one.value) for target in one.targets for part in _flat(target))
        found += [part for part in targets if isinstance(part, ast.Name) and part.id not in {one.id for one in found}]
    return found


def _viewed(value: ast.expr) -> set[str]:
    """The names of what a value may be a part or a view of."""
    if isinstance(value, ast.Call):
        roots = [root_of(part) for part in (value.func, *value.args)] if shares(value) else []
    else:
        roots = [root_of(value)] if isinstance(value, ast.Subscript | ast.Attribute) else []
    return {root.id for root in roots if isinstance(root, ast.Name)}


def _fills(source: Depends, call: ast.Call) -> bool:
    """Whether a call changes what it is a method of, or what it is given."""
    return (
        any(word.arg == "out" for word in call.keywords)
        or called(call) in source.functions
        or called(call) in ("extend", "fill", "sort", "reverse", "line")
        or needless.changes(called(call))
    )


def _flat(target: ast.expr) -> Iterable[ast.expr]:
    return [part for one in target.elts for part in _flat(one)] if isinstance(target, ast.Tuple | ast.List) else [target]


def _is_of_training(source: Depends, statement: ast.stmt) -> bool:
    """Whether a statement is a step of training itself, or a part of the loss."""
    if _steps(statement):
        return True
    scope = source.scope_of(statement)
    made = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        made.add(statement.target.id)
    return isinstance(statement, ast.Return) or bool(made & _losses(source, scope))


def _steps(statement: ast.stmt) -> bool:
    return any(_STEPS.search(called(node)) for node in ast.walk(statement) if isinstance(node, ast.Call))


def _losses(source: Depends, scope: ast.AST) -> set[str]:
    """The names in a function from which a backward pass starts or which it returns, and those of which they are made."""
    nodes = [node for node in ast.walk(scope) if source.scope_of(node) is scope or node is scope]
    found = {
        name.id
        for node in nodes
        if isinstance(node, ast.Return) or (isinstance(node, ast.Call) and called(node) in ("backward", "grad"))
        for name in ast.walk(node)
        if isinstance(name, ast.Name)
    }
    for _ in range(4):
        for node in nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
                targets = {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
                if targets & found:
                    found |= names_in(node.value)
    return found


def _is_kept_for_reports(source: Depends, statement: ast.stmt) -> bool:
    return (graph := _graph(source)) is not None and reports.read_by_reports_alone(source, graph, statement)


def _is_beside_training(source: Depends, node: ast.AST, depth: int = MAX_CALLERS, *, looped: bool = False) -> bool:
    """Whether work may be done as often as steps of training are: what a program makes of a test set afterwards is its result."""
    graph, function = _graph(source), source.tree.function_of(node)
    loops = [parent for parent in source.tree.ancestors(node) if isinstance(parent, Loop) and source.tree.function_of(parent) is function]
    if graph is None or any(graph.trains(each) for each in loops):
        return True
    looped = looped or bool(loops)
    if function is None:
        return not looped
    sites = source.calls.get(function.name, [])
    if not sites or not depth or graph.trains(function):
        return True
    return any(_is_beside_training(source, site, depth - 1, looped=looped) for site in sites)
