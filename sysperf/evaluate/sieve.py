"""A fast first pass over long lists: native code that finds the items which are not plainly fine.

The condition language is the meaning; this is the same condition as one Python loop over all items. Whatever it cannot
decide at once (an unknown fact, a mixed type, a construct it does not know) it hands on to the judge, who takes the slow
and exact way. So it can only be wrong by being slow; a property test compares the two.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sysperf.evaluate.expression import Expression, is_text_mapping, unchain
from sysperf.evaluate.functions import MAX_TEXT, _pattern
from sysperf.evaluate.schema import Schema, element, kind
from sysperf.model.version import Version

SIEVE_FROM = 24
"""Lists shorter than this are judged one by one: compiling costs as much as some twenty slow evaluations."""

Sieve = Callable[[Sequence[Any], dict[str, Any]], tuple[list[int], int]]
"""Of (items, names): the indices that the judge must look at, and how many items the rule does not apply to."""

_NATIVE = {"len": "len", "min": "min", "max": "max", "abs": "abs", "int": "int", "float": "float", "ver": "Version", "startswith": "str.startswith", "endswith": "str.endswith", "lower": "str.lower"}  # fmt: skip


class _Hard(Exception):
    """The condition has a construct that this pass does not translate."""


def compile_sieve(schema: Schema, loop: str, applies: Expression | None, when: Expression, params: Mapping[str, Any]) -> Sieve:
    """Native code for a rule's conditions; for those that cannot be translated, every item goes to the judge."""
    try:
        return _Translator(schema, loop, params).build(applies, when)
    except _Hard:
        return lambda items, _names: (list(range(len(items))), 0)


class _Translator:
    def __init__(self, schema: Schema, loop: str, params: Mapping[str, Any]) -> None:
        self._schema = schema
        self._loop = loop
        self._params = params
        self._constants: dict[str, Any] = {"Version": Version, "_pattern": _pattern}
        self._paths: dict[tuple[str, ...], str] = {}
        self._inside: list[str] = []
        self._outside: list[str] = []

    def build(self, applies: Expression | None, when: Expression) -> Sieve:
        concerned = self._code(applies.tree) if applies else "True"
        suspect = self._code(when.tree)
        lines = [
            "def sieve(items, names):",
            "    found, skipped = [], 0",
            *(f"    {line}" for line in self._outside),
            f"    for index, {self._safe(self._loop)} in enumerate(items):",
            "        try:",
            *(f"            {line}" for line in self._inside),
            f"            if not {concerned}: skipped += 1",
            f"            elif {suspect}: found.append(index)",
            "        except Exception: found.append(index)",
            "    return found, skipped",
        ]
        scope = dict(self._constants)
        # Every name and attribute in this text was checked by the condition compiler; constants are passed as objects.
        exec(compile("\n".join(lines), "<sieve>", "exec"), scope)  # noqa: S102
        function: Sieve = scope["sieve"]
        return function

    def _code(self, node: ast.expr) -> str:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise _Hard
        code: str = method(node)
        return code

    def _safe(self, name: str) -> str:
        return f"v_{name}"

    def _constant(self, node: ast.Constant) -> str:
        return self._keep(node.value)

    def _keep(self, value: Any) -> str:
        name = f"k{len(self._constants)}"
        self._constants[name] = value
        return name

    def _name(self, node: ast.expr) -> str:
        return self._fact(node)

    _attribute = _subscript = _name

    def _fact(self, node: ast.expr) -> str:
        """A local variable with the fact; an unknown fact leaves the loop's body by an exception."""
        root, steps = unchain(node)
        if root == "p":
            return self._keep(tuple(value) if isinstance(value := self._params[steps[0]], list) else value)
        key = (root, *map(str, steps))
        if key not in self._paths:
            self._paths[key] = self._load(root, steps, key)
        return self._paths[key]

    def _load(self, root: str, steps: list[str | int], key: tuple[str, ...]) -> str:
        variable = f"f{len(self._paths)}"
        code = self._safe(root) if root == self._loop else f"names.get({root!r})"
        annotation, path = self._schema.root(root), root
        for step in steps:
            if isinstance(step, int):
                raise _Hard
            if kind(annotation) == "mapping":
                if not is_text_mapping(self._schema, root, steps) or step != steps[-1]:
                    raise _Hard
                code = f"{code}.get({step!r}, '')"
                annotation = element(annotation)
            else:
                code = f"{code}.{step}"
                annotation = self._schema.step(annotation, step, path).type
            path = f"{path}.{step}"
        lines = (f"{variable} = {code}", f"if {variable} is None: raise LookupError")
        if root == self._loop:
            self._inside += lines
            return variable
        # A fact of the machine is loaded once; unknown or absent, every item goes to the judge.
        self._outside += [f"try: {variable} = {code}", f"except AttributeError: {variable} = None", f"if {variable} is None: return list(range(len(items))), 0"]
        return variable

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
            return self._keep(tuple(item.value for item in node.elts if isinstance(item, ast.Constant)))
        return "[" + ", ".join(self._code(item) for item in node.elts) + "]"

    _tuple = _list

    def _call(self, node: ast.Call) -> str:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        arguments = [self._code(argument) for argument in node.args] if name in ("matches", "overlaps", "within", *_NATIVE) else []
        if name == "matches":
            return f"(_pattern({arguments[1]}).search({arguments[0]}[:{MAX_TEXT}]) is not None)"
        if name == "overlaps":
            return f"(not {arguments[0]}.isdisjoint({arguments[1]}))"
        if name == "within":
            return f"{arguments[0]}.issubset({arguments[1]})"
        if name in _NATIVE:
            return f"{_NATIVE[name]}({', '.join(arguments)})"
        raise _Hard


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
