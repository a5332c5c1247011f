"""Which loops train, evaluate or go through epochs, and how often a piece of code runs: in each step, in each epoch, once."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from sysperf.script.conditions import Conditions, absent, fills, missing
from sysperf.script.kinds import LOSS_METHODS
from sysperf.script.names import Names
from sysperf.script.nodes import dotted, last_name
from sysperf.script.steps import CALLBACK_HOOKS, MAX_DEPTH, STEP_HOOKS, Steps
from sysperf.script.syntax import Function, Loop, Tree, within
from sysperf.script.values import Values
from sysperf.startup import lazy

EVALUATION_HOOKS = frozenset(("validation_step", "test_step", "predict_step", "prediction_step"))
SAMPLE_METHODS = frozenset(("__getitem__", "__getitems__"))
_EVALUATES = lazy(
    r"(?i)(\w*_)?(eval|evaluate|evaluation|valid|validate|validation|val|test|infer|inference|predict|generate|sample)(_\w+)?"
)
_GENERATES = lazy(r"(?i)(\w+_)?(generate|sample)(_\w+)?")
"""Functions whose rounds give one word or picture after the other: each needs the one before."""
_GIVES = lazy(
    r"(?i)(\w+_)?(generate|sample|infer|inference|predict|demo|translate|caption|embed|embeddings?|encode|extract|serve|play|act|chat|features?)(_\w+)?"
)
"""Functions that give or show results, which have to leave the device."""
_HELD_OUT = lazy(
    r"(?i)_*(test|val|valid|validation|eval|dev)(_?set)?_?(data)?_?(loader|dl)|_*(data_?)?(loader|dl)_(test|val|valid|validation|eval|dev)"
)
"""Loaders of data that nothing is trained on."""
_READS = frozenset(("item", "cpu", "numpy", "tolist", "argmax", "detach"))
"""Methods whose result nobody differentiates."""
_CRITERION = lazy(r"\w*(Loss|LossCompute|Criterion)")
"""Classes whose forward pass is a part of each step."""
Places = tuple[tuple[Function, int, bool], ...]
"""Parameters of a function, and whether they must be something, or nothing."""


class Where(NamedTuple):
    """How often code runs (`often`: step, evaluation, epoch, forward, sample, or empty), and whether a condition makes it seldom."""

    often: str = ""
    guarded: bool = False
    loop: Loop | None = None


class Loops(Steps):
    """The loops of a file by what they do."""

    def __init__(self, tree: Tree, names: Names, values: Values) -> None:
        super().__init__(tree, names, values)
        self.conditions = Conditions(names, values)
        self._left: dict[ast.stmt, bool] = {}
        self.evaluations = {loop for loop in tree.loops if self._evaluates(loop)}
        self._known: dict[tuple[Function, Places], Where] = {}

    def iterates(self, loop: ast.For | ast.AsyncFor, call: ast.AST) -> bool:
        """Whether a loop goes over what a call makes."""
        return any(value.kind == "loader" and value.origin is call for value in self._values.of(loop.iter))

    def _evaluates(self, loop: Loop) -> bool:
        """A loop over a loader that neither trains nor holds a loop that does, in code that evaluates."""
        if isinstance(loop, ast.While) or loop in self.steps or loop in self.epochs:
            return False
        function = self._tree.function_of(loop)
        if not self._values.is_a(loop.iter, "loader"):
            parts = function is not None and (self._evaluates_parts(function, loop) or self._evaluates_batches(function, loop))
            return parts or self._evaluates_samples(function, loop)
        named = any(_HELD_OUT.fullmatch(last_name(part)) for part in within(loop.iter) if isinstance(part, ast.Name | ast.Attribute))
        if named or (function is not None and _EVALUATES.fullmatch(function.name)):
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

    def _follows_training(self, loop: Loop) -> bool:
        """Whether a loop over a loader stands behind one that trains, in the same epoch."""
        around = [parent for parent in self._tree.ancestors(loop) if parent in self.epochs]
        return any(outer in self._tree.ancestors(step) and step.lineno < loop.lineno for outer in around for step in self.steps)

    def _only_reads(self, loop: ast.For | ast.AsyncFor, inside: list[ast.Call], calls: list[ast.Call]) -> bool:
        """Whether a loop calls a model only to read numbers and results of it: nothing around it is differentiated."""
        if not self._calls_model(loop) or any(isinstance(part, ast.Yield) for part in within(loop)):
            return False
        steps = [outer for outer in self.steps if outer not in self._tree.ancestors(loop)]
        differs = (call for call in calls if last_name(call.func) in ("backward", "grad", "manual_backward"))
        if any(not any(outer in self._tree.ancestors(call) for outer in steps) for call in differs):
            return False
        return any(last_name(call.func) in _READS and self._reads_tensor(call) for call in inside)

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
        return any(last_name(call.func) == "eval" for call in calls) and (_counts(loop) or self._calls_model(loop))

    def _evaluates_batches(self, function: Function, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether a loop goes over parts of data with a model that was put into evaluation: ``for k in range(0, n, batch_size)``."""
        counted = loop.iter if isinstance(loop.iter, ast.Call) and _counts(loop) else None
        if counted is None or not self._calls_model(loop):
            return False
        if len(counted.args) != len(("start", "stop", "step")) and not all(_takes_first(loop, call) for call in self.model_calls(loop)):
            return False
        last = loop.end_lineno or loop.lineno
        before = (part for statement in function.body for part in within(statement) if isinstance(part, ast.Call) and part.lineno <= last)
        return _modes(sorted(before, key=lambda call: call.lineno))[-1:] == ["eval"]

    def _evaluates_samples(self, function: Function | None, loop: ast.For | ast.AsyncFor) -> bool:
        """A loop that calls a model without gradients on what each round takes anew, where a number is read of it."""
        if (function is not None and _GIVES.fullmatch(function.name)) or any(outer in self.steps for outer in self._tree.ancestors(loop)):
            return False
        calls = self.model_calls(loop) if self._calls_model(loop) else []
        return bool(calls) and all(self._is_without_gradients(call) and _takes_first(loop, call, counted=_counts(loop)) for call in calls)

    def _is_without_gradients(self, call: ast.Call) -> bool:
        """Whether a `with` or a decorator around a call turns gradients off."""
        around: list[ast.expr] = []
        for parent in self._tree.ancestors(call):
            around += [item.context_expr for item in parent.items] if isinstance(parent, ast.With | ast.AsyncWith) else []
            around += parent.decorator_list if isinstance(parent, Function) else []
        return any(last_name(each.func if isinstance(each, ast.Call) else each) in ("no_grad", "inference_mode") for each in around)

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

    def is_backward_alone(self, node: ast.AST) -> bool:
        """Whether only a backward pass makes the code around a node a step: an explanation, an attack, or part of one."""
        where = self.where(node)
        return where.often == "step" and bool(self.steps or self.step_functions)

    def where(self, node: ast.AST, depth: int = MAX_DEPTH) -> Where:
        """How often a piece of code runs, through the loop or function around it and the calls of that function."""
        guarded, child = False, node
        named: list[tuple[str, bool]] = []
        for parent in self._tree.ancestors(node):
            guarded = guarded or self._seldom(parent, child)
            if isinstance(parent, ast.If) and child is not parent.test:
                named += asked(parent.test, otherwise=child in parent.orelse)
            if isinstance(parent, ast.For | ast.AsyncFor | ast.While) and (where := self._of_loop(parent, child, guarded)):
                return where
            if isinstance(parent, ast.ListComp | ast.SetComp | ast.DictComp) and self._goes_through_loader(parent, child):
                return Where("evaluation", guarded)
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                where = self.of_function(parent, depth, tuple(named))
                return where._replace(guarded=where.guarded or guarded)
            child = parent
        return Where("", guarded)

    def _goes_through_loader(self, node: ast.ListComp | ast.SetComp | ast.DictComp, child: ast.AST) -> bool:
        """Whether a comprehension makes something of each batch of a loader: ``[net(x).item() for x, _ in loader]``."""
        first = node.generators[0]
        return child is not first and self._values.is_a(first.iter, "loader")

    def _of_loop(self, loop: Loop, child: ast.AST, guarded: bool) -> Where | None:
        if (isinstance(loop, ast.For | ast.AsyncFor) and child in (loop.iter, loop.target)) or child in loop.orelse:
            return None
        if loop in self.steps:  # where an epoch is one step, on all data at once, what it says of itself costs little
            return Where("epoch" if self.is_whole(loop) else "step", guarded, loop)
        if loop in self.evaluations:
            return Where("evaluation", guarded, loop)
        return Where("epoch", guarded, loop) if self.is_epoch(loop) else None

    def of_function(self, function: Function, depth: int = MAX_DEPTH, asked: tuple[tuple[str, bool], ...] = ()) -> Where:
        """How often a function runs; `asked` are names that must be something there, or nothing, which a call may leave out, or give."""
        arguments = [*function.args.posonlyargs, *function.args.args]
        places = tuple((function, place, there) for place, given in enumerate(arguments) for name, there in asked if given.arg == name)
        if (function, places) in self._known:
            return self._known[function, places]
        self._known[function, places] = Where()  # a function that calls itself
        where = self._known[function, places] = self._function(function, depth, places)
        return where

    def _function(self, function: Function, depth: int, places: Places) -> Where:
        owner = self._tree.parents.get(function)
        kind = self._values.base_of(owner) if isinstance(owner, ast.ClassDef) else ""
        if any(_keeps_results(each) for each in function.decorator_list) or (function.name == "forward" and self._is_whole_run(function)):
            return Where()
        if function in self.step_functions and self._names.call_sites(function):
            called = self._of_calls(function, depth, places)
            return called if called.often else Where("step")
        hooks = CALLBACK_HOOKS if kind == "callback" else STEP_HOOKS if kind in ("lightning", "hf-trainer") else ()
        if function in self.step_functions or function.name in hooks:
            return Where("step")
        often = "evaluation" if function.name in EVALUATION_HOOKS and kind in ("lightning", "hf-trainer") else ""
        if function.name in SAMPLE_METHODS and kind in ("dataset", "iterable-dataset"):
            often = "sample"
        if function.name == "forward" and kind in ("model", "lightning"):
            often = "step" if isinstance(owner, ast.ClassDef) and _CRITERION.fullmatch(owner.name) else "forward"
        return Where(often) if often else self._of_calls(function, depth, places)

    def _is_whole_run(self, function: Function) -> bool:
        """Whether a function holds a whole training, or puts models into evaluation: what is named `forward` is none of a step then."""
        if any(self._tree.function_of(loop) is function for loop in (*self.steps, *self.epochs)):
            return True
        calls = (part.value for part in within(function) if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call))
        return any(last_name(call.func) == "eval" and not call.args for call in calls)

    def _of_calls(self, function: Function, depth: int, places: Places) -> Where:
        """The most frequent of the places that call a function and leave nothing out."""
        calls = self._names.call_sites(function) if depth else []
        sites = [self.where(call, depth - 1) for call in calls if not any(self._names.leaves_out(call, *place) for place in places)]
        outside = self._names.outside
        sites += [
            Where(call.often, call.guarded)
            for call in outside.calls(function)
            if not any(outside.leaves_out(call, *place) for place in places)
        ]
        for often in ("step", "evaluation", "forward", "sample", "epoch"):
            if same := [site for site in sites if site.often == often]:
                return min(same, key=lambda site: site.guarded)._replace(loop=same[0].loop)
        return Where()

    def _seldom(self, parent: ast.AST, child: ast.AST) -> bool:
        """Whether a condition keeps its body from running each time: every Nth, for a log, before leaving, after an error."""
        if isinstance(parent, ast.ExceptHandler | ast.Raise) or (isinstance(parent, ast.Assert) and child is parent.msg):
            return True
        if isinstance(parent, ast.If | ast.IfExp) and child is not parent.test:
            branch = parent.body if isinstance(parent, ast.IfExp) or child in parent.body else parent.orelse
            if isinstance(branch, list) and self._decides_on_step(parent, branch):
                return self._left_before(parent, child)
            if isinstance(branch, list) and branch and isinstance(branch[-1], ast.Break | ast.Return | ast.Raise | ast.Continue):
                return True
            otherwise = child is parent.orelse if isinstance(parent, ast.IfExp) else child in parent.orelse
            if self.conditions.seldom(parent.test, otherwise) or (isinstance(parent, ast.If) and self._is_first_use(parent)):
                return True
            if isinstance(parent, ast.If) and _is_alarm(parent):
                return True
        return self._left_before(parent, child)

    def _decides_on_step(self, choice: ast.If | ast.IfExp, branch: list[ast.stmt]) -> bool:
        """Whether a branch holds a step, and its alternative none: where both do, the condition is about something else."""
        other = [] if isinstance(choice, ast.IfExp) else choice.orelse if branch is choice.body else choice.body
        within_branch, within_other = (any(statement in self._training for statement in block) for block in (branch, other))
        return within_branch and not within_other

    def _is_first_use(self, statement: ast.If) -> bool:
        """Whether a condition makes what it asks for, itself or by a method: once, or once a size.

        ``if self.made is None: self.made = …``, ``if not self.size or self.size != size: self.set(size)``.
        """
        tests = statement.test.values if isinstance(statement.test, ast.BoolOp) else [statement.test]
        if any(fills(statement, container) for test in tests if (container := absent(test))):
            return True
        asked = [name for name in map(missing, tests) if name]
        if any(fills(statement, kept) for name in asked for kept in self._looked_up_in(statement, name)):
            return True
        owned = {name for name in asked if name.startswith("self.")}
        if not owned:
            return False
        parts = [part for one in statement.body for part in within(one)]
        called = [part for part in parts if isinstance(part, ast.Call) and dotted(part.func).startswith("self.")]
        methods = [method for call in called for method in self._names.functions.get(last_name(call.func), ())]
        parts += [part for method in methods for part in within(method)]
        return any(dotted(target) in owned for part in parts if isinstance(part, ast.Assign) for target in part.targets)

    def _looked_up_in(self, node: ast.AST, name: str) -> list[str]:
        """The containers in which it was looked for what a name stands for: ``made = known.get(key)``."""
        calls = (binding.value for binding in self._names.lookup(node, name) if isinstance(binding.value, ast.Call))
        gets = [call.func for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "get"]
        return [dotted(get.value) for get in gets if dotted(get.value)]

    def _left_before(self, parent: ast.AST, child: ast.AST) -> bool:
        """Whether an earlier statement of the same block leaves it nearly always: `if step % 100: return`."""
        if not isinstance(child, ast.stmt) or isinstance(parent, ast.Module | ast.ClassDef):
            return False
        if child not in self._left:
            for block in (getattr(parent, name, ()) for name in ("body", "orelse", "finalbody")):
                left = False
                last = max((number for number, statement in enumerate(block) if statement in self._training), default=-1)
                for number, statement in enumerate(block):
                    self._left[statement] = left = left and number > last  # what is left with the step is part of it
                    left = left or (isinstance(statement, ast.If) and _leaves(statement) and self.conditions.seldom(statement.test, True))
        return self._left.get(child, False)


def _counts(loop: ast.For | ast.AsyncFor) -> bool:
    return isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("range", "trange")


def _takes_first(loop: ast.For | ast.AsyncFor, call: ast.Call, *, counted: bool = True) -> bool:
    """Whether what a call is given is taken anew in each round before: what it gave in the round before is no part of it."""
    parts = [part for given in (*call.args, *(named.value for named in call.keywords)) for part in within(given)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    stored = [part for part in within(loop) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and part.id in names]
    taken = [part for part in stored if part is not loop.target or not counted]
    return bool(taken) and all(part.lineno < call.lineno for part in taken)


def _modes(calls: Iterable[ast.Call]) -> list[str]:
    """The switches between training and evaluation."""
    return [last_name(call.func) for call in calls if last_name(call.func) in ("eval", "train") and not call.args]


def asked(test: ast.expr, *, otherwise: bool) -> list[tuple[str, bool]]:
    """The names that a condition says are there, or are not: ``if x:``, ``if x is not None:``, ``if not x and y:``; its `else`, of one."""
    if isinstance(test, ast.BoolOp):
        return (
            [each for part in test.values for each in asked(part, otherwise=False)]
            if isinstance(test.op, ast.And) and not otherwise
            else []
        )
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return [(name, not there) for name, there in asked(test.operand, otherwise=otherwise)]
    if isinstance(test, ast.Compare):
        return [(dotted(test.left), True)] if isinstance(test.ops[0], ast.IsNot) and not otherwise else []
    return [(dotted(test), not otherwise)] if dotted(test) else []


def _keeps_results(decorator: ast.expr) -> bool:
    """``@functools.lru_cache(maxsize=None)``, ``@cache``: what was computed once is not computed again."""
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator) in ("lru_cache", "cache", "cached_property")


def _is_alarm(asked: ast.If) -> bool:
    """``if loss.item() > 1e4: print(…)``: what is only shown where a value is out of its bounds."""
    sides = (asked.test.left, asked.test.comparators[0]) if isinstance(asked.test, ast.Compare) else ()
    reads = any(isinstance(side, ast.Call) and last_name(side.func) in ("item", "float", "min", "max", "norm") for side in sides)
    bounds = [side.operand if isinstance(side, ast.UnaryOp) else side for side in sides]
    bounded = any(isinstance(bound, ast.Constant) and bound.value for bound in bounds)
    return reads and bounded and not asked.orelse and all(_shows(statement) for statement in asked.body)


def _shows(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(_shows(part) for part in (*statement.body, *statement.orelse))
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) in ("print", "warn", "warning", "error", "critical", "info", "debug", "log")


def _leaves(statement: ast.If) -> bool:
    return not statement.orelse and isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break)
