"""Follow values through a file: a graph of its names, attributes and functions, in whatever order its lines run.

`depends` follows an expression back to what it is made of. It does not see what other lines put there meanwhile: by another name of
an array, by a method that keeps what it is given, by a view, or by a branch that is taken or not. Here each of them is an edge. So a
value that no edge leads to is seen to have nothing of a model, and one from which none leads to a loss is seen to be no part of it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import Definitions, called
from sysperf.script.cures.depends import TooTangled
from sysperf.script.cures.keys import COMBINES, LOSS, MODEL, NONE, SEED, WEIGHTS, Key, Keys, KeySet
from sysperf.script.nodes import arguments, root_of
from sysperf.script.syntax import Function, Loop
from sysperf.startup import lazy

_KEEPS = lazy(r"_$|^(?:append|appendleft|extend|add|update|insert|put|setdefault)$")
"""Methods that do nothing but keep, or change a tensor."""
FILLS_GIVEN = lazy(r"^(?:at|copyto|put|put_along_axis|putmask|place|fill_diagonal)$")
"""Functions of NumPy, as `np.add.at`, that do nothing but change the array that they are given."""
_SEEDS = lazy(r"seed|set_(?:rng_)?state")
_OF_TRAINING = frozenset(("forward", "__call__", "training_step"))
"""Methods that others call, of whose results a loss is made."""
MAX_EDGES = 100_000
"""A file of 130 kB had up to 37,000. Many methods of one name, called often, have more than an answer is worth."""
_Guarded = ast.If | ast.While | ast.Try | ast.Match | ast.For | ast.AsyncFor


class Flows(Keys):
    """The graph of one file. Raises TooTangled where it has too many edges."""

    def __init__(self, source: Definitions) -> None:
        super().__init__(source)
        self._edges: dict[Key, set[Key]] = defaultdict(set)
        self._guards: dict[ast.AST, KeySet] = {}
        self._steps: dict[ast.AST, bool] = {}
        self._stored: dict[ast.AST, set[Key]] = {}
        self._handed: dict[str, set[Key]] = defaultdict(set)
        self._made = 0
        self._build()
        self.of_models = self.reached((WEIGHTS, MODEL))
        """All that a model, its weights or its gradients have a part in."""
        self.given_models = {name for name, keys in self._handed.items() if not keys.isdisjoint(self.of_models)}
        """Modules and functions out of sight that are given something of a model."""

    def reached(self, keys: Iterable[Key], *, beyond_weights: bool = True) -> set[Key]:
        """All to which values flow from these; without what is written into weights, where that is asked for."""
        found, waiting = set(keys), list(keys)
        while waiting:
            for key in self._edges.get(waiting.pop(), ()):
                if key not in found and (beyond_weights or not self._is_in_weights(key)):
                    found.add(key)
                    waiting.append(key)
        return found

    def _is_in_weights(self, key: Key) -> bool:
        """Whether it is what is put into an optimizer or a weight, and into no model."""
        return isinstance(key[0], tuple) and key[0] in self._edges[WEIGHTS] and key[0] not in self._edges[MODEL]

    def _build(self) -> None:
        for (scope, name), several in self.source.by_scope.items():
            for one in several:
                value = self._matched(one.node) if isinstance(one.node, ast.MatchAs | ast.MatchStar) else one.value
                if value is not None:
                    self._give((scope, name), value, one.node)
                if self.tree.class_of(one.node) is not None and scope is self.tree.module:
                    self._both((scope, name), (None, f".{name}"))
        for assign in self.tree.of(ast.Assign, ast.AugAssign, ast.AnnAssign):
            self._stores(assign)  # type: ignore[arg-type]
        for call in self.tree.of(ast.Call):
            self._call(call)
        for given in self.tree.of(ast.Return, ast.Yield, ast.YieldFrom):
            self._returned(given)  # type: ignore[arg-type]
        for function in self.tree.functions:
            self._defaults(function)
        for end in self.tree.of(ast.Break, ast.Continue):
            self._ended(end)

    def _matched(self, pattern: ast.AST) -> ast.AST | None:
        return next((parent.subject for parent in self.tree.ancestors(pattern) if isinstance(parent, ast.Match)), None)

    def _give(self, key: Key, value: ast.AST, node: ast.AST) -> None:
        """A name or an attribute gets a value, or a part of it, here."""
        self._edge(self.keys_of(value) | self._guard(node), key)
        for shared in self.shared(value):
            self._both((key, "in"), (shared, "in"))

    def _both(self, one: Key, other: Key) -> None:
        self._edge((one,), other)
        self._edge((other,), one)

    def _edge(self, froms: Iterable[Key], to: Key) -> None:
        froms = tuple(froms)
        self._made += 1 + len(froms)
        if self._made > MAX_EDGES:
            raise TooTangled
        for key in froms:
            self._edges[key].add(to)
        if to[1] == "in" and isinstance(to[0], tuple):
            self._edges[to].add(to[0])

    def _stores(self, assign: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        """What is stored in an attribute or an element."""
        targets = assign.targets if isinstance(assign, ast.Assign) else [assign.target]
        for part in (node for target in targets for node in ast.walk(target)):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and assign.value is not None:
                value = self.source.given_to(assign).get(part, assign.value) if isinstance(assign, ast.Assign) else assign.value
                self._give(self.attribute(part), value, assign)
                if part.attr == "grad":
                    self._edge(self.keys_of(value), LOSS)
                if part.attr in ("data", "requires_grad"):
                    self._write(part.value, self.keys_of(value) | ({WEIGHTS} if part.attr != "data" else NONE), assign)
            elif isinstance(part, ast.Subscript) and isinstance(part.ctx, ast.Store) and assign.value is not None:
                self._write(part.value, self.keys_of(assign.value) | self.keys_of(part.slice), assign)
            elif isinstance(part, ast.Name) and isinstance(assign, ast.AugAssign):
                self._write(part, self.keys_of(assign.value), assign)

    def _write(self, target: ast.AST, keys: KeySet, node: ast.AST) -> None:
        """What these have goes into an object, whatever names it has."""
        keys |= self._guard(node)
        for key in self.shared(target):
            self._edge(keys, (key, "in"))
            if key[1] == ".grad":
                self._edge(keys, LOSS)

    def _call(self, call: ast.Call) -> None:
        """What a call hands over, and what it changes."""
        name, func = called(call), call.func
        parts = arguments(call)
        given = self._of_all(parts)
        receiver = [func.value] if isinstance(func, ast.Attribute) else []
        if isinstance(root := root_of(func), ast.Name) and root.id in self.source.foreign:
            self._handed[root.id] |= given
        if name in ("backward", "grad"):
            self._edge(given | self._of_all(receiver), LOSS)
        if _SEEDS.search(name):
            self._edge(given | self._guard(call), SEED)
        for function in self._callees(name):
            self._hand_over(call, function)
        for part in parts:  # functions that are handed over get what is beside them
            self._call_back(call, part, [*receiver, *(other for other in parts if other is not part)])
        if self._named.get(name) or needless.only_tells(call):
            return
        self._change(call, given)

    def _change(self, call: ast.Call, given: KeySet) -> None:
        """What a call out of sight may change: its object, and what it is given."""
        func, name, root = call.func, called(call), root_of(call.func)
        is_module = (
            isinstance(root, ast.Name) and root.id in self.source.modules | self.source.foreign and not self.source.definitions(root)
        )
        has_object = isinstance(func, ast.Attribute) and not is_module
        if isinstance(func, ast.Attribute) and has_object and not needless.is_pure(name) and not COMBINES.match(name):
            self._write(func.value, given, call)
        written = [word.value for word in call.keywords if word.arg == "out"]
        is_builtin = isinstance(func, ast.Name) and func.id in needless.BUILTINS
        is_statement = isinstance(self.tree.parents.get(call), ast.Expr | ast.withitem)
        if is_statement and not (_KEEPS.search(name) if has_object else is_module and FILLS_GIVEN.match(name)):
            self._edge(given, LOSS)
        if (is_statement and not has_object) or (needless.changes(name) and not is_builtin):
            written += call.args[:1] if is_module and FILLS_GIVEN.match(name) else arguments(call)
        for part in written:
            self._write(part, given, call)

    def _callees(self, name: str) -> Sequence[Function]:
        made = self.source.classes.get(name)
        own = (
            [part for part in made.body if isinstance(part, Function) and part.name in ("__init__", "__new__")] if made is not None else []
        )
        return [*self._named.get(name, ()), *own]

    def _hand_over(self, call: ast.Call, function: Function) -> None:
        """Arguments become what the function calls them."""
        arguments = function.args
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        known = {*names, *(one.arg for one in arguments.kwonlyargs)}
        for place, part in enumerate(call.args):
            to = names[place : place + 1] if not any(isinstance(one, ast.Starred) for one in call.args[: place + 1]) else names
            self._to_parameters(function, to or [arguments.vararg.arg if arguments.vararg else ""], part, call)
        for word in call.keywords:
            to = [word.arg] if word.arg in known else [arguments.kwarg.arg] if arguments.kwarg else list(known)
            self._to_parameters(function, to, word.value, call)

    def _to_parameters(self, function: Function, names: Iterable[str], part: ast.AST, call: ast.Call) -> None:
        for name in names:
            self._give((function, name), part, call)

    def _call_back(self, call: ast.Call, part: ast.expr, others: Sequence[ast.expr]) -> None:
        """A function that is handed over may be given all that is beside it, by whom it is handed to."""
        if isinstance(part, ast.Lambda):
            self._hand_all([self.key_at(part, one.arg) for one in part.args.args], others, call)
        for function in self._named.get(part.id, ()) if isinstance(part, ast.Name) else ():
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            self._hand_all([(function, one.arg) for one in arguments if one.arg not in ("self", "cls")], others, call)
            if called(call) == "step":
                self._edge(((function, "return"),), LOSS)

    def _hand_all(self, to: Sequence[Key], parts: Sequence[ast.expr], call: ast.Call) -> None:
        for key in to:
            for part in parts:
                self._give(key, part, call)

    def _defaults(self, function: Function) -> None:
        arguments = function.args
        names = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(reversed(names), reversed(arguments.defaults), strict=False))
        pairs += [(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is not None]
        for one, value in pairs:
            self._give((function, one.arg), value, value)
        if function.name in _OF_TRAINING or function.name not in self.source.calls:
            self._edge(((function, "return"),), LOSS)

    def _returned(self, given: ast.Return | ast.Yield | ast.YieldFrom) -> None:
        function = self.tree.function_of(given)
        if given.value is not None:
            self._give((function, "return"), given.value, given)

    def _ended(self, end: ast.AST) -> None:
        """What decides whether a round of a loop ends here has a part in all that the loop gives a value."""
        loop = self.source.loop_of(end)
        if loop is None or self.trains(loop):
            return
        if (keys := self._guard(end)) and loop not in self._stored:
            names = (node for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
            self._stored[loop] = {self.key_of(name) for name in names}
        for key in self._stored[loop] if keys else ():
            self._edge(keys, key)

    def _guard(self, node: ast.AST) -> KeySet:
        """What decides whether a line runs, within its function."""
        parent = self.tree.parents.get(node)
        if parent is None or isinstance(node, Function | ast.Module):
            return NONE
        if node not in self._guards:
            self._guards[node] = self._guard(parent) | self._decides(parent, node)
        return self._guards[node]

    def _decides(self, parent: ast.AST, node: ast.AST) -> KeySet:
        if not isinstance(parent, _Guarded) or not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            return NONE
        if isinstance(parent, ast.Try):
            return (
                self._of_all(one for part in parent.body for one in ast.walk(part) if isinstance(one, ast.Call))
                if node not in parent.body
                else NONE
            )
        if isinstance(parent, ast.Match):
            return self.keys_of(parent.subject)
        if isinstance(parent, ast.For | ast.AsyncFor):
            return self.keys_of(parent.iter)
        return NONE if isinstance(parent, ast.While) and self.trains(parent) else self.keys_of(parent.test)

    def trains(self, loop: Loop | Function) -> bool:
        """Whether a loop is one of steps, itself or by a function: how long it runs says nothing of what is in one."""
        if loop not in self._steps:
            self._steps[loop] = False  # of a function that calls itself nobody knows
            names = {called(one) for one in ast.walk(loop) if isinstance(one, ast.Call)}
            self._steps[loop] = not names.isdisjoint(("backward", "step")) or any(
                self.trains(function) for name in names for function in self._named.get(name, ())
            )
        return self._steps[loop]
