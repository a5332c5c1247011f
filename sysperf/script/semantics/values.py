"""What an expression is, followed through names, helpers and parameters of one file: a loader, a model, a loss, a batch."""

from __future__ import annotations

import ast

from sysperf.script.nodes import dotted, item_key, item_name, last_name
from sysperf.script.semantics.binding import Binding
from sysperf.script.semantics.declared import annotated, of_forward
from sysperf.script.semantics.guesses import guessed
from sysperf.script.semantics.kinds import DATASETS, DESCRIBING, LISTED, OF_MODELS, PASSED_ON, SETTINGS, TENSORS
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.parts import MAX_VALUES, alternatives, returns
from sysperf.script.semantics.results import MAX_DEPTH, Results
from sysperf.script.semantics.value import Value, element_of, several, single
from sysperf.script.syntax import Function, Tree
from sysperf.startup import lazy

_SPLITS = ("train", "training", "val", "valid", "validation", "test", "eval")
"""Parts of data by which loaders are named."""
_LOADER_NAME = lazy(r"\w*_?(loader|dl)")


class Values(Results):
    """The values of a file's expressions, each worked out once."""

    def __init__(self, tree: Tree, names: Names) -> None:
        super().__init__(tree, names)
        self._found: dict[ast.AST, tuple[Value, ...]] = {}
        self._parts: dict[tuple[ast.AST, tuple[int, ...]], tuple[Value, ...]] = {}

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

    def is_a(self, node: ast.AST, *kinds: str) -> bool:
        """Whether an expression may be one of these kinds."""
        return any(value.kind in kinds for value in self.of(node))

    def base_of(self, node: ast.ClassDef) -> str:
        """What instances of a class of this file are: model, dataset, lightning, trainer, …; empty for anything else."""
        return self._bases.get(node.name, "")

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
            values = [value for value in values if value.kind not in ("host", "number")]
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

    def _arithmetic(self, node: ast.BinOp, depth: int) -> list[Value]:
        """A loss times a number is a loss; a number and something unknown stay unknown."""
        left, right = self.of(node.left, depth - 1), self.of(node.right, depth - 1)
        tensors = [value for value in (*left, *right) if value.kind in TENSORS]
        if any({"output", "loss"} & {value.kind for value in side if not value.guess} for side in (left, right)):
            tensors = [value for value in tensors if value.kind != "batch"]  # both sides lie on one device
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
            return [Value("loss", values[0].origin), *(value for value in values if value.kind != "loss" and not value.guess)]
        if values:
            return values
        if isinstance(node, ast.Attribute) and not name.startswith("self."):
            option = SETTINGS.fullmatch(name.rpartition(".")[0])
            if node.attr in ("loss", "losses") and not option:
                return [] if self._holds_numbers(node, name) else [Value("loss", guess=True)]
            if node.attr == "data" and self.is_a(node.value, "loss"):
                return [Value("detached", node)]
            if owner := [value for value in self.of(node.value, depth - 1) if value.kind in ("batch", "output", "tensor", "parameter")]:
                return [] if option or node.attr in DESCRIBING else owner
        return guessed(self._tree, self._names, node, name)

    def _holds_numbers(self, node: ast.expr, name: str) -> bool:
        """Whether numbers are all that is put into a list: ``run.losses.append(float(loss))``."""
        held = self._names.held_in(node, name)
        return bool(held) and all(self.kinds(each) == {"number"} for each in held)

    def _of_a_part(self, node: ast.Attribute, depth: int) -> list[Value]:
        """What an object of a class of the file keeps: ``self.average.decay``, where ``self.average = Average()``; ``loaders.train``."""
        if node.attr in _SPLITS and self.is_a(node.value, "loaders"):
            return [single(value) for value in self.of(node.value, depth - 1)]
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
            return known or self._declared(*binding.parameter, binding.annotation) or self._of_namesake(*binding.parameter)
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

    def _declared(self, function: Function, index: int, annotation: ast.expr | None) -> list[Value]:
        """What a function says of a parameter itself, as the `forward` of a model or by an annotation."""
        owner = self._tree.parents.get(function)
        kind = self.base_of(owner) if isinstance(owner, ast.ClassDef) else ""
        return of_forward(kind, function, index) or annotated(self._names, annotation)

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
        iterated = self.shown(iterated)
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
        iterable = ("loader", "loaders", "models", "parameters", "tensor", "batch", "output", "host", "optimizer")
        return [element_of(value) for value in self.of(iterated, depth - 1) if value.kind in iterable]

    def shown(self, iterated: ast.expr) -> ast.expr:
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


def _is_shown(node: ast.AST) -> bool:
    """``if __name__ == "__main__":``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and dotted(node.test.left) == "__name__"
