"""Tell of what an expression is made, by keys: names with their scope, attributes, and what functions return."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.definitions import LEARNED, OF_WEIGHTS, Definitions, called
from sysperf.script.nodes import names_in, root_of
from sysperf.script.syntax import Function, Tree
from sysperf.startup import lazy

Key = tuple[object, str]
"""A name of a function, an attribute of a class or of any object (`.name`), or what a function returns."""
KeySet = frozenset[Key]
WEIGHTS: Key = (None, "weights")
MODEL: Key = (None, "model")
LOSS: Key = (None, "loss")
"""A loss, or what nobody sees from here on: it may make a loss of it."""
SEED: Key = (None, "seed")
"""What decides which random numbers are drawn."""
NONE: KeySet = frozenset()
_SELECTS = lazy(r"^(?:unique\w*|nonzero|argwhere|masked_select|where|compress|repeat_interleave)$")
"""Functions whose result has a size that depends on the values."""
_SHARES = lazy(
    r"(?:from_numpy|as\w*array|as_tensor|frombuffer|ndarray|ravel|flatten|reshape|view\w*|squeeze|unsqueeze|transpose|permute|expand\w*|"
    r"broadcast_\w+|atleast_\dd|nditer|(?:array_|tensor_|[hvd])?split|chunk|unbind|narrow|select|diagonal|detach|numpy|contiguous|to|cpu|cuda|float|double|half|type|"
    r"flip\w*|rot90|moveaxis|rollaxis|sliding_window_view|unfold|unflatten|swapdims|adjoint|as_strided|(?:untyped_)?storage|from_dlpack|"
    r"items|values|keys|get|getattr|partial|list|tuple|dict|set|deque|sorted|memoryview|iter|enumerate|zip|map|filter|reversed|t|swapaxes|"
    r"movedim|next)$"
)
"""Functions and methods whose result may be, or hold, what they are given."""
COMBINES = lazy(
    r"(?:mul|matmul|div|sub|dot|mm|bmm|where|gather|index_select|masked_fill|maximum|minimum|isin|searchsorted|eq|ne|lt|gt|le|ge)$"
)
"""Methods that only read their object and their arguments."""
_SIZES = frozenset(("shape", "size", "ndim", "dim", "numel"))
_FORMS = frozenset(("device", "dtype", "layout"))


def shares(call: ast.Call) -> bool:
    """Whether the result of a call may be, or hold, what it is given: always where somebody asks for no copy."""
    return _SHARES.match(called(call)) is not None or any(word.arg == "copy" for word in call.keywords)


def functions_by_name(tree: Tree) -> dict[str, list[Function]]:
    """All functions and methods of each name; those of other types by the name for which they are registered, too."""
    found: dict[str, list[Function]] = defaultdict(list)
    for function in tree.functions:
        found[function.name].append(function)
        for decorator in function.decorator_list:
            func = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(func, ast.Attribute) and func.attr == "register" and isinstance(func.value, ast.Name):
                found[func.value.id].append(function)
    return found


class Keys:
    """What the expressions of one file are made of."""

    def __init__(self, source: Definitions) -> None:
        self.source, self.tree = source, source.tree
        self._keys: dict[ast.AST, KeySet] = {}
        self._named = functions_by_name(self.tree)
        self._reads: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._outer: dict[ast.AST, ast.AST] = {}
        """Names in defaults and decorators, with the scope in which these are evaluated."""
        for function in self.tree.functions:
            before = (*function.args.defaults, *function.args.kw_defaults, *function.decorator_list)
            self._outer |= {node: source.scope_of(function) for part in before if part is not None for node in ast.walk(part)}
        for read in self.tree.of(ast.Attribute):
            self._reads[read.attr].append(read)
        self._of_self: dict[str, bool] = {}
        self._texts = {node.value for node in self.tree.of(ast.Constant) if isinstance(node.value, str)}
        """What getattr() or register_buffer() may name an attribute by."""
        bases = [base for made in source.classes.values() for base in made.bases]
        self._inherited = names_in(*bases)

    def keys_of(self, part: ast.AST) -> KeySet:
        """What flows into the value of an expression."""
        if part not in self._keys:
            self._keys[part] = self._read(part)
        return self._keys[part]

    def key_of(self, name: ast.Name) -> Key:
        """The key of a name, in the scope in which it is."""
        return self.key_at(name, name.id)

    def named(self, name: str) -> Sequence[Function]:
        """All functions and methods of a name."""
        return self._named.get(name, ())

    def reads(self, name: str) -> Sequence[ast.Attribute]:
        """All attributes of a name, whether they are read or stored."""
        return self._reads.get(name, ())

    def attribute(self, part: ast.Attribute) -> Key:
        """The key of an attribute: of its class, where the file is seen to read it of `self` alone, else of any object."""
        if part.attr not in self._of_self:
            self._of_self[part.attr] = self._is_of_self(part.attr)
        return (self.tree.class_of(part) if self._of_self[part.attr] else None, f".{part.attr}")

    def _is_of_self(self, name: str) -> bool:
        reads = self._reads[name]
        owners = {self.tree.class_of(read) for read in reads}
        return (
            all(owner is not None and owner.name not in self._inherited for owner in owners)
            and all(isinstance(read.value, ast.Name) and read.value.id == "self" for read in reads)
            and (self.tree.module, name) not in self.source.by_scope
            and name not in self._texts
        )

    def key_at(self, node: ast.AST, name: str) -> Key:
        scope: ast.AST = self._outer.get(node) or self.source.scope_of(node)
        while scope is not self.tree.module and (scope, name) not in self.source.by_scope:
            scope = self.source.scope_of(scope)
        return (scope, name)

    def shared(self, value: ast.AST) -> set[Key]:
        """The names and attributes of which a value may be the object itself, a part or a holder of it."""
        found: set[Key] = set()
        waiting = [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, ast.Name) and not self._is_function(part) and not self._is_module(part):
                found.add(self.key_of(part))
            elif isinstance(part, ast.Attribute) and part.attr != "data":  # a tensor's own memory
                found.add(self.attribute(part))
            elif isinstance(part, ast.Call):
                found |= {(function, "return") for function in self._named.get(called(part), ())}
            waiting += self._held(part)
        return found

    def _held(self, part: ast.AST) -> Iterable[ast.AST]:
        """What a value may hold, or be a part of."""
        if isinstance(part, ast.Attribute | ast.Subscript | ast.Starred | ast.NamedExpr | ast.keyword):
            return [part.value]
        if isinstance(part, ast.Tuple | ast.List | ast.Set | ast.Dict | ast.IfExp | ast.ListComp | ast.GeneratorExp):
            return [node for node in ast.iter_child_nodes(part) if isinstance(node, ast.expr)]
        if not isinstance(part, ast.Call):
            return ()
        name = called(part)
        if not (shares(part) or name in self.source.classes or needless.changes(name)):
            return ()
        return [*part.args, *part.keywords, *([part.func.value] if isinstance(part.func, ast.Attribute) else [])]

    def _is_function(self, name: ast.Name) -> bool:
        return name.id in self._named and not self.source.definitions(name)

    def _is_module(self, name: ast.Name) -> bool:
        return name.id in self.source.modules and not self.source.definitions(name)

    def _read(self, part: ast.AST) -> KeySet:
        if isinstance(part, ast.Name):
            return self._read_name(part)
        if isinstance(part, ast.Attribute):
            return self._read_attribute(part)
        if isinstance(part, ast.Call):
            return self._read_call(part)
        if isinstance(part, ast.Await | ast.Yield | ast.YieldFrom):
            return frozenset((MODEL,))  # of somebody who sends it
        return NONE if isinstance(part, Function | ast.ClassDef) else self._of_all(ast.iter_child_nodes(part))

    def _read_name(self, name: ast.Name) -> KeySet:
        if self._is_function(name):
            return frozenset((function, "return") for function in self._named[name.id])
        return frozenset((self.key_of(name),)) | ({WEIGHTS} if self.source.is_model(name) else NONE)

    def _of_all(self, parts: Iterable[ast.AST]) -> KeySet:
        return NONE.union(*(self.keys_of(part) for part in parts if not isinstance(part, ast.expr_context)))

    def _read_attribute(self, part: ast.Attribute) -> KeySet:
        if part.attr in _FORMS or (part.attr in _SIZES and not self._selects(part.value)):
            return NONE
        methods = [*self._named.get(part.attr, ()), *self._named.get("__get__", ())]
        own: KeySet = frozenset((self.attribute(part),)) | frozenset((one, "return") for one in methods)
        learned = {WEIGHTS} if part.attr in LEARNED or part.attr in OF_WEIGHTS else {MODEL} if part.attr == "grad" else NONE
        return own | learned | self.keys_of(part.value)

    def _selects(self, value: ast.AST) -> bool:
        """Whether the size of a value depends on other values: it is a selection by them."""
        several = self.source.definitions(value) if isinstance(value, ast.Name) else ()
        for part in (value, *(one.value for one in several if one.value is not None)):
            for node in ast.walk(part):
                if isinstance(node, ast.Subscript) and any(
                    isinstance(one, ast.Compare | ast.Call | ast.Name) for one in ast.walk(node.slice)
                ):
                    return True
                if (isinstance(node, ast.Call) and _SELECTS.match(called(node))) or (isinstance(node, ast.comprehension) and node.ifs):
                    return True
        return False

    def _read_call(self, call: ast.Call) -> KeySet:
        name, func = called(call), call.func
        if name in _SIZES and isinstance(func, ast.Attribute):
            return self.keys_of(func)
        given = self._of_all((*call.args, *call.keywords))
        if name in ("grad", "functional_call"):
            return given | {MODEL}
        if self.source.makes_layer(call) or any(word.arg == "requires_grad" for word in call.keywords) or name == "requires_grad_":
            given |= {WEIGHTS}
        own = self.source.classes[name].body if name in self.source.classes else ()
        operators = [one for one in own if isinstance(one, Function) and one.name.startswith("__")]
        given |= {(one, "return") for one in operators}
        if isinstance(func, ast.Name) and not self._is_function(func):
            is_model = self.source.is_model(func) or any(not isinstance(one.value, ast.Lambda) for one in self.source.definitions(func))
            return given | self.keys_of(func) | ({MODEL} if is_model else NONE)
        returned: KeySet = frozenset((one, "return") for one in self._named.get(name, ()))
        root = root_of(func)
        if isinstance(func, ast.Attribute) and isinstance(root, ast.Name) and self.source.is_model(root):
            returned |= {MODEL}
        return given | returned | self.keys_of(func)
