"""A fast first pass over long lists: native code that finds the items which are not plainly fine.

The condition language is the meaning; this is the same condition as one Python loop over all items. Whatever it cannot
decide at once (an unknown fact, a mixed type, a construct it does not know) it hands on to the judge, who takes the slow
and exact way. So it can only be wrong by being slow; a property test compares the two.

An unknown is an exception here: it leaves the item's turn, and the item goes to the judge. `known` and `default`, and
short-circuits that never reach it, are the only ways past it, as in the exact evaluation.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sysperf.evaluate.expression import Expression, is_text_mapping, parse, unchain
from sysperf.evaluate.functions import MAX_TEXT, _pattern
from sysperf.evaluate.schema import Schema, element, kind
from sysperf.model.cpuset import CpuSet
from sysperf.model.version import Version

SIEVE_FROM = 24
"""Lists shorter than this are judged one by one: compiling costs as much as some twenty slow evaluations."""

Tables = Mapping[str, Mapping[str, Any]]
Sieve = Callable[[Sequence[Any], dict[str, Any], Tables], tuple[list[int], int]]
"""Of (items, names, tables): the indices that the judge must look at, and how many items the rule does not apply to."""


class _HardError(Exception):
    """The condition has a construct that this pass does not translate."""


def compile_sieve(schema: Schema, loop: str, applies: Expression | None, when: Expression, params: Mapping[str, Any]) -> Sieve:
    """Native code for a rule's conditions; for those that cannot be translated, every item goes to the judge."""
    try:
        return _Translator(schema, loop, params).build(applies, when)
    except _HardError:
        return lambda items, _names, _tables: (list(range(len(items))), 0)


def _sure(value: Any) -> Any:
    if value is None:
        raise LookupError
    return value


def _is_known(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except Exception:  # noqa: BLE001 - whatever it is, the exact evaluation calls it unknown
        return False
    return True


def _or_else(ask: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception:  # noqa: BLE001 - whatever it is, the exact evaluation calls it unknown
        return otherwise()


def _count(values: Sequence[Any]) -> int:
    return sum(1 for value in values if value)


_FUNCTIONS: dict[str, tuple[str, Any]] = {
    # name in conditions: (call with {0}, {1}, …, what the name in the call stands for)
    "len": ("len({0})", None),
    "min": ("min({all})", None),
    "max": ("max({all})", None),
    "sum": ("sum({0})", None),
    "abs": ("abs({0})", None),
    "any": ("any({0})", None),
    "all": ("all({0})", None),
    "int": ("int({0})", None),
    "float": ("float({0})", None),
    "lower": ("{0}.lower()", None),
    "startswith": ("{0}.startswith({1})", None),
    "endswith": ("{0}.endswith({1})", None),
    "overlaps": ("(not {0}.isdisjoint({1}))", None),
    "within": ("{0}.issubset({1})", None),
    "ver": ("_ver({0})", Version),
    "major": ("_ver({0}).major", Version),
    "minor": ("_ver({0}).minor", Version),
    "cpus": ("_cpus({0})", CpuSet.parse),
    "count": ("_count({0})", _count),
    "unique": ("_unique({0})", dict.fromkeys),
    "matches": (f"(_pattern({{1}}).search({{0}}[:{MAX_TEXT}]) is not None)", _pattern),
    "known": ("_is_known(lambda: {0})", _is_known),
    "default": ("_or_else(lambda: {0}, lambda: {1})", _or_else),
}
_HELPERS = {
    "_ver": Version,
    "_cpus": CpuSet.parse,
    "_count": _count,
    "_unique": dict.fromkeys,
    "_pattern": _pattern,
    "_is_known": _is_known,
    "_or_else": _or_else,
    "_sure": _sure,
}


class _Translator:
    """One method a kind of syntax node; each returns Python text."""

    def __init__(self, schema: Schema, loop: str, params: Mapping[str, Any]) -> None:
        self._schema = schema
        self._loop = loop
        self._params = params
        self._scope: dict[str, Any] = dict(_HELPERS)
        self._loaded: dict[tuple[str, ...], str] = {}
        self._loads: list[str] = []
        self._machine: list[str] = []
        self._inline = 0
        self._bound: tuple[str, ...] = (loop,)

    def build(self, applies: Expression | None, when: Expression) -> Sieve:
        concerned = self._code(parse(applies.text)) if applies else "True"
        first, self._loads = self._loads, []
        suspect = self._code(parse(when.text))
        lines = [
            "def sieve(items, names, tables):",
            "    found, skipped = [], 0",
            *(f"    {line}" for line in self._machine),
            f"    for index, v_{self._loop} in enumerate(items):",
            "        try:",
            *(f"            {line}" for line in first),
            f"            if not {concerned}:",
            "                skipped += 1",
            "                continue",
            *(f"            {line}" for line in self._loads),
            f"            if {suspect}: found.append(index)",
            "        except Exception: found.append(index)",
            "    return found, skipped",
        ]
        # Every name and attribute in this text was checked by the condition compiler; constants are passed as objects.
        exec(compile("\n".join(lines), "<sieve>", "exec"), self._scope)  # noqa: S102
        function: Sieve = self._scope["sieve"]
        return function

    def _code(self, node: ast.expr) -> str:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise _HardError
        code: str = method(node)
        return code

    def _constant(self, node: ast.Constant) -> str:
        return self._keep(node.value)

    def _keep(self, value: Any) -> str:
        name = f"k{len(self._scope)}"
        self._scope[name] = tuple(value) if isinstance(value, list) else value
        return name

    # ---------------------------------------------------------------- facts

    def _name(self, node: ast.expr) -> str:
        root, steps = unchain(node)
        if root == "p":
            return self._keep(self._params[str(steps[0])])
        key = (root, *map(str, steps))
        if key in self._loaded:
            return self._loaded[key]
        code = self._chain(root, steps)
        if self._inline:  # in a loop of its own, or where an unknown may be no obstacle
            return f"_sure({code})"
        return self._load(root, key, code)

    _attribute = _subscript = _name

    def _chain(self, root: str, steps: list[str | int]) -> str:
        """The fact as Python text; None or an exception when it is unknown."""
        code = f"v_{root}" if root in self._bound else f"names.get({root!r})"
        annotation, path = self._schema.root(root), root
        for step in steps:
            if isinstance(step, int) or (kind(annotation) == "mapping" and not is_text_mapping(self._schema, root, steps)):
                raise _HardError
            if kind(annotation) != "mapping" and not step.isidentifier():
                raise _HardError  # a constant subscript of something else than a mapping: text that must not become code
            if kind(annotation) == "mapping":
                code, annotation = f"{code}.get({step!r}, '')", element(annotation)
            else:
                code, annotation = f"{code}.{step}", self._schema.step(annotation, step, path).type
            path = f"{path}.{step}"
        return code

    def _load(self, root: str, key: tuple[str, ...], code: str) -> str:
        """A local variable with the fact: of the item in each turn, of the machine once."""
        variable = self._loaded[key] = f"f{len(self._loaded)}"
        if root == self._loop:
            self._loads += [f"{variable} = {code}", f"if {variable} is None: raise LookupError"]
        else:
            self._machine += [f"try: {variable} = {code}", f"except AttributeError: {variable} = None"]
            self._loads.append(f"if {variable} is None: raise LookupError")
        return variable

    # ---------------------------------------------------------------- logic and numbers

    def _boolop(self, node: ast.BoolOp) -> str:
        word = " and " if isinstance(node.op, ast.And) else " or "
        return "(" + word.join(self._code(value) for value in node.values) + ")"

    def _unaryop(self, node: ast.UnaryOp) -> str:
        return f"({'not ' if isinstance(node.op, ast.Not) else '-'}{self._code(node.operand)})"

    def _binop(self, node: ast.BinOp) -> str:
        return f"({self._code(node.left)} {_SYMBOLS[type(node.op)]} {self._code(node.right)})"

    def _compare(self, node: ast.Compare) -> str:
        parts = [self._code(node.left)]
        for op, operand in zip(node.ops, node.comparators, strict=True):
            parts += [_SYMBOLS[type(op)], self._code(operand)]
        return f"({' '.join(parts)})"

    def _ifexp(self, node: ast.IfExp) -> str:
        return f"({self._code(node.body)} if {self._code(node.test)} else {self._code(node.orelse)})"

    def _list(self, node: ast.List | ast.Tuple) -> str:
        if all(isinstance(item, ast.Constant) for item in node.elts):
            return self._keep([item.value for item in node.elts if isinstance(item, ast.Constant)])
        return "[" + ", ".join(self._code(item) for item in node.elts) + "]"

    _tuple = _list

    # ---------------------------------------------------------------- loops and calls

    def _generatorexp(self, node: ast.GeneratorExp | ast.ListComp) -> str:
        return f"[{self._loop_over(node)}]"

    _listcomp = _generatorexp

    def _loop_over(self, node: ast.GeneratorExp | ast.ListComp) -> str:
        (loop,) = node.generators
        source, name = self._code(loop.iter), ast.unparse(loop.target)
        schema, bound = self._schema, self._bound
        self._schema, self._bound = schema.bind(name, element(self._type_of(loop.iter))), (*bound, name)
        self._inline += 1
        value, tests = self._code(node.elt), [f" if {self._code(test)}" for test in loop.ifs]
        self._inline -= 1
        self._schema, self._bound = schema, bound
        return f"{value} for v_{name} in {source}{''.join(tests)}"

    def _type_of(self, node: ast.expr) -> Any:
        """The type of a fact; Any of what is computed."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return Any
        root, steps = unchain(node)
        annotation = Any if root == "p" else self._schema.root(root)
        for step in steps if root != "p" else ():
            annotation = self._schema.step(annotation, str(step), root).type
        return annotation

    def _call(self, node: ast.Call) -> str:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "table":
            return self._table(node.args)
        if name not in _FUNCTIONS:
            raise _HardError
        if name in ("any", "all") and isinstance(node.args[0], ast.GeneratorExp):
            return f"{name}({self._loop_over(node.args[0])})"
        lenient = name in ("known", "default")
        self._inline += lenient
        arguments = [self._code(argument) for argument in node.args]
        self._inline -= lenient
        return _FUNCTIONS[name][0].format(*arguments, all=", ".join(arguments))

    def _table(self, arguments: list[ast.expr]) -> str:
        name, key, *otherwise = (self._code(argument) for argument in arguments)
        rows = f"tables.get({name}, {{}})"
        return f"{rows}.get(str({key}), {otherwise[0]})" if otherwise else f"_sure({rows}.get(str({key})))"


_SYMBOLS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
