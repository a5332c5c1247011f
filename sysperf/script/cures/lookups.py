"""Whether a statement looks for something in a list, or takes rows out of the middle of a deque: both go through it element by element."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from sysperf.script.cures.definitions import Definitions, called
from sysperf.script.nodes import argument, root_of
from sysperf.script.syntax import Function

MAX_FOLLOWED = 4
FEW = 8
"""Elements of a list that is written down, up to which a search is as quick as a dictionary."""
_MAKERS = frozenset(("list", "sorted", "range", "tuple", "set"))
_LISTS = frozenset(("list", "sorted", "split", "splitlines", "readlines", "tolist", "listdir"))
Kind = Callable[[Definitions, ast.expr], bool]
_Repeats = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
BLOCK = 64
"""Elements of a deque that lie beside each other: the middle of one that holds no more is reached at once."""
_TAKES = frozenset(("sample", "choice", "choices"))


def searches(source: Definitions, statement: ast.stmt) -> bool:
    """Whether a statement itself does; of a compound one its head."""
    block = {part for name in ("body", "orelse", "finalbody", "handlers") for part in getattr(statement, name, ())}
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if _searches(source, node):
            return True
        waiting += [part for part in ast.iter_child_nodes(node) if part not in block]
    return False


def _searches(source: Definitions, node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        pairs = zip(node.ops, node.comparators, strict=True)
        return any(
            isinstance(op, ast.In | ast.NotIn) and _is_asked_often(source, part) and _is(source, part, _is_list) for op, part in pairs
        )
    if isinstance(node, ast.Subscript):
        is_end = isinstance(node.slice, ast.Constant | ast.UnaryOp)
        return isinstance(node.ctx, ast.Load) and not is_end and _is(source, node.value, _is_deque)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    root = root_of(node.func)
    if called(node) in _TAKES and isinstance(root, ast.Name) and root.id == "random":
        return any(_is(source, part, _is_deque) for part in node.args[:1])
    of = node.func.value
    return called(node) in ("index", "remove") and len(node.args) == 1 and _is_asked_often(source, of) and _is(source, of, _is_list)


def _is_asked_often(source: Definitions, part: ast.expr) -> bool:
    """Whether a list is there for more than one search: making a set of one costs as much as a search."""
    if not isinstance(part, ast.Name):
        return isinstance(part, ast.Attribute)
    around = [parent for parent in source.tree.ancestors(part) if isinstance(parent, _Repeats)]
    scope = source.scope_of(part)
    return all(
        source.scope_of(one.node) is not scope or isinstance(one.node, ast.arg) or any(not source.is_in(one.node, loop) for loop in around)
        for one in source.definitions(part)
    )


def _is(source: Definitions, part: ast.expr, kind: Kind, depth: int = MAX_FOLLOWED) -> bool:
    """Whether all that a name or an attribute is given is of a kind, or what an expression makes itself."""
    if kind(source, part):
        return True
    given = _given(source, part) if depth else []
    return bool(given) and all(_is(source, value, kind, depth - 1) for value in given)


def _given(source: Definitions, part: ast.expr) -> Sequence[ast.expr]:
    """What a name or an attribute of the object is given in this file; nothing where somebody else may give it a value, too."""
    if isinstance(part, ast.Name) and not _is_of_lambda(source, part):
        found = [_argument(source, one.node) if isinstance(one.node, ast.arg) else [one.value] for one in source.definitions(part)]
        if any(not isinstance(one.node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.arg) for one in source.definitions(part)):
            return []
        values = [value for several in found for value in several]
        return [value for value in values if value is not None] if all(found) and None not in values else []
    if not isinstance(part, ast.Attribute) or not isinstance(part.value, ast.Name) or part.value.id != "self":
        return []
    owner = source.tree.class_of(part)
    stores = [node for node in source.tree.of(ast.Attribute) if node.attr == part.attr and isinstance(node.ctx, ast.Store)]
    statements = [source.tree.statement_of(node) for node in stores if source.tree.class_of(node) is owner]
    pairs = [source.given_to(one).get(node) for one, node in zip(statements, stores, strict=False) if isinstance(one, ast.Assign)]
    values = [one.value if isinstance(one, ast.AnnAssign) else None for one in statements if isinstance(one, ast.AnnAssign)]
    found_values = [value for value in (*pairs, *values) if value is not None]
    return found_values if len(found_values) == len(stores) else []


def _is_of_lambda(source: Definitions, name: ast.Name) -> bool:
    """Whether a name is what a lambda is given, of which nobody knows."""
    makers = (parent.args for parent in source.tree.ancestors(name) if isinstance(parent, ast.Lambda))
    return any(one.arg == name.id for given in makers for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def _argument(source: Definitions, argument: ast.arg) -> Sequence[ast.expr | None]:
    """What the calls in this file hand over for a parameter; None for one where that is not seen."""
    function = source.tree.function_of(argument)
    if not isinstance(function, Function):
        return []
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    is_method = names[:1] in (["self"], ["cls"])
    owner = source.tree.class_of(function) if function.name == "__init__" else None
    found: list[ast.expr | None] = []
    for call in source.calls.get(owner.name if owner is not None else function.name, ()):
        by_name = next((word.value for word in call.keywords if word.arg == argument.arg), None)
        place = names.index(argument.arg) - is_method if argument.arg in names else len(call.args)
        found.append(by_name if by_name is not None else call.args[place] if place < len(call.args) else None)
    return found


def _is_list(source: Definitions, part: ast.expr) -> bool:
    if isinstance(part, ast.List):
        return len(part.elts) > FEW or any(isinstance(one, ast.Starred) for one in part.elts) or _is_filled(source, part)
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Mult):
        return any(_is(source, side, _is_list, 1) or isinstance(side, ast.ListComp) for side in (part.left, part.right))
    if isinstance(part, ast.ListComp) and _is_of_arrays(source, part.elt):
        return False
    is_made = isinstance(part, ast.ListComp) or (isinstance(part, ast.Call) and called(part) in _LISTS)
    return is_made and not _is_written_down(part)


def _is_of_arrays(source: Definitions, element: ast.expr) -> bool:
    """Whether elements are arrays or lists, which no set and no dictionary finds."""
    root = root_of(element.func) if isinstance(element, ast.Call) else None
    is_array = isinstance(root, ast.Name) and root.id in source.modules
    return is_array or isinstance(element, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _is_written_down(part: ast.expr) -> bool:
    """Whether all that a list is made of stands in the source: few elements, among which a search is as quick as a dictionary."""
    made_of = [one.iter for one in part.generators] if isinstance(part, ast.ListComp) else [part]
    nodes = [node for one in made_of for node in ast.walk(one)]
    return not any((isinstance(node, ast.Name) and node.id not in _MAKERS) or _is_long_range(node) for node in nodes)


def _is_long_range(node: ast.AST) -> bool:
    given = node.args if isinstance(node, ast.Call) and called(node) == "range" else []
    return any(isinstance(one, ast.Constant) and isinstance(one.value, int) and one.value > FEW for one in given)


def _is_filled(source: Definitions, made: ast.List) -> bool:
    """Whether a list that is written down is added to somewhere."""
    statement = source.tree.statement_of(made)
    if isinstance(statement, ast.Assign):
        targets = [target for target, value in source.given_to(statement).items() if value is made]
    else:
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else []
    keys = [one.id if isinstance(one, ast.Name) else f".{one.attr}" for one in targets if isinstance(one, ast.Name | ast.Attribute)]
    places = (node for key in keys for node in source.changed(key))
    return any(isinstance(node, ast.Call) and called(node) in ("append", "extend", "insert") for node in places)


def _is_deque(_: Definitions, part: ast.expr) -> bool:
    if not isinstance(part, ast.Call) or called(part) != "deque":
        return False
    size = argument(part, "maxlen", 1)
    return not (isinstance(size, ast.Constant) and isinstance(size.value, int) and size.value <= BLOCK)
