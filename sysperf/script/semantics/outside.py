"""What the other files say that are linted with one: what their functions give here, and who of them calls those of this file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from sysperf.script.nodes import dotted, last_name
from sysperf.script.semantics.binding import Binding, default_of, whole
from sysperf.script.semantics.bindings import Bindings
from sysperf.script.semantics.links import Called, Class, Kinds, News, Result, Use
from sysperf.script.semantics.modules import Modules, Ref, referred
from sysperf.script.syntax import Function, Tree, is_bound

MAX_DEPTH = 4
NO_MODULES = Modules()
NOTHING = News()
_NO_RESULT = Result()


class Elsewhere(ast.AST):
    """Stands for a call in another file, which makes a loader: no node of this one is equal to it."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place


class Outside:
    """The other files, as one sees them."""

    def __init__(self, tree: Tree, names: Bindings, path: str, modules: Modules = NO_MODULES, news: News = NOTHING) -> None:
        self._tree = tree
        self._names = names
        self.path = path
        self.news = news
        self.modules = modules
        self.imports, self.stars = modules.imports(tree, path)
        self._sees_others = bool(self.imports or news.called)
        self._made: dict[str, Elsewhere] = {}
        self._instances: dict[ast.AST, Ref | None] = {}
        self._handed: dict[ast.AST, Ref | None] = {}

    def elsewhere(self, place: str) -> Elsewhere | None:
        """The one node that stands for a loader of another file; None for none."""
        return self._made.setdefault(place, Elsewhere(place)) if place else None

    @property
    def loaders(self) -> Iterable[Elsewhere]:
        """The loaders of other files that were met here."""
        return self._made.values()

    def calls(self, function: Function) -> tuple[Called, ...]:
        """The calls of a function of this file by others."""
        return self.news.called.get(self.name_of(function), ()) if self.news.called else ()

    def name_of(self, function: Function) -> str:
        """``f`` or ``C.f`` for what others can call; empty for what is within a function."""
        owner = self._tree.parents.get(function)
        if isinstance(owner, ast.ClassDef):
            return f"{owner.name}.{function.name}" if self._tree.parents.get(owner) is self._tree.module else ""
        return function.name if self._tree.function_of(function) is None and self._tree.class_of(function) is None else ""

    def given(self, function: Function, index: int) -> list[Kinds]:
        """What others give to a parameter of a function of this file."""
        arguments = [*function.args.posonlyargs, *function.args.args]
        name = arguments[index].arg if index >= 0 else ""
        place = index - is_bound(function)
        return [
            call.given[place] if 0 <= place < len(call.given) else call.named[name]
            for call in self.calls(function)
            if 0 <= place < len(call.given) or name in call.named
        ]

    def leaves_out(self, call: Called, function: Function, index: int, present: bool = True) -> bool:
        """Whether a call gives None or False for a parameter, or nothing where that is the default; or True, for what runs without it."""
        name = [*function.args.posonlyargs, *function.args.args][index].arg
        place = index - is_bound(function)
        given = call.given[place] if 0 <= place < len(call.given) else call.named.get(name)
        if given is not None:
            return any(known.kind == ("none" if present else "true") for known in given)
        default = default_of((function, index))
        left = isinstance(default, ast.Constant) and (default.value in (None, False) if present else default.value is True)
        return left and not call.is_open

    def use(self, place: str) -> Use | None:
        """What others do with a loader that is made here."""
        return self.news.uses.get(place)

    def result(self, call: ast.Call) -> Result:
        """What a function of another file gives back."""
        if not self.news.results:
            return _NO_RESULT
        ref = self.target(call.func) or self._own(call.func)
        return self.news.results.get(key(ref), _NO_RESULT) if ref is not None else _NO_RESULT

    def _own(self, called: ast.expr) -> Ref | None:
        """A method of a class of this file, which an heir in another one may make: ``self.advance``."""
        owner = self._tree.class_of(called) if isinstance(called, ast.Attribute) and dotted(called.value) == "self" else None
        return (self.path, f"{owner.name}.{last_name(called)}") if owner is not None else None

    def class_of(self, node: ast.expr) -> Class | None:
        """The class of another file that an expression names."""
        ref = self.target(node) if self.news.classes else None
        return self.news.classes.get(key(ref)) if ref is not None else None

    def attribute(self, node: ast.Attribute) -> Kinds:
        """What an attribute of an object of another file's class is."""
        owner = self.instance(node.value) if self.news.classes else None
        found = self.news.classes.get(key(owner)) if owner is not None else None
        return found.attributes.get(node.attr, ()) if found is not None else ()

    def target(self, node: ast.expr, depth: int = MAX_DEPTH) -> Ref | None:
        """What an expression names in another file: a function, a class, a method of an object of that class."""
        if not self._sees_others:
            return None
        name = dotted(node)
        if name and (found := referred(self.imports, name)) is not None and not self._is_local(node, name):
            return found
        owner = self.instance(node.value, depth) if isinstance(node, ast.Attribute) and depth else None
        if owner is not None and isinstance(node, ast.Attribute):
            return owner[0], f"{owner[1]}.{node.attr}"
        return self._handed_over(node) if name and self.news.called else None

    def _handed_over(self, node: ast.expr, depth: int = MAX_DEPTH) -> Ref | None:
        """The function that another file hands over, which is called here by the name of a parameter or an attribute."""
        if node not in self._handed:
            self._handed[node] = None  # while it is looked at, a cycle finds nothing
            bindings = self._names.lookup(node, dotted(node)) if depth and dotted(node) else []
            found = (self._handed_by(binding, depth) for binding in bindings)
            self._handed[node] = next((each for each in found if each is not None), None)
        return self._handed[node]

    def _handed_by(self, binding: Binding, depth: int) -> Ref | None:
        if binding.parameter is None:
            value = whole(binding)
            return self._handed_over(value, depth - 1) if isinstance(value, ast.Name | ast.Attribute) else None
        known = (known for kinds in self.given(*binding.parameter) for known in kinds if known.kind == "function")
        return next((each.made for each in known), None)

    def _is_local(self, node: ast.expr, name: str) -> bool:
        function, first = self._tree.function_of(node), name.partition(".")[0]
        return function is not None and (function, first) in self._names.bindings

    def instance(self, node: ast.expr | None, depth: int = MAX_DEPTH) -> Ref | None:
        """The class of another file of which an expression is an object."""
        if node is None or depth == 0 or not self._sees_others:
            return None
        if node not in self._instances:
            self._instances[node] = None  # while it is looked at, a cycle finds nothing
            self._instances[node] = self._instance(node, depth)
        return self._instances[node]

    def _instance(self, node: ast.expr, depth: int) -> Ref | None:
        if isinstance(node, ast.Call):
            ref = self.target(node.func, depth - 1)
            if ref is None or ref[1].rpartition(".")[2][:1].isupper():
                return ref
            made = self.news.results.get(key(ref))
            return made.makes if made is not None else None
        name = dotted(node)
        if name == "self":
            return self.base(self._tree.class_of(node))
        found: Ref | None = None
        for binding in self._names.lookup(node, name) if name else ():
            if binding.parameter is not None:
                found = self._annotated(*binding.parameter, depth) or self._given(*binding.parameter, depth)
            elif _is_made(binding):
                found = self.instance(binding.value, depth - 1) or self.said(binding.annotation, depth)
            if found is not None:
                return found
        return None

    def base(self, owner: ast.ClassDef | None, depth: int = MAX_DEPTH) -> Ref | None:
        """The class of another file that a class inherits from, itself or by one of this file."""
        for base in owner.bases if owner is not None and depth else ():
            local = self._names.classes.get(last_name(base)) if isinstance(base, ast.Name) else None
            found = self.base(local, depth - 1) if local is not None and local is not owner else self.target(base)
            if found is not None:
                return found
        return None

    def _given(self, function: Function, index: int, depth: int) -> Ref | None:
        """The class of what callers give to a parameter, here or in other files."""
        here = (self.instance(given, depth - 1) for given in self._names.arguments((function, index)))
        there = (known.made for kinds in self.given(function, index) for known in kinds)
        return next((found for found in (*here, *there) if found is not None), None)

    def _annotated(self, function: Function, index: int, depth: int) -> Ref | None:
        arguments = [*function.args.posonlyargs, *function.args.args]
        return self.said(arguments[index].annotation if index >= 0 else None, depth)

    def said(self, annotation: ast.expr | None, depth: int = MAX_DEPTH) -> Ref | None:
        """The class of another file that an annotation names, also as one of several: ``str | Strategy``, ``Optional[Strategy]``."""
        found = (referred(self.imports, name) for name in named_in(annotation)) if depth else ()
        return next((each for each in found if each is not None), None)


def named_in(annotation: ast.expr | None) -> Iterator[str]:
    """What an annotation names: ``str | Strategy`` and ``Optional["Strategy"]`` both two things."""
    for part in ast.walk(annotation) if annotation is not None else ():
        name = part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else dotted(part)
        if name:
            yield name


def key(ref: Ref) -> str:
    """How records name a thing of another file."""
    return f"{ref[0]}\0{ref[1]}"


def _is_made(binding: Binding) -> bool:
    return isinstance(binding.value, ast.Call | ast.Name | ast.Attribute) and not binding.path and not binding.element
