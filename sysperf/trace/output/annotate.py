"""The trace as it was, with rows of our own: what the device waited for, and the findings; for Perfetto and chrome://tracing."""

from __future__ import annotations

import gzip
import os
import zlib
from typing import IO, BinaryIO

from sysperf.host import files
from sysperf.host.plain_files import open_plain
from sysperf.model.errors import TraceError
from sysperf.model.record import JsonObject, to_json
from sysperf.model.text import neutral
from sysperf.startup import lazy
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.output.analysis import Analysis
from sysperf.trace.output.drawing import BUSY, CAUSES, causes
from sysperf.trace.reading.repair import objects

PIECE_BYTES = 1 << 20
MAX_HEAD_BYTES = 32 << 20
PROCESS = 2_000_000_000
"""A process number that no program has (Linux counts to 4 194 304)."""
_START = lazy(rb'"traceEvents"\s*:\s*\[')


def write(source: str, target: str, accounting: Accounting, analysis: Analysis) -> None:
    """Copy a Chrome trace with our rows in it. Raises TraceError."""
    if accounting.timeline.form != "kineto":
        raise TraceError(f"{source}: only Chrome traces can be annotated", "open exports of Nsight Systems in Nsight Systems")
    if os.path.lexists(target) and not os.path.isfile(target):  # /dev/null would be replaced
        raise TraceError(f"{target} is no file", "name another file")
    rows = b",\n".join(to_json(event) for event in _events(accounting, analysis))
    copy = _copy_whole_events if accounting.timeline.damage.is_open else _copy

    def write_to(file: IO[bytes]) -> None:
        with _open(source) as before:
            if target.endswith(".gz"):
                with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as packed:
                    copy(before, packed, rows, source)  # type: ignore[arg-type]  # a GzipFile writes bytes, too
            else:
                copy(before, file, rows, source)

    try:
        files.write_whole(files.link_target(target), write_to)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise TraceError(f"{target}: {why}", "choose a file that can be written; a damaged trace cannot be annotated") from None


def _open(path: str) -> BinaryIO:
    handle = open_plain(path)
    try:
        place = f"/proc/self/fd/{handle}"  # its name may be another file's by now
        packed = os.pread(handle, 2, 0) == b"\x1f\x8b"
        return gzip.open(place, "rb") if packed else open(place, "rb")  # type: ignore[return-value]
    finally:
        os.close(handle)


def _copy(before: BinaryIO, after: IO[bytes], rows: bytes, path: str) -> None:
    """Everything as it was; our rows come first in the list of events."""
    head, place = _head(before, path)
    after.write(head[:place] + b"\n" + rows + b"," + head[place:])
    while piece := before.read(PIECE_BYTES):
        after.write(piece)


def _copy_whole_events(before: BinaryIO, after: IO[bytes], rows: bytes, path: str) -> None:
    """Copy the whole events of a file that is cut behind our rows, and an end, so that others can read it."""
    head, place = _head(before, path)
    after.write(head[:place] + b"\n" + rows)
    rest, closed = head[place:], False
    while not closed and len(rest) <= MAX_HEAD_BYTES:
        _, end, closed = objects(rest)
        if end:
            after.write(b",\n" + rest[:end].lstrip(b", \t\r\n"))
        rest = rest[end:]
        piece = before.read(PIECE_BYTES)
        if not piece:
            break
        rest += piece
    after.write(b"\n]" if _is_list(head) else b"\n]}")


def _head(before: BinaryIO, path: str) -> tuple[bytes, int]:
    """(the first text of a file, where its first event starts in it). Raises TraceError where there is none."""
    head = b""
    while piece := before.read(PIECE_BYTES):
        head += piece
        if (place := _place(head)) or len(head) > MAX_HEAD_BYTES:
            break
    place = _place(head)
    if not place:
        raise TraceError(f"{path}: no `traceEvents` in it")
    return head, place


def _is_list(head: bytes) -> bool:
    """Whether the events are the file, and no key of an object."""
    return head.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"[")


def _place(head: bytes) -> int:
    if _is_list(head):
        return head.index(b"[") + 1
    start = _START.search(head)
    return start.end() if start else 0


def _events(accounting: Accounting, analysis: Analysis) -> list[JsonObject]:
    window = accounting.window
    events = [_meta("process_name", 0, "sysperf"), {**_meta("process_sort_index", 0, ""), "args": {"sort_index": -1}}]
    for number, time in enumerate(accounting.times, 1):
        events.append(_meta("thread_name", number, f"device {time.device}: exposed time"))
        shown = [(CAUSES[color], parts) for color, parts in causes(time, accounting.unrecorded) if color != BUSY]
        events += [_box(name, number, part, {}) for name, parts in shown for part in parts]
    for number, finding in enumerate(analysis.findings, len(accounting.times) + 1):
        events.append(_meta("thread_name", number, finding.rule))
        args = {
            "message": neutral(finding.message), "cost_pct": finding.cost_pct, "work_pct": finding.work_pct,
            "predicted_gain": finding.gain.interval, "where": [place.text for place in finding.places],
        }  # fmt: skip
        if window is not None:
            events.append(_box(finding.rule, number, window.span, args))
    return events


def _meta(name: str, thread: int, text: str) -> JsonObject:
    return {"ph": "M", "name": name, "pid": PROCESS, "tid": thread, "ts": 0, "args": {"name": text}}


def _box(name: str, thread: int, part: tuple[int, int], args: JsonObject) -> JsonObject:
    start, end = part
    return {
        "ph": "X", "cat": "sysperf", "name": name, "pid": PROCESS, "tid": thread,
        "ts": start / 1e3, "dur": (end - start) / 1e3, "args": args,
    }  # fmt: skip
