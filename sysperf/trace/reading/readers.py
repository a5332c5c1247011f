"""Which reader a file needs: its first bytes decide, not its name. Ours first, then those of installed plugins."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sysperf.host.plain_files import open_plain
from sysperf.model.errors import TraceError, how_to_read
from sysperf.model.text import neutral
from sysperf.trace.reading import nsys
from sysperf.trace.timeline import Timeline

if TYPE_CHECKING:
    from sysperf.plugin import TraceReader

Progress = Callable[[int], None]
FIRST_BYTES = 64
_UTF16 = "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"
_PICKLE = "a pickle, such as a snapshot of memory", "open snapshots of memory at https://pytorch.org/memory_viz"
_FOREIGN = {
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
    b"PK": ("a zip archive", "unpack it, and name the trace in it"),
    **dict.fromkeys((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"), _PICKLE),
}
"""What people have, by how it begins, and what to do with it."""


def read(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read a trace of any known form. Raises TraceError."""
    first = _first_bytes(path)
    for reader in _readers():
        if reader.recognises(path, first):
            return _timeline(reader.read(path, progress), path)
    what, hint = next(
        (known for start, known in _FOREIGN.items() if first.startswith(start)),
        ("no form of trace that is known here", "sysperf reads Chrome traces (.json, .json.gz) and exports of Nsight Systems (.sqlite)"),
    )
    if not first:
        raise TraceError(f"{path}: empty", "take the trace again, and wait until it is written, on a disk with room")
    raise TraceError(f"{path}: {what}", hint)


def _first_bytes(path: str) -> bytes:
    """Raises TraceError where this cannot be read, or is a pipe or device: a trace is read more than once, and not from its start alone."""
    try:
        with open(open_plain(path), "rb") as file:
            return file.read(FIRST_BYTES)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise TraceError(f"{path} is no file", "save the trace as a file, and name that") from None
        kinds = "name a trace: .json, .json.gz, .sqlite or .nsys-rep"
        in_it = f"name the trace in it, or those of all ranks: {neutral(path.rstrip('/'))}/*.json*"
        hint = in_it if error.errno == errno.EISDIR else how_to_read(error, kinds)
        raise TraceError(f"{path}: {error.strerror or error}", hint) from None


def _readers() -> Iterator[TraceReader]:
    """Ours need no look-up, which takes 20 ms; each is imported where those before it do not know the file."""
    yield nsys
    from sysperf.trace.reading import kineto  # noqa: PLC0415 - 4 ms that exports of Nsight Systems do without

    yield kineto
    from sysperf.plugin import trace_readers  # noqa: PLC0415 - 8 ms that our own forms do without

    yield from trace_readers()


def _timeline(timeline: object, path: str) -> Timeline:
    if not isinstance(timeline, Timeline):
        raise TraceError(f"{path}: the reader of this form gave no timeline", "use a version of the plugin made for this sysperf")
    return timeline
