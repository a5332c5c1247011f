"""Strategies that damage a good input: what a parser is given by a broken disk, another version, or somebody who means harm."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NUMBERS = st.sampled_from(
    [0, -1, 1, 0.0, -0.0, 1e-320, 1e308, -1e308, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 1.5]
) | st.integers() | st.floats(allow_nan=False, allow_infinity=False)  # fmt: skip
TEXTS = st.sampled_from(["", "\x00", "\x1b[2J", "\u202e", "a" * 5_000, "../../x", "/dev/zero", "0", "1e999", "true"]) | st.text(max_size=8)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(TEXTS, SCALARS, max_size=3)


@st.composite
def damaged_bytes(draw: st.DrawFn, good: bytes) -> bytes:
    """The same with some bytes changed, inserted, left out, or all behind a place missing."""
    raw = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        place, kind = draw(st.integers(0, max(0, len(raw) - 1))), draw(st.sampled_from(["flip", "insert", "drop", "cut"]))
        if kind == "flip" and raw:
            raw[place] = draw(st.integers(0, 255))
        elif kind == "insert":
            raw[place:place] = draw(st.sampled_from([b"\xff", b"\0", b'"', b"{", b"]", b"\\", b"9" * 30, b"\x80", b"\\ud800", b"-"]))
        elif kind == "drop":
            del raw[place : place + draw(st.integers(1, 40))]
        else:
            del raw[place:]
    return bytes(raw)


@st.composite
def damaged_json(draw: st.DrawFn, good: Any) -> Any:
    """The same data with some of its values, at any depth, of another kind or size."""
    data = good
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(data))
        data = _replaced(data, draw(st.sampled_from(places)), draw(VALUES)) if places else data
    return data


def _places(data: Any, path: tuple[Any, ...] = ()) -> Any:
    keys = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield (*path, key)
        yield from _places(data[key], (*path, key))


def _replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], value)
    return copy
