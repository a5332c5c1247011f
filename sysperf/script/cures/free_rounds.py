"""Whether the rounds of a loop are proven to need nothing of each other: all that it calls only computes, or adds to what none reads.

What is not proven is not known: a call of another file, of a model, or of an object may keep something for the next round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import called
from sysperf.script.cures.depends import RANDOM, Depends
from sysperf.script.cures.flows import FILLS_GIVEN
from sysperf.script.cures.keys import COMBINES, functions_by_name, shares
from sysperf.script.nodes import root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

Made = ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
Store = ast.Subscript | ast.Attribute
ADDS = frozenset(("append", "extend", "add", "add_", "update", "setdefault", "index_add_", "scatter_add_"))
"""Methods by which rounds add to what is made of all of them."""
_HIDDEN = (ast.Try, ast.Match, ast.Await, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.Break, ast.Return)
"""What ends a loop early, or leaves the order of its lines."""
_HIDDEN_DEFINITIONS = (Function, ast.ClassDef, ast.NamedExpr, ast.AsyncFor, ast.AsyncWith, ast.Import, ast.ImportFrom)
_BUILTINS = frozenset(
    (
        "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "frozenset", "int", "isinstance", "len", "list", "max", "min",
        "pow", "print", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip",
    )
)  # fmt: skip
_KEEPS = lazy(
    r"^(?:[A-Z]|accumulate|count|cycle|tee|partial|batch_norm|instance_norm|default_rng|backward|grad_fn|register|memmap|reduce$)"
)
"""Functions of modules that give what is used up, or change what they are given."""
_READS = frozenset(
    ("pow", "unfold", "log", "log2", "log1p", "sin", "cos", "contiguous", "to", "amax", "amin", "cumprod", "logsumexp", "outer", "cross")
)
"""Methods of tensors that change nothing, beside those of `needless`."""
_FOLDS = (ast.Add, ast.Sub, ast.Mult, ast.BitOr, ast.BitAnd)
_FOLDED = frozenset(("max", "min", "maximum", "minimum", "cat", "hstack", "vstack", "concatenate"))
_SIZES = frozenset(("shape", "dtype", "device", "ndim"))
_DICTS = frozenset(("items", "keys", "named_parameters", "named_buffers", "named_modules", "named_children"))
MAX_FUNCTIONS = 20


def is_free(source: Depends, loop: ast.For | Made) -> bool:
    """Whether each round is seen to need nothing of those before; what adds up over all of them is no need."""
    return _Rounds(source, loop).are_free()


def fold(source: Depends, statement: ast.AST | None, name: str) -> str:
    """How a statement adds to a name, or keeps the largest of it; empty where it does something else."""
    if isinstance(statement, ast.If):
        return _best(statement, name)
    if isinstance(statement, ast.AugAssign):
        return type(statement.op).__name__ if isinstance(statement.op, _FOLDS) and name not in _names(statement.value) else ""
    return _fold_of_value(source, statement, name) if isinstance(statement, ast.Assign) else ""


def _fold_of_value(source: Depends, statement: ast.Assign, name: str) -> str:
    parent, value = source.tree.parents.get(statement), statement.value
    if isinstance(parent, ast.If) and (way := _best(parent, name)):
        return way
    if isinstance(value, ast.Call) and called(value) in _FOLDED:
        given = [one for part in value.args for one in (part.elts if isinstance(part, ast.List | ast.Tuple) else [part])]
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Mult):
        given = [value.left, value.right]
    else:
        return ""
    others = [one for one in given if not (isinstance(one, ast.Name) and one.id == name)]
    is_target = any(isinstance(target, ast.Name) and target.id == name for target in statement.targets)
    if not is_target or len(others) != len(given) - 1 or any(name in _names(one) for one in others):
        return ""
    return called(value) if isinstance(value, ast.Call) else type(value.op).__name__


def _best(statement: ast.If, name: str) -> str:
    """``if x > best: best = x`` keeps the largest; what else stands there is done for it alone."""
    test = statement.test
    given = [part for part in statement.body if isinstance(part, ast.Assign)]
    if not isinstance(test, ast.Compare) or statement.orelse or len(given) != len(statement.body):
        return ""
    sides = [test.left, *test.comparators]
    others = [side for side in sides if not (isinstance(side, ast.Name) and side.id == name)]
    if len(others) != 1 or len(sides) != 2 or any(name in _names(part) for part in (others[0], *(one.value for one in given))):
        return ""
    targets = [target for part in given for target in part.targets]
    is_kept = sum(isinstance(target, ast.Name) and target.id == name for target in targets) == 1
    return "best" if is_kept and all(isinstance(target, ast.Name) for target in targets) else ""


class _Rounds:
    def __init__(self, source: Depends, loop: ast.For | Made) -> None:
        self.source, self._loop = source, loop
        self._parents = source.tree.parents
        self._named = functions_by_name(source.tree)
        self._nodes = list(ast.walk(loop))
        heads = [(loop.target, loop.iter)] if isinstance(loop, ast.For) else [(part.target, part.iter) for part in loop.generators]
        self._heads = {node for _, iterated in heads for node in ast.walk(iterated)}
        self._own = {name for target, _ in heads for name in _names(target)}
        targets = {node for target, _ in heads for node in ast.walk(target)}
        given = {node.id for node in self._nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in targets}
        self._single = {name for target, iterated in heads for name in _single(target, iterated)} - given
        """Names of the loop that are another value in each round."""
        self._called: dict[Function, None] = {}
        """Functions of the file that a round calls."""
        self._added: set[ast.AST] = set()
        """Names and attributes of what is only added to, where it is named for that."""

    def are_free(self) -> bool:
        return (
            not any(isinstance(node, (*_HIDDEN, *_HIDDEN_DEFINITIONS)) for node in self._nodes)
            and all(self._computes(node) for node in self._nodes)
            and all(self._only_computes(function) for function in self._called_by_all())
            and all(map(self._adds_up, self._sums()))
            and all(map(self._is_own_place, self._stores()))
            and not any(map(self._is_read, self._changed()))
        )

    # ------------------------------------------------------------------ what is called

    def _computes(self, node: ast.AST) -> bool:
        """Whether a node does nothing but compute, or add to something."""
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.GeneratorExp) and (node is self._loop or node in self._heads):
            return isinstance(self._parents.get(node), ast.Call) and node not in self._heads  # else each part is made as it is asked for
        if isinstance(node, ast.Attribute):
            return node.attr != "__dict__" and (self._is_called(node) or node.attr not in self._named)  # else a property
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return self._name(node)
        return not isinstance(node, ast.With) or all(isinstance(one.context_expr, ast.Call) for one in node.items)

    def _is_called(self, node: ast.AST) -> bool:
        parent = self._parents.get(node)
        return isinstance(parent, ast.Call) and parent.func is node

    def _name(self, name: ast.Name) -> bool:
        """Whether a name is no function that somebody else may call, and of no class of this file, which says what its operators do."""
        definitions = self.source.definitions(name)
        if not definitions:
            return self._is_called(name) or name.id not in self._named
        values = [one.value for one in definitions if not isinstance(one.node, ast.For | ast.AsyncFor | ast.comprehension)]
        is_told = isinstance(self._parents.get(name), ast.Attribute)
        for value in values:
            if isinstance(value, ast.Lambda | ast.GeneratorExp) or (
                isinstance(value, ast.Name | ast.Attribute) and _last(value) in self._named
            ):
                return False
            if isinstance(value, ast.Call) and (
                (called(value) in self.source.classes and not is_told)
                or self._gives_parts(value)
                or called(value) in ("iter", "map", "filter")
            ):
                return False
        return True

    def _gives_parts(self, call: ast.Call) -> bool:
        """Whether a function gives its parts one by one, each made as it is asked for."""
        functions = self._named.get(called(call), ())
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for function in functions for node in ast.walk(function))

    def _call(self, call: ast.Call) -> bool:
        func, name = call.func, called(call)
        if any(word.arg in ("out", None, "inplace") for word in call.keywords) or RANDOM.search(name):
            return False
        if any(word.arg == "key" and not isinstance(word.value, ast.Lambda) for word in call.keywords):
            return False
        if isinstance(func, ast.Name):
            return self._function(func)
        return isinstance(func, ast.Attribute) and self._method(call, func)

    def _function(self, func: ast.Name) -> bool:
        if self.source.definitions(func):
            return False
        if own := self._named.get(func.id):
            self._called.update(dict.fromkeys(own))
            return True
        return func.id in _BUILTINS or (func.id in self.source.imported and self._is_of_library(func.id))

    @staticmethod
    def _is_of_library(name: str) -> bool:
        return not (needless.changes(name) or name.endswith("_") or _KEEPS.match(name) or FILLS_GIVEN.match(name))

    def _method(self, call: ast.Call, func: ast.Attribute) -> bool:
        root, name = root_of(func), func.attr
        if isinstance(root, ast.Name) and not self.source.definitions(root):
            if root.id in self.source.modules:
                is_true = any(isinstance(given, ast.Constant) and given.value is True for given in call.args)  # as of `inplace`
                is_used = not isinstance(self._parents.get(call), ast.Expr)
                return self._is_of_library(name) and "random" not in ast.unparse(func) and not is_true and is_used
            if root.id in self.source.foreign:
                return False
        if own := self._named.get(name):
            self._called.update(dict.fromkeys(own))
            return True
        if isinstance(self._parents.get(call), ast.Expr) and self._changes(func, name):
            return True
        if name == "setdefault" and self._is_added_to(call):
            return self._changes(func, name)
        return self._only_reads(call, name)

    @staticmethod
    def _only_reads(call: ast.Call, name: str) -> bool:
        if name == "get":  # of a dictionary, not of a queue
            return bool(call.args) and not call.keywords and not isinstance(call.args[0], ast.Constant | ast.UnaryOp)
        is_of_tensor = name in _READS and not (name == "log" and call.args)
        return needless.is_pure(name) or COMBINES.match(name) is not None or is_of_tensor

    def _is_added_to(self, call: ast.Call) -> bool:
        """Whether what a call gives is added to, in a statement of its own: ``groups.setdefault(key, []).append(row)``."""
        part = self._parents.get(call)
        outer = self._parents.get(part) if isinstance(part, ast.Attribute) and part.attr in ADDS else None
        return isinstance(outer, ast.Call) and isinstance(self._parents.get(outer), ast.Expr)

    def _changes(self, func: ast.Attribute, name: str) -> bool:
        """Whether a method changes what a round has made itself, what it goes through, or what all rounds add to."""
        value: ast.expr = func.value
        if isinstance(value, ast.Call):
            return called(value) == "setdefault" and name in ADDS  # looked at by itself
        root = root_of(value)
        if not isinstance(root, ast.Name):
            return False
        if isinstance(value, ast.Name) and self._is_fresh(value.id):
            return True
        if root.id in self._own:
            return self._is_alone(root.id) and (name.endswith("_") or name in ADDS) and not self._is_linked(value)
        if name in ADDS and not self._is_made_in_loop(root):
            self._added.add(value)
            return True
        return False

    # ------------------------------------------------------------------ what belongs to one round

    def _is_made_in_loop(self, name: ast.Name) -> bool:
        return any(self.source.is_in(one.node, self._loop) for one in self.source.definitions(name))

    def _is_fresh(self, name: str) -> bool:
        """Whether each round makes an object of its own by this name, which is no view of another one."""
        stores = [node for node in self._nodes if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)]
        definitions = self.source.definitions(stores[0]) if stores else ()
        return bool(definitions) and name not in self._own and all(
            isinstance(one.node, ast.Assign | ast.AnnAssign) and self.source.is_in(one.node, self._loop) and self._makes(one.value)
            for one in definitions
        )  # fmt: skip

    def _makes(self, value: ast.expr | None) -> bool:
        if isinstance(value, ast.Call):
            name, root = called(value), root_of(value.func)
            is_library = isinstance(root, ast.Name) and (root.id in self.source.modules or root.id in ("list", "dict", "set"))
            return (
                not shares(value)
                and (is_library or needless.is_pure(name) or COMBINES.match(name) is not None)
                and name not in ("get", "view")
            )
        return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.BinOp)

    def _is_alone(self, own: str) -> bool:
        """Whether nothing else leads to what a name of the loop names: each one comes from a list of its own, which no round reads."""
        heads = [(self._loop.target, self._loop.iter)] if isinstance(self._loop, ast.For) else []
        for target, iterated in heads:
            parts = _parts_of(target, iterated)
            mine = next((names for targets, names in parts if own in targets), None)
            if mine is None:
                return False
            others = set[str]().union(*(names for targets, names in parts if own not in targets))
            read = set[str]().union(
                *(_roots(node) for node in self._nodes if node not in self._heads and isinstance(node, ast.Name | ast.Attribute))
            )
            mine = mine.union(*(self._alike(key) for key in mine))
            return mine.isdisjoint(others | (read - self._own))
        return False

    def _is_linked(self, changed: ast.AST) -> bool:
        """Whether a round may read an attribute that it writes of another object than its own: ``node.h = node.parent.h``."""
        text = ast.unparse(changed)
        attributes = [node for node in ast.walk(changed) if isinstance(node, ast.Attribute)]
        return any(
            any(
                node.attr == part.attr and not text.startswith(ast.unparse(node)) for node in self._nodes if isinstance(node, ast.Attribute)
            )
            or any(f".{part.attr}" in _keys(function) for function in self._called_by_all())
            for part in attributes
        )

    # ------------------------------------------------------------------ sums

    def _sums(self) -> Iterable[str]:
        """The names that rounds may have of those before."""
        return {node.id for node in self._nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} - self._own

    def _adds_up(self, name: str) -> bool:
        """Whether a name gets its value before it is read in a round, or is read only to add to it, in one way."""
        uses = [node for node in self._nodes if isinstance(node, ast.Name) and node.id == name]
        if all(self.source.comprehension_of(node) is not None for node in uses) or self._is_inner_target(name):
            return True
        loads = [node for node in uses if isinstance(node.ctx, ast.Load)]
        statements = {self.source.tree.statement_of(node) for node in uses if isinstance(node.ctx, ast.Store)}
        folds = [fold(self.source, statement, name) for statement in statements]
        ways = {way for way in folds if way}
        if not ways and not any(isinstance(statement, ast.AugAssign) for statement in statements):
            return True  # `rounds` has seen that none is read before it gets its value
        return len(ways) == 1 and all(folds) and all(self._is_in_fold(node, name) for node in loads)

    def _is_inner_target(self, name: str) -> bool:
        inner = {part for node in self._nodes if isinstance(node, ast.For) and node is not self._loop for part in _names(node.target)}
        stores = [
            self._parents.get(node)
            for node in self._nodes
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        ]
        return name in inner and not any(isinstance(one, ast.AugAssign) for one in stores)

    def _is_in_fold(self, load: ast.Name, name: str) -> bool:
        statement = self.source.tree.statement_of(load)
        if isinstance(statement, ast.If):
            return bool(_best(statement, name))
        return bool(fold(self.source, statement, name))

    # ------------------------------------------------------------------ what is written to

    def _stores(self) -> list[Store]:
        return [node for node in self._nodes if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store)]

    def _is_own_place(self, store: Store) -> bool:
        """Whether a round writes into what it has made itself, into what it goes through, or where no other one reads."""
        root = root_of(store)
        if not isinstance(root, ast.Name):
            return False
        if isinstance(store.value, ast.Name) and self._is_fresh(root.id):
            return True
        if root.id in self._own:
            return self._is_alone(root.id) and not self._is_linked(store) and not (isinstance(store, ast.Subscript) and self._reads_deep())
        return not self._is_made_in_loop(root) and self._adds_alike(store)

    def _reads_deep(self) -> bool:
        """Whether a round reads elements of elements, which may be those of another round: ``node["prev"]["h"]``."""
        return any(isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript) for node in self._nodes)

    def _adds_alike(self, store: Store) -> bool:
        """Whether all that is written there adds up in one way, or none of it does."""
        if self._index_of(store):
            return all(self._index_of(other) for other in self._stores() if _key(other) == _key(store))
        statements = [self._parents.get(other) for other in self._stores() if _key(other) == _key(store)]
        ways = {type(one.op) if isinstance(one, ast.AugAssign) else None for one in statements}
        return len(ways) == 1 and (None in ways or not ways.isdisjoint(_FOLDS))

    def _index_of(self, store: ast.AST) -> str:
        """The index at which a round writes, where no other one writes at the same."""
        if not isinstance(store, ast.Subscript):
            return ""
        parts = store.slice.elts if isinstance(store.slice, ast.Tuple) else [store.slice]
        is_single = any(isinstance(part, ast.Name) and (part.id in self._single or self._is_key(part, store.value)) for part in parts)
        return ast.unparse(store.slice) if is_single and not self._is_repeated(store.value) else ""

    def _is_repeated(self, container: ast.expr) -> bool:
        """Whether elements of an array may be the same place in memory."""
        made = [one.value for one in self.source.definitions(container) if one.value is not None] if isinstance(container, ast.Name) else []
        calls = (node for value in made for node in ast.walk(value) if isinstance(node, ast.Call))
        return any(called(call) in ("expand", "expand_as", "broadcast_to", "broadcast_tensors", "as_strided") for call in calls)

    def _changed(self) -> Iterable[tuple[ast.AST, str]]:
        """What rounds write to beside names: what is written, and the index where it is the round's own."""
        for store in self._stores():
            root = root_of(store)
            if not isinstance(root, ast.Name) or root.id in self._own or self._is_made_in_loop(root):
                continue
            if isinstance(store, ast.Attribute):
                yield (store.value if store.attr == "data" else store), ""
                continue
            yield store.value, self._index_of(store)
        for added in self._added:
            yield added, ""
        for node in self._nodes:
            target = node.target if isinstance(node, ast.AugAssign) else None
            if isinstance(target, ast.Name) and (not self._is_alone(target.id) if target.id in self._own else self._is_part(target)):
                yield target, "*"

    def _is_part(self, name: ast.Name) -> bool:
        """Whether a name that a round gives a value may be that of a part or a view of something else."""
        assigned = (one for one in self.source.definitions(name) if isinstance(one.node, ast.Assign))
        values = [one.value for one in assigned if self.source.is_in(one.node, self._loop)]
        return any(value is not None and _may_share(value) for value in values)

    def _is_key(self, part: ast.Name, container: ast.expr) -> bool:
        """Whether a loop goes through the keys of a dictionary."""
        loop = self._loop
        if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Name) or ast.unparse(loop.iter) != ast.unparse(container):
            return False
        made = [one.value for one in self.source.definitions(loop.iter)]
        return part.id in self._own and bool(made) and all(isinstance(value, ast.Dict | ast.DictComp) for value in made)

    def _is_read(self, changed: tuple[ast.AST, str]) -> bool:
        """Whether a round may read what another one has written, by any name of it."""
        target, index = changed
        if index == "*":
            return True
        key = _key(target)
        others = self._alike(key)
        if not key or any(key in _keys(function) or not others.isdisjoint(_keys(function)) for function in self._called):
            return True
        whole = ast.unparse(target)
        for node in self._nodes:
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load) or _key(node) not in {key, *others}:
                continue
            if not self._only_writes(node, whole, index):
                return True
        root = root_of(target) if isinstance(target, ast.Attribute | ast.Subscript) else None
        bare = [node for node in self._nodes if isinstance(node, ast.Name) and isinstance(root, ast.Name) and node.id == root.id]
        return isinstance(target, ast.Attribute) and any(not isinstance(self._parents.get(node), ast.Attribute) for node in bare)

    def _only_writes(self, node: ast.Name | ast.Attribute, whole: str, index: str) -> bool:
        """Whether a use of what is written writes to it, adds to it, asks for its size, or reads at the round's own index."""
        parent = self._parents.get(node)
        if node in self._added:
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in _SIZES:
            return True
        is_size = isinstance(parent, ast.Call) and called(parent) == "len"
        if node in self._heads and (is_size or (parent is self._loop and bool(index))):
            return True
        part: ast.AST = node
        while isinstance(outer := self._parents.get(part), ast.Subscript | ast.Attribute) and outer.value is part:
            part = outer
            if part in self._added or (isinstance(part.ctx, ast.Store) and ast.unparse(node) in whole):
                return True
        return isinstance(parent, ast.Subscript) and bool(index) and ast.unparse(node) == whole and ast.unparse(parent.slice) == index

    def _alike(self, key: str) -> set[str]:
        """Other names of what is written, or of views of it, in its function."""
        scope = self.source.scope_of(self._loop)
        linked: list[tuple[str, set[str]]] = []
        for assign in self.source.tree.of(ast.Assign, ast.AnnAssign):
            value: ast.expr | None = assign.value  # type: ignore[attr-defined]
            if value is None or self.source.scope_of(assign) is not scope or not _may_share(value):
                continue
            targets = assign.targets if isinstance(assign, ast.Assign) else [assign.target]  # type: ignore[attr-defined]
            given = _roots(value)
            named = (one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name | ast.Attribute))
            linked += [(_key(one), given) for one in named if isinstance(one.ctx, ast.Store)]
        found = {key}
        for _ in range(4):
            for name, given in linked:
                if name in found or not given.isdisjoint(found):
                    found |= {name, *given}
        return found - {"", "self", key, *self.source.modules}

    # ------------------------------------------------------------------ functions of the file

    def _called_by_all(self) -> list[Function]:
        """Functions that are called, and those that they call."""
        found = list(self._called)
        for function in found:  # it grows meanwhile
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    found += [one for one in self._named.get(called(node), ()) if one not in found]
            if len(found) > MAX_FUNCTIONS:
                break
        self._called = dict.fromkeys(found)
        return found

    def _only_computes(self, function: Function) -> bool:
        """Whether a function changes nothing but what it has made itself."""
        if len(self._called) > MAX_FUNCTIONS or function.decorator_list or isinstance(function, ast.AsyncFunctionDef):
            return False
        nodes = [node for part in function.body for node in ast.walk(part)]
        hidden = (*_HIDDEN_DEFINITIONS, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.Delete)
        if any(isinstance(node, hidden) for node in nodes):
            return False
        inner = _Function(self.source, function)
        return all(inner.is_harmless(node) for node in nodes) and self._reads_nothing_stored(nodes, function)

    def _reads_nothing_stored(self, nodes: Sequence[ast.AST], function: Function) -> bool:
        stored = set(self._sums()) | self._own
        free = {node.id for node in nodes if isinstance(node, ast.Name) and (function, node.id) not in self.source.by_scope}
        return free.isdisjoint(stored)


class _Function(_Rounds):
    """What a function does that a round calls: all that it changes is its own."""

    def __init__(self, source: Depends, function: Function) -> None:
        super().__init__(source, ast.ListComp(elt=ast.Constant(0), generators=[]))
        self._function_node = function
        self._nodes = list(ast.walk(function))

    def is_harmless(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            return isinstance(node.value, ast.Name) and self._is_fresh(node.value.id)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            return self._is_fresh(node.target.id) or all(isinstance(one.value, ast.Constant) for one in self._others(node.target))
        return self._computes(node) and not self._added

    def _others(self, name: ast.Name) -> list[ast.Assign | ast.AnnAssign]:
        found = [one.node for one in self.source.definitions(name) if not isinstance(one.node, ast.AugAssign)]
        return [one if isinstance(one, ast.Assign | ast.AnnAssign) else ast.Assign([], ast.Name("")) for one in found]

    def _is_made_in_loop(self, name: ast.Name) -> bool:
        return (self._function_node, name.id) in self.source.by_scope

    def _is_fresh(self, name: str) -> bool:
        definitions = self.source.by_scope.get((self._function_node, name), ())
        made = [one for one in definitions if not isinstance(one.node, ast.AugAssign)]
        return bool(made) and all(isinstance(one.node, ast.Assign | ast.AnnAssign) and self._makes(one.value) for one in made)


def _names(part: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}


def _roots(part: ast.AST) -> set[str]:
    """The names and attributes in an expression, by the keys of what is changed."""
    return {_key(node) for node in ast.walk(part) if isinstance(node, ast.Name | ast.Attribute)} - {
        "self",
        "zip",
        "enumerate",
        "range",
        "list",
    }


def _last(part: ast.Name | ast.Attribute) -> str:
    return part.id if isinstance(part, ast.Name) else part.attr


def _key(part: ast.AST) -> str:
    while isinstance(part, ast.Subscript):
        part = part.value
    return part.id if isinstance(part, ast.Name) else f".{part.attr}" if isinstance(part, ast.Attribute) else ""


def _keys(function: Function) -> set[str]:
    return {_key(node) for node in ast.walk(function) if isinstance(node, ast.Name | ast.Attribute)}


def _may_share(value: ast.expr) -> bool:
    """Whether a value may be a part or a view of what it is made of, or keep it."""
    if isinstance(value, ast.Call):
        return shares(value) or called(value)[:1].isupper() or called(value) in ("iter", "zip", "numpy", "detach", "view", "partial")
    return isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Tuple | ast.List | ast.Dict | ast.IfExp | ast.Lambda)


def _parts_of(target: ast.expr, iterated: ast.expr) -> list[tuple[set[str], set[str]]]:
    """The names that a loop counts by, and for each several of them those that they come from."""
    if isinstance(iterated, ast.Call) and isinstance(target, ast.Tuple):
        if called(iterated) == "zip" and len(target.elts) == len(iterated.args):
            return [part for one, given in zip(target.elts, iterated.args, strict=True) for part in _parts_of(one, given)]
        if called(iterated) == "enumerate" and len(target.elts) == 2 and iterated.args:
            return [(_names(target.elts[0]), set()), *_parts_of(target.elts[1], iterated.args[0])]
        if called(iterated) in _DICTS and len(target.elts) == 2:
            return [(_names(target.elts[0]), set()), (_names(target.elts[1]), _roots(iterated))]
    return [(_names(target), _roots(iterated))] if isinstance(target, ast.Name) else []


def _single(target: ast.expr, iterated: ast.expr) -> set[str]:
    """The names of a loop that are another value in each round."""
    if not isinstance(iterated, ast.Call):
        return set()
    name, parts = called(iterated), target.elts if isinstance(target, ast.Tuple) else [target]
    if name == "reversed" and iterated.args:
        return _single(target, iterated.args[0])
    if name == "zip" and len(parts) == len(iterated.args):
        return set[str]().union(*(_single(one, given) for one, given in zip(parts, iterated.args, strict=True)))
    if name == "range":
        is_below_zero = len(iterated.args) > 1 and isinstance(iterated.args[0], ast.UnaryOp)  # table[-1] may be that of another round
        return _names(target) if isinstance(target, ast.Name) and not is_below_zero else set()
    first = parts[0] if len(parts) == (1 if name == "keys" else 2) and (name == "enumerate" or name in _DICTS) else None
    return {first.id} if isinstance(first, ast.Name) else set()
