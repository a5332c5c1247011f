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

import ast
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sysperf.evaluate import functions
from sysperf.evaluate.functions import Unknown, unknown_of
from sysperf.evaluate.schema import Schema, element, is_record, kind, suggest
from sysperf.model.errors import RuleError
from sysperf.startup import lazy

MAX_LENGTH = 2_000
MAX_STEPS = 100_000
MAX_DEPTH = 40
_GROUP_OPTION = lazy(r"\(\?")


class Touched(NamedTuple):
    """A fact that was looked at: its value, and what it is read from."""

    value: Any
    reads: tuple[str, ...]


class Scope:
    """What the names mean while a condition is evaluated, and what it touched."""

    __slots__ = ("names", "steps", "tables", "touched")

    def __init__(self, names: dict[str, Any], tables: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.names = names
        self.tables = tables or {}
        self.touched: dict[str, Touched] | None = {}
        """The facts that were looked at, by their path; None while nobody keeps a record."""
        self.steps = 0

    def restart(self) -> None:
        """Begin with another subject: a new budget, and no record of what is touched."""
        self.touched, self.steps = None, 0

    def record(self) -> None:
        """Begin anew, and keep what is touched."""
        self.touched, self.steps = {}, 0

    def spend(self, steps: int = 1) -> None:
        """Count steps of a loop. Raises RuleError past the budget."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise RuleError(f"the condition takes more than {MAX_STEPS} steps")


Node = Callable[[Scope], Any]


class Expression:
    """A checked expression: call it with a scope."""

    __slots__ = ("names", "run", "text", "type")

    def __init__(self, text: str, run: Node, annotation: Any, names: frozenset[str]) -> None:
        self.text = text
        self.names = names
        """The areas, lists and items that it looks at, without those that a comprehension binds."""
        self.run = run
        self.type = annotation

    def __call__(self, scope: Scope) -> Any:
        return self.run(scope)


def parse(text: str) -> ast.expr:
    """The syntax tree of an expression. Raises RuleError on anything that is not one."""
    if len(text) > MAX_LENGTH:
        raise RuleError(f"the expression is longer than {MAX_LENGTH} characters")
    if "\\" in text:
        raise RuleError(f"`{text[:80]}` has a backslash", "in a pattern write [.] for a dot and [0-9] for a digit")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what Python only warns about is no expression of ours
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RuleError(f"`{text[:80]}` is no expression: {getattr(error, 'msg', error)}") from None


def compile_expression(text: str, schema: Schema, params: Mapping[str, Any] | None = None) -> Expression:
    """Check and compile an expression. Raises RuleError that says which name or construct is wrong.

    `params` are the values of ``p.NAME``; they are constants.
    """
    tree = parse(text)
    run, annotation = _Compiler(schema, params or {}).visit(tree, 0)
    return Expression(text, run, annotation, frozenset(_free_names(tree, frozenset("p"))))


def names_in(text: str) -> frozenset[str]:
    """The areas, lists and items that an expression looks at, from its syntax alone: nothing is checked or compiled.

    The agent asks this of every rule, and most rules never need their condition. Raises RuleError when it is no expression.
    """
    return frozenset(_free_names(parse(text), frozenset("p")))


def _free_names(node: ast.AST, bound: frozenset[str]) -> Iterator[str]:
    """The names that stand for facts: no functions, and none that are bound, as `p` and what a comprehension binds."""
    if isinstance(node, ast.Name):
        if node.id not in bound:
            yield node.id
        return
    children: Iterable[ast.AST] = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        yield from (name for loop in node.generators for name in _free_names(loop.iter, bound))
        bound |= {loop.target.id for loop in node.generators if isinstance(loop.target, ast.Name)}
        children = (node.elt, *(test for loop in node.generators for test in loop.ifs))
    for child in children:
        yield from _free_names(child, bound)


class _Compiler:
    """One method a kind of syntax node; each returns the closure and the type of its value."""

    def __init__(self, schema: Schema, params: Mapping[str, Any]) -> None:
        self._schema = schema
        self._params = params
        self._loops = 0

    def visit(self, node: ast.expr, depth: int) -> tuple[Node, Any]:
        if depth > MAX_DEPTH:
            raise RuleError("the expression is nested too deeply")
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise RuleError(f"`{ast.unparse(node)[:60]}`: {type(node).__name__} is not part of the condition language")
        compiled: tuple[Node, Any] = method(node, depth + 1)
        return compiled

    # ---------------------------------------------------------------- values

    def _constant(self, node: ast.Constant, _depth: int) -> tuple[Node, Any]:
        value = node.value
        if not isinstance(value, bool | int | float | str):
            raise RuleError(f"`{value!r}` is no number, text or truth value")
        _small(value)
        return lambda _: value, type(value)

    def _name(self, node: ast.Name, depth: int) -> tuple[Node, Any]:
        return self._chain(node, depth)

    def _attribute(self, node: ast.Attribute, depth: int) -> tuple[Node, Any]:
        return self._chain(node, depth)

    def _subscript(self, node: ast.Subscript, depth: int) -> tuple[Node, Any]:
        return self._chain(node, depth)

    def _chain(self, node: ast.expr, _depth: int) -> tuple[Node, Any]:
        root, steps = unchain(node)
        if root == "p":
            return self._parameter(steps)
        annotation, path = self._schema.root(root), root
        reads = self._schema.reads.get(root, ())
        for step in steps:
            if isinstance(step, int):
                annotation, path = element(annotation), f"{path}[{step}]"
                continue
            field = self._schema.step(annotation, step, path)
            annotation, reads, path = field.type, field.reads or reads, f"{path}.{step}"
        return _getter(
            root, tuple(steps), path, reads, is_text_mapping(self._schema, root, steps), bool(steps) and not is_record(annotation)
        ), annotation

    def _parameter(self, steps: list[str | int]) -> tuple[Node, Any]:
        name = str(steps[0]) if len(steps) == 1 else ""
        if name not in self._params:
            raise RuleError(f"`p.{name}` is no parameter of this rule{suggest(name, self._params, 'p')}")
        value = self._params[name]
        _small(value)
        if isinstance(value, list):
            value = tuple(value)
        return lambda _: value, type(value)

    def _list(self, node: ast.List, depth: int) -> tuple[Node, Any]:
        parts = [self.visit(item, depth)[0] for item in node.elts]
        return lambda scope: tuple([part(scope) for part in parts]), Any

    def _tuple(self, node: ast.Tuple, depth: int) -> tuple[Node, Any]:
        return self._list(ast.List(node.elts), depth)

    # ---------------------------------------------------------------- logic

    def _boolop(self, node: ast.BoolOp, depth: int) -> tuple[Node, Any]:
        parts = [self._truth(value, depth) for value in node.values]
        decisive = isinstance(node.op, ast.Or)

        def run(scope: Scope) -> Any:
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
            raise RuleError(f"`{ast.unparse(node)[:60]}` is {kind(annotation)}, not true or false: compare it with something")
        return run

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> tuple[Node, Any]:
        if isinstance(node.op, ast.Not):
            inner = self._truth(node.operand, depth)
            return lambda scope: value if isinstance(value := inner(scope), Unknown) else not value, bool
        if isinstance(node.op, ast.USub):
            number = self._number(node.operand, depth)
            return lambda scope: value if isinstance(value := number(scope), Unknown) else -value, float
        raise RuleError(f"`{ast.unparse(node)[:60]}`: this operator is not part of the condition language")

    def _ifexp(self, node: ast.IfExp, depth: int) -> tuple[Node, Any]:
        test = self._truth(node.test, depth)
        (then, annotation), (other, _) = self.visit(node.body, depth), self.visit(node.orelse, depth)

        def run(scope: Scope) -> Any:
            value = test(scope)
            return value if isinstance(value, Unknown) else then(scope) if value else other(scope)

        return run, annotation

    # ---------------------------------------------------------------- numbers and comparisons

    def _number(self, node: ast.expr, depth: int) -> Node:
        run, annotation = self.visit(node, depth)
        if kind(annotation) not in ("number", "any"):
            raise RuleError(f"`{ast.unparse(node)[:60]}` is {kind(annotation)}, not a number")
        return run

    def _binop(self, node: ast.BinOp, depth: int) -> tuple[Node, Any]:
        operator = functions.ARITHMETIC.get(type(node.op))
        if operator is None:
            raise RuleError(f"`{ast.unparse(node)[:60]}`: this operator is not part of the condition language")
        left, right = self._number(node.left, depth), self._number(node.right, depth)

        def run(scope: Scope) -> Any:
            one, two = left(scope), right(scope)
            doubt = unknown_of(one, two)
            return doubt if doubt is not None else operator(one, two)

        return run, float

    def _compare(self, node: ast.Compare, depth: int) -> tuple[Node, Any]:
        operands = [self.visit(operand, depth) for operand in (node.left, *node.comparators)]
        tests = [functions.COMPARISONS.get(type(op)) for op in node.ops]
        for index, (op, test) in enumerate(zip(node.ops, tests, strict=True)):
            if test is None:
                raise RuleError(f"`{ast.unparse(node)[:60]}`: use == and != instead of `is`")
            _comparable(node, op, operands[index][1], operands[index + 1][1])
        runs = [run for run, _ in operands]
        if len(tests) == 1:
            return _comparison(runs[0], runs[1], tests[0]), bool

        def run(scope: Scope) -> Any:
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

    # ---------------------------------------------------------------- loops and calls

    def _generatorexp(self, node: ast.GeneratorExp | ast.ListComp, depth: int) -> tuple[Node, Any]:
        self._loops += 1
        if len(node.generators) != 1 or self._loops > 2:
            raise RuleError("a comprehension has one `for`, and at most one other comprehension in it")
        (loop,) = node.generators
        if not isinstance(loop.target, ast.Name) or loop.is_async:
            raise RuleError("a comprehension binds one plain name")
        source, annotation = self.visit(loop.iter, depth)
        name, outer = loop.target.id, self._schema
        _plain_name(name)
        self._schema = outer.bind(name, element(annotation))
        keep = [self._truth(test, depth) for test in loop.ifs]
        value, value_type = self.visit(node.elt, depth)
        self._schema, self._loops = outer, self._loops - 1

        def run(scope: Scope) -> Any:
            items = source(scope)
            return items if isinstance(items, Unknown) else functions.each(scope, items, name, keep, value)

        return run, tuple[value_type, ...]  # type: ignore[valid-type]

    def _listcomp(self, node: ast.ListComp, depth: int) -> tuple[Node, Any]:
        run, annotation = self._generatorexp(node, depth)
        return lambda scope: _listed(run(scope)), annotation

    def _call(self, node: ast.Call, depth: int) -> tuple[Node, Any]:
        if not isinstance(node.func, ast.Name) or node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            raise RuleError(f"`{ast.unparse(node)[:60]}`: only the listed functions can be called, with plain arguments")
        name = node.func.id
        if name not in functions.FUNCTIONS:
            raise RuleError(f"`{name}` is no function of the condition language{suggest(name, functions.FUNCTIONS)}")
        function, low, high, result = functions.FUNCTIONS[name]
        if not low <= len(node.args) <= high:
            raise RuleError(f"`{name}` takes {low if low == high else f'{low} to {high}'} arguments")
        if name == "matches":
            _regex(node.args[1])
        compiled = [self.visit(arg, depth) for arg in node.args]
        lazy = name in ("any", "all")
        arguments = [
            run if lazy or not isinstance(arg, ast.GeneratorExp) else _exhausted(run)
            for arg, (run, _) in zip(node.args, compiled, strict=True)
        ]
        return lambda scope: function(scope, *[argument(scope) for argument in arguments]), compiled[0][1] if result is None else result


def _comparison(left: Node, right: Node, test: Any) -> Node:
    """One comparison, as most are."""

    def run(scope: Scope) -> Any:
        one, two = left(scope), right(scope)
        if one.__class__ is Unknown or two.__class__ is Unknown:
            return unknown_of(one, two)
        return test(scope, one, two)

    return run


def _small(value: Any) -> None:
    """Refuse a number that no fact can have: Python would take long to write it, or refuse to."""
    if isinstance(value, int) and abs(value) >> 64:
        raise RuleError("a whole number has more than 64 bits")


def _listed(values: Any) -> Any:
    return values if isinstance(values, Unknown) else tuple(values)


def _exhausted(run: Node) -> Node:
    return lambda scope: _listed(run(scope))


def unchain(node: ast.expr) -> tuple[str, list[str | int]]:
    """``a.b['x'][0].c`` as its root name and its steps. Raises RuleError when it is anything else."""
    steps: list[str | int] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            _plain_name(node.attr)
            steps.append(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str | int):
            if isinstance(node.slice.value, str):
                _plain_name(node.slice.value)
            steps.append(node.slice.value)
        else:
            raise RuleError(f"`{ast.unparse(node)[:60]}`: facts are reached by names, dots and constant subscripts only")
        node = node.value
    _plain_name(node.id)
    return node.id, steps[::-1]


def is_text_mapping(schema: Schema, root: str, steps: list[str | int]) -> bool:
    """Whether the last step looks a key up in a mapping of text, where what is not set is empty."""
    annotation, path = schema.root(root), root
    for step in steps[:-1]:
        annotation = element(annotation) if isinstance(step, int) else schema.step(annotation, step, path).type
        path = f"{path}.{step}"
    return kind(annotation) == "mapping" and element(annotation) is str


def _plain_name(name: str) -> None:
    if name.startswith("_"):
        raise RuleError(f"`{name}`: names that begin with _ are not part of the condition language")


@functools.cache  # the same facts are named by many rules, and a long-lived agent keeps them all
def _getter(root: str, steps: tuple[str | int, ...], path: str, reads: tuple[str, ...], absent_is_empty: bool, evident: bool) -> Node:
    if evident and not absent_is_empty and len(steps) == 1 and isinstance(steps[0], str):
        return _field_getter(root, steps[0], path, reads)

    def run(scope: Scope) -> Any:
        value = scope.names.get(root)
        for step in steps:
            if value is None:
                break
            if isinstance(step, int):
                value = value[step] if step < len(value) else None
            elif isinstance(value, dict):
                value = value.get(step, "" if absent_is_empty else None)
            else:
                value = getattr(value, step, None)
        if value is None:
            return Unknown({path: ""}, {path: reads})
        if evident and scope.touched is not None:
            scope.touched[path] = Touched(value, reads)
        return value

    return run


def _field_getter(root: str, field: str, path: str, reads: tuple[str, ...]) -> Node:
    """The same for a field of an area or item, which most facts are, without a loop."""
    unknown = Unknown({path: ""}, {path: reads})

    def run(scope: Scope) -> Any:
        found = scope.names.get(root)
        value = found.get(field) if isinstance(found, dict) else getattr(found, field, None)
        if value is None:
            return unknown
        if scope.touched is not None:
            scope.touched[path] = Touched(value, reads)
        return value

    return run


_ORDERED = {"number", "version", "text", "any"}


def _comparable(node: ast.Compare, op: ast.cmpop, left: Any, right: Any) -> None:
    one, two = kind(left), kind(right)
    if isinstance(op, ast.In | ast.NotIn):
        if two in ("number", "truth", "version", "record"):
            raise RuleError(f"`{ast.unparse(node)[:60]}`: nothing can be in a {two}")
        return
    if "any" in (one, two):
        return
    mixed = one != two
    unordered = not isinstance(op, ast.Eq | ast.NotEq) and one not in _ORDERED
    if mixed or unordered:
        raise RuleError(f"`{ast.unparse(node)[:60]}` compares {one} with {two}")


def _regex(node: ast.expr) -> None:
    """A pattern is a constant whose time is bounded: no groups repeated that repeat or choose inside, no look-around."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        raise RuleError("the pattern of `matches` must be a constant text")
    pattern = node.value
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise RuleError(f"`{pattern[:60]}` is no regular expression: {error}") from None
    bare = re.sub(r"\[\^?\]?[^\]]*\]", "x", pattern)
    if _GROUP_OPTION.search(pattern.replace("(?:", "(").replace("(?i)", "")):
        raise RuleError(f"`{pattern[:60]}`: look-around and group options are not part of the condition language")
    if len(re.findall(r"[*+]|\{\d*,\d*\}", bare)) > 2 or _repeats_a_group(bare):
        raise RuleError(f"`{pattern[:60]}` could take too long: at most two repetitions, and none of a group that repeats or chooses")


def _repeats_a_group(bare: str) -> bool:
    inside: list[bool] = []
    for index, char in enumerate(bare):
        if char == "(":
            inside.append(False)
        elif char in "*+?{|" and inside:
            inside[-1] = True
        elif char == ")" and inside:
            risky = inside.pop()
            if risky and bare[index + 1 : index + 2] in ("*", "+", "{"):
                return True
            if inside and risky:
                inside[-1] = True
    return False
