"""A set of CPU (or node) numbers, in the two notations the kernel uses.

Kernel  https://docs.kernel.org/core-api/printk-formats.html#bitmap-and-its-derivatives-such-as-cpumask-and-nodemask
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sysperf.startup import lazy

MAX_DIGITS = 6
_MASK = lazy(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*")

MAX_CPU = 65_535
"""The largest number accepted: eight times the 8,192 CPUs that Linux can be built for. Bounds memory."""


class CpuSet:
    """An immutable set of CPU numbers, printed as the kernel prints it: ``0-3,8``."""

    __slots__ = ("bits",)

    bits: int

    def __init__(self, cpus: Iterable[int] = (), *, bits: int = 0) -> None:
        for cpu in cpus:
            bits |= 1 << _bounded(cpu)
        object.__setattr__(self, "bits", bits)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"CpuSet is immutable: cannot set {name}")

    @classmethod
    def parse(cls, text: str) -> CpuSet:
        """Read a kernel list such as ``0-3,8`` or ``0-15:2/4`` (of every 4 CPUs, the first 2).

        A trailing newline or NUL, which old kernels write, is dropped; an empty text is the empty set.
        Raises ValueError on anything else.
        """
        text = text.strip(" \t\n\0")
        bits = 0
        for part in text.split(",") if text else ():
            bits |= _range_bits(part.strip())
        return cls(bits=bits)

    @classmethod
    def parse_mask(cls, text: str) -> CpuSet:
        """Read a kernel mask such as ``ffff,00000000``: 32-bit hexadecimal words, highest first."""
        text = text.strip(" \t\n\0")
        if not _MASK.fullmatch(text):
            raise ValueError(f"not a CPU mask: {text[:60]!r}")
        bits = int("".join(word.zfill(8) for word in text.split(",")), 16)
        _bounded(max(bits.bit_length() - 1, 0))
        return cls(bits=bits)

    @classmethod
    def union(cls, sets: Iterable[CpuSet]) -> CpuSet:
        """All CPUs that are in any of the sets."""
        bits = 0
        for cpus in sets:
            bits |= cpus.bits
        return cls(bits=bits)

    def first(self) -> int | None:
        """The lowest number, or None when empty."""
        return (self.bits & -self.bits).bit_length() - 1 if self.bits else None

    def isdisjoint(self, other: CpuSet) -> bool:
        return not self.bits & other.bits

    def issubset(self, other: CpuSet) -> bool:
        return not self.bits & ~other.bits

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet(bits=self.bits & other.bits)

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet(bits=self.bits | other.bits)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet(bits=self.bits & ~other.bits)

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and bool(self.bits >> cpu & 1)

    def __iter__(self) -> Iterator[int]:
        bits = self.bits
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return bool(self.bits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuSet) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __str__(self) -> str:
        return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in self._runs())

    def __repr__(self) -> str:
        return f"CpuSet({str(self)!r})"

    def _runs(self) -> Iterator[tuple[int, int]]:
        bits, offset = self.bits, 0
        while bits:
            zeros = (bits & -bits).bit_length() - 1
            bits >>= zeros
            ones = (~bits & (bits + 1)).bit_length() - 1
            yield offset + zeros, offset + zeros + ones - 1
            bits >>= ones
            offset += zeros + ones


def _bounded(number: int) -> int:
    if not 0 <= number <= MAX_CPU:
        raise ValueError(f"CPU number {number} is not between 0 and {MAX_CPU}")
    return number


def _number(text: str) -> int:
    # int() alone would also take "+1", "1_0" and other scripts' digits, which the kernel never writes.
    if len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
        raise ValueError(f"not a CPU number: {text[:20]!r}")
    return _bounded(int(text))


def _range_bits(part: str) -> int:
    span, colon, stride = part.partition(":")
    low_text, dash, high_text = span.partition("-")
    low = _number(low_text)
    high = _number(high_text) if dash else low
    if high < low:
        raise ValueError(f"range {part[:40]!r} runs backwards")
    whole = (1 << (high - low + 1)) - 1
    return (whole & _groups(stride, high - low + 1) if colon else whole) << low


def _groups(stride: str, width: int) -> int:
    """``2/4`` as bits, the first 2 of every 4: 0b…00110011, at least `width` bits."""
    used_text, _, group_text = stride.partition("/")
    used, group = _number(used_text), _number(group_text)
    if not 1 <= used <= group:
        raise ValueError(f"bad stride {stride[:40]!r}")
    bits = (1 << used) - 1
    while group < width:
        bits |= bits << group
        group *= 2
    return bits
