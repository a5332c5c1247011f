"""The condition language: a Python-like subset, checked against the facts' schema, evaluated with three-valued logic.

A condition is parsed once, checked node by node and turned into closures. Evaluating it gives a value or `Unknown`,
which names the facts that nobody knows; every fact that was touched is kept as evidence.

Logic       Kleene's strong three-valued logic: False and Unknown is False, True or Unknown is True; `any` and `all` alike.
Unknown     An operator or function with an unknown operand is unknown, but for `known`, `default`, and comparisons of lists that
            differ in length or in a known element. A function that fails on its arguments, or a comparison of two values that
            have no order, is unknown too, with the reason.
Lists       Literals, comprehensions and facts are the same kind of value: equal when their elements are.
Budget      Each turn of a loop is a step, and so are sixteen elements that a function or `in` goes through. A condition that takes
            more than MAX_STEPS is given up, and its rule is unknown.
"""

from __future__ import annotations

import _ast as ast  # its syntax nodes alone: `ast` itself costs 1.5 ms
from collections.abc import Mapping
from functools import cache, lru_cache

from sysperf.evaluate import functions
from sysperf.evaluate.functions import Unknown, unknown_of
from sysperf.evaluate.getters import getter
from sysperf.evaluate.operators import as_list, check_comparable, check_size, comparison, exhausted
from sysperf.evaluate.pattern import check_pattern
from sysperf.evaluate.schema import ANYTHING, Schema, element, is_record, kind, suggest
from sysperf.evaluate.scope import Node, Scope, Value
from sysperf.evaluate.syntax import check_name, parse, unchain, written
from sysperf.model.errors import RuleError
from sysperf.model.record import TypeForm

MAX_DEPTH = 40
Typed = tuple[Node, TypeForm]
"""A closure, and the type of its value."""


class Expression:
    """A checked expression: call it with a scope."""

    __slots__ = ("names", "run", "text", "type")

    def __init__(self, text: str, run: Node, annotation: TypeForm, names: frozenset[str]) -> None:
        self.text = text
        self.names = names
        """The areas, lists and items that it looks at, without those that a comprehension binds."""
        self.run = run
        self.type = annotation

    def __call__(self, scope: Scope) -> Value:
        return self.run(scope)


def compile_expression(text: str, schema: Schema, params: Mapping[str, Value] | None = None) -> Expression:
    """Check and compile an expression. Raises RuleError that says which name or construct is wrong.

    `params` are the values of ``p.NAME``; they are constants.
    """
    compiler = _Compiler(schema, params or {})
    run, annotation = compiler.visit(parse(text), 0)
    return Expression(text, run, annotation, _shared(frozenset(compiler.names)))


@cache  # most conditions look at what others look at, too, and a long-lived agent keeps them all
def _shared(names: frozenset[str]) -> frozenset[str]:
    """Return the one set of these names."""
    return names


@lru_cache(maxsize=None, typed=True)  # as above; False is not 0
def _constant(value: Value) -> Node:
    """Return the one closure of a number, text or truth value."""
    return lambda _: value


class _Compiler:
    """One method a kind of syntax node; each returns the closure and the type of its value."""

    def __init__(self, schema: Schema, params: Mapping[str, Value]) -> None:
        self._schema = schema
        self._params = params
        self._loops = 0
        self._bound: tuple[str, ...] = ()
        """What the comprehensions around the current node bind."""
        self.names: set[str] = set()
        """The names of facts that were met, as `names_in` finds them in the syntax."""

    def visit(self, node: ast.expr, depth: int) -> Typed:
        if depth > MAX_DEPTH:
            raise RuleError("the expression is nested too deeply")
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise RuleError(f"`{written(node)[:60]}`: {type(node).__name__} is not part of the condition language")
        compiled: Typed = method(node, depth + 1)
        return compiled

    def _constant(self, node: ast.Constant, _depth: int) -> Typed:
        value = node.value
        if not isinstance(value, bool | int | float | str):
            raise RuleError(f"`{value!r}` is no number, text or truth value")
        check_size(value)
        return _constant(value), type(value)

    def _name(self, node: ast.Name, depth: int) -> Typed:
        return self._chain(node, depth)

    def _attribute(self, node: ast.Attribute, depth: int) -> Typed:
        return self._chain(node, depth)

    def _subscript(self, node: ast.Subscript, depth: int) -> Typed:
        return self._chain(node, depth)

    def _chain(self, node: ast.expr, _depth: int) -> Typed:
        root, steps = unchain(node)
        if root == "p":
            return self._parameter(steps)
        if root not in self._bound:
            self.names.add(root)
        fact = self._schema.fact(root, tuple(steps))
        return getter(root, tuple(steps), fact.path, fact.reads, fact.absent_is_empty, bool(steps) and not is_record(fact.type)), fact.type

    def _parameter(self, steps: list[str | int]) -> Typed:
        name = str(steps[0]) if len(steps) == 1 else ""
        if name not in self._params:
            raise RuleError(f"`p.{name}` is no parameter of this rule{suggest(name, self._params, 'p.')}")
        value = self._params[name]
        check_size(value)
        if isinstance(value, list):
            value = tuple(value)
        return _constant(value) if isinstance(value, bool | int | float | str) else lambda _: value, type(value)

    def _list(self, node: ast.List, depth: int) -> Typed:
        parts = [self.visit(item, depth)[0] for item in node.elts]
        return lambda scope: tuple([part(scope) for part in parts]), ANYTHING

    def _tuple(self, node: ast.Tuple, depth: int) -> Typed:
        return self._list(ast.List(node.elts), depth)

    def _boolop(self, node: ast.BoolOp, depth: int) -> Typed:
        parts = [self._truth(value, depth) for value in node.values]
        decisive = isinstance(node.op, ast.Or)

        def run(scope: Scope) -> Value:
            doubt: Unknown | None = None
            for part in parts:
                value = part(scope)
                if isinstance(value, Unknown):
                    doubt = value if doubt is None else doubt + value
                elif bool(value) is decisive:
                    return decisive
            return doubt if doubt is not None else not decisive

        return run, bool

    def _truth(self, node: ast.expr, depth: int) -> Node:
        run, annotation = self.visit(node, depth)
        if is_record(annotation) or kind(annotation) in ("text", "version"):
            raise RuleError(f"`{written(node)[:60]}` is {kind(annotation)}, not true or false: compare it with something")
        return run

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> Typed:
        if isinstance(node.op, ast.Not):
            inner = self._truth(node.operand, depth)
            return lambda scope: value if isinstance(value := inner(scope), Unknown) else not value, bool
        if isinstance(node.op, ast.USub):
            number = self._number(node.operand, depth)
            return lambda scope: value if isinstance(value := number(scope), Unknown) else -value, float
        raise RuleError(f"`{written(node)[:60]}`: this operator is not part of the condition language")

    def _ifexp(self, node: ast.IfExp, depth: int) -> Typed:
        test = self._truth(node.test, depth)
        (then, annotation), (other, _) = self.visit(node.body, depth), self.visit(node.orelse, depth)

        def run(scope: Scope) -> Value:
            value = test(scope)
            return value if isinstance(value, Unknown) else then(scope) if value else other(scope)

        return run, annotation

    def _number(self, node: ast.expr, depth: int) -> Node:
        run, annotation = self.visit(node, depth)
        if kind(annotation) not in ("number", "any"):
            raise RuleError(f"`{written(node)[:60]}` is {kind(annotation)}, not a number")
        return run

    def _binop(self, node: ast.BinOp, depth: int) -> Typed:
        operator = functions.ARITHMETIC.get(type(node.op))
        if operator is None:
            raise RuleError(f"`{written(node)[:60]}`: this operator is not part of the condition language")
        left, right = self._number(node.left, depth), self._number(node.right, depth)

        def run(scope: Scope) -> Value:
            first, second = left(scope), right(scope)
            doubt = unknown_of(first, second)
            return doubt if doubt is not None else operator(first, second)

        return run, float

    def _compare(self, node: ast.Compare, depth: int) -> Typed:
        operands = [self.visit(operand, depth) for operand in (node.left, *node.comparators)]
        tests = [functions.COMPARISONS.get(type(op)) for op in node.ops]
        for index, (op, test) in enumerate(zip(node.ops, tests, strict=True)):
            if test is None:
                raise RuleError(f"`{written(node)[:60]}`: use == and != instead of `is`")
            check_comparable(node, op, operands[index][1], operands[index + 1][1])
        runs = [run for run, _ in operands]
        if len(tests) == 1:
            return comparison(runs[0], runs[1], tests[0]), bool

        def run(scope: Scope) -> Value:
            doubt: Unknown | None = None
            left = runs[0](scope)
            for index, test in enumerate(tests, 1):
                right = runs[index](scope)
                answer = unknown_of(left, right)
                if answer is None:
                    answer = test(scope, left, right)  # type: ignore[misc]  # refused above when None
                if isinstance(answer, Unknown):
                    doubt = answer if doubt is None else doubt + answer
                elif not answer:
                    return False
                left = right
            return doubt if doubt is not None else True

        return run, bool

    def _generatorexp(self, node: ast.GeneratorExp | ast.ListComp, depth: int) -> Typed:
        self._loops += 1
        if len(node.generators) != 1 or self._loops > 2:
            raise RuleError("a comprehension has one `for`, and at most one other comprehension in it")
        (loop,) = node.generators
        if not isinstance(loop.target, ast.Name) or loop.is_async:
            raise RuleError("a comprehension binds one plain name")
        source, annotation = self.visit(loop.iter, depth)
        name, outer = loop.target.id, self._schema
        check_name(name)
        self._schema, bound = outer.bind(name, element(annotation)), self._bound
        self._bound = (*bound, name)
        keep = [self._truth(test, depth) for test in loop.ifs]
        value, value_type = self.visit(node.elt, depth)
        self._schema, self._bound, self._loops = outer, bound, self._loops - 1

        def run(scope: Scope) -> Value:
            items = source(scope)
            return items if isinstance(items, Unknown) else functions.each(scope, items, name, keep, value)

        return run, tuple[value_type, ...]  # type: ignore[valid-type]

    def _listcomp(self, node: ast.ListComp, depth: int) -> Typed:
        run, annotation = self._generatorexp(node, depth)
        return lambda scope: as_list(run(scope)), annotation

    def _call(self, node: ast.Call, depth: int) -> Typed:
        if not isinstance(node.func, ast.Name) or node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            raise RuleError(f"`{written(node)[:60]}`: only the listed functions can be called, with plain arguments")
        name = node.func.id
        if name not in functions.FUNCTIONS:
            raise RuleError(f"`{name}` is no function of the condition language{suggest(name, functions.FUNCTIONS)}")
        function, low, high, result = functions.FUNCTIONS[name]
        if not low <= len(node.args) <= high:
            raise RuleError(f"`{name}` takes {low if low == high else f'{low} to {high}'} arguments")
        if name == "matches":
            check_pattern(node.args[1])
        compiled = [self.visit(arg, depth) for arg in node.args]
        lazy = name in ("any", "all")
        arguments = [
            run if lazy or not isinstance(arg, ast.GeneratorExp) else exhausted(run)
            for arg, (run, _) in zip(node.args, compiled, strict=True)
        ]
        return lambda scope: function(scope, *[argument(scope) for argument in arguments]), compiled[0][1] if result is None else result
