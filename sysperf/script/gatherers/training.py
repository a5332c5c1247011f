"""Facts of training and evaluation: loops, optimizers, sums of losses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from sysperf.script.facts import Accumulation, Optimizer, StepLoop
from sysperf.script.file import File
from sysperf.script.gatherers.gradients import is_undecided, models_without, without_gradients
from sysperf.script.nodes import argument, dotted, keyword, last_name
from sysperf.script.semantics.loops import EVALUATION_HOOKS, Where
from sysperf.script.semantics.steps import STEP_HOOKS
from sysperf.script.syntax import Loop, within
from sysperf.startup import lazy

_FRAMEWORKS = {"lightning": "lightning", "hf-trainer": "transformers"}
MAX_DEPTH = 3
_BY_PARAMETER = lazy(r"(transformers|pytorch_transformers|pytorch_pretrained_bert)(\.optimization)?\.(AdamW|BertAdam|OpenAIAdam)")
"""Optimizers of libraries that go through the parameters one by one, as Adam."""


def step_loops(file: File) -> Iterator[StepLoop]:
    """The loops that train and evaluate, and the hooks that a framework calls instead."""
    for loop, call in file.loops.steps.items():
        where = Where("step", False, loop)
        yield StepLoop(
            **file.site(call, where), kind="step", by="loop", no_grad=False, calls_model=True, accumulates=_accumulates(file, loop)
        )
    for loop in file.tree.loops:
        if loop in file.loops.evaluations and not isinstance(loop, ast.While) and not _is_around_evaluation(file, loop):
            site = file.site(loop.iter, Where("evaluation", False, loop))
            yield StepLoop(
                **site,
                kind="evaluation",
                by="loop",
                no_grad=without_gradients(file, loop) or models_without(file, loop, all) or (None if is_undecided(file, loop) else False),
                calls_model=bool(file.loops.model_calls(loop)),
                accumulates=False,
            )
    for call in _evaluated_between_steps(file):
        yield evaluation_at(file, call, no_grad=without_gradients(file, call))
    yield from _hooks(file)


def evaluation_at(file: File, call: ast.Call, *, no_grad: bool = False) -> StepLoop:
    """A call that evaluates between the steps of a training, or between its epochs."""
    site = file.site(call, Where("evaluation"))
    return StepLoop(**site, kind="evaluation", by="steps", no_grad=no_grad, calls_model=True, accumulates=False)


def _is_around_evaluation(file: File, loop: Loop) -> bool:
    """Whether a loop calls its models in the rounds of an evaluation within it, which is told itself."""
    inner = [part for part in within(loop) if part is not loop and part in file.loops.evaluations]
    calls = file.loops.model_calls(loop) if inner else []
    return bool(calls) and all(any(parent in inner for parent in file.tree.ancestors(call)) for call in calls)


def _evaluated_between_steps(file: File) -> Iterator[ast.Call]:
    """The first call of a model between its `eval()` and its `train()` in a training loop, where no backward pass follows."""
    switches = [part for loop in file.loops.steps for part in within(loop) if isinstance(part, ast.Expr) and _calls(part, "eval")]
    for switch in dict.fromkeys(switches):
        parts = [part for statement in _until_training(file, switch) for part in within(statement)]
        calls = [part for part in parts if isinstance(part, ast.Call)]
        trains = any(last_name(call.func) in ("backward", "grad") for call in calls)
        if not trains and not any(part in file.loops.evaluations for part in parts):
            models = [call for call in calls if file.loops.is_model(call) and not _is_part(file, switch, call)]
            yield from [call for call in models[:1] if not file.loops.where(call).guarded]  # one pass, now and then, costs little


def _is_part(file: File, switch: ast.Expr, called: ast.Call) -> bool:
    """Whether what is switched is no model, or a part of the one that is called: ``model.norm.eval()``, which goes on training."""
    calls = (part for part in within(switch) if isinstance(part, ast.Call) and last_name(part.func) == "eval")
    switched = [call.func.value for call in calls if isinstance(call.func, ast.Attribute) and dotted(call.func)]
    whole = [each for each in switched if file.values.is_a(each, "model", "lightning") or dotted(each) == "self"]
    return bool(switched) and all(dotted(each).startswith(f"{dotted(called.func)}.") for each in whole)


def _until_training(file: File, statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements of a block behind one, up to where a model is switched to training."""
    block, place = file.tree.place_of(statement)
    for later in block[place + 1 :]:
        if _calls(later, "train"):
            return
        yield later


def _calls(statement: ast.stmt, method: str) -> bool:
    return any(isinstance(part, ast.Call) and last_name(part.func) == method for part in within(statement))


def _hooks(file: File) -> Iterator[StepLoop]:
    for function in file.tree.functions:
        owner = file.tree.parents.get(function)
        by = _FRAMEWORKS.get(file.values.base_of(owner) if isinstance(owner, ast.ClassDef) else "", "")
        kind = "step" if function.name in STEP_HOOKS else "evaluation" if function.name in EVALUATION_HOOKS else ""
        if by and kind:
            site = file.site(function.body[0], Where(kind))
            yield StepLoop(**site, kind=kind, by=by, no_grad=kind == "evaluation", calls_model=True, accumulates=False)


def _accumulates(file: File, loop: Loop) -> bool:
    """An optimizer step under `if (i + 1) % n`, or outside of the loop that holds the backward passes."""
    steps = [part for part in within(loop) if isinstance(part, ast.Call) and last_name(part.func) == "step" and file.loops.advances(part)]
    backward = any(isinstance(part, ast.Call) and last_name(part.func) == "backward" for part in within(loop))
    if not backward:
        return False
    if not steps:
        return any(parent in file.loops.steps for parent in file.tree.ancestors(loop))
    return all(_every_nth(file, step, loop) for step in steps)


def _every_nth(file: File, node: ast.AST, loop: Loop) -> bool:
    for parent in file.tree.ancestors(node):
        if parent is loop:
            return False
        if isinstance(parent, ast.If) and any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in within(parent.test)):
            return True
    return False


def optimizers(file: File) -> Iterator[Optimizer]:
    """The optimizers of torch.optim, and those of other libraries that have no kernels of their own."""
    for call in file.tree.of(ast.Call):
        name = file.names.qualified(call.func)
        own = name.startswith("torch.optim.") and name.count(".") == 2 and name.rpartition(".")[2][:1].isupper()
        if (own or _BY_PARAMETER.fullmatch(name)) and not _few_parameters(call):
            open_ended = any(given.arg is None for given in call.keywords)
            fused, foreach = (file.text(keyword(call, key)) for key in ("fused", "foreach"))
            yield Optimizer(
                **file.site(call), what=name, fused=fused or (None if open_ended else ""), foreach=foreach or (None if open_ended else "")
            )


def _few_parameters(call: ast.Call) -> bool:
    """Whether an optimizer has parameters that somebody counts one by one: ``Adam([log_alpha])``, one kernel more or less."""
    given = argument(call, "params", 0)
    if isinstance(given, ast.List | ast.Tuple):
        return bool(given.elts) and all(dotted(part) for part in given.elts)
    words = [last_name(part).lower() for part in within(given)] if given is not None else []
    return any("temperature" in word or "alpha" in word for word in words)


def accumulations(file: File) -> Iterator[Accumulation]:
    """`total += loss` and `losses.append(loss)` in a training loop, where the sum is not what is differentiated."""
    for statement in file.tree.of(ast.AugAssign):
        name = dotted(statement.target)
        if isinstance(statement.op, ast.Add) and name and file.values.is_a(statement.value, "loss", "detached"):
            where = file.loops.where(statement)
            if where.often == "step" and not _is_differentiated(file, name, statement) and not without_gradients(file, statement, 0):
                keeps = not file.values.is_a(statement.value, "detached", "number")
                yield Accumulation(
                    **file.site(statement, where), name=name, keeps_graph=keeps, into="sum", freed=_is_freed(statement, where)
                )
    for call in file.tree.of(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1:
            where = file.loops.where(call)
            name = dotted(call.func.value)
            if where.often == "step" and name and file.values.kinds(call.args[0]) == {"loss"} and not _is_differentiated(file, name, call):
                yield Accumulation(**file.site(call, where), name=name, keeps_graph=True, into="list", freed=_is_freed(call, where))


def _is_freed(node: ast.stmt | ast.expr, where: Where) -> bool | None:
    """False where a loss is kept before its backward pass; None where that came first, and only the nodes of the graph are left."""
    loop = where.loop
    calls = [part for part in within(loop) if isinstance(part, ast.Call)] if loop is not None else []
    return None if any(last_name(call.func) == "backward" and call.lineno < node.lineno for call in calls) else False


def _is_differentiated(file: File, name: str, node: ast.AST) -> bool:
    """Whether a sum is used in its function by anything that may lead to a backward pass, or begins anew in each step."""
    function = file.tree.function_of(node)
    scope: ast.AST = function if function is not None else file.tree.module
    where = file.loops.where(node)
    if where.loop is None or file.tree.function_of(where.loop) is not function:
        return True  # the sum lives in a helper: who reads it is not known
    if any(_makes_loss(part, name) and not _is_kept(file, part) for part in within(scope)):
        return True
    uses = [part for part in within(where.loop) if isinstance(part, ast.Name | ast.Attribute) and dotted(part) == name]
    if any(isinstance(part.ctx, ast.Store) and not isinstance(file.tree.parents[part], ast.AugAssign) for part in uses):
        return True
    if any(isinstance(part.ctx, ast.Load) and _feeds(file, part, node) for part in uses):
        return True
    return any(isinstance(part, ast.Call) and last_name(part.func) == "backward" and _names(part, name) for part in within(scope))


def _makes_loss(node: ast.AST, name: str) -> bool:
    """Whether a list of losses is made into one: ``torch.stack(losses)``, ``sum(losses)``."""
    if not isinstance(node, ast.Call) or last_name(node.func) not in ("stack", "cat", "sum", "hstack", "vstack"):
        return False
    return any(dotted(given) == name for given in node.args)


def _is_kept(file: File, node: ast.AST) -> bool:
    """Whether a result is put into a list or shown, and not trained on: ``history.append(sum(losses) / n)``."""
    statement = file.tree.statement_of(node)
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and last_name(statement.value.func) in ("append", "print")
    )


def _feeds(file: File, part: ast.AST, node: ast.AST) -> bool:
    """A use inside of the loop other than to show it."""
    statement = file.tree.statement_of(part)
    if statement is file.tree.statement_of(node):
        return False
    showing = ("item", "print", "set_postfix", "set_description", "format", "info", "log", "add_scalar", "debug", "write", "update")
    parents = [parent for parent in file.tree.ancestors(part) if not isinstance(parent, ast.stmt)]
    called = [last_name(parent.func) for parent in parents if isinstance(parent, ast.Call)]
    return not (set(called) & set(showing) or any(isinstance(parent, ast.JoinedStr) for parent in parents))


def _names(call: ast.Call, name: str) -> bool:
    return any(isinstance(part, ast.Name | ast.Attribute) and dotted(part) == name for part in within(call))
