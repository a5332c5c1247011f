"""Versions compare by their numbers and stages, and print as written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.model.version import Version

TEXTS = st.builds(
    "{}{}{}".format,
    st.lists(st.integers(0, 99), min_size=1, max_size=8).map(lambda numbers: ".".join(map(str, numbers))),
    st.sampled_from(
        ("", "a0", "a1", "alpha1", "b2", "rc1", "-rc3", ".dev20250101", ".post1", "+cpu", "-31-generic", "-azure", "-amd64", "git")
    ),
    st.sampled_from(("", "+git1234", "\n", " x")),
)
VERSIONS = TEXTS.map(Version)


@given(VERSIONS, VERSIONS, VERSIONS)
def test_the_order_is_total(first: Version, second: Version, third: Version) -> None:
    """Exactly one of less, equal, more; transitive; equal ones hash alike."""
    assert [first < second, first == second, first > second].count(True) == 1
    assert (first <= second) == (first < second or first == second)
    if first <= second <= third:
        assert first <= third
    if first == second:
        assert hash(first) == hash(second)
        assert (first < third) == (second < third)


@given(TEXTS)
def test_what_was_written_is_printed(text: str) -> None:
    """Nothing is normalised away."""
    version = Version(text)

    assert str(version) == text.strip()
    assert Version(str(version)) == version
    assert repr(version) == f"Version({text.strip()!r})"


@given(st.text("0123456789.abrcdevpost+-_ v٣\n", max_size=30))
def test_any_text_is_a_version_or_an_error(text: str) -> None:
    """Nothing but ValueError."""
    try:
        version = Version(text)
    except ValueError:
        return
    assert version == version  # noqa: PLR0124 - reflexive
    assert version.minor.startswith(f"{version.major}.")


def test_the_order_of_stages() -> None:
    """As PEP 440 has it."""
    texts = (
        "2.13.9",
        "2.14.0.dev20250101",
        "2.14.0a0+git1",
        "2.14.0a1",
        "2.14.0b1",
        "2.14.0rc1",
        "2.14.0",
        "2.14.0.post1",
        "2.14.1",
        "2.14.10",
        "3",
    )
    assert all(older < newer for older, newer in pairwise(map(Version, texts)))


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("13", "13.0"),
        ("13.0.0", "13"),
        ("2.13.0+cpu", "2.13"),
        ("580.65.06", "580.65.6"),
        ("6.8.0-31-generic", "6.8"),
        ("5.15.0-azure", "5.15"),
        ("6.1.0-amd64", "6.1.0"),
        ("v2.0", "2.0"),
        ("1.0alpha1", "1.0a1"),
        ("1.0c1", "1.0rc1"),
    ],
)
def test_what_is_equal(first: str, other: str) -> None:
    """Missing numbers are zero; local parts, flavours and spellings do not count."""
    assert Version(first) == Version(other)
    assert hash(Version(first)) == hash(Version(other))


def test_parts() -> None:
    """Major and minor are text, to be shown and compared with names of wheels."""
    assert (Version("13").major, Version("13").minor, Version("2.13.1").minor) == ("13", "13.0", "2.13")


@pytest.mark.parametrize("text", ["", "x", ".1", "-1", "٣.1", "1" * 300, "unknown"])
def test_what_is_no_version(text: str) -> None:
    """ValueError, which a decoder turns into a path."""
    with pytest.raises(ValueError, match="not a version"):
        Version(text)


def test_other_types_do_not_compare() -> None:
    """A version is no text."""
    assert Version("1") != "1"
    with pytest.raises(TypeError):
        _ = Version("1") < "2"  # type: ignore[operator]
