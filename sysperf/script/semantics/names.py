"""What names stand for in one file: constants, options by default, items of dictionaries, arguments of calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property

from sysperf.script.nodes import argument, dotted, is_open, keyword, last_name
from sysperf.script.semantics.binding import Binding, default_of
from sysperf.script.semantics.bindings import Bindings
from sysperf.script.semantics.links import News
from sysperf.script.semantics.modules import Modules
from sysperf.script.semantics.options import Constant, defaults
from sysperf.script.semantics.outside import NO_MODULES, NOTHING, Outside
from sysperf.script.syntax import Function, Tree, is_bound
from sysperf.startup import lazy

_OPTIONS = lazy(r"(self\.)?(\w+_)?(args|arguments|opts?|options|hparams|flags|FLAGS|cfg|config|conf|params|hps|settings)")


class Names(Bindings):
    """The names of a file, and what other files say of them."""

    def __init__(self, tree: Tree, path: str = "", modules: Modules = NO_MODULES, news: News = NOTHING) -> None:
        super().__init__(tree)
        self.outside = Outside(tree, self, path, modules, news)

    @cached_property
    def options(self) -> dict[str, Constant]:
        """The options of the command line, with their defaults."""
        return defaults(self._tree)

    def constant(self, node: ast.expr | None, depth: int = 6) -> Constant:
        """The value of a constant, of a name that has one value only, or of an option by default. None: unknown."""
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
            node = node.args[0]
        if isinstance(node, ast.Constant):
            return node.value
        if node is None or depth == 0:
            return None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.constant(node.operand, depth - 1)
            return -value if isinstance(value, int | float) else None
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return self.constant((self.spread(node.value) or {}).get(key), depth - 1) if isinstance(key, str) else None
        name = dotted(node)
        bindings = self.lookup(node, name) if name else []
        if len(bindings) == 1 and bindings[0].value is not None and not bindings[0].element and not bindings[0].path:
            value = self.constant(bindings[0].value, depth - 1)
            return None if "." in name and self._may_be_left(bindings[0].value, node) else value
        return self._default(bindings, name, depth, node)

    def _may_be_left(self, given: ast.expr, node: ast.expr) -> bool:
        """Whether only a branch gives an attribute its value: ``if args.debug: args.workers = 0``, and it has another before."""
        branches = {parent for parent in self._tree.ancestors(given) if isinstance(parent, ast.If)}
        return not branches.issubset(self._tree.ancestors(node)) if branches else False

    def passed_on(self, node: ast.expr, name: str) -> tuple[Function, int] | None:
        """The parameter of `__init__` that a base class keeps under its name, which nobody here gives: ``super().__init__(n=n)``."""
        owner = self._tree.class_of(node)
        inits = [part for part in owner.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"] if owner is not None else []
        found = [binding for init in inits for binding in self.bindings.get((init, name), [])]
        made = (call for call in self._tree.of(ast.Call) if owner is not None and last_name(call.func) == owner.name)
        return found[0].parameter if len(found) == 1 and not any(keyword(call, name) is not None for call in made) else None

    def _default(self, bindings: list[Binding], name: str, depth: int, node: ast.expr | None = None) -> Constant:
        """The default of an option (``args.workers``), or the one value that callers give to a parameter."""
        if not bindings:
            owner, _, option = name.rpartition(".")
            if owner == "self" and node is not None and (kept := self.passed_on(node, option)) is not None:
                return self.constant(default_of(kept), depth - 1)
            return self.options.get(option) if _OPTIONS.fullmatch(owner) or owner in self.classes or self._is_parsed(owner) else None
        if len(bindings) > 1 or bindings[0].parameter is None:
            return None
        given = self.arguments(bindings[0].parameter)
        if len(given) < len(self.call_sites(bindings[0].parameter[0])) and (default := default_of(bindings[0].parameter)) is not None:
            given.append(default)
        values = [self.constant(argument, depth - 1) for argument in given]
        return values[0] if values and all(value == values[0] for value in values) else None

    def is_left_open(self, node: ast.expr, depth: int = 6) -> bool:
        """Whether only a default tells a value: of an option of the command line, or of a parameter that a base class keeps."""
        name = dotted(node)
        bindings = self.lookup(node, name) if name else []
        if len(bindings) != 1 or bindings[0].value is None or not depth:
            return bool(name) and not bindings
        return self.is_left_open(bindings[0].value, depth - 1)

    def _is_parsed(self, name: str) -> bool:
        """Whether a name stands for the options of the command line: ``a = parser.parse_args()``."""
        values = (binding.value for (_, bound), bindings in self.bindings.items() if bound == name and name for binding in bindings)
        return any(isinstance(value, ast.Call) and last_name(value.func) in ("parse_args", "parse_known_args", "cli") for value in values)

    def spread(self, node: ast.expr, depth: int = 4) -> dict[str, ast.expr] | None:
        """The items of a dictionary with what is added to it later; None where not all of its keys are written in the file."""
        if depth == 0:
            return None
        if isinstance(node, ast.Dict):
            return self._merged(zip(node.keys, node.values, strict=True), depth)
        if isinstance(node, ast.Call) and last_name(node.func) == "dict" and not node.args:
            return self._merged(((_key(given), given.value) for given in node.keywords), depth)
        if isinstance(node, ast.IfExp):
            sides = [self.spread(side, depth - 1) for side in (node.orelse, node.body)]
            return None if sides[0] is None or sides[1] is None else {**sides[0], **sides[1]}
        return self._named_items(node, depth) if dotted(node) else None

    def item(self, node: ast.Subscript) -> ast.expr | None:
        """The one value that the file gives to an item of a dictionary: ``info["error"] = …``."""
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        given = [value for name, value in self._items.get(dotted(node.value), ()) if name == key]
        return given[0] if len(given) == 1 and not any(part is node for part in ast.walk(given[0])) else None

    def _merged(self, items: Iterable[tuple[ast.expr | None, ast.expr]], depth: int) -> dict[str, ast.expr] | None:
        merged: dict[str, ast.expr] = {}
        for key, value in items:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                merged[key.value] = value
            elif key is not None or (inner := self.spread(value, depth - 1)) is None:
                return None
            else:
                merged |= inner
        return merged

    def _named_items(self, node: ast.expr, depth: int) -> dict[str, ast.expr] | None:
        """The items of a name that is a dictionary wherever it is bound."""
        name = dotted(node)
        bindings = self.lookup(node, name)
        if not bindings:
            return None
        given = [self._items_of(binding, node, depth) for binding in bindings]
        kept = [items for items in given if items]
        if None in given or len(kept) > 1:  # more than one, and which is used is not known
            return None
        items: dict[str, ast.expr] = dict(*kept)
        for call in self._updates.get(name, []):
            added = self.spread(call.args[0], depth - 1) if len(call.args) == 1 else {}
            if added is None or last_name(call.func) == "setdefault":
                return None
            items |= {**added, **{given.arg: given.value for given in call.keywords if given.arg}}
        return items | dict(self._items.get(name, ()))

    def _items_of(self, binding: Binding, node: ast.expr, depth: int) -> dict[str, ast.expr] | None:
        if binding.path or binding.element:
            return None
        return self._keywords_of(binding, node) if binding.value is None else self.spread(binding.value, depth - 1)

    def _keywords_of(self, binding: Binding, node: ast.expr) -> dict[str, ast.expr] | None:
        """What the one call of a function gives to its ``**kwargs``."""
        function = binding.parameter[0] if binding.parameter is not None else None
        if function is None or function.args.kwarg is None or function.args.kwarg.arg != dotted(node):
            return None
        sites = self.call_sites(function)
        if len(sites) != 1 or is_open(sites[0]):
            return None
        named = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        return {given.arg: given.value for given in sites[0].keywords if given.arg and given.arg not in named}

    def argument(self, call: ast.Call, name: str, place: int) -> ast.expr | None:
        """The value of an argument, by its name or its place, or in a ``**dictionary`` of the file."""
        value = argument(call, name, place)
        spread = (self.spread(given.value) or {} for given in call.keywords if given.arg is None)
        return value if value is not None else next((items[name] for items in spread if name in items), None)

    def is_open(self, call: ast.Call) -> bool:
        """Whether arguments may be given that are not written in this file."""
        return any(given.arg is None and self.spread(given.value) is None for given in call.keywords) or any(
            isinstance(given, ast.Starred) for given in call.args
        )

    def leaves_out(self, call: ast.Call, function: Function, index: int, present: bool = True, depth: int = 3) -> bool:
        """Whether a call gives None or False for a parameter, or nothing where that is the default; or True, for what runs without it."""
        name = [*function.args.posonlyargs, *function.args.args][index].arg
        given = argument(call, name, index - is_bound(function))
        if given is None and is_open(call):
            return False
        value = given if given is not None else default_of((function, index))
        bindings = self.lookup(call, value.id) if isinstance(value, ast.Name) and depth else []
        if len(bindings) == 1 and (passed := bindings[0].parameter) is not None and passed[1] >= 0:
            sites = self.call_sites(passed[0])
            return bool(sites) and all(self.leaves_out(site, *passed, present, depth - 1) for site in sites)
        return isinstance(value, ast.Constant) and (value.value in (None, False) if present else value.value is True)

    def option(self, name: ast.expr) -> Constant:
        """What an option of a function is by default, which no call of this file gives. None: unknown."""
        bindings = self.lookup(name, name.id) if isinstance(name, ast.Name) else []
        kept = bindings[0].parameter if len(bindings) == 1 else None
        default = default_of(kept) if kept is not None and not self.arguments(kept) else None
        return default.value if isinstance(default, ast.Constant) else None


def _key(given: ast.keyword) -> ast.expr | None:
    return ast.Constant(given.arg) if given.arg is not None else None
