"""Changes of code that are safe to make: each understands completely what it changes, or leaves it alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from sysperf.model.finding import Finding, Place
from sysperf.script.changes import pinning
from sysperf.script.changes.edits import Change, Edit, add_keyword, change_of, newline, span, text_of
from sysperf.script.file import File
from sysperf.script.gatherers import makers
from sysperf.script.gatherers.fallback import is_fallback
from sysperf.script.nodes import argument, dotted, is_open, keyword, last_name
from sysperf.script.semantics.binding import Binding
from sysperf.script.semantics.loops import SAMPLE_METHODS
from sysperf.script.syntax import within
from sysperf.script.walk import is_named_as_test
from sysperf.startup import lazy

_LIBRARIES = frozenset(("torch", "torchvision", "torchaudio", "torch_geometric", "datasets", "timm", "monai", "sklearn"))
"""Whose data sets give a sample without a change of their own."""
_VIEWS = frozenset(f"torch.utils.data.{name}" for name in ("Subset", "random_split"))
"""What shows a part of another data set."""
_DATASET = lazy(r"(\w+_)?(dataset|data_set|ds)")
_AMP = {"autocast": "enabled", "GradScaler": "init_scale"}
"""The names that torch.amp has too, with their first argument there is behind the device."""
Codemod = Callable[[File, ast.Call], "Change | None"]


def changes(file: File, hypotheses: Iterable[Finding]) -> Iterator[Change]:
    """The changes that hypotheses about this file ask for, where the code is understood. A test may test what it is written like."""
    for hypothesis in hypotheses if not is_test(file) else ():
        codemod = CODEMODS.get(hypothesis.rule)
        place = hypothesis.place
        call = _call_at(file, place) if codemod is not None and place is not None and not place.cell else None
        if codemod is not None and call is not None and (made := codemod(file, call)) is not None:
            yield made


def is_test(file: File) -> bool:
    """Whether a file is named like a test, and tests: a script may have such a name, too."""
    if not is_named_as_test(file.source.path):
        return False
    imported = {name.partition(".")[0] for name in file.names.imports.values()}
    return bool(imported & {"pytest", "unittest"}) or any(name.startswith("test") for name in file.names.functions)


def _call_at(file: File, place: Place) -> ast.Call | None:
    """The call that stands at a place."""
    for call in file.tree.of(ast.Call):
        if (call.lineno, call.end_lineno) == (place.line, place.end_line):
            start, end = span(file, call)
            if (file.source.place(start)[1], file.source.place(end)[1]) == (place.column, place.end_column):
                return call
    return None


def _drop_set_to_none(file: File, call: ast.Call) -> Change | None:
    """``zero_grad(set_to_none=False)`` to ``zero_grad()``, unless the file looks at gradients, which would be None then."""
    if "grad" in file.words or len(call.args) + len(call.keywords) != 1:
        return None
    start = span(file, call.func)[1]
    end = span(file, call)[1]
    inside = file.source.text[start + 1 : end - 1]
    if file.source.text[start] != "(" or "#" in inside or "\\" in inside:
        return None
    return change_of(call, "optimizer.zero-grad-fills", Edit(start + 1, end - 1, "", "optimizer.zero-grad-fills"))


def _keep_workers(file: File, call: ast.Call) -> Change | None:
    """Add persistent_workers=True; with a number of workers that is an option, ``persistent_workers=args.workers > 0``."""
    rule, maker = "dataloader.workers-made-again", makers.DATALOADER
    if keyword(call, "worker_init_fn") is not None:
        return None  # it would seed the workers once, and not for each epoch
    if keyword(call, maker.persistent[0]) is not None or is_open(call) or file.loops.where(call).often or _changes_with_epochs(file, call):
        return None
    given = argument(call, maker.workers[0], maker.workers[1])
    count = given.value if isinstance(given, ast.Constant) else None
    if isinstance(count, int) and count > 0:
        value = "True"
    elif given is not None and dotted(given):
        value = f"{text_of(file, given)} > 0"
    else:
        return None
    return change_of(call, rule, add_keyword(file, call, f"{maker.persistent[0]}={value}", rule))


def _changes_with_epochs(file: File, call: ast.Call) -> bool:
    """Whether the data set may be changed between epochs, which workers that live on would not see."""
    given = argument(call, "dataset", 0)
    if given is None or not _keeps_no_state(file, given):
        return True
    for other in file.tree.of(ast.Call):
        if last_name(other.func) == "set_epoch" and isinstance(other.func, ast.Attribute):
            sampler = "sampler" in last_name(other.func.value).lower()
            if not sampler or file.values.is_a(given, "iterable-dataset"):
                return True
        if (
            isinstance(other.func, ast.Attribute)
            and _DATASET.fullmatch(last_name(other.func.value))
            and file.loops.where(other).often == "epoch"
        ):
            return True
    stores = (node for node in file.tree.of(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return any(_DATASET.fullmatch(last_name(node.value)) and file.loops.where(node).often == "epoch" for node in stores)


def _keeps_no_state(file: File, given: ast.expr, depth: int = 4) -> bool:
    """Whether it is certain that giving a sample leaves a data set as it was, as a position in a file is not.

    It is of classes of this file that store nothing then, and of libraries' data sets. What a caller or another file gives is not known.
    """
    if isinstance(given, ast.Call):
        return _is_made_stateless(file, given, depth)
    bindings = file.names.lookup(given, dotted(given)) if dotted(given) and depth else []
    return bool(bindings) and all(_is_bound_stateless(file, binding, depth) for binding in bindings)


def _is_bound_stateless(file: File, binding: Binding, depth: int) -> bool:
    if binding.parameter is None:
        value, path = binding.value, binding.path
        while path and isinstance(value, ast.Tuple):
            value, path = (value.elts[path[0]] if path[0] < len(value.elts) else None), path[1:]
        return value is not None and not binding.element and _keeps_no_state(file, value, depth - 1)
    passed = file.names.arguments(binding.parameter)
    return bool(passed) and all(_keeps_no_state(file, each, depth - 1) for each in passed)


def _is_made_stateless(file: File, call: ast.Call, depth: int) -> bool:
    name = file.names.qualified(call.func)
    if name in _VIEWS:
        return bool(call.args) and _keeps_no_state(file, call.args[0], depth - 1)
    owner = file.names.classes.get(name)
    if owner is None:
        return name.partition(".")[0] in _LIBRARIES
    methods = [part for part in owner.body if isinstance(part, ast.FunctionDef) and part.name in SAMPLE_METHODS]
    stores = (node for method in methods for node in within(method) if isinstance(node, ast.Attribute))
    return bool(methods) and not any(isinstance(node.ctx, ast.Store) for node in stores)


def _rename_amp(file: File, call: ast.Call) -> Change | None:
    """``torch.cuda.amp.autocast(…)`` to ``torch.amp.autocast("cuda", …)``, with the import where the name comes from one."""
    rule = "precision.amp-old-names"
    qualified = file.names.qualified(call.func)
    _, device, _, name = qualified.split(".")[:4] if qualified.count(".") == 3 else ("", "", "", "")
    if name not in _AMP or is_open(call) or (name == "autocast" and len(call.args) > 1):
        return None
    if isinstance(call.func, ast.Name):
        renamed = _renamed_import(file, call.func, rule)
    else:
        renamed = Edit(*span(file, call.func), f"torch.amp.{name}", rule) if file.names.imports.get("torch") == "torch" else None
    return change_of(call, rule, renamed, _with_device(file, call, name, device, rule))


def _with_device(file: File, call: ast.Call, name: str, device: str, rule: str) -> Edit | None:
    """The device as first argument; autocast's first one was `enabled`, which is now the third."""
    start = span(file, call.func)[1]
    if file.source.text[start : start + 1] != "(":
        return None
    has_arguments = bool(call.args or call.keywords)
    first = f"{_AMP[name]}=" if call.args and name == "autocast" else ""
    if first:
        start = span(file, call.args[0])[0] - 1
        if file.source.text[start] != "(":
            return None
    return Edit(start + 1, start + 1, f'"{device}"' + (f", {first}" if has_arguments else ""), rule)


def _renamed_import(file: File, used: ast.Name, rule: str) -> Edit | None:
    """The module of a `from … import`, where it brings nothing else and every use of its names is a call that changes too."""
    statements = [node for node in file.tree.of(ast.ImportFrom) if any((alias.asname or alias.name) == used.id for alias in node.names)]
    if len(statements) != 1 or statements[0].module not in ("torch.cuda.amp", "torch.cpu.amp") or is_fallback(file, statements[0]):
        return None
    names = {alias.asname or alias.name for alias in statements[0].names}
    if not {alias.name for alias in statements[0].names} <= set(_AMP):
        return None
    for node in file.tree.of(ast.Name):
        if node.id in names and not _is_simple_call(file, node):
            return None
    start, _ = span(file, statements[0])
    module = statements[0].module or ""
    place = file.source.text.find(module, start)
    return Edit(place, place + len(module), "torch.amp", rule) if file.source.text[start:place].split() == ["from"] else None


def _is_simple_call(file: File, node: ast.Name) -> bool:
    call = file.tree.parents.get(node)
    autocast = file.names.imports.get(node.id, "").endswith("autocast")
    return isinstance(call, ast.Call) and call.func is node and not is_open(call) and not (autocast and len(call.args) > 1)


def _add_up_on_device(file: File, call: ast.Call) -> Change | None:
    """``total += loss.item()`` to ``total += loss.detach().double()``, with ``total = float(total)`` after the loop: the same sum."""
    rule = "sync.per-step"
    statement = file.tree.statement_of(call)
    loop = file.tree.parents.get(statement)
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add) or not isinstance(statement.target, ast.Name):
        return None
    if not isinstance(loop, ast.For) or loop not in file.loops.steps or loop.orelse or not _has_doubles(file):
        return None
    if (
        not _is_loss_item(call)
        or not _is_product_of(statement.value, call)
        or not _is_plain_sum(file, statement, loop, statement.target.id)
    ):
        return None
    owner = call.func.value  # type: ignore[attr-defined]  # `_is_loss_item` says so
    line = file.source.line(loop.lineno)
    indent = line[: loop.col_offset]
    end = _end_of_line(file, loop.body[-1])
    if indent.strip() or end is None or loop.body[0].lineno == loop.lineno:
        return None
    name = statement.target.id
    return change_of(
        call,
        rule,
        Edit(span(file, owner)[1], span(file, call)[1], ".detach().double()", rule),
        Edit(end, end, f"{newline(file.source)}{indent}{name} = float({name})", rule),
    )


def _has_doubles(file: File) -> bool:
    """Whether the device is CUDA or the CPU for certain: MPS has no numbers of 64 bits, and other devices compute them slowly."""
    text = file.source.text
    foreign = ("mps", "xpu", "torch.accelerator", "torch_xla", "npu", "hpu", "privateuse")
    frameworks = {name.partition(".")[0] for name in file.names.imports.values()}
    return (
        "cuda" in text
        and not any(word in text for word in foreign)
        and not frameworks & {"lightning", "pytorch_lightning", "accelerate"}
        and not _others_name_the_device(file)
    )


def _others_name_the_device(file: File) -> bool:
    """Whether a device comes by an option, or by a parameter that nobody in the file gives."""
    parameters = (
        (function, place)
        for function in file.tree.functions
        for place, given in enumerate((*function.args.posonlyargs, *function.args.args))
        if given.arg in ("device", "dev")
    )
    return "device" in file.names.options or not all(map(file.names.arguments, parameters))


def _inference(file: File, call: ast.Call) -> Change | None:
    """``torch.no_grad`` to ``torch.inference_mode``."""
    if not isinstance(call.func, ast.Attribute) or dotted(call.func) != "torch.no_grad":
        return None
    rule = "program.no-grad-in-evaluation"
    return Change(rule, call.lineno, (Edit(*span(file, call.func), "torch.inference_mode", rule),))


def _end_of_line(file: File, statement: ast.stmt) -> int | None:
    """The offset at the end of a statement's last line; None where another statement follows on it."""
    number = statement.end_lineno or statement.lineno
    line, end = file.source.line(number), span(file, statement)[1]
    rest = line[end - file.source.starts[number - 1] :].strip()
    return file.source.starts[number - 1] + len(line) if not rest or rest.startswith("#") else None


def _is_loss_item(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "item" and isinstance(call.func.value, ast.Name) and not call.args


def _is_product_of(value: ast.expr, call: ast.Call) -> bool:
    """`loss.item()`, or that times a size, which is the same in double precision."""
    if value is call:
        return True
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mult):
        return False
    other = value.right if value.left is call else value.left if value.right is call else None
    return isinstance(other, ast.Call) and last_name(other.func) in ("size", "len") and not other.keywords


def _is_plain_sum(file: File, statement: ast.AugAssign, loop: ast.For, name: str) -> bool:
    """A local number that begins at 0 right before the loop, and that nothing else in the loop uses or leaves with."""
    function = file.tree.function_of(loop)
    scope: ast.AST = function if function is not None else file.tree.module
    for part in within(loop):
        if isinstance(part, ast.Return | ast.Yield | ast.YieldFrom | ast.Await):
            return False
        if isinstance(part, ast.Name) and part.id == name and file.tree.parents.get(part) is not statement:
            return False
    everywhere = [*within(scope, functions=True)]
    if any(isinstance(part, ast.Global | ast.Nonlocal) and name in part.names for part in everywhere):
        return False
    if any(isinstance(part, ast.Name) and part.id == name and file.tree.function_of(part) is not function for part in everywhere):
        return False
    block, place = file.tree.place_of(loop)
    begun = [value for earlier in block[:place] if isinstance(earlier, ast.Assign) for value in _given_to(earlier, name)]
    return bool(begun) and isinstance(begun[-1], ast.Constant) and begun[-1].value == 0


def _given_to(statement: ast.Assign, name: str) -> Iterator[ast.expr | None]:
    """What an assignment gives to a name, also as a part of a tuple; None where that is not written there."""
    for target in statement.targets:
        if dotted(target) == name:
            yield statement.value
        elif isinstance(target, ast.Tuple):
            places = [number for number, part in enumerate(target.elts) if dotted(part) == name]
            parts = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
            plain = len(parts) == len(target.elts) and not any(isinstance(part, ast.Starred) for part in (*parts, *target.elts))
            yield from (parts[place] if plain else None for place in places)


CODEMODS: dict[str, Codemod] = {
    "optimizer.zero-grad-fills": _drop_set_to_none,
    "dataloader.workers-made-again": _keep_workers,
    "dataloader.pin-memory-off": pinning.pin,
    "transfer.blocking": pinning.do_not_wait,
    "precision.amp-old-names": _rename_amp,
    "sync.per-step": _add_up_on_device,
    "program.no-grad-in-evaluation": _inference,
}
"""What `--fix` can change, by the rule that finds it."""
