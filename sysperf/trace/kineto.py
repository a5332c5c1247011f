"""Kineto and other Chrome traces, as a stream: `.json` and `.json.gz`, in memory that does not grow with the file's text.

Reads   {"traceEvents": [{"ph": "X", "cat": …, "name": …, "ts": …, "dur": …, "args": {…}}, …], …} or the array alone
Format  https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU and
        https://github.com/pytorch/kineto/blob/main/libkineto/src/output_json.cpp

The file is read in pieces that end between two events, and each piece is decoded into the few fields that are used.
A piece that cannot be decoded whole is taken apart event by event (`repair`), and what is lost is counted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from sysperf.model.errors import TraceError
from sysperf.trace import repair
from sysperf.trace.events import Adder, Event
from sysperf.trace.metadata import describe
from sysperf.trace.timeline import Timeline

PIECE_BYTES = 1 << 19
MAX_PIECE_BYTES = 64 << 20
"""A file without a place to cut for so long is no trace."""
MAX_HEAD_BYTES = 32 << 20
_START = re.compile(rb'"traceEvents"\s*:\s*\[')
_CUT = re.compile(rb"\}\s*,\s*\Z")
_TIME = re.compile(rb'"ts"\s*:\s*(\d+(?:\.\d+)?)\s*[,}]')
_KEPT = b"ProfilerStep", b'"ph": "M"', b'"ph":"M"'  # steps, and the names of threads
_FIRST_KEYS = (b'"ph"', b'"name"', b'"cat"', b'"pid"', b'"ts"', b'"args"', b'"dur"', b'"tid"', b'"id"')
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 47  # zlib.h: 15, and 32 for the header of gzip or zlib
PACKED_BYTES = 1 << 14  # what is lost before a damaged byte

Progress = Callable[[int], None]
"""Told how many bytes of the file were read."""


class _Tail(msgspec.Struct):
    traceEvents: list[Event] = []  # noqa: N815 - the format's name


_events = msgspec.json.Decoder(list[Event]).decode
_tail = msgspec.json.Decoder(_Tail).decode


def recognises(path: str, first: bytes) -> bool:
    """Whether this is JSON, plain or compressed."""
    return first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") or (first.startswith(_GZIP) and not path.endswith(".tar.gz"))


def read(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read a Chrome trace. Raises TraceError where the file cannot be opened or holds no events at all."""
    try:
        with open(path, "rb") as file:
            return _read(file, path, progress)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None


def _read(file: BinaryIO, path: str, progress: Progress) -> Timeline:
    timeline = Timeline(path, "kineto")
    packed = file.read(2) == _GZIP
    file.seek(0)
    blocks = _unpacked(file, timeline, progress) if packed else _plain(file, progress)
    pieces = _pieces(blocks)
    head = _head(pieces, path)
    adder = Adder(timeline)
    rest = _decode(pieces, head[1], adder, timeline)
    describe(timeline, head[0], rest)
    if not adder.seen:
        raise TraceError(f"{path}: no events in it", "is it a trace of torch.profiler (export_chrome_trace) or of Nsight Systems?")
    return timeline


def _plain(file: BinaryIO, progress: Progress) -> Iterator[bytes]:
    """The file's text in pieces."""
    while block := file.read(PIECE_BYTES):
        progress(file.tell())
        yield block


def _unpacked(file: BinaryIO, timeline: Timeline, progress: Progress) -> Iterator[bytes]:
    """The text of a compressed file in pieces. One that breaks off gives all that came before."""
    unpacker, waiting, complete = zlib.decompressobj(_GZIP_BITS), b"", False
    while waiting or (waiting := file.read(PACKED_BYTES)):
        progress(file.tell())
        try:
            block = unpacker.decompress(waiting, PIECE_BYTES)
        except zlib.error as error:
            timeline.damage.truncated = f"its compression is damaged: {error}"
            return
        waiting, complete = unpacker.unconsumed_tail, unpacker.eof
        if unpacker.eof:  # another compressed file may follow: they are one text
            waiting = unpacker.unused_data
            unpacker = zlib.decompressobj(_GZIP_BITS)
        if block:
            yield block
    if not complete:
        timeline.damage.truncated = "its compression breaks off"


class _pieces:  # noqa: N801 - an iterator
    """Blocks of text, and the last of them once more where somebody hands back what he did not use."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.rest = b""

    def more(self) -> bool:
        """Whether there was another block; it is added to `rest`."""
        block = next(self._blocks, b"")
        self.rest += block
        return bool(block)


def _head(pieces: _pieces, path: str) -> tuple[bytes, bool]:
    """(what stands before the events, whether the file is an object). `pieces.rest` starts with the first event."""
    while pieces.more():
        text = pieces.rest
        if text.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"["):
            pieces.rest = text[text.index(b"[") + 1 :]
            return b"", False
        if found := _START.search(text):
            pieces.rest = text[found.end() :]
            return text[: found.start()], True
        if len(text) > MAX_HEAD_BYTES:
            break
    raise TraceError(f"{path}: no `traceEvents` in it", "is it a trace of torch.profiler (export_chrome_trace) or of Nsight Systems?")


def _decode(pieces: _pieces, is_object: bool, adder: Adder, timeline: Timeline) -> bytes:
    """Decode all events; returns the text behind them."""
    while True:
        cut = _cut(pieces.rest)
        if cut > 0:
            piece, pieces.rest = pieces.rest[:cut], pieces.rest[cut:].lstrip(b" \t\r\n,")
            _add(piece.rstrip(b" \t\r\n,"), adder, timeline)
        elif len(pieces.rest) > MAX_PIECE_BYTES:
            timeline.damage.truncated = f"no event ends within {MAX_PIECE_BYTES >> 20} MiB"
            return b""
        if not pieces.more():
            return _last(pieces.rest, is_object, adder, timeline)


def _cut(text: bytes) -> int:
    """Where the last event of the text starts, or 0. A raw quote cannot stand in a JSON string, so what is found is a key."""
    for key in _FIRST_KEYS:
        position = len(text)
        for _ in range(64):
            position = text.rfind(key, 0, position)
            if position < 0:
                break
            brace = text[max(0, position - 80) : position].rstrip(b" \t\r\n")
            if brace.endswith(b"{") and _CUT.search(brace[:-1]):
                return max(0, position - 80) + len(brace) - 1
    return 0


def _add(piece: bytes, adder: Adder, timeline: Timeline) -> None:
    if timeline.cut is not None and _is_later(piece, adder.limit_us):
        return
    try:
        events = _events(b"[%b]" % piece)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        events = _apart(piece, timeline)[0]
    adder.add(events)


def _is_later(piece: bytes, limit_us: float) -> bool:
    """Whether all events of a piece start after what is kept; their times are looked at without decoding the rest of them."""
    times = _TIME.findall(piece)
    if len(times) != piece.count(b'"ts"') or any(word in piece for word in _KEPT):
        return False
    return min(map(float, times), default=limit_us) > limit_us


def _last(text: bytes, is_object: bool, adder: Adder, timeline: Timeline) -> bytes:
    """The last events, and what follows them: other keys of the object, or nothing where the file breaks off."""
    try:
        adder.add(_tail(b'{"traceEvents":[%b' % (text if is_object else text + b"}")).traceEvents)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        events, end, closed = _apart_to_end(text, timeline)
        adder.add(events)
        if not closed and not timeline.damage.truncated:
            timeline.damage.truncated = "it breaks off within the events"
        return text[end:]
    return text


def _apart(piece: bytes, timeline: Timeline) -> tuple[list[Event], int]:
    events, end, _ = _apart_to_end(piece, timeline)
    return events, end


def _apart_to_end(text: bytes, timeline: Timeline) -> tuple[list[Event], int, bool]:
    """The events that can be decoded one by one, where they end, and whether the array was closed there."""
    events: list[Event] = []
    objects, end, closed = repair.objects(text)
    for start, stop in objects:
        event = repair.event(text[start:stop])
        if event is None:
            timeline.damage.events += 1
        else:
            events.append(event)
    return events, end, closed
