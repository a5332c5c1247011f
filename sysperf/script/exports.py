"""A file that was parsed to what it tells the others that are linted with it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator

from sysperf.script.facts import Script
from sysperf.script.file import File
from sysperf.script.gatherers import samples
from sysperf.script.gatherers.loaders import place_of, uses
from sysperf.script.gatherers.tensors import is_moved
from sysperf.script.gatherers.waiting import FORWARD, MAKERS, WORD, by_function, waiting
from sysperf.script.nodes import arguments, dotted, is_open, last_name
from sysperf.script.semantics.kinds import LOADERS, TENSORS
from sysperf.script.semantics.links import OF_METRICS, Called, Class, Kinds, Known, Links, Result, Surroundings
from sysperf.script.semantics.loops import EVALUATION_HOOKS, SAMPLE_METHODS
from sysperf.script.semantics.modules import Modules, Ref
from sysperf.script.semantics.outside import Elsewhere, named_in
from sysperf.script.semantics.parts import is_abstract, returns
from sysperf.script.semantics.steps import STEP_HOOKS
from sysperf.script.semantics.value import Value
from sysperf.script.source import Source, Unreadable
from sysperf.script.syntax import Function, Tree, within

MAX_KINDS = 4
MAX_GIVEN = 12
MAX_RETURNS = 8
MAX_TOLD = 2_000
"""Functions and calls of one file: a generated one can have any number of them."""
_OFTEN = frozenset(("step", "evaluation", "forward", "sample", "epoch"))
_TOLD = frozenset(
    (
        "loader", "loaders", "batch", "loss", "tensor", "output", "detached", "number", "array", "host", "model", "lightning", "criterion",
        "optimizer", "parameters", "scaler", "dataset", "iterable-dataset", "memory-dataset", "hf-dataset", "accelerator",
    )
)  # fmt: skip
"""Kinds that mean the same in every file."""
_READING = (".item(", ".cpu(", ".numpy(", ".tolist(", "float(")
_NO_TENSORS = ("loader", "loaders", "number", "array", "host", "memory-dataset", "iterable-dataset")
_HOOKS = STEP_HOOKS | EVALUATION_HOOKS | SAMPLE_METHODS
_CONTAINED = ("loader", "loaders", "batch")


def links(file: File, around: Surroundings, script: Script | None = None) -> Links:
    """What a file tells the others. Without its facts nothing is said of it, and it hears only what it hands on."""
    outside = file.names.outside
    runs = _runs(file)
    calls = [(call, ref) for call in file.tree.of(ast.Call) if (ref := _called(file, call, runs=runs)) is not None]
    waits = waiting(file, script, [call.lineno for call, ref in calls if ref[0] != outside.path])
    return Links(
        imports=outside.imports,
        stars=outside.stars,
        asked=tuple(dict.fromkeys(ref for _, ref in calls)),
        defines=tuple(name for function in file.tree.functions if (name := outside.name_of(function)) and "." not in name),
        functions={name: result for name, result in _results(file) if result != Result()},
        classes={node.name: _class(file, node, waits) for node in file.tree.module.body if isinstance(node, ast.ClassDef)},
        called=tuple(told for call, ref in calls[:MAX_TOLD] if (told := _call(file, call, ref)) is not None),
        uses=uses(file),
        runs=runs,
        steps=bool(file.loops.steps),
        waits=waits,
        around=around,
    )


def outline(source: Source, modules: Modules) -> Links | None:
    """What a file that says nothing of PyTorch is for the others: names that it passes on, functions that read what they are given."""
    passes_on = "import" in source.text and (os.path.basename(source.path) == "__init__.py" or "def " not in source.text)
    if not modules.several or not (passes_on or any(word in source.text for word in _READING)):
        return None
    try:
        tree = Tree(source.text)
    except Unreadable:
        return None
    imports, stars = modules.imports(tree, source.path)
    classes = {node.name: _methods(node) for node in tree.module.body if isinstance(node, ast.ClassDef)}
    functions = {part.name: part for part in tree.module.body if isinstance(part, Function)}
    methods = {f"{name}.{method.name}": method for name, each in classes.items() for method in each}
    all_functions = {**functions, **methods}
    return Links(
        imports=imports,
        stars=stars,
        defines=tuple(functions),
        classes={name: Class(methods=tuple(method.name for method in each)) for name, each in classes.items()},
        outlined=True,
        waits=by_function(tree, all_functions, ((function.lineno, WORD) for function in all_functions.values() if _reads(function))),
    )


def _methods(node: ast.ClassDef) -> list[Function]:
    return [part for part in node.body if isinstance(part, Function)][:MAX_TOLD]


def _reads(function: Function) -> bool:
    """Whether a function reads the value of something, or compares it."""
    parts = [*within(function)]
    called = {last_name(part.func) for part in parts if isinstance(part, ast.Call)}
    return bool(called & {"item", "cpu", "numpy", "tolist", "float"}) or any(isinstance(part, ast.Compare) for part in parts)


def _runs(file: File) -> bool:
    """Whether a file trains or evaluates, so that what its names are decides on something."""
    loops = file.loops
    hooks = any(file.values.base_of(node) in ("lightning", "hf-trainer") for node in file.names.classes.values())
    return bool(loops.steps or loops.step_functions or loops.evaluations or hooks)


def _called(file: File, call: ast.Call, *, runs: bool) -> Ref | None:
    """What a call calls in another file, or, where this one trains, in a class of it that others may inherit from."""
    outside = file.names.outside
    if not isinstance(call.func, ast.Attribute) or not _is_self(file, call.func.value):
        return outside.target(call.func) or _by_method(file, call)
    owner = file.tree.class_of(call)
    if owner is None:
        return None
    methods = file.names.functions.get(call.func.attr, ())
    own = next((method for method in methods if file.tree.parents.get(method) is owner), None)
    other = outside.target(call.func) if own is None else None
    told = runs or own is None or is_abstract(own)
    return other or ((outside.path, f"{owner.name}.{call.func.attr}") if told else None)


def _is_self(file: File, node: ast.expr, depth: int = 2) -> bool:
    """Whether an expression is `self`, or a copy of it: ``engine = copy.deepcopy(self) if keeps else self``."""
    if isinstance(node, ast.IfExp):
        return _is_self(file, node.body, depth) and _is_self(file, node.orelse, depth)
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("copy", "deepcopy") and len(node.args) == 1 and _is_self(file, node.args[0], depth)
    if not isinstance(node, ast.Name) or node.id == "self":
        return isinstance(node, ast.Name)
    bound = file.names.lookup(node, node.id) if depth else []
    return bool(bound) and all(
        each.value is not None and not each.path and not each.element and _is_self(file, each.value, depth - 1) for each in bound
    )


def _by_method(file: File, call: ast.Call) -> Ref | None:
    """What a metric of an unknown class is given for each batch: ``for metric in self.metrics: metric.update(output, y)``."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if method not in OF_METRICS or not any(file.values.is_a(given, *TENSORS) for given in arguments(call)):
        return None
    return ("", method) if file.loops.where(call).often in ("step", "evaluation") else None


def _call(file: File, call: ast.Call, ref: Ref) -> Called | None:
    """One call, where it is made often, or hands over a loader or a function, which may be used often there."""
    where = file.loops.where(call)
    given = tuple(_kinds(file, (given,)) for given in call.args[:MAX_GIVEN] if not isinstance(given, ast.Starred))
    named = {given.arg: _kinds(file, (given.value,)) for given in call.keywords[:MAX_GIVEN] if given.arg}
    often = where.often if where.often in _OFTEN else ""
    if not often and not any(known.loader or known.kind == "function" for kinds in (*given, *named.values()) for known in kinds):
        return None
    return Called(file=ref[0], name=ref[1], often=often, guarded=where.guarded, given=given, named=named, is_open=is_open(call))


def _results(file: File) -> Iterator[tuple[str, Result]]:
    """What the functions give back that others can call."""
    given: dict[Function, list[ast.expr]] = {}
    for statement in file.tree.of(ast.Return):
        if statement.value is not None and (function := file.tree.function_of(statement)) is not None:
            given.setdefault(function, []).append(statement.value)
    for function in {**given, **dict.fromkeys(file.loops.step_functions)}:
        if name := file.names.outside.name_of(function):
            yield name, _result(file, function, given.get(function, [])[:MAX_RETURNS])


def _result(file: File, function: Function, given: list[ast.expr]) -> Result:
    sizes = {len(part.elts) if isinstance(part, ast.Tuple) else 0 for part in given}
    size = sizes.pop() if len(sizes) == 1 else 0
    columns = [[part.elts[place] for part in given if isinstance(part, ast.Tuple)] for place in range(size)]
    return Result(
        whole=_telling(_kinds(file, given)) if not size else (),
        parts=parts if any(parts := tuple(_telling(_kinds(file, column)) for column in columns)) else (),
        advances=function in file.loops.step_functions and file.loops.optimizes,
        makes=(_made(file, given[0]) if len(given) == 1 else None) or _said(file, function.returns),
    )


def _said(file: File, annotation: ast.expr | None) -> Ref | None:
    """The class, of the file or of another one, that a function says it gives an object of."""
    own = next((name for name in named_in(annotation) if name in file.names.classes), "")
    return (file.source.path, own) if own else file.names.outside.said(annotation)


def _telling(kinds: Kinds) -> Kinds:
    """What a result may be, where its user would not guess it: a loader, or no tensor."""
    return kinds if all(known.kind in _NO_TENSORS for known in kinds) else ()


def _made(file: File, node: ast.expr) -> Ref | None:
    """The class of which an expression is an object."""
    values = [binding.value for binding in file.names.lookup(node, dotted(node))] if dotted(node) else [node]
    for value in values:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in file.names.classes:
            return file.source.path, value.func.id
    return file.names.outside.instance(node)


def _class(file: File, node: ast.ClassDef, waits: dict[str, int]) -> Class:
    outside = file.names.outside
    bases = (
        outside.target(base) or ((outside.path, last_name(base)) if last_name(base) in file.names.classes else None) for base in node.bases
    )
    methods = _methods(node)
    kind = file.values.base_of(node)
    return Class(
        kind="memory-dataset" if kind == "dataset" and samples.gives_rows(node) else kind,
        bases=tuple(base for base in bases if base is not None),
        methods=tuple(method.name for method in methods),
        attributes=_attributes(file, node, methods),
        waits=any(waits.get(f"{node.name}.{method.name}", 0) >= (WORD if method.name in _HOOKS else FORWARD) for method in methods),
    )


def _attributes(file: File, node: ast.ClassDef, methods: list[Function]) -> dict[str, Kinds]:
    """The loaders that an object keeps, or gives by a property."""
    if not file.words & MAKERS and not file.names.outside.news.results:
        return {}
    kept = {
        name[5:]: [each.value for each in bindings if each.value is not None and not each.path and not each.element]
        for (scope, name), bindings in file.names.bindings.items()
        if scope is node and name.startswith("self.")
    }
    kept |= {method.name: returns(method) for method in methods if any(last_name(each) == "property" for each in method.decorator_list)}
    found = {name: _kinds(file, given) for name, given in kept.items()}
    return {name: kinds for name, kinds in found.items() if any(known.kind in ("loader", "loaders") for known in kinds)}


def _kinds(file: File, nodes: Iterable[ast.expr]) -> Kinds:
    """What expressions may be, as far as others can use it."""
    known = [each for node in nodes for each in _each(file, node)]
    return tuple(dict.fromkeys(known))[:MAX_KINDS]


def _each(file: File, node: ast.expr) -> Iterator[Known]:
    if isinstance(node, ast.Constant) and (node.value is None or node.value is False):
        yield Known("none")
        return
    if isinstance(node, ast.Constant) and node.value is True:
        yield Known("true")
    for value in file.values.of(node):
        if value.kind == "batch" and is_moved(file, node):
            yield Known("output", guess=value.guess)  # on the device for certain
        elif value.kind in _TOLD:
            yield Known(value.kind, _place(file, value) if value.kind in _CONTAINED else "", value.guess)
    if isinstance(node, ast.Name | ast.Attribute | ast.Call) and (made := _made(file, node)) is not None:
        yield Known("object", made=made)
    for function in file.names.functions_of(node):
        if name := file.names.outside.name_of(function):
            yield Known("function", made=(file.source.path, name))


def _place(file: File, value: Value) -> str:
    if isinstance(value.origin, Elsewhere):
        return value.origin.place
    is_loader = isinstance(value.origin, ast.Call) and file.names.qualified(value.origin.func) in LOADERS
    return place_of(file, value.origin) if is_loader and isinstance(value.origin, ast.Call) else ""
