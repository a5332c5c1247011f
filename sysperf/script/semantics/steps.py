"""Which loops and functions make the steps of a training, by the backward passes and optimizers' steps that they repeat."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from sysperf.script.nodes import asked_key, dotted, last_name
from sysperf.script.semantics.kinds import OPTIMIZER_CLASSES
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.values import Values
from sysperf.script.syntax import Function, Loop, Tree, children_of, within
from sysperf.startup import lazy

MAX_DEPTH = 4
STEP_HOOKS = frozenset(
    (
        "training_step",
        "_training_step",
        "compute_loss",
        "manual_backward",
        "training_step_end",
        "on_train_batch_end",
        "on_train_batch_start",
    )
)
CALLBACK_HOOKS = lazy(
    r"(on_)?(train(ing)?_)?(batch|step|iter(ation)?)_(start|begin|end)"
    r"|(on_)?(before|after)_(train_)?(batch|step|iter(ation)?|loss|pred|forward|backward|optimizer_step|zero_grad)"
)
"""Methods that a framework, or the trainer of a project, calls of a callback in each step: Lightning, transformers, fastai, mmengine."""
_EPOCH = lazy(r"_*(i_|n_)?(epochs?|ep|epoch_?(idx|i|num|number|index|id))_*")
_DRAWS = frozenset(("next", "sample", "choice", "choices", "randperm", "permutation", "get_batch", "next_batch", "sample_batch"))
"""Functions that choose some of the data for each round."""
_EPOCHS = lazy(r"(?i)_*((n|num|max|total|train|training|number_of)_?)*epochs_*")
"""Numbers of epochs."""
_ROUNDS = lazy(r"(?i)_*(fold|seed|run|trial|repeat|rep|split|dataset|task|config|cfg|lr|method|exp|experiment|restart)(_?\w{1,5})?_*")
"""What is repeated as a whole, training included."""
_WHOLE_RUNS = lazy(r"_*(main|fit|run|demo|train|training|train_model|train_all|(test|warm_?up|bench|example|check)\w*)")
"""Functions that train once and for all, as a rule."""
_UPDATES = lazy(r"\w*(update|learn|optimi[sz]e)(_(batch|step|params|parameters|model|networks?))?|train_(batch|step)|_*step_\w+")
"""Functions that make a step of an optimizer out of a batch, although the backward pass is in another one."""
_HALVES = lazy(
    r"_*((compute|calc(ulate)?|get|accumulate|apply|update|set)_(the_)?(grads?|gradients?)|backward(_(pass|step))?|optimizer_step)(_\w+)?"
)
"""Methods that make one half of a step each, for a process or a trainer that calls both."""
_PARTS = lazy(r"\w*(optim\w*|opts?|loss(es)?|losses_dict|parameters|models?|nets?|networks?|param_groups|scalers?|schedulers?)")
"""What a step may have several of."""
_MEASURES = lazy(
    r"(?i)\w*(tester|supported|supports|probe|profil|bench|flops|measure|timeit|timings?|speed|overlap|(find|search)_?(lr|learning_?rate)|(lr|learning_?rate)_?(find|calibrat|range|sweep)|(find|search|optimal|max|auto|tune|scale)\w*_batch_?size)\w*"
)
"""Functions and classes that run some steps to learn something about them."""
_MAKES_OPTIMIZER = lazy(r"(?i:\w*optim\w*)|[A-Z]\w+")
FEW = 10
"""A loop with fewer rounds warms something up, or tests it."""


class Steps:
    """The steps and epochs of a file's training."""

    def __init__(self, tree: Tree, names: Names, values: Values) -> None:
        self._tree = tree
        self._names = names
        self._values = values
        self._training: set[ast.AST] = set()
        """Statements that hold a backward pass or a step: a condition around one decides on the whole step."""
        self.steps: dict[Loop, ast.Call] = {}
        self.step_functions: set[Function] = set()
        self.epochs: set[Loop] = set()
        self._halved: dict[ast.ClassDef, bool] = {}
        self._find_steps()
        self._find_epochs()

    def _find_steps(self) -> None:
        """Follow each backward pass and optimizer step outwards to the loop that repeats it, through the functions that hold it."""
        for call in self._tree.of(ast.Call):
            if self.advances(call):
                self._mark_step(call, call, MAX_DEPTH)
        for outer in [loop for loop in self.steps if any(self._goes_through(loop, inner) for inner in self.steps if inner is not loop)]:
            del self.steps[outer]
        for loop in [loop for loop in self.steps if self._begins_anew(loop)]:
            del self.steps[loop]

    def _begins_anew(self, loop: Loop) -> bool:
        """Whether each round makes an optimizer of its own: a fit of its own then, from another start or of another part."""
        if self._takes_a_batch(loop):
            return False
        steps = [part.func for part in within(loop) if isinstance(part, ast.Call) and last_name(part.func) == "step"]
        stepped = {dotted(method.value) for method in steps if isinstance(method, ast.Attribute)} - {""}
        made = [part for part in loop.body if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call) and part.value.args]
        return any(
            isinstance(part.value, ast.Call) and _MAKES_OPTIMIZER.fullmatch(last_name(part.value.func)) and dotted(target) in stepped
            for part in made
            for target in part.targets
        )

    def _takes_a_batch(self, loop: Loop) -> bool:
        """Whether each round takes the next of many batches: of a loader, by `next`, or as a part of data."""
        if isinstance(loop, ast.While) or self._values.is_a(loop.iter, "loader"):
            return True
        is_cut = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("range", "trange") and len(loop.iter.args) == 3
        return is_cut or any(isinstance(part, ast.Call) and last_name(part.func) == "next" for part in within(loop))

    def _goes_through(self, outer: Loop, inner: Loop) -> bool:
        """Whether each round of a loop goes through a loader, and trains on it: the round is an epoch, although it makes a step, too."""
        if isinstance(inner, ast.While) or not self._values.is_a(inner.iter, "loader"):
            return False
        function = self._tree.function_of(inner)
        sites: list[ast.AST] = [inner]
        if function is not None and function is not self._tree.function_of(outer):
            sites = [*self._names.call_sites(function)]
        return any(outer in self._tree.ancestors(site) for site in sites)

    def measures(self, node: ast.AST) -> bool:
        """Whether a function or a class around a node only learns something about steps."""
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
            known = self._values.is_a(call.func.value, "optimizer", "scaler") or asked_key(call.func.value) == "optimizer"
            return known or self._names.outside.result(call).advances
        return self._names.outside.result(call).advances or self._takes_loss_and_optimizer(call, method)

    def _takes_loss_and_optimizer(self, call: ast.Call, method: str) -> bool:
        """``loss_scaler(loss, optimizer)``, ``forward(model, x, y, optimizer=optimizer)``, whose backward pass is in another file."""
        if method in self._names.functions or method[:1].isupper():  # a class: its object makes the steps
            return False
        given = [*call.args, *(named.value for named in call.keywords)]
        if len(given) < 2 or not any(self._values.is_a(each, "optimizer") for each in given):
            return False
        return self._is_loss(given[0]) or (self._names.outside.target(call.func) is None and self._takes_model_and_batch(given))

    def _takes_model_and_batch(self, given: list[ast.expr]) -> bool:
        return all(any(self._values.is_a(each, kind) for each in given) for kind in ("model", "batch"))

    def _is_loss(self, node: ast.expr) -> bool:
        return self._values.is_a(node, "loss") or "loss" in last_name(node).lower()

    @cached_property
    def optimizes(self) -> bool:
        """Whether an optimizer steps in a loop: gradients alone train nothing."""
        known = ("optimize_parameters", "update_params", "step")
        calls = [call for call in self._tree.of(ast.Call) if self.advances(call)]
        return (
            self._updates_itself()
            or any(last_name(call.func) in known or not isinstance(call.func, ast.Attribute) for call in calls)
            or any(
                self._takes_loss_and_optimizer(call, last_name(call.func)) or self._names.outside.result(call).advances for call in calls
            )
        )

    def _updates_itself(self) -> bool:
        """Whether parameters are moved by their gradients without an optimizer: ``p.data.add_(p.grad, alpha=-rate)``."""
        calls = (call for call in self._tree.of(ast.Call) if last_name(call.func) in ("add_", "sub_"))
        own = (call for call in calls if isinstance(call.func, ast.Attribute) and self._values.is_a(call.func.value, "parameter"))
        return any(last_name(part) == "grad" for call in own for given in call.args for part in within(given))

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
        if self.measures(node):
            return
        inside = None
        for parent in self._tree.ancestors(node):
            self._training.add(parent)
            if isinstance(parent, ast.For | ast.AsyncFor | ast.While):
                if self._over_few(parent) or has_one_round(parent):
                    continue
                self.steps.setdefault(parent, call)
                return
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                if inside is not None or parent.name.startswith("test_"):
                    return
                inside, sites = parent, self._names.call_sites(parent)
                if sites and _WHOLE_RUNS.fullmatch(parent.name) and not any(map(self._is_within, sites)):
                    return
                if sites or parent.name in STEP_HOOKS or self._is_step(parent, through=node is not call):
                    self.step_functions.add(parent)
                    for site in sites if depth else ():
                        self._mark_step(site, call, depth - 1)
                    return

    def _is_within(self, site: ast.AST) -> bool:
        """Whether a place is in a function, or repeated: what a module calls itself runs once."""
        around = (ast.FunctionDef, ast.AsyncFunctionDef, ast.For, ast.AsyncFor, ast.While)
        return any(isinstance(parent, around) for parent in self._tree.ancestors(site))

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
        made = {last_name(call.func) for call in calls if self.advances(call)} | (self._halves(calls) if through else set())
        whole = any(last_name(call.func) == "step" and call.args and self._is_loss(call.args[0]) for call in calls if self.advances(call))
        updates = "step" in made and bool(_UPDATES.fullmatch(function.name))
        halved = bool(made & {"backward", "step"}) and self._is_half(function)
        return whole or updates or halved or (bool(made & {"backward", "manual_backward"}) and "step" in made)

    def _is_half(self, function: Function) -> bool:
        """Whether a method is named as one half of a step, and one beside it makes the other: gradients are sent, then applied."""
        owner = self._tree.parents.get(function)
        if not isinstance(owner, ast.ClassDef) or not _HALVES.fullmatch(function.name):
            return False
        if owner not in self._halved:
            self._halved[owner] = self._has_both_halves(owner)
        return self._halved[owner]

    def _has_both_halves(self, owner: ast.ClassDef) -> bool:
        """Whether methods of a class that are named so make a backward pass and an optimizer's step."""
        beside = [part for part in owner.body if isinstance(part, Function) and _HALVES.fullmatch(part.name)]
        calls = [part for each in beside for part in within(each) if isinstance(part, ast.Call)]
        return {"backward", "step"} <= {last_name(call.func) for call in calls if self.advances(call)}

    def _halves(self, calls: list[ast.Call]) -> set[str]:
        """What methods of the file do of a step of which each does one half: a backward pass, or an optimizer's step."""
        called = (self._names.functions.get(last_name(call.func), []) for call in calls)
        helpers = dict.fromkeys(functions[0] for functions in called if len(functions) == 1)
        made = [{last_name(part.func) for part in within(each) if isinstance(part, ast.Call) and self.advances(part)} for each in helpers]
        return {name for names in made if not {"backward", "step"} <= names for name in names}

    def _over_few(self, loop: Loop) -> bool:
        """A loop over optimizers, losses, parameters or the like inside of a step: it does not repeat the step."""
        if isinstance(loop, ast.While):
            return False
        if self._warms_up(loop):
            return True
        beside = _gone_through(loop.iter)
        return not any(self._values.is_a(each, "loader") for each in beside) and any(map(_are_few, beside))

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
                if not self._is_part_of_step(parent, MAX_DEPTH):
                    self.epochs.add(parent)
                return
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                for site in self._names.call_sites(parent) if depth else ():
                    self._mark_epochs(site, depth - 1)
                return

    def _is_part_of_step(self, node: ast.AST, depth: int) -> bool:
        """Whether a loop is repeated by one that makes steps, too: over the parts of a batch, whose gradients are summed up."""
        function = self._tree.function_of(node)
        if any(parent in self.steps for parent in self._tree.ancestors(node)):
            return True
        sites = self._names.call_sites(function) if function is not None and depth else []
        return any(self._is_part_of_step(site, depth - 1) for site in sites)

    def is_epoch(self, loop: Loop) -> bool:
        """Whether a loop goes through epochs: by what it holds, or by its name."""
        if loop in self.epochs:
            return True
        return isinstance(loop, ast.For | ast.AsyncFor) and loop not in self.steps and _counts_epochs(loop)

    def is_whole(self, loop: Loop) -> bool:
        """Whether a step is a whole epoch: a loop over epochs that trains without another one inside."""
        if isinstance(loop, ast.For | ast.AsyncFor):
            return _counts_epochs(loop) and not any(isinstance(part, ast.Call) and last_name(part.func) in _DRAWS for part in within(loop))
        return any(_EPOCH.fullmatch(part.id) for part in within(loop.test) if isinstance(part, ast.Name))


def _counts_epochs(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether a loop counts epochs: ``for epoch in …``, ``for i in range(args.epochs)``."""
    counted = loop.iter.args if isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("range", "trange", "tqdm") else []
    counted = [part for given in counted for part in (given.args if isinstance(given, ast.Call) else [given])]
    return bool(_EPOCH.fullmatch(dotted(loop.target))) or any(_EPOCHS.fullmatch(last_name(given)) for given in counted)


def _gone_through(iterated: ast.expr) -> list[ast.expr]:
    """What a loop goes through side by side: of ``enumerate(zip(optimizers, models))`` both."""
    if not isinstance(iterated, ast.Call) or last_name(iterated.func) not in ("enumerate", "zip"):
        return [iterated]
    given = iterated.args[:1] if last_name(iterated.func) == "enumerate" else iterated.args
    return [part for each in given for part in _gone_through(each)]


def _are_few(iterated: ast.expr) -> bool:
    """Whether something is a list that is written there, or has the name of what a step has several of."""
    last = last_name(iterated.func if isinstance(iterated, ast.Call) else iterated)
    if last in ("values", "items") and isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Attribute):
        last = last_name(iterated.func.value)
    return bool(_PARTS.fullmatch(last)) or isinstance(iterated, ast.List | ast.Tuple)


def has_one_round(loop: Loop) -> bool:
    """Whether a loop ends with its first round: it looks at one batch, or tries again what failed."""
    return isinstance(loop.body[-1], ast.Break)


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
