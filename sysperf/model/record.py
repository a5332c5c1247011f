"""The base of all records: frozen, strictly decoded, self-describing."""

from __future__ import annotations

import functools
import os
from _thread import RLock
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_origin, overload

import msgspec

from sysperf.model.cpuset import CpuSet
from sysperf.model.version import Version

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """Tell type checkers that subclasses are frozen too; Python 3.10 has no such decorator, and needs none."""
        return lambda cls: cls


T = TypeVar("T")
TypeForm: TypeAlias = Any  # any: a class, a union, tuple[int, ...]: typing has no type for these before TypeForm (PEP 747)
Json: TypeAlias = Any  # any: objects, lists and scalars, of which a reader takes what it knows and checks it
JsonObject = dict[str, Json]
_FROM_TEXT: dict[type, Callable[[str], object]] = {CpuSet: CpuSet.parse, Version: Version}
_LEFT_OUT = (("uuid", "UUID"), ("decimal", "Decimal"))
"""Types of a plugin's records that msgspec would know if a start had imported their modules; see `startup.import_msgspec`."""
_ONE_AT_A_TIME = RLock()
"""msgspec looks at a type's fields when it is first read, and two threads that do so at once end the process."""
os.register_at_fork(after_in_child=_ONE_AT_A_TIME._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001 - as that of logging


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A noun with named fields. Lists are tuples, units are in names, None means unknown."""


R = TypeVar("R", bound=Record)


def joined(first: R, *others: R) -> R:
    """One record of parts that several functions read: of each field what the last one says that differs from the default.

    Of a field without a default it is what the last one says that is not empty.
    """
    plain = _plain(type(first))
    known = {name: value for part in others for name, nothing in plain.items() if (value := getattr(part, name)) != nothing}
    return msgspec.structs.replace(first, **known)


@functools.cache
def _plain(record: type[Record]) -> dict[str, object]:
    """What each field is where nothing is said of it: its default, and "" where it has none."""
    fields = msgspec.structs.fields(record)
    return {
        field.name: "" if field.required else field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for field in fields
    }


def fact(doc: str, *reads: str) -> msgspec.Meta:
    """Document a field of a record: what it says, and the files, commands or calls it is read from.

    `reads` are paths, may hold shell wildcards, and find the evidence and the reason of an unknown.
    """
    return msgspec.Meta(description=doc, extra={"reads": reads})


def declared(record: type, what: str) -> dict[str, Any]:  # any: each kind of declaration has a type of its own
    """What fields declare beside themselves under this name, in `extra` of a Meta, by the names of the fields."""
    metas = ((name, meta) for name, annotation in record.__annotations__.items() for meta in getattr(annotation, "__metadata__", ()))
    extras = ((name, meta.extra or {}) for name, meta in metas if isinstance(meta, msgspec.Meta))
    return {name: extra[what] for name, extra in extras if what in extra}


def origin_of(annotation: object) -> object:
    """The generic type behind ``tuple[int, ...]`` or ``int | None``, as `typing.get_origin`; None where there is none."""
    return get_origin(annotation)


def to_json(value: object, *, indent: int = 0) -> bytes:
    """Encode records as JSON: CPU sets as kernel lists, versions as written, lone surrogates (bytes that are no UTF-8) spelled out."""
    try:
        data = msgspec.json.encode(value, enc_hook=_encode)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_encodable(value), enc_hook=_encode)
    return msgspec.json.format(data, indent=indent) if indent else data


class DecodeError(msgspec.ValidationError, ValueError):
    """What came does not fit. Always a ValueError, which msgspec's own is from version 0.20 on."""

    @classmethod
    def of(cls, error: Exception) -> DecodeError:
        """The same for bytes that are no UTF-8, half a character, and what is nested too deeply."""
        if isinstance(error, RecursionError):
            return cls("nested too deeply")
        return cls(str(error) if isinstance(error, msgspec.DecodeError) else f"JSON is malformed: {error}")


@overload
def from_json(data: bytes | str, as_type: type[T]) -> T: ...
@overload
def from_json(data: bytes | str, as_type: TypeForm) -> TypeForm: ...
def from_json(data: bytes | str, as_type: TypeForm) -> TypeForm:
    """Decode JSON strictly. Raises DecodeError with the path of what is wrong, and nothing else."""
    return _read(msgspec.json.decode, data, as_type)


@overload
def convert(data: object, as_type: type[T]) -> T: ...
@overload
def convert(data: object, as_type: TypeForm) -> TypeForm: ...
def convert(data: object, as_type: TypeForm) -> TypeForm:
    """Turn plain dicts and lists (from TOML) into records, strictly. Raises DecodeError as `from_json`."""
    return _read(msgspec.convert, data, as_type)


def _read(read: Callable[..., TypeForm], data: object, as_type: TypeForm) -> TypeForm:
    try:
        with _ONE_AT_A_TIME:
            return read(data, type=as_type, dec_hook=_decode)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DecodeError.of(error) from None


def plain(value: object) -> Json:
    """Turn records into plain dicts, lists and scalars."""
    return msgspec.to_builtins(value, enc_hook=_encode)


def json_schema(as_type: TypeForm) -> JsonObject:
    """The JSON schema (2020-12) of a record type."""
    return msgspec.json.schema(as_type, schema_hook=_schema)


def document_schema(name: str, as_type: TypeForm) -> JsonObject:
    """The schema of what a command prints as JSON, under a name that is no address."""
    heading = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:sysperf:{name}:1", "title": f"sysperf {name}"}
    return {**heading, **json_schema(as_type)}


def json_schemas(types: Iterable[type], reference: str) -> tuple[tuple[JsonObject, ...], JsonObject]:
    """(a schema for each type, the definitions they share): `reference` says where those are, such as ``#/$defs/{name}``."""
    return msgspec.json.schema_components(types, schema_hook=_schema, ref_template=reference)


def _encodable(data: object) -> Json:
    """Records as plain data that can be encoded."""
    if isinstance(data, str):
        return data.encode("utf-8", "backslashreplace").decode()
    if isinstance(data, list | tuple):
        return [_encodable(item) for item in data]
    if isinstance(data, dict):
        return {_encodable(str(key)): _encodable(item) for key, item in data.items()}
    return data if data is None or isinstance(data, bool | int | float) else _encodable(plain(data))


def _encode(value: object) -> str:
    if isinstance(value, CpuSet | Version) or _is_left_out(type(value)):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _decode(as_type: type, value: object) -> object:
    if as_type is object:  # what its reader gives a type to
        return value
    if _is_left_out(as_type):
        return _of_number_or_text(as_type, value)
    if as_type not in _FROM_TEXT:
        raise NotImplementedError(f"{as_type.__name__} has no JSON form")
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {type(value).__name__}")  # noqa: TRY004 - msgspec adds the path to a ValueError
    return _FROM_TEXT[as_type](value)


def _is_left_out(as_type: type) -> bool:
    return (as_type.__module__, as_type.__name__) in _LEFT_OUT


def _of_number_or_text(as_type: type, value: object) -> object:
    if isinstance(value, as_type):
        return value
    try:
        return as_type(str(value))
    except (ValueError, ArithmeticError):
        raise ValueError(f"expected {as_type.__name__}") from None


def _schema(as_type: type) -> JsonObject:
    if as_type is object:
        return {}
    if as_type is CpuSet:
        return {"type": "string", "description": "CPU list as the kernel writes it, such as 0-3,8"}
    if as_type is Version:
        return {"type": "string", "description": "version as its owner writes it"}
    raise NotImplementedError(f"{as_type.__name__} has no JSON schema")
