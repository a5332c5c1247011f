"""Where a Chrome trace can be cut between two events, and which part of it starts late: without decoding it.

Also a program of its own, which needs nothing but this file: `python scan.py TRACE OFFSET` prints the index of what follows
the first event behind that offset, for the process that decodes what comes before. A raw quote cannot stand in a JSON string,
so what looks like a key is one.
"""

from __future__ import annotations

import os
import re
import struct
import sys

BLOCK_BYTES = 1 << 19
ENTRY = struct.Struct("<qqq")
"""Where a piece starts, where the next one starts, and the earliest time in it in whole µs; `EARLY`: it must be decoded."""
EARLY = -1
KEPT = b"ProfilerStep", b"thread_name"
"""What is decoded wherever it stands: the profiler's steps, and the names of threads."""
_KEYS = rb'"(?:ph|name|cat|pid|ts|args|dur|tid|id)"'
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{\s*" + _KEYS + rb")")
_LAST_BYTES = 1 << 14
_TIMES = re.compile(rb'"ts"\s*:\s*(\d*)')


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


def earliest_us(text: bytes, end: int) -> int:
    """The earliest time of all events in `text[:end]`, in whole µs; `EARLY` where that cannot be told, or some must be decoded."""
    if any(text.find(word, 0, end) >= 0 for word in KEPT):
        return EARLY
    times = _TIMES.findall(text, 0, end)
    lengths = {*map(len, times)}
    if 0 in lengths:
        return EARLY
    if len(lengths) > 1:
        return min(map(int, times))
    return int(min(times)) if times else EARLY


def main() -> None:
    """Print the index."""
    path, offset = sys.argv[1], int(sys.argv[2])
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
                out.write(ENTRY.pack(start, start + cut, earliest_us(rest, cut)))
                out.flush()
                rest, start = rest[cut:], start + cut
            elif len(rest) > 64 * BLOCK_BYTES:
                return


if __name__ == "__main__":
    try:
        main()
    except (OSError, MemoryError, OverflowError, struct.error):
        os._exit(1)  # whoever wanted the index reads the file itself
