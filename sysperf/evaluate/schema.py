"""Which facts exist and of what kind, taken from the records' own annotations."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args

import msgspec

from sysperf.model.cpuset import CpuSet
from sysperf.model.errors import RuleError
from sysperf.model.record import TypeForm, origin_of
from sysperf.model.version import Version

ANYTHING: TypeForm = Any  # any: its own name
"""The type of a fact of which nothing is known: it may stand wherever a value may."""


class Field(msgspec.Struct, frozen=True):
    """One field of a record: its type without `None`, what it says, and what it is read from."""

    type: TypeForm
    doc: str = ""
    reads: tuple[str, ...] = ()


@cache
def fields(record: TypeForm) -> dict[str, Field]:
    """The fields of a record type by name."""
    names = (name for base in reversed(record.__mro__) for name in getattr(base, "__annotations__", ()))
    return {name: known for name in names if (known := field(record, name)) is not None}


@cache
def field(record: TypeForm, name: str) -> Field | None:
    """One field of a record type: an audit asks for a quarter of all. None where it has no such field."""
    if name not in record.__struct_fields__:
        return None
    return next(_field(_annotation(base, name)) for base in record.__mro__ if name in getattr(base, "__annotations__", ()))


def _annotation(record: type, name: str) -> TypeForm:
    """What stands beside a field. Most modules postpone it: 10 µs each, and no rule names most fields."""
    annotation = record.__annotations__[name]
    return eval(annotation, vars(sys.modules[record.__module__])) if isinstance(annotation, str) else annotation  # noqa: S307 - our own source


def _field(annotation: TypeForm) -> Field:
    doc, reads = "", ()
    if origin_of(annotation) is Annotated:
        annotation, *metas = get_args(annotation)
        for meta in metas:
            if isinstance(meta, msgspec.Meta):
                doc, reads = meta.description or doc, (meta.extra or {}).get("reads", reads)
    return Field(strip(annotation), doc, reads)


def strip(annotation: TypeForm) -> TypeForm:
    """The type without `Annotated` and without `None`."""
    while origin_of(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if origin_of(annotation) in (Union, types.UnionType):
        options = [option for option in get_args(annotation) if option is not type(None)]
        return strip(options[0]) if len(options) == 1 else ANYTHING
    return annotation


def is_record(annotation: TypeForm) -> bool:
    return isinstance(annotation, type(msgspec.Struct))


def element(annotation: TypeForm) -> TypeForm:
    """The type of what a list or mapping holds; ANYTHING when it is neither."""
    origin, arguments = origin_of(annotation), get_args(annotation)
    if origin in (tuple, list) and arguments:
        return strip(arguments[0])
    if origin is dict:
        return strip(arguments[1])
    return int if annotation is CpuSet else ANYTHING


_KINDS: dict[type, str] = {int: "number", float: "number", str: "text", bool: "truth", CpuSet: "cpus", Version: "version"}


def kind(annotation: TypeForm) -> str:
    """What conditions can do with it: number, text, truth, cpus, version, list, mapping, record or any."""
    if type(annotation) is type:  # Python 3.10: `dict[str, str].__class__` is type, too
        return _KINDS.get(annotation, "any")
    if is_record(annotation):
        return "record"
    origin = origin_of(annotation)
    if origin in (tuple, list):
        return "list"
    if origin is dict:
        return "mapping"
    if origin is Literal:
        return kind(type(get_args(annotation)[0]))
    return "any"


class Fact(msgspec.Struct, frozen=True):
    """What a name and the steps behind it lead to."""

    type: TypeForm
    path: str
    reads: tuple[str, ...]
    absent_is_empty: bool
    """It is looked up in a mapping of text, such as variables: one that is not set is empty."""


class Schema:
    """The names that a condition may use, with their types."""

    def __init__(self, roots: dict[str, TypeForm], reads: dict[str, tuple[str, ...]] | None = None) -> None:
        self.roots = roots
        self.reads = reads or {}
        """What names that stand for a list of an area (`gpus`) are read from."""
        self._bound: Mapping[str, TypeForm] = {}
        self._facts: dict[tuple[str, tuple[str | int, ...]], Fact] = {}
        """Those that rules have named, without what hangs on a bound name: most are named by several rules."""

    def bind(self, name: str, annotation: TypeForm) -> Schema:
        """The same schema with one more name. The others are shared: an agent holds a schema for each rule."""
        schema = Schema(self.roots, self.reads)
        schema._bound, schema._facts = {**self._bound, name: annotation}, self._facts
        return schema

    def fact(self, root: str, steps: tuple[str | int, ...]) -> Fact:
        """What these steps lead to from a name. Raises RuleError with a suggestion."""
        if root in self._bound:
            return self._walk(root, steps)
        if (root, steps) not in self._facts:
            self._facts[root, steps] = self._walk(root, steps)
        return self._facts[root, steps]

    def _walk(self, root: str, steps: tuple[str | int, ...]) -> Fact:
        annotation = holder = self.root(root)
        reads, path = self.reads.get(root, ()), root
        for step in steps:
            holder = annotation
            if isinstance(step, int):
                annotation, path = element(annotation), f"{path}[{step}]"
                continue
            known = self.step(annotation, step, path)
            annotation, reads, path = known.type, known.reads or reads, f"{path}.{step}"
        return Fact(annotation, path, reads, kind(holder) == "mapping" and element(holder) is str)

    def root(self, name: str) -> TypeForm:
        """The type of a name. Raises RuleError with a suggestion."""
        if name in self._bound:
            return self._bound[name]
        if name not in self.roots:
            known = (*self.roots, *self._bound)
            raise RuleError(f"`{name}` is no area or name here{suggest(name, known)}", "`sysperf facts --describe` lists the areas")
        if isinstance(self.roots[name], types.FunctionType):
            self.roots[name] = self.roots[name]()
        return self.roots[name]

    def _where_to_look(self, annotation: TypeForm, path: str) -> str:
        """Return the command that lists the facts of an area: of a name that a rule has given itself, the area that has such records."""
        root = re.split(r"[.\[]", path)[0]
        areas = list(self.roots) if root in self._bound or root in self.reads else [root]
        area = next((name for name in areas if name not in self.reads and _holds(self.root(name), annotation)), "")
        return f"`sysperf facts --describe {area}` lists the facts of this area" if area else "`sysperf facts --describe` lists all facts"

    def step(self, annotation: TypeForm, name: str, path: str) -> Field:
        """The field `name` of what `path` is. Raises RuleError with a suggestion."""
        if is_record(annotation):
            known = field(annotation, name)
            if known is None:
                said = f"`{path}.{name}` is no fact{suggest(name, fields(annotation), f'{path}.')}"
                raise RuleError(said, self._where_to_look(annotation, path))
            return known
        if origin_of(annotation) is dict or annotation is ANYTHING:
            return Field(element(annotation) if annotation is not ANYTHING else ANYTHING)
        raise RuleError(f"`{path}` is {_article(kind(annotation))} and has no `{name}`")


def _holds(annotation: TypeForm, wanted: TypeForm) -> bool:
    """Whether a record has such records somewhere in it."""
    seen, left = set[str](), [annotation]
    while left:
        one = left.pop()
        one = one if is_record(one) or element(one) is ANYTHING else element(one)
        if one is wanted:
            return True
        if is_record(one) and repr(one) not in seen:
            seen.add(repr(one))
            left += [known.type for name in fields(one) if (known := field(one, name)) is not None]
    return False


def suggest(name: str, known: Iterable[str], before: str = "") -> str:
    """`` (did you mean `x`?)`` or nothing; letters may differ in case."""
    import difflib  # noqa: PLC0415 - only a wrong rule pays

    lowered = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.65)
    return f" (did you mean `{before}{lowered[close[0]]}`?)" if close else ""


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
