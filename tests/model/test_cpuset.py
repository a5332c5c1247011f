"""CPU sets in the two notations of the kernel."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.model.cpuset import MAX_CPU, CpuSet

CPUS = st.frozensets(st.integers(0, 300) | st.integers(0, MAX_CPU), max_size=60)


def mask(cpus: frozenset[int], words: int = 1) -> str:
    """As the kernel prints a mask: 32-bit words, highest first, padded."""
    bits = sum(1 << cpu for cpu in cpus)
    words = max(words, -(-bits.bit_length() // 32))
    return ",".join(f"{bits >> 32 * place & 0xFFFFFFFF:08x}" for place in range(words - 1, -1, -1))


@given(CPUS)
def test_what_is_printed_is_read_again(cpus: frozenset[int]) -> None:
    """Text and set are the same thing."""
    cpu_set = CpuSet(cpus)

    assert CpuSet.parse(str(cpu_set)) == cpu_set
    assert CpuSet.parse(f" {cpu_set}\n\0") == cpu_set
    assert (frozenset(cpu_set), len(cpu_set), bool(cpu_set), cpu_set.first()) == (cpus, len(cpus), bool(cpus), min(cpus, default=None))
    assert list(cpu_set) == sorted(cpus)
    assert hash(CpuSet(sorted(cpus, reverse=True))) == hash(cpu_set)


@given(CPUS, st.integers(1, 4))
def test_a_mask_and_a_list_are_the_same(cpus: frozenset[int], words: int) -> None:
    """However wide the mask is padded, in either case."""
    text = mask(cpus, words)

    assert CpuSet.parse_mask(text) == CpuSet.parse_mask(text.upper()) == CpuSet(cpus)


@given(CPUS, CPUS)
def test_sets_are_sets(first: frozenset[int], other: frozenset[int]) -> None:
    """Every operation agrees with Python's."""
    a, b = CpuSet(first), CpuSet(other)

    assert (frozenset(a & b), frozenset(a | b), frozenset(a - b)) == (first & other, first | other, first - other)
    assert (a == b, a.isdisjoint(b), a.issubset(b)) == (first == other, first.isdisjoint(other), first <= other)
    assert CpuSet.union([a, b, a]) == a | b
    assert all((cpu in a) == (cpu in first) for cpu in (*other, -1, MAX_CPU))
    assert "0" not in a


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 20), st.integers(0, 20))
def test_strides(low: int, width: int, used: int, more: int) -> None:
    """``0-15:2/4`` is the first 2 of every 4."""
    group = used + more
    expected = {cpu for cpu in range(low, low + width + 1) if (cpu - low) % group < used}

    assert set(CpuSet.parse(f"{low}-{low + width}:{used}/{group}")) == expected


@given(st.text("0123456789-,:/ \n\0xN+_٣", max_size=20))
def test_any_text_is_a_set_or_an_error(text: str) -> None:
    """Nothing but ValueError, and what is read prints as something that reads the same."""
    for parse in (CpuSet.parse, CpuSet.parse_mask):
        with contextlib.suppress(ValueError):
            parsed = parse(text)
            assert CpuSet.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "3-1",
        "1,,2",
        ",",
        "1,",
        "-1",
        "1-",
        "a",
        "0-3:",
        "0-3:2",
        "0-3:0/2",
        "0-3:3/2",
        "+1",
        "1_0",
        "٣",
        "65536",
        "0-65536",
        "1 2",
        "0x1",
        "all",
    ],
)
def test_what_is_no_list(text: str) -> None:
    """Legal kernel text only."""
    with pytest.raises(ValueError, match=r"CPU|range|stride"):
        CpuSet.parse(text)


@pytest.mark.parametrize("text", ["", "g", "123456789", "1,,2", "0x1", "1 2", "-1", f"1,{','.join(['00000000'] * 2048)}"])
def test_what_is_no_mask(text: str) -> None:
    """An empty mask is none; one that is too wide is refused."""
    with pytest.raises(ValueError, match="CPU"):
        CpuSet.parse_mask(text)


def test_the_largest_number_is_the_same_in_both() -> None:
    """Neither notation takes what the other refuses."""
    assert CpuSet.parse_mask(mask(frozenset({MAX_CPU}))) == CpuSet.parse(str(MAX_CPU))


def test_a_set_cannot_change() -> None:
    """It is a key of dicts and a field of frozen records."""
    with pytest.raises(AttributeError):
        CpuSet([1]).bits = 0


def test_hostile_lists_take_little() -> None:
    """64 KiB of the slowest legal text."""
    start = time.process_time()
    for text in ("0-65535:1/1,", "0-65535:3/30000,", "0,2,", "0-65535,"):
        CpuSet.parse((text * (65_536 // len(text))).rstrip(","))
    CpuSet.parse_mask("ffffffff," * 2047 + "f")
    list(CpuSet(bits=(1 << MAX_CPU) // 3))
    str(CpuSet(bits=(1 << MAX_CPU) // 3))

    assert time.process_time() - start < 5
