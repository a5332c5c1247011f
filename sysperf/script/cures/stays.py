"""Whether what a statement reads stays as it is while its program runs, as far as all of its file shows.

`depends` follows where values come from. That is not enough to say that they are the same in each step: an array is also changed by another
name of it, by a function that is given it, or by an optimizer. So each use of each name is looked at, and only those that are known to read
are allowed. What is not known is no proof.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence

from sysperf.script.cures import needless
from sysperf.script.cures.apart import MAKERS, is_hidden
from sysperf.script.cures.definitions import OF_WEIGHTS, Definition, called
from sysperf.script.cures.depends import RANDOM, SIZES, Depends, TooTangled
from sysperf.script.cures.keys import COMBINES, functions_by_name, shares
from sysperf.script.nodes import root_of
from sysperf.script.syntax import Function
from sysperf.startup import lazy

MAX_ASKED = 6_000
_PASSES = lazy(r"(?:iter|open|map|filter|zip|enumerate|reversed|count|cycle|chain|islice|repeat|tee|scandir|memmap|ndarray|share_memory_)$")
"""What these give is used up by reading it, or others write into it."""
_DRAWS = lazy(
    r"empty|gauss|variate|rvs|rrelu|lowrank|gumbel|laplace|cauchy|log_normal|geometric|memory_|rng_state|monotonic|clock|today|[gG]enerator|default_rng|Random|^(?:draw|beta|hash|id)$"
)
"""Functions that give something else each time, beside those that `depends` knows."""
_NUMBERS = lazy(r"^(?:uniform|normal|integers|randint|randrange|poisson|exponential|gauss|binomial|beta|gamma)$")
"""What draws numbers, and only reads between which."""
_COMPUTED = ("__get__", "__getattr__", "__getattribute__")
"""Methods that any attribute may call."""
_FIXED = (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
_MAKING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_HANDS_ON = (
    ast.List, ast.Tuple, ast.Starred, ast.keyword, ast.IfExp, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""What its parts become parts of: how that is used is asked."""
_READING = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.FormattedValue, ast.Slice, ast.If, ast.While, ast.Assert, ast.Expr)
"""What reads its parts, and makes something of its own."""


def stays(source: Depends, statement: ast.stmt, work: Sequence[ast.AST]) -> bool:
    """Whether all that the work of a statement reads is seen to stay as it is. Raises TooTangled."""
    return _Stays(source, statement).all_of(work)


def gives_the_same(source: Depends, statement: ast.stmt, call: ast.Call) -> bool:
    """Whether a call in a statement reads only what stays, and its result is only read there. Raises TooTangled."""
    found = _Stays(source, statement)
    return found.all_of([call]) and found.is_read(call)


def _may_end_early(node: ast.AST) -> bool:
    """Whether a loop may be left before its end: what it counts is then not the same each time."""
    return isinstance(node, ast.For) and any(isinstance(part, ast.Break) for part in ast.walk(node))


def _made_names(node: ast.AST) -> list[str]:
    """The names to which a definition or an import gives what it makes."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    return [node.name] if isinstance(node, Function | ast.ClassDef) else []


class _Stays:
    def __init__(self, source: Depends, statement: ast.stmt) -> None:
        self.source = source
        self._home, self._loop = source.scope_of(statement), source.loop_of(statement)
        self.tree = source.tree
        self._asked = 0
        self._once = False
        """Whether what is looked at runs once: it may draw random numbers."""
        self._seen: set[object] = set()
        """Names, attributes and functions that are being looked at, or were."""
        self._read: set[tuple[ast.AST, str]] = set()
        self._loads: dict[str, list[ast.Name]] = defaultdict(list)
        self._reads: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._named = functions_by_name(self.tree)
        self._remade = {name for node in self.tree.of(*_MAKING) if source.loop_of(node) is not None for name in _made_names(node)}
        """Functions, classes and modules that a loop may make anew under the same name."""
        for name in self.tree.of(ast.Name):
            if isinstance(name.ctx, ast.Load):
                self._loads[name.id].append(name)
        for read in self.tree.of(ast.Attribute):
            self._reads[read.attr].append(read)

    def all_of(self, parts: Sequence[ast.AST]) -> bool:
        """Whether all that these parts read stays."""
        if is_hidden(self.source):
            return False
        return all(self._part(node) for part in parts for node in self._walk(part))

    def _walk(self, part: ast.AST) -> list[ast.AST]:
        """The nodes of a part, without the sizes that it asks for."""
        found, waiting = [], [part]
        while waiting:
            node = waiting.pop()
            if (isinstance(node, ast.Attribute) and node.attr in SIZES) or self.source.is_length(node):
                continue
            found.append(node)
            waiting += ast.iter_child_nodes(node)
        self._asked += len(found)
        if self._asked > MAX_ASKED:
            raise TooTangled
        return found

    def _part(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return not isinstance(node.ctx, ast.Load) or self._name(node)
        if isinstance(node, ast.Attribute):
            return isinstance(self.tree.parents.get(node), ast.Call) or self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        return not isinstance(node, ast.Await | ast.Yield | ast.YieldFrom)

    def _name(self, name: ast.Name) -> bool:  # noqa: PLR0911 - one answer for each kind of name
        source, definitions = self.source, self.source.definitions(name)
        if name.id in self._remade:
            return False
        if not definitions:
            known = source.modules | needless.BUILTINS | source.functions.keys() | source.classes.keys() | source.given
            return name.id in known or (name.id in source.foreign and isinstance(self.tree.parents.get(name), ast.Attribute))
        key = source.scope_of(definitions[0].node), name.id
        if key in self._seen or name.id in ("self", "cls") or all(isinstance(one.node, ast.comprehension) for one in definitions):
            return True  # what a comprehension goes through, and attributes, are looked at by themselves
        self._seen.add(key)
        if any(isinstance(one.node, ast.AugAssign) or _may_end_early(one.node) for one in definitions):
            return False
        values = [one.value for one in definitions if one.value is not None]
        if self._is_made_here(definitions):
            return all(self._part(node) for value in values for node in self._walk(value))
        if any(isinstance(value, ast.Call) and called(value) in source.classes for value in values) and not isinstance(
            self.tree.parents.get(name), ast.Attribute
        ):
            return False  # its class says what an operator or an index does
        if len(values) == len(definitions) == 1 and all(isinstance(part, _FIXED) for value in values for part in ast.walk(value)):
            return True  # nobody can change a number
        before, self._once = self._once, all(self._runs_once(one) for one in definitions)
        stay = all(self._value(value) for value in values)
        self._once = before
        return stay and self._is_only_read(name)

    def _runs_once(self, one: Definition) -> bool:
        """Whether a name gets its value before the loop, or at the top level outside of any."""
        scope = self.source.scope_of(one.node)
        if isinstance(one.node, ast.For | ast.AsyncFor | ast.comprehension):
            return False
        if self._loop is not None and scope is self._home:
            return not self.source.is_in(one.node, self._loop)
        return scope is self.tree.module and self.source.loop_of(one.node) is None

    def _is_made_here(self, definitions: Sequence[Definition]) -> bool:
        """Whether a name is made in each step, in the function of the statement: what it is made of, and what is put in, is followed."""
        if self._loop is None and self._home is self.tree.module:
            return False
        return all(
            isinstance(one.node, ast.Assign | ast.AnnAssign)
            and not isinstance(one.value, ast.Name | ast.Attribute | ast.Subscript)
            and self.source.scope_of(one.node) is self._home
            and (self._loop is None or self.source.is_in(one.node, self._loop))
            for one in definitions
        )

    def _value(self, value: ast.expr) -> bool:
        """Whether what a name is given stays, too, if it may be a part of it."""
        if not self.source.trains and self.source.makes_layer(value):
            return True
        if isinstance(value, ast.GeneratorExp) or (isinstance(value, ast.Call) and self._passes(value)):
            return False
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and self.source.is_model(value.func):
            return all(self._part(node) for part in value.args for node in self._walk(part))
        nodes = self._walk(value)
        if any(self._is_learned(node) for node in nodes):
            return False
        return all(self._part(node) for node in nodes)

    def _passes(self, call: ast.Call) -> bool:
        """Whether what a call gives is used up, is written by others, or is an object of a class that may keep a state."""
        name = called(call)
        if _PASSES.match(name) or (name[:1].isupper() and name not in self.source.classes):
            return True
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for function in self._named.get(name, ()) for node in self._walk(function))

    def _is_learned(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr in OF_WEIGHTS or node.attr in ("weight", "bias", "requires_grad_", "grad")
        if isinstance(node, ast.keyword):
            return node.arg == "requires_grad" and not (isinstance(node.value, ast.Constant) and not node.value.value)
        if not isinstance(node, ast.Call):
            return False
        if self.source.makes_layer(node):
            return True
        bodies = (self._walk(function) for function in self._named.get(called(node), ()))
        given = [part.value for body in bodies for part in body if isinstance(part, ast.Return) and part.value is not None]
        return any(self._is_learned(part) for value in given for part in self._walk(value))

    def _attribute(self, read: ast.Attribute) -> bool:
        """An attribute stays where only constructors give it a value, and where it is no method that computes it."""
        source, key = self.source, f".{read.attr}"
        if any((maker := self.tree.function_of(node)) is None or maker.name not in MAKERS for node in source.changed(key)):
            return False
        root = root_of(read)
        if isinstance(root, ast.Name) and root.id in source.foreign and not source.definitions(root):
            return False
        if not all(self._function(function) for name in (read.attr, *_COMPUTED) for function in self._named.get(name, ())):
            return False
        if not isinstance(root, ast.Name) or root.id != "self" or key in self._seen:
            return True
        self._seen.add(key)
        return all(self.is_read(other) for other in self._reads[read.attr] if isinstance(other.ctx, ast.Load))

    def _call(self, call: ast.Call) -> bool:
        name = called(call)
        if name in self._named:
            return all(self._function(function) for function in self._named[name])
        root = root_of(call.func)
        outside = isinstance(root, ast.Name) and root.id in self.source.foreign and not self.source.definitions(root)
        if _DRAWS.search(name) or RANDOM.search(name) or (isinstance(call.func, ast.Attribute) and "random" in ast.unparse(call.func)):
            return self._once and (not outside or ast.unparse(root) == "random")
        return not outside

    def _function(self, function: Function) -> bool:
        """Whether what a function of the file reads besides its arguments stays."""
        if (function, self._once) in self._seen:
            return True
        self._seen.add((function, self._once))
        for node in (part for statement in function.body for part in self._walk(statement)):
            local = isinstance(node, ast.Name) and (function, node.id) in self.source.by_scope
            if not local and not self._part(node):
                return False
        return True

    def _is_only_read(self, name: ast.Name) -> bool:
        """Whether each use of a name in its file is known to read what it names."""
        definitions = self.source.definitions(name)
        uses = [use for use in self._loads[name.id] if self.source.definitions(use) is definitions]
        return all(self.is_read(use) for use in uses)

    def is_read(self, node: ast.AST) -> bool:  # noqa: PLR0911 - one answer for each place that a value may stand in
        """Whether what stands here is only read, by whatever name and function it is handed on to."""
        self._asked += 1
        if self._asked > MAX_ASKED:
            raise TooTangled
        parent = self.tree.parents.get(node)
        if isinstance(parent, ast.Attribute):
            return self._is_read_attribute(parent)
        if isinstance(parent, ast.Subscript):
            return node is parent.slice or (isinstance(parent.ctx, ast.Load) and self.is_read(parent))
        if isinstance(parent, ast.Call):
            if node is parent.func:
                return isinstance(node, ast.Name) and (not self.source.definitions(node) or self.source.is_model(node))
            return self._is_read_argument(parent, node)
        if isinstance(parent, _HANDS_ON):
            return (isinstance(parent, ast.IfExp) and node is parent.test) or self.is_read(parent)
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr | ast.For | ast.comprehension):
            return self._is_read_alias(parent)
        if isinstance(parent, ast.AugAssign):
            return True
        return isinstance(parent, _READING)

    def _is_read_attribute(self, parent: ast.Attribute) -> bool:  # noqa: PLR0911 - one answer for each kind of attribute
        if parent.attr in SIZES:
            return True
        if not isinstance(parent.ctx, ast.Load):
            return False
        call = self.tree.parents.get(parent)
        if not isinstance(call, ast.Call) or call.func is not parent:
            return not needless.changes(parent.attr) and self.is_read(parent)
        if parent.attr in self._named:
            return self.source.only_reads(parent.attr) and self.is_read(call)
        if needless.changes(parent.attr) and not needless.is_pure(parent.attr):
            return False
        if isinstance(self.tree.parents.get(call), ast.Expr):
            return needless.is_pure(parent.attr)
        return self.is_read(call) if shares(call) else True

    def _is_read_argument(self, call: ast.Call, argument: ast.AST) -> bool:  # noqa: PLR0911 - one answer for each kind of function
        """Whether a call only reads an argument: an expression, a keyword, or one with a star."""
        source, func, name = self.source, call.func, called(call)
        if needless.reports(name) or (isinstance(func, ast.Name) and source.is_model(func)):
            return True
        if name in self._named:
            return all(self._leaves(function, call, argument) for function in self._named[name])
        if isinstance(func, ast.Name) and name in source.classes:
            makers = [part for part in source.classes[name].body if isinstance(part, Function) and part.name in MAKERS]
            return bool(makers) and all(self._leaves(maker, call, argument) for maker in makers)
        is_builtin = isinstance(func, ast.Name) and name in needless.BUILTINS and not source.definitions(func)
        if not is_builtin and (
            name[:1].isupper()
            or needless.changes(name)
            or any(word.arg in ("out", None) for word in call.keywords)
            or isinstance(self.tree.parents.get(call), ast.Expr)
        ):
            return False
        root = root_of(func)
        if is_builtin or (isinstance(root, ast.Name) and root.id in source.modules and not source.definitions(root)):
            return self.is_read(call) if shares(call) else True
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self":
            return self._is_layer(func)
        return needless.is_pure(name) or any(some.match(name) for some in (COMBINES, _NUMBERS))

    def _is_layer(self, read: ast.Attribute) -> bool:
        """Whether an attribute of the object is a layer."""
        stores = (self.tree.statement_of(other) for other in self._reads[read.attr] if isinstance(other.ctx, ast.Store))
        made = [part for one in stores if isinstance(one, ast.Assign) for part in ast.walk(one.value) if isinstance(part, ast.Call)]
        return any(self.source.makes_layer(part) for part in made)

    def _leaves(self, function: Function, call: ast.Call, argument: ast.AST) -> bool:
        """Whether a function of the file only reads an argument; each of them where it is not known which one it is."""
        arguments = function.args
        if arguments.vararg or arguments.kwarg:
            return False
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        if isinstance(argument, ast.keyword):
            names = [name for name in names if name == argument.arg]
        elif isinstance(call.func, ast.Name) and not any(isinstance(one, ast.Starred) for one in call.args):
            names = names[call.args.index(argument) :][:1]  # type: ignore[arg-type]
        return all(self._is_read_local(function, name) for name in names)

    def _is_read_local(self, scope: ast.AST, name: str) -> bool:
        """Whether what a name of a function is given is only read by it; the name may get another value."""
        if (scope, name) in self._read:
            return True
        self._read.add((scope, name))
        several = self.source.by_scope.get((scope, name), ())
        if any(isinstance(one.node, ast.AugAssign) for one in several):
            return False
        return all(self.is_read(use) for use in self._loads[name] if self.source.definitions(use) is several)

    def _is_read_alias(self, statement: ast.AST) -> bool:
        """Whether the names that a value is handed to only read it."""
        targets: Sequence[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(part, ast.Attribute) and self._is_kept(part):
                    continue
                if not isinstance(part, ast.Name):
                    return False
                if not self._is_read_local(self.source.scope_of(part), part.id):
                    return False
        return True

    def _is_kept(self, target: ast.Attribute) -> bool:
        """Whether an object only reads what its constructor keeps, wherever the attribute is named."""
        key = f".{target.attr}"
        if (self.tree.module, key) in self._read:
            return True
        self._read.add((self.tree.module, key))
        makers = [self.tree.function_of(node) for node in self.source.changed(key)]
        if any(maker is None or maker.name not in MAKERS for maker in makers):
            return False
        return all(self.is_read(other) for other in self._reads[target.attr] if isinstance(other.ctx, ast.Load))
