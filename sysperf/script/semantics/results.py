"""What calls give, by what makes it: classes and functions of libraries, methods of tensors, models that are called."""

from __future__ import annotations

import ast
from functools import cached_property

from sysperf.script.nodes import argument, is_open, keyword, last_name
from sysperf.script.semantics.guesses import bases, class_kind, kind_of_call, kind_of_method
from sysperf.script.semantics.kinds import (
    DATASETS,
    FACTORIES,
    FROM_ARRAYS,
    JOINS,
    LISTED,
    LOSS_CALLS,
    LOSS_METHODS,
    MADE_ON_CPU,
    OF_MASKS,
    ON_DEVICE,
    PARTS_OF_DATA,
    PASSED_ON,
    SAME,
    TENSORS,
    TO_HOST,
    WRAPPERS,
)
from sysperf.script.semantics.links import Kinds
from sysperf.script.semantics.names import Names
from sysperf.script.semantics.parts import MAX_VALUES, is_abstract, returns
from sysperf.script.semantics.value import Value, device_text, element_of, several
from sysperf.script.syntax import Function, Tree

MAX_DEPTH = 16
_HELD = ("loader", "loaders", "model", "models")
"""What is told apart in a list or a dictionary; of tensors in one, it is not known that they are alike."""


class Results:
    """The results of a file's calls."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._bases = bases(names)

    def of(self, node: ast.AST, depth: int = MAX_DEPTH) -> tuple[Value, ...]:
        """What an expression may be; nothing where that is not known."""
        raise NotImplementedError

    def kinds(self, node: ast.AST) -> set[str]:
        """The kinds of what an expression may be."""
        return {value.kind for value in self.of(node)}

    def _told(self, kinds: Kinds) -> list[Value]:
        """What another file says that something is."""
        return [
            Value(known.kind, self._names.outside.elsewhere(known.loader), known.guess)
            for known in kinds
            if known.kind not in ("none", "true", "object", "function")
        ]

    def _kept(self, given: list[ast.expr], depth: int) -> list[Value]:
        """The loaders and models that a list or a dictionary holds."""
        return [several(value) for part in given[:MAX_VALUES] for value in self.of(part, depth - 1) if value.kind in _HELD]

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

    def _is_of_program(self, call: ast.Call) -> bool:
        """Whether a function of the file, or of one that is linted with it, is called: where that copies, it is told there."""
        return bool(self._names.functions.get(last_name(call.func))) or self._names.outside.target(call.func) is not None

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
        """What a function of PyTorch makes of a result of a model, where it lies, and what ``dict(train=loader)`` and lists hold."""
        if name == "dict":
            return self._kept([given.value for given in call.keywords], depth)
        if name in (*LISTED, "filter"):
            return [value for given in call.args[-1:] for value in self.of(given, depth - 1) if value.kind == "parameters"]
        if not name.startswith("torch.nn.functional.") or not call.args or LOSS_CALLS.fullmatch(name):
            return []
        return [value for value in self.of(call.args[0], depth - 1) if value.kind in ("output", "detached", "batch")]

    def _made_elsewhere(self, call: ast.Call) -> list[Value]:
        """What a function or a class of another file gives."""
        kind = class_kind(self._names, call.func)
        return self._told(self._names.outside.result(call).whole) or ([Value(kind, call)] if kind else [])

    def _kind_on_host(self, call: ast.Call, name: str) -> str:
        """``array`` or ``host`` for what a call makes in the host's memory: without a device, or of what lies there; empty for others."""
        if last_name(call.func) in TO_HOST and self._is_of_program(call):
            return "array"
        if name in MADE_ON_CPU:
            return "host" if keyword(call, "device") is None and not is_open(call) and not self._has_default_device else ""
        if (
            name in ("torch.from_numpy", "torch.as_tensor")
            and call.args
            and keyword(call, "device") is None
            and not self._has_default_device
        ):
            return "" if self.kinds(call.args[0]) & {*TENSORS} else "host"
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
        if kind := kind_of_method(method.attr):
            return [Value(kind)]
        owner = self.of(method.value, depth - 1)
        if method.attr == "forward" or (LOSS_METHODS.fullmatch(method.attr) and any(value.kind == "model" for value in owner)):
            return self._called(owner, call) if method.attr == "forward" else [Value("loss", call, guess=True)]
        home = method.attr == "cpu" or (method.attr == "to" and device_text(self._names, argument(call, "device", 0)) == "cpu")
        if home and (not owner or any(value.kind in TENSORS for value in owner)):
            return [Value("array" if owner else "host", call)]
        if method.attr in SAME:
            copied = method.attr == "cuda" or (method.attr == "to" and not self._converts(call))
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

    def _converts(self, call: ast.Call) -> bool:
        """``x.to(dtype=y.dtype)``, ``x.to(torch.float32)``: it stays where it is."""
        given = [*call.args, *(each.value for each in call.keywords)]
        dtypes = (last_name(each) == "dtype" or self._names.qualified(each).startswith("torch.") for each in given)
        return bool(given) and all(dtypes)

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
