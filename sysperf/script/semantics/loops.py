"""Which loops train, evaluate or go through epochs, and how often a piece of code runs: in each step, in each epoch, once."""

from __future__ import annotations

import ast
from typing import NamedTuple

from sysperf.script.nodes import dotted, last_name
from sysperf.script.semantics.conditions import Conditions, absent, missing, puts
from sysperf.script.semantics.evaluations import Evaluations
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.steps import CALLBACK_HOOKS, MAX_DEPTH, STEP_HOOKS, has_one_round
from sysperf.script.semantics.values import Values
from sysperf.script.syntax import Function, Loop, Tree, within
from sysperf.startup import lazy

EVALUATION_HOOKS = frozenset(("validation_step", "test_step", "predict_step", "prediction_step"))
SAMPLE_METHODS = frozenset(("__getitem__", "__getitems__"))
_CRITERION = lazy(r"\w*(Loss|LossCompute|Criterion)")
"""Classes whose forward pass is a part of each step."""
_MAYBE = lazy(r"_*maybe_\w+|\w+_(maybe|if_(due|needed|ready|necessary|time))")
"""Functions that say that they do something only at times."""
_LOOKS = frozenset(("isinstance", "hasattr", "getattr", "len", "callable", "is_available", "is_tensor", "get", "lower"))
_OPTIONS = lazy(r"\w*(enabled|disabled|training)|_*(has|uses?|can|supports?|allows?|wants?)_\w+")
"""Functions that say what something is, or what is wanted throughout, not whether it is time."""
_WARNS = ("warn", "warning", "error", "critical")
_EVALUATES_ONE = lazy(r"_*(val|valid|validation|validate|eval|evaluate|evaluation|test)_(one_|single_)?(step|batch)")
"""Methods that evaluate a batch, beside one that trains with it."""
_METRICS = lazy(r"(Epoch)?Metric")
"""Classes of ignite and torchmetrics that are given each batch of an evaluation."""
_HALF = lazy(
    r"_*(train|training)_(one_)?(step|batch|iter|iteration)|_*(compute|calc|calculate)_loss(es)?"
    r"|(?!(log|plot|print|show|save|write|track|record|report|reset|update|best|val|valid|validation|test|eval|evaluate)_)[a-z]\w*_loss(_fn|_function)?"
)
"""Functions that give a loss to whoever trains with it."""
Places = tuple[tuple[Function, int, bool], ...]
"""Parameters of a function, and whether they must be something, or nothing."""


class Where(NamedTuple):
    """How often code runs (`often`: step, evaluation, epoch, forward, sample, or empty), and whether a condition makes it seldom."""

    often: str = ""
    guarded: bool = False
    loop: Loop | None = None


class Loops(Evaluations):
    """The loops of a file by what they do."""

    def __init__(self, tree: Tree, names: Names, values: Values) -> None:
        super().__init__(tree, names, values)
        self.conditions = Conditions(names, values)
        self._left: dict[ast.stmt, bool] = {}
        self._known: dict[tuple[Function, Places], Where] = {}

    def iterates(self, loop: ast.For | ast.AsyncFor, call: ast.AST) -> bool:
        """Whether a loop goes over what a call makes."""
        return any(value.kind == "loader" and value.origin is call for value in self._values.of(loop.iter))

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
        if has_one_round(loop):
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
        hooked = kind == "callback" and CALLBACK_HOOKS.fullmatch(function.name) is not None
        if function in self.step_functions or hooked or (kind in ("lightning", "hf-trainer") and function.name in STEP_HOOKS):
            return Where("step")
        often = "evaluation" if function.name in EVALUATION_HOOKS and kind in ("lightning", "hf-trainer") else ""
        if function.name in SAMPLE_METHODS and kind in ("dataset", "iterable-dataset"):
            often = "sample"
        if function.name == "forward" and kind in ("model", "lightning"):
            often = "step" if isinstance(owner, ast.ClassDef) and _CRITERION.fullmatch(owner.name) else "forward"
        where = Where(often) if often else self._of_calls(function, depth, places)
        return where if where.often else Where(self._by_name(function, owner))

    def _by_name(self, function: Function, owner: ast.AST | None) -> str:
        """How often a method runs that nobody here calls, by its name: half a step that others complete, an evaluation of one batch."""
        if self._evaluates_beside_a_step(function, owner) or _is_of_metric(function, owner):
            return "evaluation"
        named = "step" if _HALF.fullmatch(function.name) else "evaluation" if _EVALUATES_ONE.fullmatch(function.name) else ""
        if not named or self._names.call_sites(function) or self._names.outside.calls(function):
            return ""
        calls = [part for part in within(function) if isinstance(part, ast.Call)]
        return named if any(self.is_model(call) or self._values.is_a(call, "loss") for call in calls) else ""

    def _evaluates_beside_a_step(self, function: Function, owner: ast.AST | None) -> bool:
        """Whether a method has the name of an evaluation of one batch, and another one of its class makes a step of one."""
        beside = owner.body if isinstance(owner, ast.ClassDef) and _EVALUATES_ONE.fullmatch(function.name) else []
        return any(part in self.step_functions for part in beside)

    def _is_whole_run(self, function: Function) -> bool:
        """Whether a function holds a whole training, or puts models into evaluation: what is named `forward` is none of a step then."""
        if any(self._tree.function_of(loop) is function for loop in (*self.steps, *self.epochs)):
            return True
        calls = (part.value for part in within(function) if isinstance(part, ast.Expr) and isinstance(part.value, ast.Call))
        return any(last_name(call.func) == "eval" and not call.args for call in calls)

    def _of_calls(self, function: Function, depth: int, places: Places) -> Where:
        """The most frequent of the places that call a function and leave nothing out; its own calls of itself say nothing."""
        calls = [call for call in self._names.call_sites(function) if self._tree.function_of(call) is not function] if depth else []
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
            last = branch[-1] if isinstance(branch, list) and branch else None
            either = isinstance(last, ast.Return) and isinstance(parent, ast.If) and _gives_either(parent)
            if isinstance(last, ast.Break | ast.Return | ast.Raise | ast.Continue) and not either:
                return True
            otherwise = child is parent.orelse if isinstance(parent, ast.IfExp) else child in parent.orelse
            if self.conditions.seldom(parent.test, otherwise) or (
                isinstance(parent, ast.If) and self._acts_seldom(parent, child, otherwise)
            ):
                return True
        return self._left_before(parent, child)

    def _acts_seldom(self, choice: ast.If, child: ast.AST, otherwise: bool) -> bool:
        """Whether a branch says by what it does that it runs seldom: it warns, makes something first, or starts a counter again."""
        if not otherwise and (self._is_first_use(choice) or _starts_again(choice)):
            return True
        return _is_alarm(choice) or _is_default(choice, child) or self._is_time(choice, otherwise)

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
        if any(puts(part, container) for test in tests if (container := absent(test)) for part in statement.body):
            return True
        asked = [name for name in map(missing, tests) if name]
        if any(puts(part, kept) for name in asked for kept in self._looked_up_in(statement, name) for part in statement.body):
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

    def _gives_kept(self, choice: ast.If, later: list[ast.stmt]) -> bool:
        """Whether a condition gives back what was kept, and what comes later keeps it: once for each key.

        ``if key in known: return known[key]``, ``made = known.get(key)`` and ``if made is not None: return made``.
        """
        test = choice.test
        place = test.comparators[0] if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In) else None
        names = [name for name, there in asked(test, otherwise=False) if there]
        containers = [dotted(place)] if place is not None else [kept for name in names for kept in self._looked_up_in(choice, name)]
        stored = [part for statement in later for part in within(statement) if isinstance(part, ast.Assign)] if containers else []
        return any(puts(statement, container) for statement in stored for container in containers if container)

    def _is_time(self, choice: ast.If, otherwise: bool) -> bool:
        """Whether a function that acts at times asks if it is time: ``def maybe_update(self): if not self.due(): return``."""
        function = self._tree.parents.get(choice)
        if not isinstance(function, Function) or not _MAYBE.fullmatch(function.name):
            return False
        called = [part for part in within(choice.test) if isinstance(part, ast.Call)]
        return (
            isinstance(choice.test, ast.UnaryOp) == otherwise
            and bool(called)
            and not any(last_name(call.func) in _LOOKS or _OPTIONS.fullmatch(last_name(call.func)) for call in called)
        )

    def _left_before(self, parent: ast.AST, child: ast.AST) -> bool:
        """Whether an earlier statement of the same block leaves it nearly always: `if step % 100: return`."""
        if not isinstance(child, ast.stmt) or isinstance(parent, ast.Module | ast.ClassDef):
            return False
        if child not in self._left:
            blocks: list[list[ast.stmt]] = [list(getattr(parent, name, ())) for name in ("body", "orelse", "finalbody")]
            for block in blocks:
                left = False
                last = max((number for number, statement in enumerate(block) if statement in self._training), default=-1)
                for number, statement in enumerate(block):
                    self._left[statement] = left = left and number > last  # what is left with the step is part of it
                    left = left or (
                        isinstance(statement, ast.If)
                        and _leaves(statement)
                        and (
                            self.conditions.seldom(statement.test, True)
                            or self._is_time(statement, otherwise=True)
                            or self._gives_kept(statement, block[number + 1 :])
                        )
                    )
        return self._left.get(child, False)


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


def _is_of_metric(function: Function, owner: ast.AST | None) -> bool:
    """Whether a library calls a method with each batch: ``class Right(Metric): def update(self, output): …``."""
    return (
        isinstance(owner, ast.ClassDef) and function.name == "update" and any(_METRICS.fullmatch(last_name(base)) for base in owner.bases)
    )


def _keeps_results(decorator: ast.expr) -> bool:
    """``@functools.lru_cache(maxsize=None)``, ``@cache``: what was computed once is not computed again."""
    return last_name(decorator.func if isinstance(decorator, ast.Call) else decorator) in ("lru_cache", "cache", "cached_property")


def _is_default(choice: ast.If, child: ast.AST) -> bool:
    """``loss = torch.tensor(0.0)`` where there is nothing to compute, and the other branch computes it."""
    if not isinstance(child, ast.Assign) or not _is_written_tensor(child.value):
        return False
    other = choice.orelse if child in choice.body else choice.body
    names = {dotted(target) for target in child.targets} - {""}
    assigned = [part for statement in other for part in within(statement) if isinstance(part, ast.Assign)]
    computed = [part for part in assigned if not isinstance(part.value, ast.Constant) and not _is_written_tensor(part.value)]
    return any(dotted(target) in names for part in computed for target in part.targets)


def _is_written_tensor(value: ast.expr) -> bool:
    """``torch.zeros(1).to(device)``: a tensor of numbers or sizes that are written there."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
        value = value.func.value
    if not isinstance(value, ast.Call) or last_name(value.func) not in ("tensor", "zeros", "Tensor", "FloatTensor"):
        return False
    return bool(value.args) and all(isinstance(given, ast.Constant) for given in value.args)


def _is_alarm(asked: ast.If) -> bool:
    """``if norm == 0: log.warning(…)``, ``if loss.item() > 1e4: print(…)``: a warning, or what is only shown beyond some bounds."""
    if not asked.orelse and all(_calls_one_of(statement, _WARNS) for statement in asked.body):
        return True
    sides = (asked.test.left, asked.test.comparators[0]) if isinstance(asked.test, ast.Compare) else ()
    reads = any(isinstance(side, ast.Call) and last_name(side.func) in ("item", "float", "min", "max", "norm") for side in sides)
    bounds = [side.operand if isinstance(side, ast.UnaryOp) else side for side in sides]
    bounded = any(isinstance(bound, ast.Constant) and bound.value for bound in bounds)
    return reads and bounded and not asked.orelse and all(_shows(statement) for statement in asked.body)


def _starts_again(choice: ast.If) -> bool:
    """``if count >= n: count = 0``: every Nth time."""
    sides = (choice.test.left, *choice.test.comparators) if isinstance(choice.test, ast.Compare) else ()
    names = {dotted(side) for side in sides} - {""}
    resets = (
        part for part in choice.body if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant) and part.value.value == 0
    )
    return any(dotted(target) in names for part in resets for target in part.targets)


def _gives_either(choice: ast.If) -> bool:
    """Whether each branch gives back what it computes, or raises an error: ``if kind == "a": … return x elif kind == "b": … return y``."""
    ends = [block[-1] for block in (choice.body, choice.orelse) if block]
    return len(ends) > 1 and all(_gives(end) for end in ends)


def _gives(end: ast.stmt) -> bool:
    if isinstance(end, ast.If):
        return _gives_either(end)
    return isinstance(end, ast.Raise) or (isinstance(end, ast.Return) and not isinstance(end.value or ast.Constant(None), ast.Constant))


def _shows(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return all(_shows(part) for part in (*statement.body, *statement.orelse))
    return _calls_one_of(statement, (*_WARNS, "print", "info", "debug", "log"))


def _calls_one_of(statement: ast.stmt, names: tuple[str, ...]) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and last_name(call.func) in names


def _leaves(statement: ast.If) -> bool:
    return not statement.orelse and isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break)
