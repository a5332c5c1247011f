"""What names stand for in one file: imports, assignments, functions with their calls, constants."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from sysperf.script.syntax import Function, Tree

Constant = Any  # any: a literal of the script: a number, a text, a list, or None
MAX_BINDINGS = 12
MAX_CALLS = 8
MAX_CHAIN = 40
_MODULE_NAMES = {"F": "torch.nn.functional", "nn": "torch.nn"}
"""What these names mean everywhere, should the import be a star's."""

_OF_EVERY_MODEL = frozenset(("train", "eval", "forward", "step", "to", "update", "get", "save", "load", "backward", "__init__"))


class Binding(NamedTuple):
    """One place that gives a name a value: an expression, an element of it (`element`), or a part of what it unpacks to (`part`)."""

    value: ast.expr | None
    part: int | None = None
    element: bool = False
    parameter: tuple[Function, int] | None = None


class Names:
    """The names of a file."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.imports: dict[str, str] = {}
        self.bindings: dict[tuple[ast.AST, str], list[Binding]] = {}
        self.functions: dict[str, list[Function]] = {}
        self.classes = {node.name: node for node in tree.of(ast.ClassDef)}
        self.calls: dict[str, list[ast.Call]] = {}
        self.options: dict[str, Constant] = {}
        """Defaults of the options that are added to an argparse parser."""
        self._read_imports()
        self._read_functions()
        self._read_assignments()
        self._read_calls()

    def _read_imports(self) -> None:
        for statement in self._tree.of(ast.Import):
            for alias in statement.names:
                self.imports[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
        for source in self._tree.of(ast.ImportFrom):
            for alias in source.names:
                self.imports[alias.asname or alias.name] = f"{source.module or ''}.{alias.name}".lstrip(".")

    def _read_functions(self) -> None:
        for function in self._tree.functions:
            self.functions.setdefault(function.name, []).append(function)
            arguments = [*function.args.posonlyargs, *function.args.args]
            for index, argument in enumerate(arguments):
                self._bind(function, argument.arg, Binding(None, parameter=(function, index)))
            for argument in function.args.kwonlyargs:
                self._bind(function, argument.arg, Binding(None, parameter=(function, -1)))

    def _read_assignments(self) -> None:
        for statement in self._tree.of(ast.Assign):
            for target in statement.targets:
                self._assign(target, Binding(statement.value))
        for annotated in self._tree.of(ast.AnnAssign):
            if annotated.value is not None:
                self._assign(annotated.target, Binding(annotated.value))
        for walrus in self._tree.of(ast.NamedExpr):
            self._assign(walrus.target, Binding(walrus.value))
        self._read_loops()

    def _read_loops(self) -> None:
        """What loops and `with` give names to."""
        for loop in self._tree.loops:
            if not isinstance(loop, ast.While):
                self._assign(loop.target, Binding(loop.iter, element=True))
        for comprehension in self._tree.of(ast.comprehension):
            self._assign(comprehension.target, Binding(comprehension.iter, element=True))
        for item in self._tree.of(ast.withitem):
            if item.optional_vars is not None:
                self._assign(item.optional_vars, Binding(item.context_expr))

    def _assign(self, target: ast.expr, binding: Binding) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self._assign(part, binding._replace(part=index))
        elif isinstance(target, ast.Starred):
            self._assign(target.value, binding)
        elif name := dotted(target):
            self._bind(self.scope(target, name), name, binding)

    def _bind(self, scope: ast.AST, name: str, binding: Binding) -> None:
        known = self.bindings.setdefault((scope, name), [])
        if len(known) < MAX_BINDINGS:
            known.append(binding)

    def _read_calls(self) -> None:
        for call in self._tree.of(ast.Call):
            name = last_name(call.func)
            if name in self.functions and len(known := self.calls.setdefault(name, [])) < MAX_CALLS:
                known.append(call)
            if name == "add_argument":
                self._read_option(call)

    def _read_option(self, call: ast.Call) -> None:
        words = [argument.value for argument in call.args if isinstance(argument, ast.Constant) and isinstance(argument.value, str)]
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        long = next((word for word in words if word.startswith("--")), words[0] if words else "")
        name = keywords.get("dest")
        key = name.value if isinstance(name, ast.Constant) else long.lstrip("-").replace("-", "_")
        default = keywords.get("default")
        if isinstance(default, ast.Constant) and isinstance(key, str):
            self.options.setdefault(key, default.value)

    def scope(self, node: ast.AST, name: str) -> ast.AST:
        """Return where a name lives: `self.x` in the class, everything else in the function or module."""
        if name.startswith("self."):
            return self._tree.class_of(node) or self._tree.module
        return self._tree.function_of(node) or self._tree.module

    def lookup(self, node: ast.AST, name: str) -> list[Binding]:
        """All that a name can stand for where `node` is."""
        if name.startswith("self."):
            return self.bindings.get((self.scope(node, name), name), [])
        function = self._tree.function_of(node)
        while function is not None:
            if bindings := self.bindings.get((function, name)):
                return bindings
            function = self._tree.function_of(function)
        return self.bindings.get((self._tree.module, name), [])

    def qualified(self, node: ast.AST) -> str:
        """The dotted name of an expression with what it was imported from: ``torch.utils.data.DataLoader``; empty for what has none."""
        name = dotted(node)
        first, dot, rest = name.partition(".")
        if first in self.imports and not (isinstance(node, ast.Name) and self._is_local(node)):
            return self.imports[first] + dot + rest
        return f"{_MODULE_NAMES[first]}.{rest}" if first in _MODULE_NAMES and dot else name

    def _is_local(self, node: ast.Name) -> bool:
        function = self._tree.function_of(node)
        return function is not None and (function, node.id) in self.bindings

    def call_sites(self, function: Function) -> list[ast.Call]:
        """The calls of a function in this file; none where another has the same name, and they cannot be told apart.

        A method is called on `self`, or on something else by a name that is not also one of every model (`model.train()`).
        """
        if len(self.functions[function.name]) > 1:
            return []
        is_method = isinstance(self._tree.parents.get(function), ast.ClassDef)
        return [call for call in self.calls.get(function.name, []) if _may_call(call.func, is_method)]

    def constant(self, node: ast.expr | None, depth: int = 6) -> Constant:
        """The value of a constant, of a name that has one value only, or of an option by default. None: unknown."""
        if isinstance(node, ast.Constant):
            return node.value
        if node is None or depth == 0:
            return None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.constant(node.operand, depth - 1)
            return -value if isinstance(value, int | float) else None
        name = dotted(node)
        bindings = self.lookup(node, name) if name else []
        if len(bindings) == 1 and bindings[0].value is not None and not bindings[0].element and bindings[0].part is None:
            return self.constant(bindings[0].value, depth - 1)
        return self._default(bindings, name, depth)

    def _default(self, bindings: list[Binding], name: str, depth: int) -> Constant:
        """The default of an option (``args.workers``), or the one value that callers give to a parameter."""
        if not bindings:
            owner, dot, option = name.partition(".")
            return self.options.get(option) if dot and owner in ("args", "opt", "opts", "options", "hparams", "flags", "FLAGS") else None
        if len(bindings) > 1 or bindings[0].parameter is None:
            return None
        given = self.arguments(bindings[0].parameter)
        if len(given) < len(self.call_sites(bindings[0].parameter[0])) and (default := _default_of(bindings[0].parameter)) is not None:
            given.append(default)
        values = [self.constant(argument, depth - 1) for argument in given]
        return values[0] if values and all(value == values[0] for value in values) else None

    def arguments(self, parameter: tuple[Function, int]) -> list[ast.expr]:
        """What the calls in this file give to a parameter."""
        function, index = parameter
        name = [*function.args.posonlyargs, *function.args.args][index].arg if index >= 0 else ""
        is_method = bool(function.args.args) and function.args.args[0].arg in ("self", "cls")
        given = []
        for call in self.call_sites(function):
            place = index - 1 if is_method and isinstance(call.func, ast.Attribute) else index
            if 0 <= place < len(call.args) and not any(isinstance(argument, ast.Starred) for argument in call.args[: place + 1]):
                given.append(call.args[place])
            given += [keyword.value for keyword in call.keywords if keyword.arg == name and name]
        return given


def _may_call(called: ast.expr, is_method: bool) -> bool:
    if not isinstance(called, ast.Attribute):
        return not is_method
    on_self = isinstance(called.value, ast.Name) and called.value.id in ("self", "cls")
    return is_method and (on_self or called.attr not in _OF_EVERY_MODEL)


def _default_of(parameter: tuple[Function, int]) -> ast.expr | None:
    """The default value of a parameter."""
    function, index = parameter
    arguments = [*function.args.posonlyargs, *function.args.args]
    place = index - (len(arguments) - len(function.args.defaults))
    return function.args.defaults[place] if 0 <= place < len(function.args.defaults) and index >= 0 else None


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for a chain of attributes of a name; empty for everything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < MAX_CHAIN:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """The last part of what is called: ``step`` of ``self.optimizer.step``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument."""
    return next((given.value for given in call.keywords if given.arg == name), None)


def argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    """The value of an argument, by its name or its place."""
    value = keyword(call, name)
    if value is None and len(call.args) > place and not any(isinstance(given, ast.Starred) for given in call.args[: place + 1]):
        value = call.args[place]
    return value


def is_open(call: ast.Call) -> bool:
    """Whether ``*args`` or ``**kwargs`` may give arguments that are not written."""
    return any(given.arg is None for given in call.keywords) or any(isinstance(given, ast.Starred) for given in call.args)
