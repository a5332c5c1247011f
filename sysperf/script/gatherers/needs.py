"""Whether a program needs a value that the host waits for, or waits for it anyway: then the wait is hardly worth a change."""

from __future__ import annotations

import ast

from sysperf.script.file import File
from sysperf.script.gatherers.on_host import feeds_a_library, is_of_the_host
from sysperf.script.gatherers.transfers import last_given
from sysperf.script.nodes import dotted, item_key, last_name
from sysperf.script.semantics.kinds import MADE_ON_CPU
from sysperf.script.syntax import Function, within
from sysperf.startup import lazy

MAX_DEPTH = 3
MIN_OF_STEP = 3
"""An environment's step gives back an observation, a reward, and whether it is done, at least."""
_CHECKS = lazy(r"_*(assert|check|ensure|sanity)(_\w+)?")
"""Functions that look whether something is as it must be."""
_SHOWS = r"((im)?(save|write|export|dump|plot|draw|render|show)|visuali[sz]e)(_\w+)?|imsave|imwrite|imshow|savefig|to_pil_image"
_WRITES = lazy(rf"(?i)_*({_SHOWS})")
"""Functions that write or show what they are given: it must leave the device."""
_WRITING = lazy(rf"(?i)(\w+_|_*)({_SHOWS})|fromarray")
"""Names of such functions where they are called."""
_CHOOSING = frozenset(("masked_select", "nonzero", "argwhere", "boolean_mask"))
"""Functions that choose elements by a mask, and wait for their number."""
_SIZED = frozenset(("range", "trange", "topk", "kthvalue", "narrow", "zeros", "ones", "empty", "arange", "linspace", "randint", "randperm"))
"""Functions whose arguments are numbers of elements, which Python must know."""
_COUNTER = lazy(r"(?i)_*(\w+_)?(steps?|iters?|iterations?|epochs?|counter|step_count|num_batches_tracked)_*")
_STEP = lazy(r"_*(global_|state_|opt_)?step(_t|_tensor|_count)?")
"""What an optimizer counts its steps in, on the CPU unless it is asked to be captured."""
_LENGTH = lazy(r"max_?(seq_?)?len(gth)?s?(_\w+)?")
"""How many elements the longest sequence has."""
_COLLECTIVE = lazy(r"(all_|\w*_all_)?(reduce|gather|broadcast)(_\w+)?")


def is_needed(file: File, node: ast.expr, of: str) -> bool | None:
    """False where the program may go on without a value; None where it checks an input, ends a loop, or ranks agreed on a number."""
    if (not file.loops.optimizes and file.loops.is_backward_alone(node)) or _waits_anyway(file, node):
        return None
    asked = file.tree.statement_of(node)
    if _is_bound(file, asked, node) or _warns_of_a_batch(asked, of) or (of not in ("loss", "parameter") and _is_checked(file, asked)):
        return None
    if _counts(node) or (isinstance(asked, ast.If) and of != "loss" and _chooses(asked)):
        return None
    if isinstance(asked, ast.If) and of == "loss" and _accepts(file, asked.test):
        return None
    raises = isinstance(asked, ast.If) and (isinstance(asked.body[-1], ast.Raise) or _ends_inner_loop(file, asked))
    if (
        (raises and of not in ("loss", "parameter"))
        or _is_in_a_check(file, node)
        or is_of_the_host(file, node)
        or feeds_a_library(file, node)
    ):
        return None
    return None if any(_is_agreed(file, part) for part in within(node) if isinstance(part, ast.Name)) else False


def _is_in_a_check(file: File, node: ast.expr) -> bool:
    """Whether a function around a value looks whether something is as it must be; ``check_accuracy(model, loader)`` is an evaluation."""
    loop = file.loops.where(node).loop
    evaluates = loop in file.loops.evaluations and loop in file.tree.ancestors(node)
    return bool(_CHECKS.fullmatch(file.function_name(node).rpartition(".")[2])) and not evaluates


def _waits_anyway(file: File, node: ast.expr) -> bool:
    """Whether all optimizers of the file read the loss and the gradients themselves, several times a step, or one gave what is read."""
    if _is_found(file, node):
        return True
    if "LBFGS" not in file.words:
        return False
    if _is_in_a_closure(file, node):
        return True
    calls = [part for part in within(node) if isinstance(part, ast.Call)]
    calls += [value for part in within(node) if isinstance(part, ast.Name) if isinstance(value := last_given(file, part), ast.Call)]
    if any(last_name(call.func) == "step" and call.args for call in calls):
        return True
    made = [name for call in file.tree.of(ast.Call) if (name := file.names.qualified(call.func)).startswith("torch.optim.")]
    classes = {name.rpartition(".")[2] for name in made if name.count(".") == 2}
    return classes == {"LBFGS"} and file.loops.where(node).often == "step"


def _is_in_a_closure(file: File, node: ast.expr) -> bool:
    """Whether an optimizer calls the function around a node: ``optimizer.step(closure)``."""
    function = file.tree.function_of(node)
    return function is not None and function.name in file.closures


def _is_found(file: File, node: ast.expr) -> bool:
    """Whether what is read are places or different values, whose number was waited for; or it is a length beside them.

    ``rows = torch.where(mask)[0]``, ``rows[0].item()``, ``max_length = lengths.max().item()``.
    """
    name = next((part for part in within(node) if isinstance(part, ast.Name) and part.id not in file.names.imports), None)
    bound = [binding.value for binding in file.names.lookup(name, name.id)] if name is not None else []
    made = [binding for value in bound for binding in (file.names.lookup(value, value.id) if isinstance(value, ast.Name) else ())]
    values = [value for value in (*bound, *(each.value for each in made)) if value is not None]
    if any(_finds(value) for value in values):
        return True
    statement = file.tree.statement_of(node)
    target = last_name(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
    beside = {"nonzero", "argwhere", "unique", "unique_consecutive"} & file.attributes
    return bool(beside) and bool(_LENGTH.fullmatch(target))


def _finds(node: ast.AST) -> bool:
    """``x.nonzero()``, ``torch.where(mask)[0]``, ``torch.unique(x)``."""
    while isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Call) and last_name(node.func) in ("flatten", "squeeze", "view", "tolist")
    ):
        node = node.value if isinstance(node, ast.Subscript) else node.func.value if isinstance(node.func, ast.Attribute) else node.func
    if not isinstance(node, ast.Call):
        return False
    called = last_name(node.func)
    return called in ("nonzero", "argwhere", "unique", "unique_consecutive") or (called == "where" and len(node.args) == 1)


def blocks_of(file: File, node: ast.expr) -> list[tuple[ast.AST, bool]]:
    """The branches of conditions around a node, from the inside, and the evaluation or the function in which they stand."""
    blocks: list[tuple[ast.AST, bool]] = []
    child: ast.AST = node
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.If):
            blocks.append((parent, child in parent.body))
        elif parent in file.loops.evaluations or isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return [*blocks, (parent, True)]
        child = parent
    return blocks


def _counts(node: ast.expr) -> bool:
    """``self.steps.item()``, ``state["step"].item()``: a number that the host adds up, kept in a tensor to be saved."""
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if isinstance(owner, ast.Subscript | ast.Name):
        return bool(_STEP.fullmatch(item_key(owner) if isinstance(owner, ast.Subscript) else owner.id))
    return isinstance(owner, ast.Attribute) and bool(_COUNTER.fullmatch(owner.attr)) and dotted(owner).startswith("self.")


def _is_checked(file: File, statement: ast.stmt) -> bool:
    """Whether a value is read under a name only to raise an error where it is wrong: ``top = ids.max().item()``, ``if top >= n: raise``."""
    uses = _read_later(file, statement)
    around = ([*file.tree.ancestors(use)] for use in uses)
    return bool(uses) and all(
        any(isinstance(each, ast.If) and isinstance(each.body[-1], ast.Raise) for each in parents) for parents in around
    )


def _read_later(file: File, statement: ast.stmt, node: ast.AST | None = None) -> list[ast.Name]:
    """The places that read the name which a statement gives a value; of ``a, b = x, y`` the one beside a node."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(target, ast.Tuple) and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
        pairs = zip(target.elts, statement.value.elts, strict=False)
        target = next((name for name, value in pairs if node is not None and node in within(value)), None)
    return _uses(file, statement, target.id) if isinstance(target, ast.Name) else []


def _is_bound(file: File, statement: ast.stmt, node: ast.AST | None = None, depth: int = MAX_DEPTH) -> bool:
    """Whether a value is read under a name to be a size, the end of a range, an index or a part of a slice: Python needs the number."""
    return any(_is_place(file, use) or (depth > 1 and _is_rounded(file, use, depth)) for use in _read_later(file, statement, node))


def _is_rounded(file: File, use: ast.Name, depth: int) -> bool:
    """``n = int(round(size * ratio))``, where such a number is a size."""
    statement = file.tree.statement_of(use)
    value = statement.value if isinstance(statement, ast.Assign) else None
    rounds = isinstance(value, ast.Call) and last_name(value.func) in ("int", "round", "ceil", "floor", "max", "min")
    return rounds and use in within(statement) and _is_bound(file, statement, depth=depth - 1)


def _is_place(file: File, use: ast.Name) -> bool:
    """Whether a name is a size, an index, a bound of a slice or of ``range``, itself or as a part of a sum."""
    child: ast.AST = use
    for parent in file.tree.ancestors(use):
        if isinstance(parent, ast.Slice) or (isinstance(parent, ast.Call) and last_name(parent.func) in _SIZED):
            return True
        if isinstance(parent, ast.keyword):
            child = parent
            continue
        if isinstance(parent, ast.Subscript):
            return parent.slice is child and not isinstance(child, ast.Constant)
        if not isinstance(parent, ast.BinOp | ast.Tuple):
            return False
        child = parent
    return False


def _warns_of_a_batch(asked: ast.stmt, of: str) -> bool:
    """``if torch.isnan(x).any(): warnings.warn(…)``: a check of an input."""
    last = asked.body[-1] if isinstance(asked, ast.If) and of == "batch" and not asked.orelse else None
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and last_name(last.value.func) in ("warn", "warning")


def _chooses(asked: ast.If) -> bool:
    """``if mask.any(): x[mask]``: choosing the elements waits anyway."""
    names = {part.id for part in within(asked.test) if isinstance(part, ast.Name)}
    if any(isinstance(part, ast.Call) and last_name(part.func) in _CHOOSING for statement in asked.body for part in within(statement)):
        return True
    indices = (part.slice for statement in asked.body for part in within(statement) if isinstance(part, ast.Subscript))
    return any(isinstance(part, ast.Name) and part.id in names for index in indices for part in within(index))


def _accepts(file: File, test: ast.expr) -> bool:
    """``if new_loss < loss:``: whether a step is taken at all."""
    sides = (test.left, *test.comparators) if isinstance(test, ast.Compare) else ()
    return bool(sides) and all(isinstance(side, ast.Name) and file.values.is_a(side, "loss") for side in sides)


def _ends_inner_loop(file: File, asked: ast.If) -> bool:
    """Whether a condition on what the rounds make ends a loop within a step: the last word of a text."""
    loop = next((parent for parent in file.tree.ancestors(asked) if isinstance(parent, ast.For | ast.AsyncFor | ast.While)), None)
    if loop is None or not isinstance(asked.body[-1], ast.Break) or loop in file.loops.steps:
        return False
    names = [part for part in within(asked.test) if isinstance(part, ast.Name)]
    bound = (binding for name in names for binding in file.names.lookup(name, name.id) if not binding.element)
    first, last = loop.lineno, loop.end_lineno or loop.lineno
    made = (binding.value for binding in bound if binding.value is not None)
    return any(first <= value.lineno <= last for value in made) or any(name.id in file.names.augmented for name in names)


def is_written(file: File, node: ast.expr) -> bool:
    """Whether a copy is made to be written to a file or shown, by the function around it or a call that it is given to."""
    if _WRITES.fullmatch(file.function_name(node).rpartition(".")[2]) or _is_given_to_a_writer(file, node):
        return True
    statement = file.tree.statement_of(node)
    name = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) and statement.value is node else ""
    later = _uses(file, statement, name) if name and "." not in name else []
    return any(_is_given_to_a_writer(file, use) and not file.loops.where(use).guarded for use in later)


def _is_given_to_a_writer(file: File, node: ast.expr) -> bool:
    for parent in file.tree.ancestors(node):
        if isinstance(parent, ast.stmt):
            return False
        if isinstance(parent, ast.Call) and _WRITING.fullmatch(last_name(parent.func)) and node not in within(parent.func):
            return True
    return False


def _uses(file: File, statement: ast.stmt, name: str) -> list[ast.Name]:
    """The places that read a name after a statement of the same function."""
    around = file.tree.function_of(statement) or file.tree.module
    named = (part for part in within(around) if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load))
    return [part for part in named if part.lineno > statement.lineno]


def _is_agreed(file: File, name: ast.Name) -> bool:
    """Whether a number of the host was put into a tensor for a collective: ``flag = torch.tensor([stop]); all_reduce(flag)``."""
    function = file.tree.function_of(name)
    if function is None:
        return False
    made = [binding.value for binding in file.names.lookup(name, name.id) if binding.value is not None]
    calls = [part for value in made for part in within(value) if isinstance(part, ast.Call)]
    if not any(file.names.qualified(call.func) in MADE_ON_CPU for call in calls):
        return False
    exchanged = (part for part in within(function) if isinstance(part, ast.Call) and _COLLECTIVE.fullmatch(last_name(part.func)))
    return any(dotted(argument) == name.id for call in exchanged if call.lineno <= name.lineno for argument in call.args)


def is_paced(file: File, node: ast.expr) -> bool:
    """Whether the loop of a step acts in an environment each time, or the function that makes the step, where another file repeats it."""
    where = file.loops.where(node)
    if not file.simulates or where.often != "step":
        return False
    if where.loop is None:
        functions = _functions_around(file, node)
        names = {function.name for function in functions}
        loops = [loop for loop in file.tree.loops if any(_is_call_of(part, names) for part in within(loop))]
        return any(_acts(file, part) for each in (*functions, *loops) for part in within(each) if isinstance(part, ast.Call))
    calls = [part for part in within(where.loop) if isinstance(part, ast.Call)]
    drawn = [given for call in calls if last_name(call.func) == "next" for given in call.args]
    drawn += [] if isinstance(where.loop, ast.While) else [where.loop.iter]
    collects = any("collector" in last_name(part) for each in drawn for part in within(each))
    return collects or any(_acts(file, call) for call in calls)


def _functions_around(file: File, node: ast.AST, depth: int = MAX_DEPTH) -> list[Function]:
    """The function around a node, and those that call it."""
    function = file.tree.function_of(node)
    if function is None or not depth:
        return []
    return [function, *(each for site in file.names.call_sites(function) for each in _functions_around(file, site, depth - 1))]


def _is_call_of(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in names


def _acts(file: File, call: ast.Call) -> bool:
    """``env.step(action)``, or what gives back an observation, a reward and the like."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step" or not call.args:
        return False
    statement = file.tree.statement_of(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return "env" in last_name(call.func.value).lower() or (isinstance(target, ast.Tuple) and len(target.elts) >= MIN_OF_STEP)
