"""The file of a trace. The program writes into a folder made for this, and only a whole file leaves it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from sysperf import paths
from sysperf.model.errors import UsageError

CHUNK_BYTES = 1 << 20
SETTLED_S = 0.2
"""For this long a file that is complete has not grown."""
_EVENT = re.compile(rb'"ph": ?"X"')
_STEP = re.compile(rb'"cat": ?"user_annotation",\s{1,20}"name": ?"Optimizer\.step#')
_MAX_MATCH_BYTES = 100
"""Bytes of the longest match: what may straddle two chunks."""


class Counts(NamedTuple):
    """What a trace holds."""

    size_bytes: int
    events: int
    steps: int


def output_path(output: str, pid: int) -> str:
    """The file to write, which does not exist yet. Raises UsageError."""
    folder = "." if os.access(".", os.W_OK) else paths.temporary_home()
    path = os.path.abspath(output or f"{folder}/sysperf-trace-{pid}-{time.strftime('%Y%m%d-%H%M%S')}.json")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists", "choose another name with --output: nothing is overwritten")
    folder = os.path.dirname(path)
    if not folder.isprintable() or set("#=") & set(folder):
        raise UsageError(
            f"{folder}: PyTorch cannot write to such a path, because of a character in it", "choose another folder with --output"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder}: cannot be written to", "choose another folder with --output")
    return path


@contextlib.contextmanager
def scratch(path: str) -> Iterator[str]:
    """A folder beside the file, of this user alone, and gone afterwards with all that is in it."""
    try:
        folder = tempfile.mkdtemp(prefix=".sysperf-trace-", dir=os.path.dirname(path))
    except OSError as error:
        raise UsageError(f"{os.path.dirname(path)}: {error.strerror}", "choose another folder with --output") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def begun(folder: str) -> bool:
    """Whether the program has begun to write."""
    return bool(os.listdir(folder))


def complete(folder: str) -> str | None:
    """The trace in this folder once it is complete: named as finished, with both of its ends, and no longer growing."""
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if name.endswith(".json") and os.path.isfile(path) and not os.path.islink(path):
            size = _size_with_ends(path)
            time.sleep(SETTLED_S)
            if size and size == _size_with_ends(path):
                return path
    return None


def _size_with_ends(path: str) -> int:
    """Return its size; 0 while its beginning or its end is not there yet."""
    try:
        with open(path, "rb", opener=_open) as file:
            head = file.read(64).lstrip()
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 64))
            return size if head.startswith(b"{") and file.read(64).rstrip().endswith(b"}") else 0
    except OSError:
        return 0


def _open(path: str, flags: int) -> int:
    """Open what the program wrote; a pipe that it has put there since is not waited for."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def counts(path: str) -> Counts:
    """Return its events and optimizer steps, counted in one reading of bounded memory. Raises OSError."""
    events = steps = 0
    rest = b""
    with open(path, "rb", opener=_open) as file:
        while chunk := file.read(CHUNK_BYTES):
            text = rest + chunk
            events += _new(_EVENT, text, len(rest))
            steps += _new(_STEP, text, len(rest))
            rest = text[-_MAX_MATCH_BYTES:]
        return Counts(file.tell(), events, steps)


def _new(pattern: re.Pattern[bytes], text: bytes, known: int) -> int:
    """Matches that do not lie within the bytes that were searched before."""
    return sum(match.end() > known for match in pattern.finditer(text))
