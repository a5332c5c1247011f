"""Which loops train, evaluate or go through epochs, and how often a piece of code runs: in each step, in each epoch, once."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from sysperf.script.conditions import Conditions
from sysperf.script.kinds import OPTIMIZER_CLASSES
from sysperf.script.names import Names
from sysperf.script.nodes import dotted, last_name
from sysperf.script.syntax import Function, Loop, Tree, children_of, within
from sysperf.script.values import Values
from sysperf.startup import lazy

MAX_DEPTH = 4
STEP_HOOKS = frozenset(
    ("training_step", "compute_loss", "manual_backward", "training_step_end", "on_train_batch_end", "on_train_batch_start")
)
EVALUATION_HOOKS = frozenset(("validation_step", "test_step", "predict_step", "prediction_step"))
SAMPLE_METHODS = frozenset(("__getitem__", "__getitems__"))
_EPOCH = lazy(r"_*(i_|n_)?(epochs?|ep|epoch_?(idx|i|num|number|index|id))_*")
_EVALUATES = lazy(
    r"(?i)(\w*_)?(eval|evaluate|evaluation|valid|validate|validation|val|test|infer|inference|predict|generate|sample)(_\w+)?"
)
_GENERATES = lazy(r"(?i)(\w+_)?(generate|sample)(_\w+)?")
"""Functions whose rounds give one word or picture after the other: each needs the one before."""
_HELD_OUT = lazy(r"(?i)_*(test|val|valid|validation|eval|dev)(_?set)?_?(data)?_?(loader|dl)")
"""Loaders of data that nothing is trained on."""
_ROUNDS = lazy(r"(?i)_*(fold|seed|run|trial|repeat|rep|split|dataset|task|config|cfg|lr|method|exp|experiment|restart)(_?\w{1,5})?_*")
"""What is repeated as a whole, training included."""
_WHOLE_RUNS = lazy(r"_*(main|fit|run|demo|train|training|train_model|train_all|(test|warm_?up|bench|example|check)\w*)")
"""Functions that train once and for all, as a rule."""
_UPDATES = lazy(r"\w*(update|learn|optimi[sz]e)(_(batch|step|params|parameters|model|networks?))?|train_(batch|step)|_*step_\w+")
"""Functions that make a step of an optimizer out of a batch, although the backward pass is in another one."""
_PARTS = lazy(r"\w*(optim\w*|opts?|loss(es)?|losses_dict|parameters|models?|nets?|networks?|param_groups|scalers?|schedulers?)")
"""What a step may have several of."""
_MEASURES = lazy(
    r"(?i)\w*(supported|supports|probe|profil|bench|flops|measure|timeit|speed|overlap|(find|search)_?(lr|learning_?rate)|(lr|learning_?rate)_?find)\w*"
)
"""Functions and classes that run some steps to learn something about them."""
FEW = 10
"""A loop with fewer rounds warms something up, or tests it."""


Places = tuple[tuple[Function, int], ...]
"""Parameters of a function."""


class Where(NamedTuple):
    """How often code runs (`often`: step, evaluation, epoch, forward, sample, or empty), and whether a condition makes it seldom."""

    often: str = ""
    guarded: bool = False
    loop: Loop | None = None


class Loops:
    """The loops of a file by what they do."""

    def __init__(self, tree: Tree, names: Names, values: Values) -> None:
        self._tree = tree
        self._names = names
        self._values = values
        self.conditions = Conditions(names, values)
        self._left: dict[ast.stmt, bool] = {}
        self._training: set[ast.AST] = set()
        """Statements that hold a backward pass or a step: a condition around one decides on the whole step."""
        self.steps: dict[Loop, ast.Call] = {}
        self.step_functions: set[Function] = set()
        self.epochs: set[Loop] = set()
        self._find_steps()
        self._find_epochs()
        self.evaluations = {loop for loop in tree.loops if self._evaluates(loop)}
        self._known: dict[tuple[Function, Places], Where] = {}

    def _find_steps(self) -> None:
        """Follow each backward pass and optimizer step outwards to the loop that repeats it, through the functions that hold it."""
        for call in self._tree.of(ast.Call):
            if self.advances(call):
                self._mark_step(call, call, MAX_DEPTH)
        for outer in [loop for loop in self.steps if any(self._goes_through(loop, inner) for inner in self.steps if inner is not loop)]:
            del self.steps[outer]

    def _goes_through(self, outer: Loop, inner: Loop) -> bool:
        """Whether each round of a loop goes through a loader, and trains on it: the round is an epoch, although it makes a step, too."""
        if isinstance(inner, ast.While) or not self._values.is_a(inner.iter, "loader"):
            return False
        function = self._tree.function_of(inner)
        sites: list[ast.AST] = [inner]
        if function is not None and function is not self._tree.function_of(outer):
            sites = [*self._names.call_sites(function)]
        return any(outer in self._tree.ancestors(site) for site in sites)

    def _measures(self, node: ast.AST) -> bool:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return any(isinstance(parent, kinds) and bool(_MEASURES.fullmatch(parent.name)) for parent in self._tree.ancestors(node))

    def advances(self, call: ast.Call) -> bool:
        """Whether a call is a backward pass or a step of an optimizer, or hands both to an object that does them."""
        method = last_name(call.func)
        if isinstance(call.func, ast.Attribute) and method == "update_params":
            return "optim" in last_name(call.func.value)
        if isinstance(call.func, ast.Attribute) and method in ("backward", "manual_backward", "optimize_parameters"):
            return not dotted(call.func.value).startswith(("ctx", "super")) and not self._in_autograd(call)
        if isinstance(call.func, ast.Attribute) and method == "step":
            return self._values.is_a(call.func.value, "optimizer", "scaler")
        return self._takes_loss_and_optimizer(call, method)

    def _takes_loss_and_optimizer(self, call: ast.Call, method: str) -> bool:
        """``loss_scaler(loss, optimizer, parameters=…)``, whose backward pass is in another file."""
        if len(call.args) < 2 or method in self._names.functions:
            return False
        return self._is_loss(call.args[0]) and any(self._values.is_a(given, "optimizer") for given in call.args[1:])

    def _is_loss(self, node: ast.expr) -> bool:
        return self._values.is_a(node, "loss") or "loss" in last_name(node).lower()

    @cached_property
    def optimizes(self) -> bool:
        """Whether an optimizer steps in a loop: gradients alone train nothing."""
        known = ("optimize_parameters", "update_params", "step")
        calls = [call for call in self._tree.of(ast.Call) if self.advances(call)]
        return any(last_name(call.func) in known or not isinstance(call.func, ast.Attribute) for call in calls) or any(
            self._takes_loss_and_optimizer(call, last_name(call.func)) for call in calls
        )

    def is_backward_alone(self, node: ast.AST) -> bool:
        """Whether only a backward pass makes the code around a node a step: an explanation, an attack, or part of one."""
        where = self.where(node)
        return where.often == "step" and bool(self.steps or self.step_functions)

    def _in_autograd(self, call: ast.Call) -> bool:
        """Inside a `backward` of its own: part of an autograd function or of an engine, no training loop."""
        function = self._tree.function_of(call)
        if function is None or function.name != "step":
            return function is not None and function.name in ("backward", "manual_backward", "closure")
        owner = self._tree.parents.get(function)
        names = [owner.name, *map(last_name, owner.bases)] if isinstance(owner, ast.ClassDef) else []
        return any(OPTIMIZER_CLASSES.fullmatch(name) for name in names) or any(given.arg == "closure" for given in function.args.args)

    def _mark_step(self, node: ast.AST, call: ast.Call, depth: int) -> None:
        """Mark the loop that repeats a call, or the functions that hold it up to that loop."""
        if self._measures(node):
            return
        inside = None
        for parent in self._tree.ancestors(node):
            self._training.add(parent)
            if isinstance(parent, ast.For | ast.AsyncFor | ast.While):
                if self._over_few(parent):
                    continue
                self.steps.setdefault(parent, call)
                return
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                if inside is not None or parent.name.startswith("test_"):
                    return
                inside, sites = parent, self._names.call_sites(parent)
                if sites or parent.name in STEP_HOOKS or self._is_step(parent, through=node is not call):
                    self.step_functions.add(parent)
                    for site in sites if depth else ():
                        self._mark_step(site, call, depth - 1)
                    return

    def _is_step(self, function: Function, *, through: bool) -> bool:
        """A function that nobody here calls, with a backward pass and an optimizer's step in no loop: whoever calls it repeats it.

        `through`: another function makes them for it.
        """
        arguments = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        if not arguments or (_WHOLE_RUNS.fullmatch(function.name) and not (function.name == "train" and arguments[0] == "self")):
            return False
        if through and _UPDATES.fullmatch(function.name):
            return True
        parts = [part for statement in function.body for part in _outside_loops(statement)]
        few = (loop for loop in within(function) if isinstance(loop, ast.For | ast.AsyncFor) and self._over_few(loop))
        calls = [part for part in (*parts, *(part for loop in few for part in within(loop))) if isinstance(part, ast.Call)]
        made = {last_name(call.func) for call in calls if self.advances(call)}
        whole = any(last_name(call.func) == "step" and call.args and self._is_loss(call.args[0]) for call in calls if self.advances(call))
        updates = "step" in made and bool(_UPDATES.fullmatch(function.name))
        return whole or updates or (bool(made & {"backward", "manual_backward"}) and "step" in made)

    def _over_few(self, loop: Loop) -> bool:
        """A loop over optimizers, losses, parameters or the like inside of a step: it does not repeat the step."""
        if isinstance(loop, ast.While):
            return False
        if self._warms_up(loop):
            return True
        words = dotted(loop.iter) or (last_name(loop.iter.func) if isinstance(loop.iter, ast.Call) else "")
        last = words.rpartition(".")[2]
        if last in ("values", "items") and isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Attribute):
            last = last_name(loop.iter.func.value)
        return bool(_PARTS.fullmatch(last)) or isinstance(loop.iter, ast.List | ast.Tuple)

    def _warms_up(self, loop: ast.For | ast.AsyncFor) -> bool:
        """A few rounds in no other loop: a warm-up, or a test."""
        if not isinstance(loop.iter, ast.Call) or last_name(loop.iter.func) not in ("range", "trange") or len(loop.iter.args) != 1:
            return False
        rounds = loop.iter.args[0]
        few = isinstance(rounds, ast.Constant) and isinstance(rounds.value, int) and rounds.value < FEW
        outer = any(isinstance(parent, ast.For | ast.AsyncFor | ast.While) for parent in self._tree.ancestors(loop))
        return few and not outer and not self.is_whole(loop)

    def _find_epochs(self) -> None:
        for loop in list(self.steps):
            self._mark_epochs(loop, MAX_DEPTH)

    def _mark_epochs(self, node: ast.AST, depth: int) -> None:
        """The loop around the steps; further out, only loops that are named so: folds and seeds repeat the whole training."""
        for parent in self._tree.ancestors(node):
            if isinstance(parent, ast.For | ast.AsyncFor | ast.While) and parent not in self.steps:
                if not isinstance(parent, ast.While) and _ROUNDS.fullmatch(dotted(parent.target)):
                    continue
                self.epochs.add(parent)
                return
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                for site in self._names.call_sites(parent) if depth else ():
                    self._mark_epochs(site, depth - 1)
                return

    def is_epoch(self, loop: Loop) -> bool:
        """Whether a loop goes through epochs: by what it holds, or by its name."""
        if loop in self.epochs:
            return True
        return isinstance(loop, ast.For | ast.AsyncFor) and loop not in self.steps and bool(_EPOCH.fullmatch(dotted(loop.target)))

    def iterates(self, loop: ast.For | ast.AsyncFor, call: ast.Call) -> bool:
        """Whether a loop goes over what a call makes."""
        return any(value.kind == "loader" and value.origin is call for value in self._values.of(loop.iter))

    def is_whole(self, loop: Loop) -> bool:
        """Whether a step is a whole epoch: a loop over epochs that trains without another one inside."""
        counters = (
            [loop.target]
            if isinstance(loop, ast.For | ast.AsyncFor)
            else [part for part in within(loop.test) if isinstance(part, ast.Name)]
        )
        return any(_EPOCH.fullmatch(dotted(counter)) for counter in counters)

    def _evaluates(self, loop: Loop) -> bool:
        """A loop over a loader that neither trains nor holds a loop that does, in code that evaluates."""
        if isinstance(loop, ast.While) or loop in self.steps or loop in self.epochs:
            return False
        function = self._tree.function_of(loop)
        if not self._values.is_a(loop.iter, "loader"):
            return function is not None and self._evaluates_parts(function, loop)
        named = any(_HELD_OUT.fullmatch(last_name(part)) for part in within(loop.iter) if isinstance(part, ast.Name | ast.Attribute))
        if named or (function is not None and _EVALUATES.fullmatch(function.name)):
            return True
        body: list[ast.stmt] = function.body if function is not None else self._tree.module.body
        calls = [part for statement in body for part in within(statement) if isinstance(part, ast.Call)]
        inside = [part for statement in loop.body for part in within(statement) if isinstance(part, ast.Call)]
        modes = _modes(inside) or _modes(call for call in calls if call.lineno <= loop.lineno)
        return modes[-1:] == ["eval"] and not (function is not None and any(self._trains_in_a_hook(call, function) for call in calls))

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
        calls = (part for statement in function.body for part in within(statement) if isinstance(part, ast.Call))
        counts = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("range", "trange")
        return any(last_name(call.func) == "eval" for call in calls) and (counts or self._calls_model(loop))

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
        """Whether a model is called: ``model(x)``, ``model.forward(x)``."""
        called = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "forward" else call.func
        return self._values.is_a(called, "model", "lightning")

    def where(self, node: ast.AST, depth: int = MAX_DEPTH) -> Where:
        """How often a piece of code runs, through the loop or function around it and the calls of that function."""
        guarded, child = False, node
        asked: list[str] = []
        for parent in self._tree.ancestors(node):
            guarded = guarded or self._seldom(parent, child)
            if isinstance(parent, ast.If) and child in parent.body and (name := _present(parent.test)):
                asked.append(name)
            if isinstance(parent, ast.For | ast.AsyncFor | ast.While) and (where := self._of_loop(parent, child, guarded)):
                return where
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                where = self._of_function(parent, depth, tuple(asked))
                return where._replace(guarded=where.guarded or guarded)
            child = parent
        return Where("", guarded)

    def _of_loop(self, loop: Loop, child: ast.AST, guarded: bool) -> Where | None:
        if (isinstance(loop, ast.For | ast.AsyncFor) and child in (loop.iter, loop.target)) or child in loop.orelse:
            return None
        if loop in self.steps:  # where an epoch is one step, on all data at once, what it says of itself costs little
            return Where("epoch" if self.is_whole(loop) else "step", guarded, loop)
        if loop in self.evaluations:
            return Where("evaluation", guarded, loop)
        return Where("epoch", guarded, loop) if self.is_epoch(loop) else None

    def _of_function(self, function: Function, depth: int, asked: tuple[str, ...] = ()) -> Where:
        """How often a function runs; `asked` are names that must be something there, which a call may leave out."""
        arguments = [*function.args.posonlyargs, *function.args.args]
        places = tuple((function, place) for place, given in enumerate(arguments) if given.arg in asked)
        if (function, places) in self._known:
            return self._known[function, places]
        self._known[function, places] = Where()  # a function that calls itself
        where = self._known[function, places] = self._function(function, depth, places)
        return where

    def _function(self, function: Function, depth: int, places: Places) -> Where:
        owner = self._tree.parents.get(function)
        kind = self._values.base_of(owner) if isinstance(owner, ast.ClassDef) else ""
        if function in self.step_functions and self._names.call_sites(function):
            called = self._of_calls(function, depth, places)
            return called if called.often else Where("step")
        if function in self.step_functions or (function.name in STEP_HOOKS and kind in ("lightning", "hf-trainer")):
            return Where("step")
        if function.name in EVALUATION_HOOKS and kind in ("lightning", "hf-trainer"):
            return Where("evaluation")
        if function.name in SAMPLE_METHODS and kind in ("dataset", "iterable-dataset"):
            return Where("sample")
        if function.name == "forward" and kind in ("model", "lightning"):
            return Where("forward")
        return self._of_calls(function, depth, places)

    def _of_calls(self, function: Function, depth: int, places: Places) -> Where:
        """The most frequent of the places that call a function and leave nothing out."""
        calls = self._names.call_sites(function) if depth else []
        sites = [self.where(call, depth - 1) for call in calls if not any(self._names.leaves_out(call, *place) for place in places)]
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
            if isinstance(branch, list) and any(statement in self._training for statement in branch):
                return self._left_before(parent, child)
            if isinstance(branch, list) and branch and isinstance(branch[-1], ast.Break | ast.Return | ast.Raise | ast.Continue):
                return True
            otherwise = child is parent.orelse if isinstance(parent, ast.IfExp) else child in parent.orelse
            if self.conditions.seldom(parent.test, otherwise) or (isinstance(parent, ast.If) and self._is_first_use(parent)):
                return True
        return self._left_before(parent, child)

    def _is_first_use(self, statement: ast.If) -> bool:
        """Whether a condition makes what it asks for, itself or by a method: once, or once a size.

        ``if self.made is None: self.made = …``, ``if not self.size or self.size != size: self.set(size)``.
        """
        tests = statement.test.values if isinstance(statement.test, ast.BoolOp) else [statement.test]
        missing = {name for name in map(_missing, tests) if name.startswith("self.")}
        if not missing:
            return False
        parts = [part for one in statement.body for part in within(one)]
        called = [part for part in parts if isinstance(part, ast.Call) and dotted(part.func).startswith("self.")]
        methods = [method for call in called for method in self._names.functions.get(last_name(call.func), ())]
        parts += [part for method in methods for part in within(method)]
        return any(dotted(target) in missing for part in parts if isinstance(part, ast.Assign) for target in part.targets)

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


def _modes(calls: Iterable[ast.Call]) -> list[str]:
    """The switches between training and evaluation."""
    return [last_name(call.func) for call in calls if last_name(call.func) in ("eval", "train") and not call.args]


def _outside_loops(statement: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement that run once where it does."""
    if not isinstance(statement, ast.For | ast.AsyncFor | ast.While | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement
        for child in children_of(statement):
            if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                inner = [child] if isinstance(child, ast.stmt) else child.body
                yield from (part for one in inner for part in _outside_loops(one))
            else:
                yield from within(child)


def _present(test: ast.expr) -> str:
    """The name that a condition says is there: ``if x:``, ``if x is not None:``."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        return dotted(test.left)
    return dotted(test)


def _missing(test: ast.expr) -> str:
    """The name that a condition says is not there yet."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is):
        return dotted(test.left)
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if isinstance(asked, ast.Call) and last_name(asked.func) == "isinstance" and asked.args:
        return dotted(asked.args[0])  # it is converted, and then is what it has to be
    return dotted(asked) if asked is not None else ""


def _leaves(statement: ast.If) -> bool:
    return not statement.orelse and isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break)
