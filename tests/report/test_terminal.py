"""Columns, wrapping and tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.report.terminal import _NARROW, Ink, _cells, cells, clip, shorten, table, wrap

PRINTED = st.characters(exclude_categories=["C"])


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("한글x", 5), ("", 0), ("\uff21", 2)])
def test_cells_counts_columns_not_characters(text: str, columns: int) -> None:
    """A CJK character takes two columns, a combining mark none."""
    assert cells(text) == columns


def test_what_is_counted_quickly_is_as_wide_as_unicode_says() -> None:
    """Frames, bars and curves are no letters of two columns."""
    quick = [char for char in map(chr, range(0x20, 0x10000)) if _NARROW.fullmatch(char)]

    assert len(quick) > 500
    assert [char for char in quick if _cells(char) != 1] == []


def test_clip_counts_columns() -> None:
    """Half a CJK character is none."""
    assert clip("the quick brown fox", 13) == "the quick br…"
    assert clip("漢字漢字", 6) == "漢字…"


def test_shorten_prefers_the_end_of_a_word() -> None:
    """A cut in the middle of a word is avoided where a word ends near."""
    assert shorten("the quick brown fox", 13) == "the quick…"
    assert shorten("abcdefghijklmnop", 6) == "abcde…"


@given(st.text(PRINTED), st.integers(2, 30))
@settings(max_examples=50)
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    """No line is wider than asked for, and the letters are all there in their order."""
    lines = wrap(text, width)

    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.text(PRINTED), st.integers(0, 30))
@settings(max_examples=50)
def test_clipped_text_fits(text: str, width: int) -> None:
    """A clipped text is never wider than asked for."""
    assert cells(clip(text, width)) <= width
    assert cells(shorten(text, width)) <= width


def test_tables_line_up_wide_characters() -> None:
    """The second column begins at the same place in every row."""
    head, first, second = table(("a", "b"), [("漢字", "x"), ("k", "y")], Ink(False), 40)

    assert (head, first, second) == ("a     b", "漢字  x", "k     y")
