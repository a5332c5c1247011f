"""How events of a Chrome trace become rows of a timeline. It sees every event of the file, so it avoids work per event.

Equal shapes are kept once, and what was kept of a large file is decided by `part`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import floor

from sysperf.model.record import Json
from sysperf.trace.accounting.window import STEP_MARKS
from sysperf.trace.reading.events import (
    ACCELERATOR_EVENT,
    CALL,
    OLD_RANGE,
    OPERATION,
    OVERHEAD,
    RANGE,
    Args,
    Event,
    kind_of,
    kind_of_process,
    number,
)
from sysperf.trace.reading.part import STEP, FirstPart
from sysperf.trace.timeline import ANNOTATION, MAX_THREADS, PYTHON, Collective, Memory, Timeline

MAX_TIME_US = 9e15
MAX_SHAPE_BYTES, MAX_OPTION_BYTES = 400, 600
MAX_SHAPES = 50_000
MAX_BEGUN = 100_000
MAX_UNKNOWN = 50
MAX_CROSSED = 8
"""So many events that began later than one may end after it, such as those of the same moment in another order."""
_ELEMENT_BYTES = {"Float": 4, "Int": 4, "Long": 8, "Double": 8, "Half": 2, "BFloat16": 2, "Byte": 1, "Char": 1, "Bool": 1}
_NO_ARGS = Args()
_Row = Callable[[Event, int, int, int, int], None]


def _has_options(name: str) -> bool:
    """Whether what an operator does follows from more than the shapes of its inputs."""
    return "conv" in name or "attention" in name


class Adder:
    """Adds events to a timeline."""

    def __init__(self, timeline: Timeline, text_bytes: int | None = None) -> None:
        self._timeline = timeline
        self._threads: dict[tuple[Json, Json], int] = {}
        self._kinds: dict[str | None, tuple[_Row | None, int]] = {}
        self._shapes: dict[bytes, int] = {}
        self._begun: dict[int, list[Event]] = {}
        """What began and did not end yet, by thread, the innermost last."""
        self._open = 0
        self._others = 0
        self._names = timeline.names.numbers
        self._part = FirstPart(timeline, text_bytes)
        self.limit_us, self._shortest_ns = self._part.keep(), -1
        """Events that start later are not kept, those of the profiler's steps excepted."""
        self.seen = 0
        self.has_unnamed_kinds = False
        """Whether there are events without a category of which nobody knows what they are."""
        self.processes = set[str]()
        """The names of processes, which tell who wrote such events."""

    @property
    def has_steps(self) -> bool:
        """Whether enough steps were kept."""
        return self._part.has_steps

    def add(self, events: Iterable[Event]) -> None:
        """Add these events; what has no time or duration is counted and left out."""
        kinds, limit, names = self._kinds, self.limit_us, self._names
        seen = 0
        for event in events:
            seen += 1
            if event.ph != "X" and not self._completed(event):
                continue
            row, kind = kinds.get(event.cat) or self._new_kind(event)
            if row is None:
                continue
            ts, dur = event.ts, event.dur
            if ts is None or dur is None or not -MAX_TIME_US < ts < MAX_TIME_US or not -MAX_TIME_US < dur < MAX_TIME_US:
                self._timeline.damage.no_duration += 1
                continue
            name = event.name or ""
            if ts > limit and not name.startswith(STEP):
                continue
            start = floor(ts * 1000 + 0.5)
            end = start + int(dur * 1000 + (0.5 if dur >= 0 else -0.5))
            numbered = names.get(name)
            if numbered is None:
                numbered = self._timeline.names.number(name)
            row(event, kind, start, end, numbered)
        self.seen += seen
        self.limit_us, self._shortest_ns = self._part.keep(), self._part.shortest_ns

    def _new_kind(self, event: Event) -> tuple[_Row | None, int]:
        """(what adds a row for events of this category, their kind); None: nothing does. Without a category, the process tells."""
        what, kind = kind_of(event.cat) if event.cat else kind_of_process(event.pid)
        rows = {RANGE: self._range, CALL: self._call, OPERATION: self._operation, OVERHEAD: self._overhead}
        if event.cat and event.cat.lower() == OLD_RANGE:
            rows[RANGE] = self._old_range
        handler = rows.get(what, self._accelerator if what == ACCELERATOR_EVENT else None), kind
        if not event.cat:
            self.has_unnamed_kinds |= handler[0] is None
        else:
            self._kinds[event.cat] = handler
            if handler[0] is None and len(self._timeline.unknown_kinds) < MAX_UNKNOWN:
                self._timeline.unknown_kinds.add(event.cat[:60])
        return handler

    def _completed(self, event: Event) -> bool:
        """Whether this event ends one that began earlier on its thread; it is then made the whole of it."""
        if event.ph == "B" and event.ts is not None and self._open < MAX_BEGUN:
            self._begun.setdefault(self._thread(event), []).append(event)
            self._open += 1
        elif event.ph == "E" and event.ts is not None:
            begun = self._begun.get(self._thread(event), [])
            places = range(len(begun) - 1, max(-1, len(begun) - 1 - MAX_CROSSED), -1)
            place = next((place for place in places if event.name in ("", None, begun[place].name)), None)
            if place is not None:
                self._open -= 1
                first = begun.pop(place)
                event.cat, event.name, event.args = first.cat, first.name, first.args or event.args
                event.dur, event.ts = event.ts - (first.ts or 0.0), first.ts
                return True
        elif event.ph in ("i", "I", "M"):
            self._small(event)
        elif not event.ph:
            self._timeline.damage.events += 1
        return False

    def _range(self, event: Event, kind: int, start: int, end: int, name: int) -> None:
        rows, args = self._timeline.ranges, event.args
        if kind == PYTHON and end - start < self._shortest_ns:
            self._timeline.short_functions += 1
            return
        rows.start.append(start)
        rows.end.append(end)
        rows.name.append(name)
        rows.kind.append(kind)
        rows.thread.append(self._thread(event))
        detail = stack = -1
        if kind == PYTHON:
            self._timeline.with_stacks = True
        elif args is not None:
            if args.shapes:
                detail = self._shape(args, with_values=_has_options(event.name or ""))
            if args.stack:
                stack = self._stack(args.stack)
        rows.detail.append(detail)
        rows.stack.append(stack)

    def _old_range(self, event: Event, kind: int, start: int, end: int, name: int) -> None:
        """A range of a version that called all of them operators, also those that PyTorch marks its steps with."""
        self._range(event, ANNOTATION if self._timeline.names.texts[name].startswith(STEP_MARKS) else kind, start, end, name)

    def _call(self, event: Event, _: int, start: int, end: int, name: int) -> None:
        rows, args = self._timeline.calls, event.args or _NO_ARGS
        rows.start.append(start)
        rows.end.append(end)
        rows.name.append(name)
        rows.thread.append(self._thread(event))
        rows.correlation.append(number(args.correlation, 62, default=-1))
        rows.stack.append(-1)

    def _operation(self, event: Event, kind: int, start: int, end: int, name: int) -> None:
        rows, args = self._timeline.operations, event.args or _NO_ARGS
        rows.start.append(start)
        rows.end.append(end)
        rows.name.append(name)
        rows.kind.append(kind)
        rows.device.append(number(args.device if args.device is not None else event.pid, 31, default=-1))
        rows.stream.append(number(args.stream if args.stream is not None else event.tid, 62, default=-1))
        rows.correlation.append(number(args.correlation, 62, default=-1))
        rows.bytes.append(number(args.bytes, 62, default=-1))
        blocks = args.blocks_per_sm
        rows.blocks.append(float(blocks) if isinstance(blocks, int | float) and abs(blocks) < 1e9 else -1.0)
        rows.graph.append(1 if number(args.graph_node, 62, default=0) > 0 else 0)
        rows.detail.append(-1 if args.collective is None else self._collective(args))

    def _overhead(self, _event: Event, _kind: int, start: int, end: int, _name: int) -> None:
        self._timeline.overhead.append((start, max(start, end)))

    def _accelerator(self, _event: Event, _kind: int, start: int, end: int, name: int) -> None:
        rows = self._timeline.accelerator
        rows.start.append(start)
        rows.end.append(end)
        rows.name.append(name)

    def _collective(self, args: Args) -> int:
        if not isinstance(args.collective, str):
            return -1
        elements = number(args.elements, 62, default=-1)
        width = _ELEMENT_BYTES.get(args.dtype if isinstance(args.dtype, str) else "", 0)
        group = args.group if isinstance(args.group, str) else ""
        collective = Collective(
            args.collective,
            elements * width if elements >= 0 and width else -1,
            group,
            number(args.sequence, 62, default=-1),
            max(0, number(args.group_size, 31, default=0)),
        )
        self._timeline.collectives.append(collective)
        return len(self._timeline.collectives) - 1

    def _shape(self, args: Args, *, with_values: bool) -> int:
        """The number of an operator's shapes and types, as lists in JSON: ``[[[8, 16], [16, 4]], ["float", "float"]]``.

        A convolution's stride, and whether attention is causal, are values: a third list.
        """
        timeline = self._timeline
        if len(args.shapes) <= 2:  # "[]"
            return -1
        timeline.with_shapes = True
        text = b"[%b,%b]" % (bytes(args.shapes), bytes(args.types) or b"[]")
        most = MAX_SHAPE_BYTES
        if with_values and len(args.values) <= MAX_OPTION_BYTES:
            text, most = b"%b,%b]" % (text[:-1], bytes(args.values) or b"[]"), MAX_SHAPE_BYTES + MAX_OPTION_BYTES
        numbered = self._shapes.get(text)
        if numbered is None:
            if len(text) > most or len(self._shapes) >= MAX_SHAPES:
                return -1
            numbered = self._shapes[text] = len(timeline.shapes)
            timeline.shapes.append(text.decode("utf-8", "replace"))
        return numbered

    def _stack(self, text: Json) -> int:
        if not isinstance(text, str):
            return -1
        self._timeline.with_stacks = True
        return self._timeline.stacks.number(text[:4_000])

    def _thread(self, event: Event) -> int:
        key = (event.pid, event.tid)
        try:
            thread = self._threads.get(key)
        except TypeError:  # lists and objects: no thread has such a name
            key, thread = (0, 0), None
        if thread is None:
            thread = self._timeline.thread(self._number_of(key[0]), self._number_of(key[1]))
            if len(self._threads) < MAX_THREADS:
                self._threads[key] = thread
        return thread

    def _number_of(self, value: Json) -> int:
        whole = number(value, 62, default=-1)
        if whole >= 0:
            return whole
        self._others += 1
        return -1 - self._others

    def _small(self, event: Event) -> None:
        """Changes of memory, and the names of threads."""
        args = event.args
        if args is None:
            return
        if event.name == "[memory]" and event.ts is not None and abs(event.ts) < MAX_TIME_US and event.ts <= self.limit_us:
            self._timeline.with_memory = True
            allocated, reserved = number(args.allocated, 62, default=-1), number(args.reserved, 62, default=-1)
            if args.memory_type in (1, 2, "1", "2") and allocated >= 0:  # a GPU: c10/core/DeviceType.h CUDA 1 (HIP is masked as it), XPU 12
                self._timeline.memory.append(Memory(int(event.ts * 1000), number(args.memory_device, 31, default=-1), allocated, reserved))
        elif event.ph == "M" and event.name == "thread_name" and isinstance(args.label, str):
            self._timeline.thread_names[self._thread(event)] = args.label[:200]
        elif event.ph == "M" and event.name == "process_name" and isinstance(args.label, str) and len(self.processes) < MAX_UNKNOWN:
            self.processes.add(args.label[:60])
