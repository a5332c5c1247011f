"""Places at which a Chrome trace can be cut between two events, and which part of it starts late: without decoding it.

Also a program of its own, which needs nothing but this file: `python scan.py TRACE OFFSET LIMIT LATEST` prints the index of what
follows the first event behind that offset, for the process that decodes what comes before. A raw quote cannot stand in a JSON string,
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

BLOCK_BYTES = 1 << 17
"""Read at a time. The C library gives larger ones back when they are freed, and the kernel clears every page of the next one."""
MAX_BLOCK_BYTES = 1 << 25
"""A file without a place to cut for so long is no trace."""
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
    """Return where the first event starts that follows another one; 0: nowhere."""
    match = _BETWEEN.search(text)
    return match.end() if match else 0


def last_cut(text: bytes) -> int:
    """Return where the last event of the text starts, if another one precedes it; 0: nowhere."""
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


def not_later_than(limit_us: int, latest_us: int = 0) -> re.Pattern[bytes]:
    """What finds a time that is not surely later than this limit: an earlier one, and any that is written in another way.

    A later one has a larger digit at some place, and the same ones before it. The place at which most have it is that of about the
    latest time of the file: it is tried first.
    """
    digits, latest = b"%d" % max(0, limit_us), b"%d" % latest_us
    places = [place for place in range(max(1, len(digits) - _EXACT_DIGITS)) if digits[place] < ord("9")]
    if len(latest) == len(digits):
        places.sort(key=lambda place: digits[:place] != latest[:place] or digits[place] >= latest[place])
    later = [b"%b[%c-9]\\d{%d}" % (digits[:place], digits[place] + 1, len(digits) - place - 1) for place in places]
    longer = b"[1-9]\\d{%d,}" % len(digits)
    return re.compile(rb'"ts"(?!: ?(?:%b))' % b"|".join(time + rb"[^\deE]" for time in (*later, longer)))


def parts(text: bytes, end: int, not_later: re.Pattern[bytes]) -> Iterator[tuple[int, int, bool]]:
    """`text[:end]` in parts: (start, end, whether all in it is later than a limit). What must be decoded is a part of its own."""
    kept = None if not_later.search(text, 0, end) else _kept(text, end)
    if kept is None:
        yield 0, end, False
        return
    done = 0
    for start, stop in kept:
        if start > done:
            yield done, start, True
        if stop > done:
            yield max(start, done), stop, False
            done = stop
    if end > done:
        yield done, end, True


def _kept(text: bytes, end: int) -> list[tuple[int, int]] | None:
    """The places of the events that are decoded wherever they stand, each until the next event starts; None: of too many."""
    places = list[tuple[int, int]]()
    for word in KEPT:
        at = text.find(word, 0, end)
        while at >= 0:
            if len(places) >= MAX_KEPT:
                return None
            start = last_cut(text[max(0, at - _LAST_BYTES) : at])
            behind = _BETWEEN.search(text, at, end)
            stop = behind.end() if behind else end
            places.append((max(0, at - _LAST_BYTES) + start if start else 0, stop))
            at = text.find(word, stop, end)
    return sorted(places)


def main() -> None:
    """Print the index."""
    path, (offset, limit, latest) = sys.argv[1], map(int, sys.argv[2:])
    not_later, out, size = not_later_than(limit, latest), sys.stdout.buffer, BLOCK_BYTES
    file = os.open(path, os.O_RDONLY)
    first = first_cut(os.pread(file, size, offset))
    start = offset + first
    while first and size <= MAX_BLOCK_BYTES and (text := os.pread(file, size, start)):
        cut = last_cut(text)
        for low, high, late in parts(text, cut, not_later) if cut else ():
            out.write(ENTRY.pack(start + low, start + high, late))
        out.flush()
        start += cut
        size = BLOCK_BYTES if cut else 2 * size


if __name__ == "__main__":
    try:
        main()
    except (OSError, MemoryError, OverflowError, struct.error):
        os._exit(1)  # whoever wanted the index reads the file itself
