"""Which loops evaluate: what goes over a loader or over samples with a model, and only reads what it gives."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from sysperf.script.nodes import last_name, names_in, root_of
from sysperf.script.semantics.kinds import LOSS_METHODS, PASSED_ON
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.steps import Steps
from sysperf.script.semantics.values import Values
from sysperf.script.syntax import Function, Loop, Tree, within
from sysperf.startup import lazy

_EVALUATES = lazy(
    r"(?i)(\w*_)?(eval|evaluate|evaluation|valid|validate|validation|val|test|infer|inference|predict|generate|sample)(_\w+)?"
)
_GENERATES = lazy(r"(?i)(\w+_)?(generate|sample)(_\w+)?")
"""Functions whose rounds give one word or picture after the other: each needs the one before."""
_MEASURES = lazy(r"(?i)\w*(eval|valid|test)\w*")
"""Functions that look how good a model is, also where each round needs the one before."""
_GIVES = lazy(
    r"(?i)(\w+_)?(generate|sample|infer|inference|predict|demo|translate|caption|embed|embeddings?|encode|extract|serve|play|act|chat|features?)(_\w+)?"
)
"""Functions that give or show results, which have to leave the device."""
_HELD_OUT = lazy(
    r"(?i)_*(test|val|valid|validation|eval|dev)(_?set)?_?(data)?_?(loader|dl)|_*(data_?)?(loader|dl)_(test|val|valid|validation|eval|dev)"
)
"""Loaders of data that nothing is trained on."""
_NO_GRAD = frozenset(("no_grad", "inference_mode"))
_READS = frozenset(("item", "cpu", "numpy", "tolist", "argmax", "detach"))
"""Methods whose result nobody differentiates."""


class Evaluations(Steps):
    """The evaluations of a file, beside the steps and epochs of its training."""

    def __init__(self, tree: Tree, names: Names, values: Values) -> None:
        super().__init__(tree, names, values)
        self.evaluations = {loop for loop in tree.loops if self._evaluates(loop)}

    def _evaluates(self, loop: Loop) -> bool:
        """A loop over a loader that neither trains nor holds a loop that does, in code that evaluates."""
        if isinstance(loop, ast.While) or loop in self.steps or loop in self.epochs or self.measures(loop):
            return False
        function = self._tree.function_of(loop)
        if not self._values.is_a(loop.iter, "loader"):
            if (function is None or not _MEASURES.fullmatch(function.name)) and self._feeds_back(loop):
                return False
            parts = function is not None and (self._evaluates_parts(function, loop) or self._evaluates_batches(function, loop))
            return parts or self._evaluates_samples(function, loop) or self._evaluates_between_epochs(function, loop)
        named = any(_HELD_OUT.fullmatch(last_name(part)) for part in within(loop.iter) if isinstance(part, ast.Name | ast.Attribute))
        if named or (function is not None and _EVALUATES.fullmatch(function.name)) or self._runs_without_gradients(loop):
            return True
        body: list[ast.stmt] = function.body if function is not None else self._tree.module.body
        calls = [part for statement in body for part in within(statement) if isinstance(part, ast.Call)]
        inside = [part for statement in loop.body for part in within(statement) if isinstance(part, ast.Call)]
        modes = _modes(inside) or _modes(call for call in calls if call.lineno <= loop.lineno)
        hooked = function is not None and any(self._trains_in_a_hook(call, function) for call in calls)
        reads = (
            not hooked and modes[-1:] != ["eval"] and (not modes or self._follows_training(loop)) and self._only_reads(loop, inside, calls)
        )
        return reads or (not hooked and modes[-1:] == ["eval"])

    def _runs_without_gradients(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop only calls a model, where gradients are off."""
        gives = any(isinstance(part, ast.Yield) for part in within(loop))
        return self._turns_off and not gives and self._is_without_gradients(loop) and self._calls_model(loop)

    def _feeds_back(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a round gives a model what it gave in the one before: the next word of a text, the next step of a simulation."""
        made = _made_of(loop)
        calls = [part for part in within(loop) if isinstance(part, ast.Call) and self.is_model(part)]
        return any(_leads_to(made, call, self._tree.statement_of(call)) for call in calls)

    def _only_reads(self, loop: ast.For | ast.AsyncFor, inside: list[ast.Call], calls: list[ast.Call]) -> bool:
        """Whether a loop calls a model only to read numbers and results of it: nothing around it is differentiated."""
        if (
            not self._calls_model(loop)
            or any(isinstance(part, ast.Yield) for part in within(loop))
            or self._are_differentiated(loop, calls)
        ):
            return False
        return any(last_name(call.func) in _READS and self._reads_tensor(call) for call in inside)

    def _are_differentiated(self, loop: ast.For | ast.AsyncFor, calls: list[ast.Call]) -> bool:
        """Whether a backward pass stands outside of the loops that train: it may be one through what a loop gives."""
        steps = [outer for outer in self.steps if outer not in self._tree.ancestors(loop)]
        differs = (call for call in calls if last_name(call.func) in ("backward", "grad", "manual_backward"))
        return any(not any(outer in self._tree.ancestors(call) for outer in steps) for call in differs)

    def _reads_tensor(self, call: ast.Call) -> bool:
        """Whether what is read comes from a model or a loss, through methods and functions of it."""
        return any(
            self._values.is_a(part, "output", "loss", "detached", "tensor")
            for part in within(call)
            if isinstance(part, ast.Name | ast.Call)
        )

    def _trains_in_a_hook(self, call: ast.Call, function: Function) -> bool:
        """Whether a function within another makes a backward pass: the model that it is registered with calls it."""
        return last_name(call.func) == "backward" and self._tree.function_of(call) is not function

    def _follows_training(self, loop: Loop) -> bool:
        """Whether a loop over a loader stands behind one that trains, in the same epoch."""
        around = [parent for parent in self._tree.ancestors(loop) if parent in self.epochs]
        return any(outer in self._tree.ancestors(step) and step.lineno < loop.lineno for outer in around for step in self.steps)

    def _evaluates_parts(self, function: Function, loop: ast.For | ast.AsyncFor) -> bool:
        """A loop that calls a model, or over parts of data in memory, of a function that says it evaluates and calls `eval()`."""
        outer = any(isinstance(parent, ast.For | ast.AsyncFor | ast.While) for parent in self._tree.ancestors(loop))
        if (
            outer
            or not _EVALUATES.fullmatch(function.name)
            or _GENERATES.fullmatch(function.name)
            or self._values.is_a(loop.iter, "loaders")
        ):
            return False
        calls = [part for statement in function.body for part in within(statement) if isinstance(part, ast.Call)]
        helpers = (helper for call in calls for helper in self._names.functions.get(last_name(call.func), ())[:1])
        calls += [part for helper in dict.fromkeys(helpers) for part in within(helper) if isinstance(part, ast.Call)]
        own = (part for statement in function.body for part in within(statement) if isinstance(part, ast.Call) and self.is_model(part))
        whole = any(not any(isinstance(parent, ast.For | ast.While) for parent in self._tree.ancestors(call)) for call in own)
        return "eval" in _modes(calls) and ((self._counted(loop) is not None and not whole) or self._calls_model(loop))

    def _evaluates_batches(self, function: Function, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop goes over parts of data with a model that was put into evaluation: ``for k in range(0, n, batch_size)``."""
        counted = self._counted(loop)
        if counted is None or not self._calls_model(loop):
            return False
        if len(counted.args) != len(("start", "stop", "step")) and not all(_takes_first(loop, call) for call in self.model_calls(loop)):
            return False
        last = loop.end_lineno or loop.lineno
        before = (part for statement in function.body for part in within(statement) if isinstance(part, ast.Call) and part.lineno <= last)
        return _modes(sorted(before, key=lambda call: call.lineno))[-1:] == ["eval"]

    def _evaluates_between_epochs(self, function: Function | None, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop calls a model that was put into evaluation behind a loop of the same epoch that trains, whatever it goes over."""
        if not self._follows_training(loop) or not self._calls_model(loop):
            return False
        body: list[ast.stmt] = function.body if function is not None else self._tree.module.body
        calls = [part for statement in body for part in within(statement) if isinstance(part, ast.Call)]
        before = sorted((call for call in calls if call.lineno <= loop.lineno), key=lambda call: call.lineno)
        return _modes(before)[-1:] == ["eval"] and not self._are_differentiated(loop, calls)

    def _evaluates_samples(self, function: Function | None, loop: ast.For | ast.AsyncFor) -> bool:
        """A loop that calls a model without gradients on what each round takes anew, where a number is read of it."""
        if (
            not self._turns_off
            or (function is not None and _GIVES.fullmatch(function.name))
            or any(outer in self.steps for outer in self._tree.ancestors(loop))
        ):
            return False
        if not self._is_without_gradients(loop) and not any(isinstance(part, ast.With) for part in within(loop)):
            return False
        calls = self.model_calls(loop) if self._calls_model(loop) else []
        return bool(calls) and all(
            self._is_without_gradients(call) and _takes_first(loop, call, counted=self._counted(loop) is not None) for call in calls
        )

    @cached_property
    def _turns_off(self) -> bool:
        """Whether the file turns gradients off anywhere."""
        statements: list[ast.With | ast.AsyncWith] = [*self._tree.of(ast.With), *self._tree.of(ast.AsyncWith)]
        around = [item.context_expr for each in statements for item in each.items]
        around += [each for function in self._tree.functions for each in function.decorator_list]
        return any(_is_no_grad(each) for each in around)

    def _is_without_gradients(self, call: ast.AST) -> bool:
        """Whether a `with` or a decorator around a call turns gradients off."""
        around: list[ast.expr] = []
        for parent in self._tree.ancestors(call):
            around += [item.context_expr for item in parent.items] if isinstance(parent, ast.With | ast.AsyncWith) else []
            around += parent.decorator_list if isinstance(parent, Function) else []
        return any(_is_no_grad(each) for each in around)

    def _counted(self, loop: ast.For | ast.AsyncFor) -> ast.Call | None:
        """The `range` whose numbers a loop goes through, also under the name of a bar: ``bar = tqdm(range(n))``."""
        counted = self._values.shown(loop.iter)
        while isinstance(counted, ast.Call) and last_name(counted.func) in PASSED_ON and counted.args:
            counted = counted.args[0]
        return counted if isinstance(counted, ast.Call) and last_name(counted.func) in ("range", "trange") else None

    def _calls_model(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop calls a model, and does not go over several."""
        return bool(self.model_calls(loop)) and not any(self._values.is_a(part, "model") for part in within(loop.target))

    def model_calls(self, loop: Loop) -> list[ast.Call]:
        """The calls of models in a loop and in the functions of the file that it calls; none where these train."""
        calls = [part for part in within(loop) if isinstance(part, ast.Call)]
        helpers = [functions[0] for call in calls if len(functions := self._names.functions.get(last_name(call.func), [])) == 1]
        calls += [part for helper in dict.fromkeys(helpers) for part in within(helper) if isinstance(part, ast.Call)]
        if any(last_name(call.func) in ("backward", "grad", "step") for call in calls):
            return []
        return [call for call in calls if self.is_model(call)]

    def is_model(self, call: ast.Call) -> bool:
        """Whether a model is called: ``model(x)``, ``model.forward(x)``, ``model.loss(x, y)``."""
        method = call.func if isinstance(call.func, ast.Attribute) else None
        whole = method is not None and (method.attr == "forward" or LOSS_METHODS.fullmatch(method.attr))
        called = method.value if method is not None and whole else call.func
        return self._values.is_a(called, "model", "lightning")


def _made_of(loop: Loop) -> list[tuple[str, ast.stmt, set[str]]]:
    """What a loop makes or adds to, by its name, the statement and the names that it is made of."""
    made: list[tuple[str, ast.stmt, set[str]]] = []
    for part in within(loop):
        if isinstance(part, ast.Assign):
            stored = {last.id for target in part.targets for last in ast.walk(target) if isinstance(last, ast.Name)}
            made += [(name, part, names_in(part.value)) for name in stored]
        elif isinstance(part, ast.AugAssign) and isinstance(root := root_of(part.target), ast.Name):
            made.append((root.id, part, {root.id, *names_in(part.value)}))
        elif isinstance(part, ast.Expr) and isinstance(call := part.value, ast.Call) and last_name(call.func) in ("append", "extend"):
            root = root_of(call.func)
            made += [(root.id, part, {root.id, *names_in(*call.args)})] if isinstance(root, ast.Name) else []
    return made


def _leads_to(made: list[tuple[str, ast.stmt, set[str]]], call: ast.Call, statement: ast.stmt) -> bool:
    """Whether what a call is given is made of what it gave in an earlier round."""
    gives = {name for name, place, _ in made if place is statement}
    waiting, seen = [*names_in(*call.args, *(given.value for given in call.keywords))], {"self"}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        own = [(place, names) for bound, place, names in made if bound == name]
        anew = [(place, names) for place, names in own if place.lineno < call.lineno and name not in names]
        if name in gives and not anew:
            return True
        seen.add(name)
        waiting += [other for _, names in anew or own for other in names if other not in seen]
    return False


def _is_no_grad(node: ast.expr) -> bool:
    return last_name(node.func if isinstance(node, ast.Call) else node) in _NO_GRAD


def _takes_first(loop: ast.For | ast.AsyncFor, call: ast.Call, *, counted: bool = True) -> bool:
    """Whether what a call is given is taken anew in each round before: what it gave in the round before is no part of it."""
    parts = [part for given in (*call.args, *(named.value for named in call.keywords)) for part in within(given)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    stored = [part for part in within(loop) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and part.id in names]
    taken = [part for part in stored if part is not loop.target or not counted]
    return bool(taken) and all(part.lineno < call.lineno for part in taken)


def _modes(calls: Iterable[ast.Call]) -> list[str]:
    """The switches between training and evaluation: ``model.eval()`` and ``model.train(False)`` are the same."""
    return [mode for call in calls if (mode := _mode(call))]


def _mode(call: ast.Call) -> str:
    name, given = last_name(call.func), [*call.args, *(named.value for named in call.keywords if named.arg == "mode")]
    if name not in ("eval", "train") or not given:
        return name if name in ("eval", "train") else ""
    told = given[0].value if name == "train" and len(given) == 1 and isinstance(given[0], ast.Constant) else None
    return {True: "train", False: "eval"}.get(told, "") if isinstance(told, bool) else ""
