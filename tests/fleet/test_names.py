"""Names of nodes are folded for people, and lists of them are read as people write them."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.fleet.names import MAX_NODES, expand, fold
from sysperf.model.errors import UsageError
from sysperf.model.node import is_name


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n3", "n1", "n2", "n7"], "n[1-3,7]"),
        (["n017", "n301"], "n[017,301]"),
        (["n99", "n100", "n101"], "n[99-101]"),
        (["n09", "n10", "n9"], "n9,n[09-10]"),
        (["gpu-7.example.org", "gpu-8.example.org", "login"], "gpu-[7-8].example.org,login"),
        (["ip-10-3-7-9", "ip-10-3-7-10", "ip-10-3-8-9"], "ip-10-3-7-[9-10],ip-10-3-8-9"),
        (["x", "x"], "x"),
        ([], ""),
    ],
)
def test_folded(names: list[str], folded: str) -> None:
    """By the last number; zeros before it are kept."""
    assert fold(names) == folded


@given(st.lists(st.from_regex(re.compile(r"[a-z]{1,3}[0-9]{1,4}(-[a-z])?", re.ASCII), fullmatch=True), max_size=40))
def test_nothing_is_lost(names: list[str]) -> None:
    """What is folded says which nodes those are."""
    assert set(expand(fold(names))) == set(names)


def test_many_parts_are_cut() -> None:
    """A name of each kind would fill the screen."""
    assert fold([f"{letter}{letter}" for letter in "abcdef"], 3) == "aa,bb,cc,… (6 nodes)"


def test_text_of_others_stays_text() -> None:
    """An escape in a name is no escape on the screen."""
    assert fold(["\x1b[2Jn1", "n\u202e2"]) == "\\x1b[2Jn1,n\\u202e2"


def test_lists() -> None:
    """Ranges, zeros, several brackets, blanks and commas; in their order, each once."""
    assert expand("n[01-03,7] login,n02") == ("n01", "n02", "n03", "n7", "login")
    assert expand("r[1-2]n[1-2]") == ("r1n1", "r1n2", "r2n1", "r2n2")
    assert expand("") == ()


@pytest.mark.parametrize(
    "text", ["n[1-", "n[3-1]", "n[a]", "-oProxyCommand=x", "a/b", "n;rm", "n\x1b", "n[]", f"n[1-{10 * MAX_NODES}]", "n[1-999][1-999]"]
)
def test_what_is_no_list(text: str) -> None:
    """An option of ssh, a path and a range without end are refused."""
    with pytest.raises(UsageError):
        expand(text)


@pytest.mark.parametrize("text", [f"n[{'1-99999,' * 10_000}1]", f"n{'[1-99999]' * 10_000}", f"n{'[1]' * 30_000}"])
def test_a_long_list_is_refused_before_it_is_made(text: str) -> None:
    """A hundred kilobytes of ranges named a billion nodes, each of which was made first."""
    start = time.process_time()
    with pytest.raises(UsageError):
        expand(text)

    assert time.process_time() - start < 2


def test_no_name_is_an_option() -> None:
    """A name becomes a word of a command line."""
    assert not any(map(is_name, ("-v", "", "a b", "a/b", ".", "n\n", "x" * 300)))
    assert is_name("gpu-7.example.org")
