"""What py-spy prints, as records. It shows memory of another program, so every text in it may be anything."""

from __future__ import annotations

import re

import msgspec

from sysperf.model.profile import Frame, Sample, Stacks, Thread
from sysperf.model.record import from_json

MAX_THREADS = 4_096
MAX_FRAMES = 1_000
"""The outermost calls of a deeper recursion are left out."""
MAX_SAMPLES = 100_000
MAX_TEXT = 1_000
TORN = ("Failed to get stack trace", "Failed to copy", "Bad address")
"""What py-spy says where memory changed while it read it."""

_THREAD = re.compile(r"thread \((\w{1,20})\)(?:: (.*))?", re.DOTALL)
_FRAME = re.compile(r"(.*) \((.*?)(?::([0-9]{1,9}))?\)", re.DOTALL)


class Torn(Exception):
    """The program changed its stacks while they were read."""


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _SharedFrame(msgspec.Struct):
    name: str
    file: str | None = None
    line: int | None = None


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool | None = None


class _Shared(msgspec.Struct):
    frames: list[_SharedFrame]


class _Profile(msgspec.Struct):
    name: str
    samples: list[list[int]]


class _Speedscope(msgspec.Struct):
    shared: _Shared
    profiles: list[_Profile]


def stacks(printed: bytes, pid: int) -> Stacks:
    """The threads of `py-spy dump --json`. Raises ValueError when it is something else, Torn when no thread has a stack."""
    try:
        threads_read = from_json(printed, list[_Thread])
    except ValueError:
        raise ValueError("py-spy printed no JSON of its own") from None
    threads = tuple(_thread(thread) for thread in threads_read[:MAX_THREADS])
    if not any(thread.frames for thread in threads):
        raise Torn
    return Stacks(pid, tuple(sorted(threads, key=lambda thread: (thread.name != "MainThread", thread.tid or 0))))


def _thread(thread: _Thread) -> Thread:
    frames = tuple(Frame(frame.name[:MAX_TEXT], frame.filename[:MAX_TEXT], frame.line or None) for frame in thread.frames[:MAX_FRAMES])
    return Thread(thread.os_thread_id, (thread.thread_name or "")[:MAX_TEXT], thread.active, frames)


def sequence(printed: bytes) -> tuple[tuple[Frame, ...], ...]:
    """The stacks of the main thread by `py-spy record --format speedscope --threads`. Raises ValueError when it is something else."""
    document = next((line for line in printed.split(b"\n") if line.startswith(b"{")), b"")
    try:
        recorded = from_json(document, _Speedscope)
    except ValueError:
        raise ValueError("py-spy printed no profile of its own") from None
    frames = [Frame(frame.name[:MAX_TEXT], (frame.file or "")[:MAX_TEXT], frame.line or None) for frame in recorded.shared.frames]
    alone = recorded.profiles[0] if len(recorded.profiles) == 1 else None  # it has no name where `threading` was never imported
    main = next((profile for profile in recorded.profiles if profile.name.endswith('"MainThread"')), alone)
    taken = main.samples[:MAX_SAMPLES] if main is not None else []
    return tuple(tuple(frames[place] for place in reversed(stack[-MAX_FRAMES:]) if 0 <= place < len(frames)) for stack in taken)


def samples(printed: bytes) -> tuple[Sample, ...]:
    """The stacks of `py-spy record --format raw --threads`; lines that are something else are left out."""
    lines = printed.decode("utf-8", "replace").split("\n", MAX_SAMPLES)[:MAX_SAMPLES]
    return tuple(sample for sample in map(_sample, lines) if sample is not None)


def _sample(line: str) -> Sample | None:
    """``thread (TID): NAME;outermost (FILE:LINE);…;innermost (FILE:LINE) COUNT``."""
    stack, _, count = line.rpartition(" ")
    head, *calls = stack.split(";")
    thread = _THREAD.fullmatch(head)
    if thread is None or not calls or not (count.isascii() and count.isdigit()) or len(count) > 9 or not int(count):
        return None
    frames = tuple(_frame(call) for call in reversed(calls[-MAX_FRAMES:]))
    return Sample(_tid(thread[1]), (thread[2] or "")[:MAX_TEXT], frames, int(count))


def _tid(text: str) -> int | None:
    """A thread that the kernel does not number, because it has ended, is shown by its address."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _frame(text: str) -> Frame:
    match = _FRAME.fullmatch(text)
    if match is None:
        return Frame(text[:MAX_TEXT], "")
    return Frame(match[1][:MAX_TEXT], match[2][:MAX_TEXT], int(match[3]) if match[3] else None)
