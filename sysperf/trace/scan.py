"""Where a Chrome trace can be cut between two events, and which part of it starts late: without decoding it.

Also a program of its own, which needs nothing but this file: `python scan.py TRACE OFFSET LIMIT` prints the index of what follows
the first event behind that offset, for the process that decodes what comes before. A raw quote cannot stand in a JSON string,
so what looks like a key is one.
"""

from __future__ import annotations

import os
import re
import struct
import sys

TYPE_CHECKING = False  # as typing's, which this program does without
if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 1 << 19
ENTRY = struct.Struct("<qq?")
"""Where a piece starts, where the next one starts, and whether all in it is later than the limit."""
KEPT = b"ProfilerStep", b"thread_name"
"""What is decoded wherever it stands: the profiler's steps, and the names of threads."""
_KEYS = rb'"(?:ph|name|cat|pid|ts|args|dur|tid|id)"'
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb")")
_LAST_BYTES = 1 << 14
MAX_KEPT = 16
"""Of one text: where there are more, looking for each takes longer than decoding all."""
_EXACT_DIGITS = 4
"""A limit is rounded up by so many digits at the most: 10 ms."""


def first_cut(text: bytes) -> int:
    """Where the first event starts that follows another one; 0: nowhere."""
    match = _BETWEEN.search(text)
    return match.end() if match else 0


def last_cut(text: bytes) -> int:
    """Where the last event of the text starts, if another one precedes it; 0: nowhere."""
    size = len(text)
    reach = _LAST_BYTES
    while True:
        low = max(0, size - reach)
        cut = 0
        for match in _BETWEEN.finditer(text, low):
            cut = match.end()
        if cut or low == 0:
            return cut
        reach *= 8


def not_later_than(limit_us: int) -> re.Pattern[bytes]:
    """What finds a time that is not surely later than this limit: an earlier one, and any that is written in another way.

    Times of one file have as many digits and start with the same ones, so nearly all are decided by two or three of them.
    """
    digits = str(max(0, limit_us))
    exact = max(1, len(digits) - _EXACT_DIGITS)
    later = b""
    for place in reversed(range(exact)):
        digit, left = int(digits[place]), len(digits) - place - 1
        larger = b"[%d-9]\\d{%d}(?![\\deE])" % (digit + 1, left) if digit < 9 else b""
        later = b"|".join(filter(None, (larger, b"%d(?:%b)" % (digit, later) if later else b"")))
    longer = b"[1-9]\\d{%d,}(?![\\deE])" % len(digits)
    return re.compile(rb'"ts"(?!: ?(?:%b))' % b"|".join(filter(None, (later, longer))))


def parts(text: bytes, end: int, not_later: re.Pattern[bytes]) -> Iterator[tuple[int, int, bool]]:
    """`text[:end]` in parts: (start, end, whether all in it is later than a limit). What must be decoded is a part of its own."""
    if not_later.search(text, 0, end) or sum(text.count(word, 0, end) for word in KEPT) > MAX_KEPT:
        yield 0, end, False
        return
    done = 0
    for start, stop in _kept(text, end):
        if start > done:
            yield done, start, True
        if stop > done:
            yield max(start, done), stop, False
            done = stop
    if end > done:
        yield done, end, True


def _kept(text: bytes, end: int) -> list[tuple[int, int]]:
    """The places of the events that are decoded wherever they stand, each until the next event starts."""
    places = []
    for word in KEPT:
        at = text.find(word, 0, end)
        while at >= 0:
            start = last_cut(text[max(0, at - _LAST_BYTES) : at])
            behind = _BETWEEN.search(text, at, end)
            stop = behind.end() if behind else end
            places.append((max(0, at - _LAST_BYTES) + start if start else 0, stop))
            at = text.find(word, stop, end)
    return sorted(places)


def main() -> None:
    """Print the index."""
    path, offset, not_later = sys.argv[1], int(sys.argv[2]), not_later_than(int(sys.argv[3]))
    out = sys.stdout.buffer
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        rest = file.read(BLOCK_BYTES)
        start = first_cut(rest)
        if not start:
            return
        rest, start = rest[start:], offset + start
        while block := file.read(BLOCK_BYTES):
            rest += block
            cut = last_cut(rest)
            if cut:
                for low, high, late in parts(rest, cut, not_later):
                    out.write(ENTRY.pack(start + low, start + high, late))
                out.flush()
                rest, start = rest[cut:], start + cut
            elif len(rest) > 64 * BLOCK_BYTES:
                return


if __name__ == "__main__":
    try:
        main()
    except (OSError, MemoryError, OverflowError, struct.error):
        os._exit(1)  # whoever wanted the index reads the file itself
