"""What an expression is, followed through names, helpers and parameters of one file: a loader, a model, a loss, a batch."""

from __future__ import annotations

import ast
from functools import cached_property

from sysperf.script.nodes import argument, dotted, is_open, item_key, item_name, keyword, last_name
from sysperf.script.semantics.binding import Binding
from sysperf.script.semantics.declared import annotated, of_forward
from sysperf.script.semantics.guesses import bases, class_kind, guessed, kind_of_call
from sysperf.script.semantics.kinds import (
    DATASETS,
    DESCRIBING,
    FACTORIES,
    FROM_ARRAYS,
    JOINS,
    LISTED,
    LOSS_CALLS,
    LOSS_METHODS,
    MADE_ON_CPU,
    NUMBERS,
    OF_MASKS,
    OF_MODELS,
    ON_DEVICE,
    PARTS_OF_DATA,
    PASSED_ON,
    SAME,
    SETTINGS,
    TENSORS,
    WRAPPERS,
)
from sysperf.script.semantics.links import Kinds
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.parts import MAX_VALUES, alternatives, is_abstract, returns
from sysperf.script.semantics.value import Value, device_text, element_of, several, single
from sysperf.script.syntax import Function, Tree
from sysperf.startup import lazy

MAX_DEPTH = 16
_HELD = ("loader", "loaders", "model", "models")
"""What is told apart in a list or a dictionary; of tensors in one, it is not known that they are alike."""
_LOADER_NAME = lazy(r"\w*_?(loader|dl)")


class Values:
    """The values of a file's expressions, each worked out once."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._found: dict[ast.AST, tuple[Value, ...]] = {}
        self._parts: dict[tuple[ast.AST, tuple[int, ...]], tuple[Value, ...]] = {}
        self._bases = bases(names)

    def of(self, node: ast.AST, depth: int = MAX_DEPTH) -> tuple[Value, ...]:
        """What an expression may be; nothing where that is not known."""
        if depth == 0:
            return ()
        values = self._found.get(node)
        if values is None:
            self._found[node] = ()  # while it is looked at, a cycle finds nothing
            values = self._found[node] = tuple(dict.fromkeys(self._look(node, depth)))[:MAX_VALUES]
        return values

    def without(self, name: ast.expr, value: ast.expr) -> tuple[Value, ...]:
        """What a name may be by its other values than this one."""
        others = [binding for binding in self._names.lookup(name, dotted(name)) if binding.value is not value]
        found = [one for binding in others for one in self._bound(binding, MAX_DEPTH)]
        return tuple(dict.fromkeys(found or guessed(self._tree, self._names, name, dotted(name))))

    def kinds(self, node: ast.AST) -> set[str]:
        """The kinds of what an expression may be."""
        return {value.kind for value in self.of(node)}

    def is_a(self, node: ast.AST, *kinds: str) -> bool:
        """Whether an expression may be one of these kinds."""
        return any(value.kind in kinds for value in self.of(node))

    def base_of(self, node: ast.ClassDef) -> str:
        """What instances of a class of this file are: model, dataset, lightning, trainer, …; empty for anything else."""
        return self._bases.get(node.name, "")

    def _told(self, kinds: Kinds) -> list[Value]:
        """What another file says that something is."""
        return [
            Value(known.kind, self._names.outside.elsewhere(known.loader), known.guess)
            for known in kinds
            if known.kind not in ("none", "true", "object", "function")
        ]

    def _look(self, node: ast.AST, depth: int) -> list[Value]:
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.Name | ast.Attribute):
            return self._self(node) if dotted(node) == "self" else self._name(node, depth)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, depth)
        if isinstance(node, ast.Constant):
            return [Value("number")] if isinstance(node.value, int | float) else []
        return self._composed(node, depth)

    def _composed(self, node: ast.AST, depth: int) -> list[Value]:
        """What is compared is a tensor, a list of loaders is not one, and an element of it is."""
        if isinstance(node, ast.Compare):
            return [Value("tensor", node)] if any(self.is_a(side, *TENSORS) for side in (node.left, *node.comparators)) else []
        if isinstance(node, ast.Subscript):
            if item_name(node) in self._names.differentiated:
                return [Value("loss")]
            return self._item(node, depth)
        if isinstance(node, ast.DictComp | ast.Dict):
            return self._kept(node.values if isinstance(node, ast.Dict) else [node.value], depth)
        parts = [self.of(part, depth - 1) for part in alternatives(node)]
        values = [value for part in parts for value in part]
        if isinstance(node, ast.IfExp) and not all(parts):  # what the other side gives may lie on a device
            values = [value for value in values if value.kind != "host"]
        return [several(value) for value in values] if isinstance(node, ast.Tuple | ast.List | ast.ListComp) else values

    def _item(self, node: ast.Subscript, depth: int) -> list[Value]:
        """An element of a tensor or of a list, or what a dictionary has under a name."""
        item = self._names.item(node)
        if item is not None:
            return list(self.of(item, depth - 1))
        if held := self._held_by_key(node, depth):
            return held
        named = item_key(node)  # what has names is no tensor
        return [single(value) for value in self.of(node.value, depth - 1) if not (named and value.kind == "tensor" and value.guess)]

    def _held_by_key(self, node: ast.Subscript, depth: int) -> list[Value]:
        """A loader or a model that a dictionary has under a name: of ``{"train": a, "test": b}``."""
        key = item_key(node)
        items = self._items_of(node.value) if key else {}
        return [single(value) for value in self._kept([items[key]], depth)] if key in items else []

    def _items_of(self, node: ast.expr) -> dict[str, ast.expr]:
        """The items of a dictionary, also of one that a function of the file makes."""
        if (items := self._names.spread(node)) is not None:
            return items
        bindings = self._names.lookup(node, dotted(node)) if dotted(node) else []
        made = bindings[0].value if len(bindings) == 1 and not bindings[0].path and not bindings[0].element else None
        given = [result for function in self._local(made) for result in returns(function)] if isinstance(made, ast.Call) else []
        return (self._names.spread(given[0]) or {}) if len(given) == 1 else {}

    def _kept(self, given: list[ast.expr], depth: int) -> list[Value]:
        """The loaders and models that a list or a dictionary holds."""
        return [several(value) for part in given[:MAX_VALUES] for value in self.of(part, depth - 1) if value.kind in _HELD]

    def _arithmetic(self, node: ast.BinOp, depth: int) -> list[Value]:
        """A loss times a number is a loss; a number and something unknown stay unknown."""
        left, right = self.of(node.left, depth - 1), self.of(node.right, depth - 1)
        tensors = [value for value in (*left, *right) if value.kind in TENSORS]
        tensors = tensors or [value for value in (*left, *right) if value.kind == "host"]
        return tensors or ([Value("number")] if left and right and all(value.kind == "number" for value in (*left, *right)) else [])

    def _self(self, node: ast.expr) -> list[Value]:
        """A model calls itself: ``self(x)``."""
        owner = self._tree.class_of(node)
        kind = self.base_of(owner) if owner is not None else ""
        return [Value(kind)] if kind in ("model", "lightning") else []

    def _name(self, node: ast.Name | ast.Attribute, depth: int) -> list[Value]:
        name = dotted(node)
        bindings = self._names.lookup(node, name) if name else []
        values = [value for binding in bindings for value in self._bound(binding, depth)]
        if bindings and not values and name in self._names.holding:
            values = self._kept(self._names.held_in(node, name), depth)
        if not values and isinstance(node, ast.Attribute):
            values = self._of_a_part(node, depth) or self._told(self._names.outside.attribute(node))
        if values and name in self._names.differentiated and not any(value.kind in ("number", "array", "host") for value in values):
            return [Value("loss", values[0].origin), *(value for value in values if value.kind != "loss")]
        if values:
            return values
        if isinstance(node, ast.Attribute) and not name.startswith("self."):
            option = SETTINGS.fullmatch(name.rpartition(".")[0])
            if node.attr in ("loss", "losses") and not option:
                return [Value("loss", guess=True)]
            if node.attr == "data" and self.is_a(node.value, "loss"):
                return [Value("detached", node)]
            if owner := [value for value in self.of(node.value, depth - 1) if value.kind in ("batch", "output", "tensor", "parameter")]:
                return [] if option or node.attr in DESCRIBING else owner
        return guessed(self._tree, self._names, node, name)

    def _of_a_part(self, node: ast.Attribute, depth: int) -> list[Value]:
        """What an object of a class of the file keeps: ``self.average.decay``, where ``self.average = Average()``."""
        owner = dotted(node.value)
        made = [each.value for each in self._names.lookup(node, owner) if not each.path and not each.element] if owner else []
        classes = [self._names.classes.get(last_name(value.func)) for value in made if isinstance(value, ast.Call)]
        kept = [each for owner in classes if owner is not None for each in self._names.bindings.get((owner, f"self.{node.attr}"), ())]
        return [value for binding in kept for value in self._bound(binding, depth)]

    def _bound(self, binding: Binding, depth: int) -> tuple[Value, ...] | list[Value]:
        if binding.parameter is not None:
            given = self._used(self._names.arguments(binding.parameter))
            known = [value for expression in given for value in self.of(expression, depth - 1)]
            known = known or [value for kinds in self._names.outside.given(*binding.parameter) for value in self._told(kinds)]
            return known or self._declared(*binding.parameter) or self._of_namesake(*binding.parameter)
        if binding.value is None:
            return ()
        if binding.element:
            return self._element(binding.value, binding.path, depth)
        if binding.path:
            return self._part(binding.value, binding.path, depth)
        return self.of(binding.value, depth - 1)

    def _used(self, given: list[ast.expr]) -> list[ast.expr]:
        """What is given where a program uses a function, rather than where a module shows how, if it is used at all."""
        used = [each for each in given if not any(_is_shown(parent) for parent in self._tree.ancestors(each))]
        return used or given

    def _declared(self, function: Function, index: int) -> list[Value]:
        """What a function says of a parameter itself, as the `forward` of a model or by an annotation."""
        owner = self._tree.parents.get(function)
        kind = self.base_of(owner) if isinstance(owner, ast.ClassDef) else ""
        return of_forward(kind, function, index) or annotated(self._names, function, index)

    def _of_namesake(self, function: Function, index: int) -> tuple[Value, ...]:
        """A loader that another function of the file makes under the name of a parameter that no call of the file gives."""
        arguments = [*function.args.posonlyargs, *function.args.args]
        name = arguments[index].arg if index >= 0 else ""
        if not _LOADER_NAME.fullmatch(name):
            return ()
        bound = [each for (_, given), bindings in self._names.bindings.items() if given == name for each in bindings]
        made = [each.value for each in bound if isinstance(each.value, ast.Call) and not each.path and not each.element]
        known = self.of(made[0]) if len(made) == 1 else ()
        return tuple(value._replace(guess=True) for value in known if value.kind == "loader")

    def _element(self, iterated: ast.expr, path: tuple[int, ...], depth: int) -> list[Value]:
        """What a loop gives: batches of a loader, counted by `enumerate`, beside others by `zip`."""
        iterated = self._shown(iterated)
        called = last_name(iterated.func) if isinstance(iterated, ast.Call) else ""
        if depth <= 0 or called in OF_MODELS or item_key(iterated) == "params":
            return [Value("parameter")] if depth > 0 and path == ((1,) if called.startswith("named") else ()) else []
        if isinstance(iterated, ast.Call) and iterated.args:
            if called in ("range", "trange") or (called == "enumerate" and path[:1] == (0,)):
                return [Value("number")]
            if called == "zip":
                return self._element(iterated.args[path[0]], path[1:], depth - 1) if path and path[0] < len(iterated.args) else []
            if called == "enumerate" or called in (*PASSED_ON, *LISTED):
                return self._element(iterated.args[0], path[1:] if called == "enumerate" else path, depth - 1)
        if called in ("items", "values") and isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Attribute):
            named = self.of(iterated.func.value, depth - 1) if path[:1] == ((1,) if called == "items" else ()) else ()
            return [single(value) for value in named if value.kind in ("loaders", "models", "batch", "output", "optimizer", "model")]
        iterable = ("loader", "loaders", "models", "tensor", "batch", "output", "host", "optimizer")
        return [element_of(value) for value in self.of(iterated, depth - 1) if value.kind in iterable]

    def _shown(self, iterated: ast.expr) -> ast.expr:
        """What a bar shows the progress of, or counts, under a name: ``bar = tqdm(zip(a, b))``."""
        bindings = self._names.lookup(iterated, dotted(iterated)) if dotted(iterated) else []
        value = bindings[0].value if len(bindings) == 1 and not bindings[0].path and not bindings[0].element else None
        return value if isinstance(value, ast.Call) and last_name(value.func) in (*PASSED_ON, *LISTED, *OF_MODELS) else iterated

    def _part(self, value: ast.expr, path: tuple[int, ...], depth: int) -> tuple[Value, ...] | list[Value]:
        """One of the values that a tuple, a call of a helper or `prepare` unpacks to, each worked out once."""
        if depth <= 0:  # a helper that returns what it calls itself for
            return ()
        if not path:
            return self.of(value, depth - 1)
        if (value, path) not in self._parts:
            self._parts[value, path] = ()
            self._parts[value, path] = tuple(dict.fromkeys(self._unpacked(value, path, depth)))[:MAX_VALUES]
        return self._parts[value, path]

    def _unpacked(self, value: ast.expr, path: tuple[int, ...], depth: int) -> tuple[Value, ...] | list[Value]:
        index, rest, told = path[0], path[1:], list[Value]()
        if isinstance(value, ast.Tuple | ast.List):
            return self._part(value.elts[index], rest, depth - 1) if index < len(value.elts) else ()
        if isinstance(value, ast.Call):
            if last_name(value.func) in ("prepare", "setup", "setup_dataloaders") and index < len(value.args):
                return self._part(value.args[index], rest, depth - 1)
            if functions := self._local(value):
                return [part for result in returns(functions[0]) for part in self._part(result, path, depth - 1)]
            parts = self._names.outside.result(value).parts
            told = self._told(parts[index]) if index < len(parts) and not rest else []
        kinds = ("batch", "output", "tensor", "loader", "loaders", *DATASETS)
        return told or [single(candidate) for candidate in self.of(value, depth - 1) if candidate.kind in kinds]

    def _call(self, call: ast.Call, depth: int) -> list[Value]:
        name, last = self._names.qualified(call.func), last_name(call.func)
        if joined := self._joined(call, name, depth) or self._through(call, name, depth):
            return joined
        if kind := self._kind_on_host(call, name) or kind_of_call(self._names, self._bases, name):
            if kind == "hf-dataset" and self._names.constant(keyword(call, "streaming")) is True:
                kind = "iterable-dataset"
            return [Value("output" if kind == "loss" and self._of_each(call) else kind, call)]
        if name in PARTS_OF_DATA:
            return [value for value in (self.of(call.args[0], depth - 1) if call.args else ()) if value.kind in DATASETS]
        if name in WRAPPERS or last in PASSED_ON or last == "next" or (last == "prepare" and len(call.args) == 1):
            passed = list(self.of(call.args[0], depth - 1)) if call.args else []
            return [element_of(value) for value in passed] if last == "next" else passed
        if functions := self._local(call):
            return [value for function in functions for result in returns(function) for value in self.of(result, depth - 1)]
        return self._made_elsewhere(call) or self._result(call, depth)

    def _result(self, call: ast.Call, depth: int) -> list[Value]:
        """What a method gives, or a model that is called."""
        return (
            self._method(call, call.func, depth)
            if isinstance(call.func, ast.Attribute)
            else self._called(self.of(call.func, depth - 1), call)
        )

    def _joined(self, call: ast.Call, name: str, depth: int) -> list[Value]:
        """Parts of batches that become one tensor, which lies where they do: ``torch.cat([batch[key] for key in keys])``."""
        values = self.of(call.args[0], depth - 1) if name in JOINS and call.args else ()
        return list(values) if {value.kind for value in values} == {"batch"} else []

    def _through(self, call: ast.Call, name: str, depth: int) -> list[Value]:
        """What a function of PyTorch makes of a result of a model, where it lies, and what ``dict(train=loader)`` holds."""
        if name == "dict":
            return self._kept([given.value for given in call.keywords], depth)
        if not name.startswith("torch.nn.functional.") or not call.args or LOSS_CALLS.fullmatch(name):
            return []
        return [value for value in self.of(call.args[0], depth - 1) if value.kind in ("output", "detached", "batch")]

    def _made_elsewhere(self, call: ast.Call) -> list[Value]:
        """What a function or a class of another file gives."""
        kind = class_kind(self._names, call.func)
        return self._told(self._names.outside.result(call).whole) or ([Value(kind, call)] if kind else [])

    def _kind_on_host(self, call: ast.Call, name: str) -> str:
        """``array`` or ``host`` for what a call makes in the host's memory: without a device, or of what lies there; empty for others."""
        if name in MADE_ON_CPU:
            return "host" if keyword(call, "device") is None and not is_open(call) and not self._has_default_device else ""
        computes = (name in FACTORIES and name not in FROM_ARRAYS) or bool(LOSS_CALLS.fullmatch(name))
        given = {kind for part in call.args for kind in self.kinds(part)} if computes else set()
        return next((kind for kind in ("array", "host") if kind in given and given <= {kind, "number"}), "")

    @cached_property
    def _has_default_device(self) -> bool:
        """Whether the file says where tensors are made."""
        names = {last_name(call.func) for call in self._tree.of(ast.Call)}
        return bool(names & {"set_default_device", "set_default_tensor_type"})

    def _method(self, call: ast.Call, method: ast.Attribute, depth: int) -> list[Value]:
        """A method's result: `.item()` is a number, `.detach()` has no graph, `.to()` is the same thing elsewhere."""
        if method.attr in NUMBERS or method.attr.startswith("num_"):
            return [Value("array" if method.attr == "numpy" else "number")]
        owner = self.of(method.value, depth - 1)
        if method.attr == "forward" or (LOSS_METHODS.fullmatch(method.attr) and any(value.kind == "model" for value in owner)):
            return self._called(owner, call) if method.attr == "forward" else [Value("loss", call, guess=True)]
        home = method.attr == "cpu" or (method.attr == "to" and device_text(self._names, argument(call, "device", 0)) == "cpu")
        if home and (not owner or any(value.kind in TENSORS for value in owner)):
            return [Value("array" if owner else "host", call)]
        if method.attr in SAME:
            copied = method.attr in ("to", "cuda")
            return [value._replace(kind="tensor") if copied and value.kind == "host" else value for value in owner]
        if method.attr in ("detach", "clone") and any(value.kind in ON_DEVICE for value in owner):
            where_it_lies = method.attr == "clone" and all(value.kind == "batch" for value in owner)
            return [*owner] if where_it_lies else [Value("detached" if method.attr == "detach" else "tensor", call)]
        kept = [value for value in owner if value.kind in ("hf-dataset", "host") or (value.kind == "loaders" and method.attr == "values")]
        kept += [
            Value("tensor", value.origin, value.guess) if value.kind == "loss" else value for value in owner if value.kind in ON_DEVICE
        ]
        if method.attr in OF_MASKS:  # the places of a mask are numbers
            kept = [value._replace(origin=call) if isinstance(value.origin, ast.Compare) else value for value in kept]
        return kept or self._called(self.of(method, depth - 1), call)

    def _called(self, values: tuple[Value, ...], call: ast.Call) -> list[Value]:
        """What calling a model or a criterion gives."""
        results = {"model": "output", "criterion": "loss", "lightning": "output"}
        values = tuple(value._replace(kind="model") if self._of_each(value.origin) else value for value in values)
        return [Value(results[value.kind], call, value.guess) for value in values if value.kind in results]

    def _of_each(self, made: ast.AST | None) -> bool:
        """Whether a loss is one number for each sample: ``reduction="none"``."""
        return isinstance(made, ast.Call) and self._names.constant(keyword(made, "reduction")) == "none"

    def _local(self, call: ast.Call) -> list[Function]:
        """The function of this file that is called by its name, or as a method of `self`."""
        by_name = isinstance(call.func, ast.Name)
        by_self = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in ("self", "cls")
        functions = self._names.functions.get(last_name(call.func), []) if by_name or by_self else []
        written = [function for function in functions if not is_abstract(function)]
        return written if len(written) == 1 else []


def _is_shown(node: ast.AST) -> bool:
    """``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and dotted(node.test.left) == "__name__"
