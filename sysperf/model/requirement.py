"""What a Python distribution asks of others: ``nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"``.

Format  https://packaging.python.org/en/latest/specifications/dependency-specifiers/
        https://packaging.python.org/en/latest/specifications/version-specifiers/
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from sysperf.model.record import Record
from sysperf.model.version import Version
from sysperf.startup import lazy

MAX_LENGTH = 1_000
MAX_DEPTH = 20
_LINE = lazy(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)\s*(?:\[([^\]]{0,500})\])?\s*\(?([^;()@]*)\)?\s*(?:;(.*))?")
_CLAUSE = lazy(r"\s*(===|==|~=|!=|<=|>=|<|>)\s*([0-9A-Za-z.+!_*-]{1,100})\s*")
_TOKEN = lazy(r"\s*(?:(\()|(\))|(and|or)\b|(not\s+in|in|===|==|~=|!=|<=|>=|<|>)|'([^']*)'|\"([^\"]*)\"|([a-z_]+))")
_SEPARATORS = lazy(r"[-_.]+")

Ordered = Callable[[Version, Version], bool]
_ORDERS: dict[str, Ordered] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class Requirement(Record):
    """One requirement: another distribution, the versions that fit, and when it counts."""

    name: str
    spec: str = ""
    extras: tuple[str, ...] = ()
    marker: str = ""


def canonical(name: str) -> str:
    """The name under which registries file a distribution: ``nvidia_cudnn_cu13`` is ``nvidia-cudnn-cu13``."""
    return _SEPARATORS.sub("-", name).lower()


def parse_requirement(text: str) -> Requirement:
    """Read one value of ``Requires-Dist``. Raises ValueError on anything that is none."""
    match = _LINE.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise ValueError(f"not a requirement: {text[:60]!r}")
    extras = tuple(canonical(extra.strip()) for extra in (match[2] or "").split(",") if extra.strip())
    return Requirement(canonical(match[1]), match[3].strip(), extras, (match[4] or "").strip())


def fits(version: str, spec: str) -> bool | None:
    """Whether a version meets ``==1.2.*,!=1.2.3``; None when either of them cannot be read."""
    try:
        return all(_clause(version, clause) for clause in spec.split(",") if clause.strip())
    except ValueError:
        return None


def _clause(version: str, clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        raise ValueError(f"not a version clause: {clause[:40]!r}")
    symbol, wanted = match[1], match[2]
    if symbol in ("==", "===", "!="):
        return _same(version, wanted) is (symbol != "!=")
    if symbol == "~=":
        return Version(version) >= Version(wanted) and _same(version, wanted.rpartition(".")[0] + ".*")
    return _ORDERS[symbol](Version(version), Version(wanted))


def _same(version: str, wanted: str) -> bool:
    if wanted.endswith(".*"):
        prefix = Version(wanted[:-2]).numbers
        numbers = Version(version).numbers
        return (*numbers, *(0,) * (len(prefix) - len(numbers)))[: len(prefix)] == prefix
    _, plus, local = wanted.partition("+")
    # A local part (+cpu, +cu130) counts only where the requirement names one.
    return Version(version) == Version(wanted) and (not plus or version.partition("+")[2] == local)


def holds(marker: str, environment: Mapping[str, str]) -> bool | None:
    """Whether an environment marker is true; None when it asks for something that `environment` does not say."""
    if not marker:
        return True
    try:
        return _Marker(marker, environment).answer()
    except ValueError:
        return None


class _Marker:
    """Comparisons joined by ``and`` and ``or``, with brackets."""

    def __init__(self, text: str, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._tokens: list[re.Match[str]] = []
        position = 0
        while text[position:].strip():
            token = _TOKEN.match(text, position)
            if token is None or len(text) > MAX_LENGTH:
                raise ValueError(f"not a marker: {text[:60]!r}")
            self._tokens.append(token)
            position = token.end()
        self._tokens.reverse()

    def answer(self) -> bool:
        value = self._either(0)
        if self._tokens:
            raise ValueError("more after the end of the marker")
        return value

    def _next(self) -> re.Match[str]:
        if not self._tokens:
            raise ValueError("the marker ends early")
        return self._tokens.pop()

    def _joins(self, word: str) -> bool:
        if self._tokens and self._tokens[-1][3] == word:
            self._tokens.pop()
            return True
        return False

    def _either(self, depth: int) -> bool:
        value = self._both(depth)
        while self._joins("or"):
            value = self._both(depth) or value
        return value

    def _both(self, depth: int) -> bool:
        value = self._one(depth)
        while self._joins("and"):
            value = self._one(depth) and value
        return value

    def _one(self, depth: int) -> bool:
        if depth > MAX_DEPTH:
            raise ValueError("the marker is nested too deeply")
        if self._tokens and self._tokens[-1][1]:
            self._tokens.pop()
            value = self._either(depth + 1)
            if not self._next()[2]:
                raise ValueError("a bracket is not closed")
            return value
        left, symbol, right = self._value(), self._next()[4], self._value()
        return _compare(left, symbol, right)

    def _value(self) -> tuple[str, bool]:
        """A text and whether it is a version."""
        token = self._next()
        if token[7]:
            if token[7] not in self._environment:
                raise ValueError(f"nobody knows {token[7]}")
            return self._environment[token[7]], token[7].endswith("version")
        if token[5] is None and token[6] is None:
            raise ValueError("a value is expected")
        return token[5] if token[5] is not None else token[6], False


def _compare(left: tuple[str, bool], symbol: str | None, right: tuple[str, bool]) -> bool:
    if symbol is None:
        raise ValueError("a comparison is expected")
    if symbol in ("in", "not in") or symbol.startswith("not"):
        return (left[0] in right[0]) is (symbol == "in")
    if left[1]:
        return _clause(left[0], symbol + right[0])
    if symbol in ("==", "===", "!="):
        return (left[0] == right[0]) is (symbol != "!=")
    raise ValueError(f"`{symbol}` between texts")
