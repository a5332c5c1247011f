"""Find where the names of a file get their values, and where what they name is changed in place."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from typing import NamedTuple

from sysperf.script.cures import needless
from sysperf.script.nodes import last_name, root_of
from sysperf.script.syntax import Function, Loop, Tree
from sysperf.startup import lazy

OF_WEIGHTS = frozenset(("parameters", "named_parameters", "state_dict", "param_groups", "modules", "named_modules", "children"))
LEARNED = frozenset(("weight", "bias"))
_OF_MODELS = frozenset((*OF_WEIGHTS, "train", "eval", "zero_grad", "requires_grad_", "load_state_dict")) - {"param_groups"}
_LAYER = lazy(r"(?:nn\.|^)(?:[A-Z]\w*|Parameter|\w*(?:DataParallel|compile|from_pretrained))$")
_MODULE = lazy(r"(?:^|\.)\w*Module$|nn\.")


class Definition(NamedTuple):
    """A place where a name gets a value: by which statement, of what, and in which function."""

    node: ast.AST
    value: ast.expr | None
    """None: of what nobody sees, as a parameter's."""


class Definitions:
    """The names of one file."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.functions = {function.name: function for function in tree.functions}
        self.classes = {node.name: node for node in tree.of(ast.ClassDef)}
        self.modules, self.imported = needless.imports(tree)
        self.foreign = {
            (alias.asname or alias.name).partition(".")[0]
            for node in tree.of(ast.Import, ast.ImportFrom)
            for alias in node.names  # type: ignore[attr-defined]
        } - self.modules
        self.by_scope: dict[tuple[ast.AST, str], list[Definition]] = {}
        self._changes: dict[str, dict[ast.AST, None]] = {}
        """Each place once, however many other names lead there."""
        self.calls: dict[str, list[ast.Call]] = {}
        self.names: dict[str, list[ast.Name]] = {}
        self._assigned: dict[ast.Assign, dict[ast.AST, ast.expr]] = {}
        """What the assignment that was asked about last gives its targets."""
        self._models: set[str] = set()
        self._are_models: dict[int, bool] = {}
        """By the list of definitions, each of which lives as long as this."""
        self.given: set[str] = set()
        """The names of what lambdas are given."""
        self._declared = {
            (self.scope_of(node), name): node
            for node in tree.of(ast.Global, ast.Nonlocal)
            for name in node.names  # type: ignore[attr-defined]
        }
        self._layers = {
            alias.asname or alias.name
            for node in tree.of(ast.ImportFrom)
            if (node.module or "").startswith("torch.nn") and ".functional" not in (node.module or "")
            for alias in node.names
        }
        """What is imported from torch.nn."""
        self._reading: dict[str, bool] = {}
        self._collect()
        self.trains = any(name in self.calls for name in ("backward", "step", "load_state_dict", "fit"))

    def loop_of(self, node: ast.AST) -> Loop | None:
        """The innermost loop of its function around a node."""
        for parent in self.tree.ancestors(node):
            if isinstance(parent, Function):
                return None
            if isinstance(parent, Loop):
                return parent
        return None

    def scope_of(self, node: ast.AST) -> ast.AST:
        """The function around a node, or the module."""
        return self.tree.function_of(node) or self.tree.module

    def definitions(self, name: ast.Name) -> Sequence[Definition]:
        """Return where a name that is read gets its values."""
        scope: ast.AST | None = self.scope_of(name)
        while scope is not None:
            if found := self.by_scope.get((scope, name.id)):
                return found
            scope = self.scope_of(scope) if scope is not self.tree.module else None
        return ()

    def is_in(self, node: ast.AST, loop: ast.AST) -> bool:
        """Whether a node is a loop, or within it."""
        return node is loop or any(parent is loop for parent in self.tree.ancestors(node))

    def changed(self, key: str) -> Collection[ast.AST]:
        """Return where something of this name is changed in place: `.name` is an attribute of any object."""
        return self._changes.get(key, ())

    def names_model(self, name: str) -> bool:
        """Whether a name, or `.name` of an attribute, is that of a model, an optimizer or another thing that makes steps."""
        stepping = (call.func.value for call in self.calls.get("step", ()) if isinstance(call.func, ast.Attribute))
        return name != "self" and (name in self._models or any(_key_of(one) == name for one in stepping))

    def is_model(self, name: ast.Name) -> bool:
        """Whether a name is that of a model, or of an optimizer: by what is called of it, or by what made it."""
        if name.id in self._models:
            return True
        definitions = self.definitions(name)
        if (known := self._are_models.get(id(definitions))) is None:
            known = any(self.makes_layer(found.value) for found in definitions)
            self._are_models[id(definitions)] = known
        return known

    def makes_layer(self, value: ast.expr | None) -> bool:
        """Whether an expression makes a model, a layer or a weight."""
        if not isinstance(value, ast.Call):
            return False
        if any(word.arg == "requires_grad" and isinstance(word.value, ast.Constant) and word.value.value for word in value.keywords):
            return True
        if isinstance(value.func, ast.Name) and value.func.id in self.classes:
            return any(_MODULE.search(ast.unparse(base)) for base in self.classes[value.func.id].bases)
        if isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda", "cpu", "eval", "train", "half", "float", "double"):
            return self.makes_layer(value.func.value)
        if isinstance(value.func, ast.Name) and value.func.id in self._layers:
            return _LAYER.search(value.func.id) is not None
        text = ast.unparse(value.func)
        return text.startswith(("nn.", "torch.nn.")) and ".functional." not in text and _LAYER.search(text) is not None

    def definitions_at(self, node: ast.AST, name: str) -> Sequence[Definition]:
        """The definitions of a name as they are seen from a place."""
        scope: ast.AST | None = self.scope_of(node)
        while scope is not None:
            if found := self.by_scope.get((scope, name)):
                return found
            scope = self.scope_of(scope) if scope is not self.tree.module else None
        return ()

    def _collect(self) -> None:
        for name in self.tree.of(ast.Name):
            self.names.setdefault(name.id, []).append(name)
            if isinstance(name.ctx, ast.Store):
                self._define(name)
        self._note_captures()
        for function in self.tree.functions:
            arguments = function.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
                if argument is not None:
                    self.by_scope.setdefault((function, argument.arg), []).append(Definition(argument, None))
        for made in self.tree.of(ast.Lambda):
            self.given |= {argument.arg for argument in (*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs)}
        for call in self.tree.of(ast.Call):
            self.calls.setdefault(called(call), []).append(call)
            self._note_change(call)
        for node in self.tree.of(ast.Subscript, ast.Attribute):
            if isinstance(node.ctx, ast.Store | ast.Del):  # type: ignore[attr-defined]
                self._change(node if isinstance(node, ast.Attribute) else node.value, node)  # type: ignore[attr-defined]

        self._note_given()
        self._note_aliases()

    def _note_captures(self) -> None:
        """Names of patterns and of exceptions, which are no nodes of their own."""
        for part in self.tree.of(ast.MatchAs, ast.MatchStar, ast.ExceptHandler):
            if part.name is not None:  # type: ignore[attr-defined]
                self.by_scope.setdefault((self.scope_of(part), part.name), []).append(Definition(part, None))  # type: ignore[attr-defined]

    def _home_of(self, name: ast.Name) -> ast.AST:
        """The scope in which a name that is stored is: another one than its function after `global` and `nonlocal`."""
        scope = self.scope_of(name)
        declared = self._declared.get((scope, name.id))
        if declared is None:
            return scope
        return self.tree.module if isinstance(declared, ast.Global) else self.scope_of(scope)

    def _note_given(self) -> None:
        """What a function of the file changes of what it is given is changed where it is called."""
        sums: set[tuple[ast.AST, str]] = set()
        for node in self.tree.of(ast.AugAssign):
            if isinstance(node.target, ast.Name):
                sums.add((self.scope_of(node), node.target.id))
        for name, function in self.functions.items():
            named = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            own = {(function, argument) for argument in named}
            changed = {key for key in own if any(self.scope_of(node) is function for node in self._changes.get(key[1], ()))} | own & sums
            if not changed:
                continue
            for call in self.calls.get(name, ()):
                skipped = named[isinstance(call.func, ast.Attribute) and named[:1] == ["self"] :]
                for argument, value in zip(skipped, call.args, strict=False):
                    if (function, argument) in changed:
                        self._change(value, call)

    def _note_aliases(self) -> None:
        """What is changed by another name of it, or by an object that was made for it, as `ImageDraw.Draw(image)` is, is changed, too."""
        for (scope, name), several in list(self.by_scope.items()):
            linked: dict[str, ast.expr] = {}
            for one in several if name in self._changes else ():
                value = one.value
                made_for = value.args if isinstance(value, ast.Call) and called(value)[:1].isupper() else [value]
                for part in made_for:
                    if isinstance(part, ast.Name | ast.Attribute | ast.Subscript) and isinstance(one.node, ast.Assign):
                        linked.setdefault(_key_of(part), part)
            for part in linked.values():
                for node in list(self._changes[name]):
                    if self.scope_of(node) is scope:
                        self._change(part, node)

    def _define(self, name: ast.Name) -> None:
        node: ast.AST = name
        for parent in self.tree.ancestors(name):
            node = parent
            if isinstance(parent, ast.stmt | ast.comprehension | ast.NamedExpr | ast.withitem):
                break
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            value = self.given_to(node).get(name, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            value = node.value
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            value = node.iter
        elif isinstance(node, ast.withitem):
            value = node.context_expr
        home = self._home_of(name)
        self.by_scope.setdefault((home, name.id), []).append(Definition(node, value))
        if home is not self.scope_of(name):
            self._change(name, name)

    def given_to(self, node: ast.Assign) -> dict[ast.AST, ast.expr]:
        """What each target of an assignment is given: worked out once, as one may have 40,000."""
        if node not in self._assigned:
            pairs = [pair for target in node.targets for pair in needless.pairs(target, node.value)]
            self._assigned = {node: {part: value for target, value in reversed(pairs) for part in ast.walk(target)}}
        return self._assigned[node]

    def _note_change(self, call: ast.Call) -> None:
        """A method that changes its object, or a function that changes what it gets."""
        name = called(call)
        if isinstance(call.func, ast.Attribute):
            if name in _OF_MODELS and isinstance(call.func.value, ast.Name) and (name not in ("train", "eval") or not call.args):
                self._models.add(call.func.value.id)
            root = root_of(call.func)
            is_module = isinstance(root, ast.Name) and root.id in self.modules | self.foreign
            if not is_module and not needless.is_pure(name) and not self.only_reads(name):
                self._change(call.func.value, call)
        is_builtin = isinstance(call.func, ast.Name) and name in needless.BUILTINS  # set(rows) changes nothing
        if (needless.changes(name) and not is_builtin) or self._only_changes(call, name):
            for argument in call.args:
                self._change(argument, call)

    def only_reads(self, method: str) -> bool:
        """Whether each method of this name in the file is seen to change nothing of its object, nor to give a part of it away."""
        if method not in self._reading:
            self._reading[method] = False  # of one that calls itself nobody knows
            found = [function for function in self.tree.functions if function.name == method]
            self._reading[method] = bool(found) and all(
                self.tree.class_of(one) is not None and self._reads_object(node) for one in found for node in ast.walk(one)
            )
        return self._reading[method]

    def _reads_object(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute | ast.Subscript):
            return isinstance(node.ctx, ast.Load)
        if isinstance(node, ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Await | ast.Delete):
            return False
        if not isinstance(node, ast.Call):
            return True
        root, name = root_of(node.func), called(node)
        if any(isinstance(part, ast.Name) and part.id == "self" for part in node.args) or not isinstance(root, ast.Name):
            return isinstance(root, ast.Call | ast.BinOp | ast.Constant)
        return root.id != "self" or needless.is_pure(name) or self.only_reads(name)

    def _only_changes(self, call: ast.Call, name: str) -> bool:
        """Whether a function of another file is called for what it does to what it gets, as `heappush(heap, row)` is."""
        root = root_of(call.func)
        if name in self.functions or needless.reports(name) or not isinstance(self.tree.parents.get(call), ast.Expr):
            return False
        return isinstance(call.func, ast.Name) or (isinstance(root, ast.Name) and root.id in self.modules | self.foreign)

    def _change(self, target: ast.AST, node: ast.AST) -> None:
        if key := _key_of(target):
            self._changes.setdefault(key, {})[node] = None


def _key_of(target: ast.AST) -> str:
    """The name by which changes of it are kept: `.name` of an attribute; empty where it has no name."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else f".{target.attr}" if isinstance(target, ast.Attribute) else ""


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    return last_name(call.func)
