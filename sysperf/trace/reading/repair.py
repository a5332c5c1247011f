"""Events that a strict decoder refuses: NaN, numbers as text or beyond 64 bits, broken text; decoded one by one."""

from __future__ import annotations

import itertools
import re

import msgspec

from sysperf.model.record import Json
from sysperf.startup import lazy
from sysperf.trace.reading.events import Args, Event

_TOKEN = lazy(rb'["{}\[\]]')
_STRING = lazy(rb'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NO_NUMBER = lazy(rb"(?<=[:,\[\s])-?(?:NaN|nan|Infinity|inf|N/A)(?=[\s,}\]])")
_HALF = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPE = lazy(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(" + _HALF + rb")|\\.", re.DOTALL)
"""A whole character of two halves, half a one (the group), any other escape."""
_BETWEEN = lazy(rb"\}\s*,\s*(?=\{\s*\")")
"""What stands between two events, seldom within one."""
MAX_DEPTH = 100_000
"""No event has so many brackets in each other."""
_decode = msgspec.json.Decoder(Event).decode


def objects(text: bytes) -> tuple[list[tuple[int, int]], int, bool]:
    """(the places of whole objects in a list of them, where the last one ends, whether the list is closed behind it)."""
    places: list[tuple[int, int]] = []
    depth, start, position, end = 0, 0, 0, 0
    while token := _TOKEN.search(text, position):
        position, sign = token.end(), token[0]
        if sign == b'"':
            string = _STRING.match(text, position)
            if string is None:
                break  # the text ends within a string
            position = string.end()
        elif sign in b"{[":
            start = token.start() if depth == 0 else start
            depth += 1
            if depth > MAX_DEPTH:
                break
        elif depth == 0:
            return places, end, sign == b"]"
        else:
            depth -= 1
            if depth == 0:
                places.append((start, position))
                end = position
    return places, end, False


def split(text: bytes) -> list[bytes]:
    """The events in a text whose quotes or brackets do not match: one may be broken, and those behind it are whole."""
    ends = [between.start() + 1 for between in _BETWEEN.finditer(text)]
    return [
        part.lstrip(b" \t\r\n,") for part in (text[start:end] for start, end in itertools.pairwise((0, *ends, len(text)))) if part.strip()
    ]


def event(text: bytes) -> Event | None:
    """One event with what is usable of it; None where nothing is."""
    clean = _NO_NUMBER.sub(b"null", _whole_characters(text.decode("utf-8", "replace").encode()))
    try:
        return _decode(clean)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    try:
        return _from_plain(msgspec.json.decode(clean))
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError):
        return None


def _whole_characters(text: bytes) -> bytes:
    """The text with a mark for each half of a UTF-16 character that stands alone: Python and Chrome write such."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], text)


def _from_plain(data: Json) -> Event | None:
    if not isinstance(data, dict):
        return None
    given = data.get("args")
    args = Args(**{name: _usable(given.get(key)) for name, key in _ARGS.items()}) if isinstance(given, dict) else None
    return Event(
        ph=_text(data.get("ph")),
        cat=_text(data.get("cat")),
        name=_text(data.get("name")),
        pid=_usable(data.get("pid")),
        tid=_usable(data.get("tid")),
        ts=_number(data.get("ts")),
        dur=_number(data.get("dur")),
        args=args,
    )


_ARGS = {"correlation": "correlation", "stream": "stream", "device": "device", "bytes": "bytes"}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _usable(value: Json) -> Json:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _number(value: Json) -> float | None:
    """A number, also where it is written as text; None where it is none, not finite, or too large to be a time."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 9e15 else None
