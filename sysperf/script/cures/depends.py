"""Tell on what the values in an expression depend: on nothing that changes, on data, on the weights, or on what a model made of these.

It follows names through the functions of one file, and the arguments of their calls. Each set that is returned says all that may be: an
empty one, that the value is the same in each step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import LEARNED, OF_WEIGHTS, Definition, Definitions, called
from sysperf.script.nodes import root_of
from sysperf.script.syntax import Function, Loop, Tree
from sysperf.startup import lazy

DATA, WEIGHTS, MODEL, EARLIER, EFFECT, UNKNOWN = "data", "weights", "model", "earlier", "effect", "unknown"
"""It changes from step to step; it is made of weights; by a model or for a gradient; by a model before the loop; something else is
changed, too; nobody knows."""
On = frozenset[str]
NOTHING: On = frozenset()
MAX_ASKED = 6_000
"""Names and calls that are followed for one answer: a source may be as tangled as it likes."""
MAX_LOOKED = 100_000
"""Places where names are changed that are looked at for one answer."""
MAX_DEPTH = 24
SIZES = frozenset(("shape", "size", "device", "dtype", "ndim", "dim", "numel"))
RANDOM = lazy(
    r"rand|shuffle|permut|^integers$|^r?sample$|choice|multinomial|bernoulli|poisson|^normal_?$|uniform|dropout|exponential_|time|perf_counter|^now$|uuid"
)
_READS = lazy(r"^(?:open|load\w*|read\w*|recv|get|input|popen|run|check_output|urlopen|listdir|glob|stat|exists)$")


_Assigned = ast.Assign | ast.AnnAssign | ast.AugAssign


class TooTangled(Exception):
    """More would have to be followed than an answer is worth."""


class Depends(Definitions):
    """Answers for one file, and the names of which its values are made."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._asked = self._looked = 0
        self._loop: ast.AST | None = None
        self._busy: set[tuple[ast.AST, str]] = set()
        self._known: dict[tuple[ast.AST, str, ast.AST | None], On] = {}

    def on(self, part: ast.AST, statement: ast.stmt) -> On:
        """Tell on what a part of a statement depends, as seen from the innermost loop around it."""
        self._asked, self._looked, self._busy, self._known = 0, 0, set(), {}
        self._loop = self.loop_of(statement)
        return self._of(part, 0)

    def _of(self, part: ast.AST, depth: int) -> On:
        self._asked += 1
        if self._asked > MAX_ASKED or depth > MAX_DEPTH:
            raise TooTangled
        if isinstance(part, ast.Name):
            return self._of_name(part, depth) if isinstance(part.ctx, ast.Load) else NOTHING
        if isinstance(part, ast.Call):
            return self._of_call(part, depth)
        if isinstance(part, ast.Attribute):
            return self._of_attribute(part, depth)
        if isinstance(part, ast.Await | ast.Yield | ast.YieldFrom):
            return frozenset((UNKNOWN,))
        if isinstance(part, Function | ast.ClassDef):
            return NOTHING
        return self._of_all(ast.iter_child_nodes(part), depth)

    def _of_all(self, parts: Iterable[ast.AST], depth: int) -> On:
        return NOTHING.union(*(self._of(part, depth + 1) for part in parts))

    def _of_attribute(self, part: ast.Attribute, depth: int) -> On:
        if part.attr in SIZES:
            return NOTHING
        if part.attr in LEARNED or part.attr in OF_WEIGHTS:
            return frozenset((WEIGHTS,))
        if part.attr == "grad":
            return frozenset((MODEL,))
        if isinstance(part.value, ast.Name) and part.value.id == "self":
            return self._of_own(part)
        return self._of(part.value, depth + 1)

    def _of_own(self, part: ast.Attribute) -> On:
        """An attribute of the object: the same as long as only its constructor gives it a value."""
        owner = self.tree.class_of(part)
        stores = [node for node in self.tree.of(ast.Attribute) if node.attr == part.attr and isinstance(node.ctx, ast.Store)]
        stores = [node for node in stores if self.tree.class_of(node) is owner]
        if owner is None or not stores:
            return frozenset((UNKNOWN,))
        makers = [self.tree.function_of(node) for node in (*stores, *self.changed(f".{part.attr}"))]
        if any(maker is None or maker.name not in ("__init__", "__post_init__", "setup") for maker in makers):
            return frozenset((DATA,)) if not self._is_weight(stores) else frozenset((WEIGHTS, DATA))
        return frozenset((WEIGHTS,)) if self._is_weight(stores) else NOTHING

    def _is_weight(self, stores: Iterable[ast.AST]) -> bool:
        statements = (self.tree.statement_of(node) for node in stores)
        return any(isinstance(statement, ast.Assign | ast.AnnAssign) and self.makes_layer(statement.value) for statement in statements)

    def _of_name(self, name: ast.Name, depth: int) -> On:
        if self.is_model(name):
            return frozenset((WEIGHTS,))
        definitions = self.definitions(name)
        if not definitions:
            stays = self.modules | self.foreign | self.given | needless.BUILTINS
            return NOTHING if name.id in stays or name.id in self.functions or name.id in self.classes else frozenset((UNKNOWN,))
        home = self.scope_of(definitions[0].node)
        own = self.comprehension_of(name)
        key = (own or home, name.id)
        if key in self._busy:  # it is made of itself
            return frozenset((DATA,))
        seen_from = (*key, self._loop)
        if (known := self._known.get(seen_from)) is not None:
            return known
        self._busy.add(key)
        try:
            found = NOTHING.union(
                *(self._of_definition(one, name, home, depth + 1) for one in definitions if own is None or one.node is own)
            )
            found |= self._put_in(name, home, depth)
        finally:
            self._busy.discard(key)
        found |= self._by_changes(name, home)
        self._known[seen_from] = found
        return found

    def comprehension_of(self, name: ast.Name) -> ast.comprehension | None:
        """The part of a comprehension that gives a name its value: it has its own names."""
        for parent in self.tree.ancestors(name):
            if isinstance(parent, ast.stmt):
                return None
            for part in parent.generators if isinstance(parent, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) else ():
                if any(isinstance(node, ast.Name) and node.id == name.id for node in ast.walk(part.target)):
                    return part
        return None

    def _put_in(self, name: ast.Name, home: ast.AST, depth: int) -> On:
        """What is put into a container of this name where it is made."""
        if self._loop is None and home is self.tree.module:
            return NOTHING
        found = NOTHING
        for node in self.changed(name.id):
            if self.definitions_at(node, name.id) is not self.by_scope.get((home, name.id)):
                continue
            if isinstance(node, ast.Call):
                found |= self._of_all([part for part in node.args if not (isinstance(part, ast.Name) and part.id == name.id)], depth)
            elif isinstance(statement := self.tree.statement_of(node), _Assigned) and statement.value is not None:
                found |= self._of(statement.value, depth + 1)
        return found

    def _of_definition(self, one: Definition, name: ast.Name, home: ast.AST, depth: int) -> On:
        if isinstance(one.node, ast.arg):
            return self._of_parameter(one.node, home, depth)
        around = self.loop_of(one.node) if not isinstance(one.node, Loop) else one.node
        if self._loop is not None and home is self.scope_of(self._loop):
            if one.node is self._loop or isinstance(one.node, ast.AugAssign):
                return frozenset((DATA,)) | (self._of(one.value, depth) & {MODEL, WEIGHTS} if one.value is not None else NOTHING)
            if not self.is_in(one.node, self._loop):  # made before the loop
                made_by_model = one.value is not None and MODEL in self._of(one.value, depth)
                return frozenset((EARLIER,)) if made_by_model else NOTHING
        elif home is self.tree.module:
            return frozenset((DATA,)) if around is not None and self.scope_of(name) is not home else NOTHING
        if one.value is None:
            return frozenset((UNKNOWN,))
        return self._of(one.value, depth)

    def _by_changes(self, name: ast.Name, home: ast.AST) -> On:
        """What is changed in place changes from step to step, unless that was done before the loop, or when its own function made it."""
        self._looked += len(self.changed(name.id))
        if self._looked > MAX_LOOKED:
            raise TooTangled
        changes = [node for node in self.changed(name.id) if self.definitions_at(node, name.id) is self.by_scope.get((home, name.id))]
        if self._loop is not None and home is self.scope_of(self._loop):
            changes = [node for node in changes if self.is_in(node, self._loop) or self.scope_of(node) is not home]
            made_there = all(self.is_in(one.node, self._loop) and one.node is not self._loop for one in self.definitions(name))
            return NOTHING if made_there else self._by_change(changes)
        if home is self.tree.module:
            changes = [node for node in changes if self.scope_of(node) is not home or self.loop_of(node) is not None]
            return self._by_change(changes)
        return NOTHING

    @staticmethod
    def _by_change(changes: Sequence[ast.AST]) -> On:
        """What draws random numbers needs no step before it; what is written from step to step needs them all, in their order."""
        methods = [node.func.attr for node in changes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        drawn = len(methods) == len(changes) and all(RANDOM.search(name) for name in methods)
        return NOTHING if not changes else frozenset((DATA,)) if drawn else frozenset((DATA, UNKNOWN))

    def _of_parameter(self, argument: ast.arg, home: ast.AST, depth: int) -> On:
        """What the calls in this file hand over."""
        if not isinstance(home, Function) or home.name in ("forward", "__call__") or argument.arg == "self":
            return frozenset((MODEL, DATA))
        calls = [call for call in self.calls.get(home.name, ()) if self.tree.function_of(call) is not home]
        if not calls:
            return frozenset((UNKNOWN,))
        position = [one.arg for one in (*home.args.posonlyargs, *home.args.args)]
        is_method = position[:1] in (["self"], ["cls"])
        before = self._loop
        found = NOTHING
        for call in calls:
            self._loop = self.loop_of(call)
            value = _argument(call, argument.arg, position[is_method:])
            found |= (
                frozenset((UNKNOWN,)) if value is None and _has_stars(call) else NOTHING if value is None else self._of(value, depth + 1)
            )
        self._loop = before
        return found

    def is_length(self, part: ast.AST) -> bool:
        """Whether a part is the length of something that nobody makes longer: a size, as a tensor's shape is."""
        if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Name) or part.func.id != "len" or len(part.args) != 1:
            return False
        of = part.args[0]
        return isinstance(of, ast.Name) and not self.definitions(part.func) and not self.changed(of.id)

    def _of_call(self, call: ast.Call, depth: int) -> On:  # noqa: PLR0911 - one answer for each way to call
        name = called(call)
        if self.is_length(call):
            return NOTHING
        if self.makes_layer(call):
            return frozenset((EFFECT,))  # of random weights
        arguments = self._of_all((*call.args, *(word.value for word in call.keywords)), depth)
        chance = frozenset((DATA,)) if RANDOM.search(name) else NOTHING
        if name in ("backward", "grad"):
            return arguments | {MODEL}
        if isinstance(call.func, ast.Name):
            return arguments | chance | self._of_function(call.func, depth)
        if not isinstance(call.func, ast.Attribute):
            return arguments | {UNKNOWN}
        if name in SIZES:
            return NOTHING
        if name in OF_WEIGHTS:
            return frozenset((WEIGHTS,))
        if name == "get" and not call.args:  # a queue's: a dictionary's has a key
            return arguments | {EFFECT, UNKNOWN}
        root = root_of(call.func)
        if isinstance(root, ast.Name) and root.id in self.modules | self.foreign and not self.definitions(root):
            return arguments | chance | self._of_library(root.id, ast.unparse(call.func), name)
        return self._of_method(call.func, arguments | chance, depth)

    def _of_method(self, func: ast.Attribute, arguments: On, depth: int) -> On:
        """What a method brings in: one of the file by its body, a model's by what it is."""
        name, root = func.attr, root_of(func)
        method = self.functions.get(name)
        if method is not None and self.tree.class_of(method) is not None:
            receiver = NOTHING if isinstance(func.value, ast.Name) and func.value.id == "self" else self._of(func.value, depth + 1)
            return arguments | receiver | self._of_body(method, depth)
        if isinstance(func.value, ast.Name) and func.value.id == "self":
            return arguments | {MODEL}
        receiver = self._of(func.value, depth + 1)
        if isinstance(func.value, ast.Name) and self.is_model(func.value):
            return arguments | {MODEL}
        return arguments | receiver | (NOTHING if needless.is_pure(name) or self._is_made_here(root, name) else frozenset((EFFECT,)))

    def _of_library(self, root: str, path: str, name: str) -> On:
        """What a function of a module brings in: one that is not known to compute only may change something, or read a file."""
        if path.startswith("os.path.") or (root in self.modules and not _READS.match(name)) or root == "re":
            return NOTHING
        return (
            frozenset((DATA, EFFECT)) if root == "random" else frozenset((EFFECT, UNKNOWN)) if _READS.match(name) else frozenset((EFFECT,))
        )

    def _is_made_here(self, root: ast.expr, name: str) -> bool:
        """Whether only the function that changes an object has it: it has made it itself, perhaps in the same line."""
        if not isinstance(root, ast.Name):
            return isinstance(root, ast.Call | ast.BinOp) and not needless.changes(name)
        scope, definitions = self.scope_of(root), self.definitions(root)
        return bool(definitions) and all(
            isinstance(one.node, ast.Assign)
            and self.scope_of(one.node) is scope is not self.tree.module
            and not isinstance(one.value, ast.Name | ast.Attribute | ast.Subscript)
            for one in definitions
        )

    def _of_function(self, name: ast.Name, depth: int) -> On:  # noqa: PLR0911 - one answer for each kind of name
        definitions = self.definitions(name)
        if not definitions and (function := self.functions.get(name.id)) is not None:
            return self._of_body(function, depth)
        if not definitions and name.id in self.classes:
            return frozenset((EFFECT,))
        if definitions and all(isinstance(one.value, ast.Lambda) for one in definitions):
            return NOTHING.union(*(self._of(one.value.body, depth + 1) for one in definitions if isinstance(one.value, ast.Lambda)))
        if definitions or self.is_model(name):
            return frozenset((MODEL,))
        if name.id in self.imported:
            return NOTHING
        if name.id in needless.BUILTINS:
            return NOTHING
        return frozenset((DATA, EFFECT)) if name.id in ("next", "input") else frozenset((EFFECT, UNKNOWN))

    def _of_body(self, function: Function, depth: int) -> On:
        """What a function brings in itself: chance, models, weights, and what changes outside of it. Its arguments are the caller's."""
        key = (function, "")
        if key in self._busy:
            return NOTHING
        self._busy.add(key)
        before, self._loop = self._loop, None
        own = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        self._busy |= (given := {(function, name) for name in own} - self._busy)
        try:
            found = self._of_all(function.body, depth)
        finally:
            self._busy -= {key, *given}
            self._loop = before
        found -= {DATA} if not self._brings_data(function) else NOTHING
        return found | (NOTHING if not self._changes_outside(function, own) else frozenset((EFFECT,)))

    def _brings_data(self, function: Function) -> bool:
        """Whether the function itself draws random numbers, or reads what changes outside of it."""
        local = {name for scope, name in self.by_scope if scope is function}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and (RANDOM.search(called(node)) or called(node) in ("next", "input")):
                return True
            if isinstance(node, ast.Name) and node.id not in local and DATA in self._by_changes_outside(node):
                return True
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
                and isinstance(node.ctx, ast.Load)
            ):
                parent = self.tree.parents.get(node)
                if not (isinstance(parent, ast.Call) and parent.func is node) and DATA in self._of_own(node):
                    return True
            if (
                isinstance(node, ast.Call)
                and (other := self.functions.get(called(node))) is not None
                and (other, "brings") not in self._busy
            ):
                self._busy.add((other, "brings"))
                if self._brings_data(other):
                    return True
        return False

    def _by_changes_outside(self, name: ast.Name) -> On:
        definitions = self.definitions(name)
        in_loops = any(self.loop_of(one.node) is not None or isinstance(one.node, Loop) for one in definitions)
        return frozenset((DATA,)) if in_loops or self._by_changes(name, self.tree.module) else NOTHING

    def _changes_outside(self, function: Function, own: set[str]) -> bool:
        local = {name for scope, name in self.by_scope if scope is function} - own
        for node in ast.walk(function):
            if isinstance(node, ast.Global | ast.Nonlocal):
                return True
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                return True
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                root = root_of(node)
                if not isinstance(root, ast.Name) or root.id not in local:
                    return True
        return False


def _argument(call: ast.Call, name: str, positions: Sequence[str]) -> ast.expr | None:
    given = next((word.value for word in call.keywords if word.arg == name), None)
    if given is None and name in positions and positions.index(name) < len(call.args):
        return call.args[positions.index(name)]
    return given


def _has_stars(call: ast.Call) -> bool:
    return any(isinstance(part, ast.Starred) for part in call.args) or any(word.arg is None for word in call.keywords)
