"""Foreign text made harmless, and numbers made readable."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sysperf.model.text import escaped, natural, neutral, parse_size, size, without_hidden

ANY = st.text(st.characters(codec=None), max_size=60)  # lone surrogates included
ACTIVE = "\x1b\r\x07\x08\x7f\x85\x9b\u061c\u200e\u202e\u2028\u2029\u2066\ufeff\U000e0041"


@given(ANY, st.integers(2, 80))
@example("\x1b" * 500, 400)
@example("\ud800", 10)
def test_neutral_text_is_one_harmless_line(text: str, limit: int) -> None:
    """No control, format or surrogate character, never longer than the limit, encodable, stable."""
    harmless = neutral(text, limit)

    assert len(harmless) <= limit
    assert not [char for char in harmless if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert len(harmless.splitlines()) <= 1
    harmless.encode()
    assert neutral(harmless, limit) == harmless


@given(st.text(st.characters(codec=None, exclude_categories=("C", "Zl", "Zp")), max_size=60))
def test_neutral_leaves_ordinary_text_alone(text: str) -> None:
    """Other scripts and pictures are text, too."""
    assert neutral(text) == text


def test_neutral_spells_what_it_hides() -> None:
    """A person sees what was there; a cut is shown."""
    assert neutral("a\x1b[31m\n\u202e\U000e0041") == "a\\x1b[31m\\x0a\\u202e\\U000e0041"
    assert neutral("abcdef", 4) == "abc…"


@given(ANY)
def test_escaped_text_keeps_its_lines(text: str) -> None:
    """Newlines, tabs and NULs separate fields; all else that acts is spelled out; twice changes nothing."""
    harmless = escaped(text)

    assert not set(harmless) & set(ACTIVE)
    assert [harmless.count(char) for char in "\n\t\0"] == [text.count(char) for char in "\n\t\0"]
    assert escaped(harmless) == harmless
    assert len(harmless.splitlines()) <= text.count("\n") + 1


@given(st.integers(0, 2**63))
def test_sizes_are_close(count: int) -> None:
    """At most one decimal, never 1024 of a unit, and true within half a decimal."""
    number, unit = size(count).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)

    assert float(number) < 1024
    assert abs(float(number) * factor - count) <= 0.0501 * factor
    assert not number.endswith(".0")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (64 << 20, "64 MiB"),
        (400_000_000, "381.5 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (1.5 * (1 << 40), "1.5 TiB"),
        (-2048, "-2 KiB"),
        (float("inf"), "inf EiB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    """As a person writes them."""
    assert size(count) == text


@given(
    st.integers(0, 10**15),
    st.sampled_from(("", "K", "M", "G", "T", "P")),
    st.sampled_from(("", "B", "b", "iB", "i")),
    st.sampled_from(("", " ", "\n")),
)
def test_sizes_are_read(number: int, prefix: str, tail: str, space: str) -> None:
    """Units are powers of 1024, upper or lower case, with or without B."""
    expected = number * 1024 ** ("", "K", "M", "G", "T", "P").index(prefix)

    assert parse_size(f"{space}{number}{space}{prefix}{tail}{space}") == expected
    assert parse_size(f"{number}{prefix.lower()}{tail}") == expected


@pytest.mark.parametrize("text", ["", "K", "1.5G", "-1", "1 2", "1X", "1KK", "٣", "1" * 19, "0x10", "1 kB 2"])
def test_what_is_no_size(text: str) -> None:
    """ValueError with the text, cut."""
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@given(st.lists(st.text("ab0129-²٣", max_size=8), max_size=12))
def test_natural_order_sorts_anything(names: list[str]) -> None:
    """Any names can be compared, digits of other scripts included."""
    ordered = sorted(names, key=natural)

    assert sorted(ordered, key=natural) == ordered


@given(st.integers(0, 10**20), st.integers(0, 10**20), st.text("abc-_", max_size=4))
def test_natural_order_is_that_of_the_numbers(first: int, other: int, stem: str) -> None:
    """node10 comes after node9."""
    if max(first, other) < 10**18:
        assert (natural(f"{stem}{first}") < natural(f"{stem}{other}")) == (first < other)


def test_natural_order() -> None:
    """Numbers before letters, short before long."""
    names = ["node10", "node9", "node", "10", "9", "a10b2", "a10b10", "a9"]
    assert sorted(names, key=natural) == ["9", "10", "a9", "a10b2", "a10b10", "node", "node9", "node10"]


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("python train.py 'a b'", "python train.py 'a b'"),
        ("python train.py <hidden> out.txt --lr 3", "python train.py …"),
        ("python train.py 'in put' --prompt <hidden>", "python train.py 'in put' --prompt …"),
        ("bash -c 'python <hidden> x' y", "bash -c …"),
        ("<hidden>", "…"),
        ("python 'cut off <hidden>", "…"),
    ],
)
def test_no_command_to_paste_has_hidden_words(command: str, left: str) -> None:
    """In a shell `<hidden> out` reads a file of that name and empties the other."""
    assert without_hidden(command) == left
