"""Messages with blanks: ``{expression|filter}``, where ``{{`` and ``}}`` are braces and an unknown prints as ``?``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sysperf.evaluate.expression import Expression, compile_expression
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.schema import Schema
from sysperf.evaluate.scope import Scope, Value
from sysperf.model.errors import RuleError
from sysperf.model.text import neutral, quoted, size
from sysperf.startup import lazy

MAX_FILLED = 2_000
_BLANK = lazy(r"\{\{|\}\}|\{([^{}]+)\}|[{}]")
_FILTER = lazy(r"\|\s*([a-z]+)\s*$")


LARGE = 999.5
"""Three digits of larger numbers have an exponent: 1.69e+03."""


def _number(value: Value) -> str:
    is_whole = isinstance(value, int) or value == int(value) or abs(value) >= LARGE
    return f"{value:,.0f}" if is_whole else f"{value:.3g}"


def _plain_number(value: Value) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _listed(value: Value) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)


FILTERS: dict[str, Callable[[Value], str]] = {
    "bytes": size,
    "pct": lambda share: f"{share * 100:.0f} %",
    "list": _listed,
    "count": lambda items: str(len(items)),
    "ms": lambda value: f"{value:.1f} ms",
    "num": _number,
    "plain": _plain_number,
    "words": lambda items: " ".join(str(item) for item in items),
}
FOR_READERS = frozenset({"bytes", "pct", "list", "ms", "num"})
"""Filters that make a value readable: `1,000` and `2 GiB` are no arguments of a command."""


_NUMBERED = lazy(r"([0-9][0-9,.]*)?( ?[A-Za-z/-]+(?: [A-Za-z/-]+){0,2})\((e?s)\)")
"""``3 worker(s)``, with up to two words between number and noun."""


def _inflected(match: re.Match[str]) -> str:
    """A rule writes ``{n} worker(s)``; its reader gets ``1 worker`` or ``3 workers``."""
    number, words, ending = match.groups()
    return f"{number or ''}{words}{'' if number == '1' else ending}"


def _with_plurals(text: str) -> str:
    return _NUMBERED.sub(_inflected, text) if "s)" in text else text


class _Clause:
    """What stands between two semicolons of a message, and which of its blanks are known."""

    def __init__(self, texts: list[str] | None = None) -> None:
        self.texts = texts or []
        self.known: list[bool] = []


class Template:
    """A compiled message."""

    def __init__(self, parts: list[str | tuple[Expression, str]]) -> None:
        self._parts = parts

    def filters(self) -> set[str]:
        """The filters that its blanks name."""
        return {part[1] for part in self._parts if not isinstance(part, str)}

    @property
    def names(self) -> frozenset[str]:
        """The areas, lists and items that its blanks look at."""
        return frozenset[str]().union(*(part[0].names for part in self._parts if not isinstance(part, str)))

    def is_known(self, scope: Scope) -> bool:
        """Whether each blank can be filled on this machine."""
        return not any(isinstance(part[0](scope), Unknown) for part in self._parts if not isinstance(part, str))

    def fill(self, scope: Scope, *, quote: bool = False) -> str:
        """The text for this machine; with `quote`, each value is quoted for a shell."""
        text = "".join(part if isinstance(part, str) else _filled_in(part[0](scope), part[1], quote) for part in self._parts)
        return text if quote else _with_plurals(text)

    def sentence(self, scope: Scope) -> str:
        """The text for a reader, without what stands between semicolons and of which nothing is known, where something else is."""
        clauses = [_Clause()]
        for part in self._parts:
            if isinstance(part, str):
                first, *others = part.split("; ")
                clauses[-1].texts.append(first)
                clauses += [_Clause([text]) for text in others]
            else:
                value = part[0](scope)
                clauses[-1].texts.append(_filled_in(value, part[1], quote=False))
                clauses[-1].known.append(not isinstance(value, Unknown))
        kept = [clause for clause in clauses if not clause.known or any(clause.known)]
        if not any(any(clause.known) for clause in kept):
            kept = clauses
        text = "; ".join("".join(clause.texts) for clause in kept)
        text = text if kept[0] is clauses[0] else text[:1].upper() + text[1:]
        return _with_plurals(text if kept[-1] is clauses[-1] else f"{text}.")


def compile_template(text: str, schema: Schema, params: Mapping[str, Value] | None = None) -> Template:
    """Check and compile a message. Raises RuleError on a blank that is no expression."""
    parts: list[str | tuple[Expression, str]] = []
    position = 0
    for match in _BLANK.finditer(text):
        parts.append(text[position : match.start()])
        position = match.end()
        if match[0] in ("{{", "}}"):
            parts.append(match[0][0])
        elif match[1] is None:
            raise RuleError(f"a single `{match[0]}` in `{text[:60]}`", "write {{ or }} for a brace")
        else:
            parts.append(_blank(match[1], schema, params))
    parts.append(text[position:])
    return Template([part for part in parts if part != ""])


def _blank(inside: str, schema: Schema, params: Mapping[str, Value] | None) -> tuple[Expression, str]:
    match = _FILTER.search(inside)
    name = match[1] if match else ""
    if match and name not in FILTERS:
        raise RuleError(f"`{name}` is no filter", f"filters are {', '.join(FILTERS)}")
    return compile_expression(inside[: match.start()] if match else inside, schema, params), name


def _filled_in(value: Value, filter_name: str, quote: bool) -> str:
    text = _text(value, filter_name)
    if quote and filter_name == "words" and isinstance(value, list | tuple):
        return " ".join(quoted(neutral(str(item), MAX_FILLED)) for item in value)
    return quoted(text) if quote else text


def _text(value: Value, filter_name: str) -> str:
    if isinstance(value, Unknown):
        return "?"
    try:
        text = FILTERS[filter_name](value) if filter_name else _plain(value)
    except (TypeError, ValueError, OverflowError):
        text = str(value)
    return neutral(text, MAX_FILLED)


def _plain(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4g}"
    return _listed(value)
