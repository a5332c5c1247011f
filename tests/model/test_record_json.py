"""JSON in and out: what has no form in it is spelled out, and what does not fit is one error."""

from __future__ import annotations

import pytest

from sysperf.model.record import DecodeError, Json, JsonObject, convert, from_json, to_json


def test_lone_surrogates_are_spelled_out() -> None:
    """A command line, a path and a key of bytes that are no UTF-8."""
    assert to_json(["true \udcff", {"\ud800": "ü"}]) == '["true \\\\udcff",{"\\\\ud800":"ü"}]'.encode()
    assert to_json("\udcff", indent=2) == b'"\\\\udcff"'


@pytest.mark.parametrize("as_type", [Json, str, int, JsonObject, list[str]])
@pytest.mark.parametrize(
    "raw", [b"", b"\xff", b'"\xff"', b'["\xff"]', b'{"\xff":1}', b'"\\ud800"', b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5_000, b"1e999", b"{"]
)  # fmt: skip
def test_what_does_not_fit_is_one_error(raw: bytes, as_type: Json) -> None:
    """A ValueError with every version of msgspec, whatever the bytes."""
    with pytest.raises(DecodeError) as error:
        from_json(raw, as_type)
    assert isinstance(error.value, ValueError)
    assert str(error.value)


def test_what_is_nested_too_deeply_cannot_be_converted() -> None:
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(DecodeError, match=r"nested too deeply|Expected"):
        convert(deep, list[list[str]])
