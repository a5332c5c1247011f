"""What `perf script` prints, as records. Symbols come out of other programs' files, so every text in it may be anything."""

from __future__ import annotations

import re
from collections import Counter

from sysperf.model.profile import Frame, Sample

MAX_LINES = 500_000
MAX_FRAMES = 200
MAX_TEXT = 1_000
_HEAD = re.compile(r"(\S.{0,39}?)\s+([0-9]{1,10})(?:\s+([0-9a-f]{1,16}\s.*))?")
_ADDRESS = re.compile(r"[0-9a-f]{1,16}")
_PYTHON = re.compile(r"py::(.{0,1000}):(/?[^:]{1,1000})")

Key = tuple[int, str, tuple[Frame, ...]]


def samples(printed: bytes) -> tuple[Sample, ...]:
    """The samples, equal ones together; lines that are something else are left out."""
    counts: Counter[Key] = Counter()
    head: tuple[int, str] | None = None
    frames: list[Frame] = []
    for line in printed.decode("utf-8", "replace").split("\n", MAX_LINES)[:MAX_LINES]:
        if line[:1] in (" ", "\t") and head is not None and (frame := _frame(line)) is not None:
            if len(frames) < MAX_FRAMES:
                frames.append(frame)
            continue
        _count(counts, head, frames)
        head, frames = _head(line)
    _count(counts, head, frames)
    return tuple(Sample(tid, name, stack, count) for (tid, name, stack), count in counts.items())


def _count(counts: Counter[Key], head: tuple[int, str] | None, frames: list[Frame]) -> None:
    if head is not None and frames:
        counts[(*head, tuple(frames))] += 1


def _head(line: str) -> tuple[tuple[int, str] | None, list[Frame]]:
    """``python 4242`` before a stack, or ``python 4242 7f12 symbol (library)`` without stacks."""
    match = _HEAD.fullmatch(line.strip())
    if match is None:
        return None, []
    frame = _frame(match[3]) if match[3] else None
    return (int(match[2]), match[1]), [frame] if frame is not None else []


def _frame(line: str) -> Frame | None:
    """``7f12 symbol (library)``; Python's trampolines have symbols like ``py::function:/path/file.py``."""
    address, _, named = line.strip().partition(" ")
    symbol, bracket, library = named.replace(" (deleted))", ")").rpartition("(")
    if not _ADDRESS.fullmatch(address) or not bracket or not library.endswith(")"):
        return None
    symbol = symbol.strip()
    python = _PYTHON.fullmatch(symbol)
    if python is not None:
        return Frame(python[1][:MAX_TEXT], python[2][:MAX_TEXT])
    return Frame(symbol[:MAX_TEXT], library[:-1][:MAX_TEXT])
