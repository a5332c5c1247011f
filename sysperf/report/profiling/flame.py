"""Samples of stacks for viewers: collapsed lines, speedscope's JSON, and a flame graph as a page.

collapsed   https://github.com/brendangregg/FlameGraph#2-fold-stacks
speedscope  https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from sysperf.model.profile import Frame, Sample, Samples
from sysperf.model.record import JsonObject
from sysperf.model.text import neutral
from sysperf.report import frame
from sysperf.report.formats import as_json

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
MAX_NAME = 200
WIDTH, ROW, MIN_SHARE, MAX_DEPTH = 1200, 18, 0.002, 80
"""Units of the picture and of one of its rows; calls of a smaller share, and deeper ones, are not drawn."""
LETTER = 6.6
"""Width of a letter: a name is cut where its call ends."""


def folded(samples: Samples) -> str:
    """One line a stack: thread and calls from outside to inside between semicolons, then how often it was seen."""
    return "".join(f"{';'.join(_names(sample))} {sample.count}\n" for sample in samples.samples)


def _names(sample: Sample) -> tuple[str, ...]:
    calls = (name(call) for call in reversed(sample.frames))
    return tuple(part.replace(";", ",") for part in (neutral(sample.thread or f"thread {sample.tid}", MAX_NAME), *calls))


def name(call: Frame) -> str:
    """``step (train.py:31)``."""
    place = f" ({call.file.rpartition('/')[2]}{f':{call.line}' if call.line else ''})" if call.file else ""
    return neutral(f"{call.function}{place}", MAX_NAME)


def speedscope(samples: Samples) -> str:
    """A profile for https://www.speedscope.app, each thread on its own."""
    numbers: dict[Frame, int] = {}
    threads: dict[tuple[int | None, str], list[Sample]] = {}
    for sample in samples.samples:
        threads.setdefault((sample.tid, sample.thread), []).append(sample)
        for call in sample.frames:
            numbers.setdefault(call, len(numbers))
    shared = [{"name": neutral(call.function, MAX_NAME), "file": neutral(call.file, 1_000), "line": call.line or 0} for call in numbers]
    profiles = [
        _profile(f"{thread or 'thread'} {tid or ''}".strip(), of_thread, numbers, samples.rate_hz)
        for (tid, thread), of_thread in threads.items()
    ]
    return as_json.dump({"$schema": SCHEMA, "exporter": "sysperf", "shared": {"frames": shared}, "profiles": profiles})


def _profile(thread: str, samples: list[Sample], numbers: dict[Frame, int], rate_hz: int) -> JsonObject:
    weights = [sample.count / max(1, rate_hz) for sample in samples]
    stacks = [[numbers[call] for call in reversed(sample.frames)] for sample in samples]
    return {
        "type": "sampled", "name": neutral(thread, MAX_NAME), "unit": "seconds", "startValue": 0, "endValue": sum(weights),
        "samples": stacks, "weights": weights,
    }  # fmt: skip


class _Call(msgspec.Struct):
    """A call with what it called, by name."""

    name: str
    count: int = 0
    below: dict[str, _Call] = {}


def page(samples: Samples) -> str:
    """A flame graph: what is wide took long, what stands on it was called by it. Names and shares are also its tooltips."""
    root = _Call("all")
    for sample in samples.samples:
        root.count += sample.count
        at = root
        for part in _names(sample)[: MAX_DEPTH - 1]:
            at = at.below.setdefault(part, _Call(part))
            at.count += sample.count
    boxes = list(_boxes(root, root.count, 0.0, 0)) if root.count else []
    height = ROW * (1 + max((depth for _, depth in boxes), default=0))
    picture = f'<svg role="img" aria-label="flame graph" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">'
    title = f"Stacks of process {samples.pid}, {samples.seconds} s at {samples.rate_hz} Hz"
    rows = (
        sorted(((f"{100 * call.count / root.count:.1f} %", call.name) for call in root.below.values()), reverse=True) if root.count else []
    )
    table = frame.table(("share", "thread"), rows)
    return frame.framed(title, (f"<h1>{frame.text(title)}</h1>", picture, *(box for box, _ in boxes), "</svg>", table))


def _boxes(call: _Call, total: int, left: float, depth: int) -> Iterator[tuple[str, int]]:
    """(box of a call, its row), and those of what it called, the most frequent first."""
    width = WIDTH * call.count / total
    share = f"{call.name}: {100 * call.count / total:.1f} %"
    shown = call.name[: int((width - 6) / LETTER)] if width > 4 * LETTER else ""
    hue = 20 + zlib.crc32(call.name.encode()) % 35
    place = f'x="{left:.1f}" y="{depth * ROW}" width="{max(0.5, width - 0.5):.1f}" height="{ROW - 1}"'
    label = f'<text x="{left + 3:.1f}" y="{depth * ROW + 12}" fill="#000">{frame.text(shown)}</text>'
    yield f'<g><title>{frame.text(share)}</title><rect {place} fill="hsl({hue},80%,65%)"/>{label}</g>', depth
    for below in sorted(call.below.values(), key=lambda one: -one.count):
        if below.count >= MIN_SHARE * total:
            yield from _boxes(below, total, left, depth + 1)
        left += WIDTH * below.count / total
