"""Kineto and other Chrome traces, as a stream: `.json` and `.json.gz`, in memory that does not grow with the file's text.

Reads   {"traceEvents": [{"ph": "X", "cat": …, "name": …, "ts": …, "dur": …, "args": {…}}, …], …} or the array alone
Format  https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU and
        https://github.com/pytorch/kineto/blob/main/libkineto/src/output_json.cpp

The file is read in pieces that end between two events, and each piece is decoded into the few fields that are used.
A piece that cannot be decoded whole is taken apart event by event (`repair`), and what is lost is counted.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from typing import BinaryIO

import msgspec

from sysperf.host.plain_files import open_plain
from sysperf.model.errors import TraceError
from sysperf.startup import lazy
from sysperf.trace.reading import repair
from sysperf.trace.reading.adder import Adder
from sysperf.trace.reading.events import Event
from sysperf.trace.reading.metadata import describe
from sysperf.trace.reading.part import Cut, better_cut, is_all_needed, sampled_cut
from sysperf.trace.reading.pieces import Progress, Text
from sysperf.trace.reading.programs import keep_one
from sysperf.trace.reading.scan import last_cut, not_later_than, parts
from sysperf.trace.timeline import SECOND, Timeline

MAX_PIECE_BYTES = 64 << 20
"""A file without a place to cut for so long is no trace."""
MAX_HEAD_BYTES = 32 << 20
FORM_BYTES = 1 << 10
_START = lazy(rb'"traceEvents"\s*:\s*\[')
_GZIP = b"\x1f\x8b"
_READS = "sysperf reads what torch.profiler writes (export_chrome_trace)"
_OWN = frozenset(("Trace", "async", "ac2g", "fwdbwd", "cpu_instant_event"))
"""Kinds that torch.profiler writes also where it recorded nothing."""
_WRITERS = {
    "a browser's trace": lazy(r"(?:^|,|\.)(?:devtools|blink|v8|toplevel|cc|loading|navigation|benchmark|renderer|ipc|viz)(?:$|,|\.)"),
    "a trace of XLA, as of JAX or TensorFlow": lazy(r"/(?:host|device):"),
    "a view of an Ascend NPU's trace": lazy(r"Ascend|CANN|Overlap Analysis"),
}
"""Who writes Chrome traces, too, by the kinds of its events or the names of its processes."""
_FORMS = {
    lazy(rb'\A[^\[]*"schema"\s*:\s*"[^"]*chakra'): "an execution trace (ExecutionTraceObserver), which has no times",
    lazy(rb"speedscope\.app/file-format-schema"): "a profile for speedscope",
    lazy(rb"\A\s*\[\s*\["): "lists of numbers, such as a memory timeline",
}
"""What other JSON people have, by how it begins."""
_SECOND = lazy(rb'\A\s*\]\s*\[\s*\{|\A\s*\].*?"traceEvents"\s*:\s*\[', re.DOTALL)
_STRAY = lazy(rb'[\s,]*\]\s*(?:,?\s*\{|")')
"""A bracket in the place of what stands between two events, or opens one: the list does not end there."""
MAX_NAMED = 5
MAX_BROKEN = 10_000
"""Behind so many broken events, those are not looked for that are whole among broken ones."""


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
        with open(open_plain(path), "rb") as file:
            return _read_part(file, path, progress)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}", "name a trace that you can read") from None


def _read_part(file: BinaryIO, path: str, progress: Progress) -> Timeline:
    """Read what is needed of the file. Where its first part has too few steps, it is read again with the steps' times known."""
    text = Text(file, progress)
    cut = None if text.is_packed else sampled_cut(file.fileno(), text.size)
    timeline, has_steps = _read(text, path, cut)
    if cut is not None and not has_steps:
        file.seek(0)
        unmarked = None if is_all_needed(timeline) else sampled_cut(file.fileno(), text.size, has_marks=False)
        timeline, _ = _read(text, path, better_cut(timeline) or unmarked)
    keep_one(timeline)
    return timeline


def _read(text: Text, path: str, cut: Cut | None) -> tuple[Timeline, bool]:
    """(what is not later than the cut, whether there are enough steps in it)."""
    timeline = Timeline(path, "kineto")
    timeline.cut = cut.at if cut else None
    adder = Adder(timeline, text.unpacked_bytes)
    pieces = _pieces(text.pieces(cut))
    try:
        head = _head(pieces, path, text)
        rest = _decode(pieces, head[1], adder, timeline, cut.latest_us if cut else 0)
    finally:
        pieces.close()
    timeline.damage.truncated = text.damage or timeline.damage.truncated
    describe(timeline, head[0], rest)
    if not adder.seen:
        raise _nothing(path, text, "no events in it")
    if not any(map(len, (timeline.operations, timeline.calls, timeline.ranges, timeline.accelerator))):
        if adder.has_unnamed_kinds:
            raise _foreign(path, "its processes are", adder.processes or {"without names"})
        if kinds := timeline.unknown_kinds - _OWN:
            raise _foreign(path, "its events are of the kinds", kinds)
    return timeline, adder.has_steps


class _pieces:  # noqa: N801 - an iterator
    """Blocks of text, and the last of them once more where somebody hands back what he did not use."""

    def __init__(self, blocks: Generator[bytes]) -> None:
        self._blocks = blocks
        self.rest = b""

    def more(self, wanted: int = 1) -> bool:
        """Add blocks to `rest`, until so many bytes came; returns whether there were any.

        Who found nothing in all of it asks for as much again: then he looks through little more than there is.
        """
        blocks = [self.rest]
        while wanted > 0 and (block := next(self._blocks, b"")):
            blocks.append(block)
            wanted -= len(block)
        self.rest = b"".join(blocks)
        return len(blocks) > 1

    def close(self) -> None:
        """Ask for no more."""
        self._blocks.close()


def _head(pieces: _pieces, path: str, file: Text) -> tuple[bytes, bool]:
    """(what stands before the events, whether the file is an object). `pieces.rest` starts with the first event."""
    while pieces.more(len(pieces.rest) or 1):
        text = pieces.rest
        if form := next((what for starts, what in _FORMS.items() if starts.search(text[:FORM_BYTES])), ""):
            raise TraceError(f"{path}: {form}", _READS)
        if text.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"["):
            pieces.rest = text[text.index(b"[") + 1 :]
            return b"", False
        if start := _START.search(text):
            pieces.rest = text[start.end() :]
            return text[: start.start()], True
        if len(text) > MAX_HEAD_BYTES:
            break
    if pieces.rest.startswith(_GZIP):
        raise TraceError(f"{path}: compressed twice", "unpack it once: gunzip")
    raise _nothing(path, file, "no `traceEvents` in it")


def _nothing(path: str, file: Text, what: str) -> TraceError:
    """The error of a file without anything to analyze, with its damage."""
    if file.damage:
        return TraceError(f"{path}: {what}, and {file.damage}", "copy it again from where it was written, or take the trace again")
    return TraceError(f"{path}: {what}", "is it a trace of torch.profiler (export_chrome_trace) or of Nsight Systems?")


def _foreign(path: str, what: str, kinds: set[str]) -> TraceError:
    """The error of a Chrome trace that somebody else wrote."""
    named = ", ".join(sorted(kinds)[:MAX_NAMED])
    who = next((who for who, tells in _WRITERS.items() if any(map(tells.search, kinds))), "a trace of another program than PyTorch")
    return TraceError(f"{path}: {who}: {what} {named}", _READS)


def _decode(pieces: _pieces, is_object: bool, adder: Adder, timeline: Timeline, latest_us: int) -> bytes:
    """Decode all events, until the time of the last about; returns the text behind them."""
    limit: int | None = None
    not_later: re.Pattern[bytes] | None = None
    while True:
        cut = last_cut(pieces.rest)
        if timeline.cut is not None and timeline.cut != limit:
            limit, not_later = timeline.cut, not_later_than(timeline.cut // 1_000, latest_us)
        if cut > 0:
            for start, end, later in ((0, cut, False),) if not_later is None else parts(pieces.rest, cut, not_later):
                if not later:
                    _add(pieces.rest[start:end].rstrip(b" \t\r\n,"), adder, timeline)
            if timeline.damage.truncated == SECOND:
                return b""
            pieces.rest = pieces.rest[cut:]
        elif len(pieces.rest) > MAX_PIECE_BYTES:
            timeline.damage.truncated = f"no event ends within {MAX_PIECE_BYTES >> 20} MiB"
            return b""
        if not pieces.more(1 if cut > 0 else len(pieces.rest) or 1):
            return _last(pieces.rest, is_object, adder, timeline)


def _add(piece: bytes, adder: Adder, timeline: Timeline) -> None:
    try:
        events = _events(b"[%b]" % piece)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        known = timeline.damage.events
        events, end, closed = _apart_to_end(piece, timeline)
        if _SECOND.search(piece[end:]):
            timeline.damage.truncated = SECOND
        elif not closed and piece[end:].strip() and timeline.damage.events == known:
            timeline.damage.events += 1
    adder.add(events)


def _last(text: bytes, is_object: bool, adder: Adder, timeline: Timeline) -> bytes:
    """The last events, and what follows them: other keys of the object, or nothing where the file breaks off."""
    try:
        adder.add(_tail(b'{"traceEvents":[%b' % (text if is_object else text + b"}")).traceEvents)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        events, end, closed = _apart_to_end(text, timeline)
        adder.add(events)
        timeline.damage.is_open = not closed or not _is_end(text[end:] if is_object else text[end:] + b"}")
        if closed and _SECOND.search(text[end:]):
            timeline.damage.truncated = SECOND
        if not closed and not timeline.damage.truncated:
            timeline.damage.truncated = "it breaks off within the events"
        return text[end:]
    return text


def _is_end(text: bytes) -> bool:
    """Whether this ends a list of events and the object that it is in."""
    try:
        _tail(b'{"traceEvents":[%b' % text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return False
    return True


def _apart_to_end(text: bytes, timeline: Timeline) -> tuple[list[Event], int, bool]:
    """The events that can be decoded one by one, where they end, and whether the array was closed there."""
    objects, end, closed = repair.objects(text)
    if closed and _STRAY.match(text, end) and not _SECOND.search(text[end:]):
        closed = False
        text = text[:end] + text[end:].replace(b"]", b",", 1)
    events = list(_repaired((text[start:stop] for start, stop in objects), timeline))
    if closed or timeline.damage.events > MAX_BROKEN or not (behind := repair.split(text[end:]))[1:]:
        return events, end, closed
    *whole, last = behind  # quotes or brackets do not match: those of the last event may
    events += _repaired(whole, timeline)
    found, stop, closed = _apart_to_end(last, timeline)
    return events + found, len(text) - len(last) + stop, closed


def _repaired(texts: Iterable[bytes], timeline: Timeline) -> Iterator[Event]:
    """The events in these texts, each of one event, or of several where what is broken between them made them one."""
    for text in texts:
        event = repair.event(text)
        parts = repair.split(text) if event is None and timeline.damage.events <= MAX_BROKEN else []
        if event is not None:
            yield event
        elif len(parts) > 1:
            yield from _repaired(parts, timeline)
        else:
            timeline.damage.events += 1
            if timeline.damage.events > MAX_BROKEN:
                timeline.damage.truncated = f"more than {MAX_BROKEN} events are broken"
