"""What is used of a Chrome trace's event, and how it becomes a row of the timeline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from sysperf.trace.part import STEP, FirstPart
from sysperf.trace.timeline import ANNOTATION, COPY, KERNEL, OPERATOR, PYTHON, SET, Collective, Memory, Timeline

MAX_NS = 1 << 62
MAX_SHAPE_BYTES = 400
_GPU = {"kernel": KERNEL, "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": SET, "memset": SET}
_CALL = frozenset(("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver", "xpu_runtime", "privateuse1_runtime"))
_RANGE = {
    "cpu_op": OPERATOR,
    "operator": OPERATOR,
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
    "fwd_bwd": OPERATOR,
}
_ACCELERATOR = frozenset(("mtia_ccp_events", "mtia_insight", "hpu_op", "xla_op", "privateuse1"))
_IGNORED = frozenset(("trace", "overhead", "gpu_user_annotation", "cuda_sync", "ac2g", "fwdbwd", "async"))
_ELEMENT_BYTES = {"Float": 4, "Int": 4, "Long": 8, "Double": 8, "Half": 2, "BFloat16": 2, "Byte": 1, "Char": 1, "Bool": 1}


class Args(msgspec.Struct, gc=False):
    """The arguments that are used; the names are those of Kineto's writer. `Any`: each version and vendor has its own types."""

    correlation: Any = None
    stream: Any = None
    device: Any = None
    bytes: Any = None
    graph_node: Any = msgspec.field(default=None, name="graph node id")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    stack: Any = msgspec.field(default=None, name="Call stack")
    memory_device: Any = msgspec.field(default=None, name="Device Id")
    memory_type: Any = msgspec.field(default=None, name="Device Type")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements: Any = msgspec.field(default=None, name="In msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    sequence: Any = msgspec.field(default=None, name="Seq")
    label: Any = msgspec.field(default=None, name="name")


class Event(msgspec.Struct, gc=False):
    """One event of any kind."""

    ph: str = ""
    cat: str | None = ""
    name: str | None = ""
    pid: Any = None
    tid: Any = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


_NO_ARGS = Args()


class Adder:
    """Adds events to a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._threads: dict[tuple[Any, Any], int] = {}
        self._kinds: dict[str, tuple[int, int]] = {}
        self._others = 0
        self._names = timeline.names.numbers
        self._part = FirstPart(timeline)
        self.limit_us = self._part.keep()
        """Events that start later are not kept, those of the profiler's steps excepted."""
        self.seen = 0

    def add(self, events: Iterable[Event]) -> None:
        """Add these events; what has no time or duration is counted and left out."""
        kinds, limit = self._kinds, self.limit_us
        for event in events:
            if event.ph != "X":
                if event.ph in ("i", "I", "M"):
                    self._small(event)
                self.seen += 1
                continue
            self.seen += 1
            cat = event.cat or ""
            kind = kinds.get(cat)
            if kind is None:
                kind = kinds[cat] = _kind(cat)
            if kind[0] == 0:
                continue
            if event.ts is None or event.dur is None or not abs(event.ts) < 9e15 or not abs(event.dur) < 9e15:
                self._timeline.damage.no_duration += 1
                continue
            if event.ts > limit and not (event.name or "").startswith(STEP):
                continue
            _ADD[kind[0]](self, event, kind[1])
        self.limit_us = self._part.keep()

    def _span(self, columns: Any, event: Event) -> None:
        ts, dur, name = event.ts, event.dur, event.name or ""
        start = int(ts * 1000 + 0.5)  # type: ignore[operator]
        columns.start.append(start)
        columns.end.append(start + int(dur * 1000 + (0.5 if dur >= 0 else -0.5)))  # type: ignore[operator]
        number = self._names.get(name)
        columns.name.append(self._timeline.names.number(name) if number is None else number)

    def _operation(self, event: Event, kind: int) -> None:
        timeline, args = self._timeline, event.args or _NO_ARGS
        rows = timeline.operations
        self._span(rows, event)
        rows.kind.append(kind)
        device = args.device if args.device is not None else event.pid
        rows.device.append(number(device, 31, default=-1))
        rows.stream.append(number(args.stream if args.stream is not None else event.tid, 62, default=-1))
        rows.correlation.append(number(args.correlation, 62, default=-1))
        rows.bytes.append(number(args.bytes, 62, default=-1))
        blocks = args.blocks_per_sm
        rows.blocks.append(float(blocks) if isinstance(blocks, int | float) and abs(blocks) < 1e9 else -1.0)
        rows.graph.append(1 if number(args.graph_node, 62, default=0) > 0 else 0)
        rows.detail.append(self._collective(args))

    def _collective(self, args: Args) -> int:
        if not isinstance(args.collective, str):
            return -1
        elements = number(args.elements, 62, default=-1)
        width = _ELEMENT_BYTES.get(args.dtype if isinstance(args.dtype, str) else "", 0)
        group = args.group if isinstance(args.group, str) else ""
        found = Collective(
            args.collective, elements * width if elements >= 0 and width else -1, group, number(args.sequence, 62, default=-1)
        )
        self._timeline.collectives.append(found)
        return len(self._timeline.collectives) - 1

    def _call(self, event: Event, _: int) -> None:
        timeline, args = self._timeline, event.args or _NO_ARGS
        rows = timeline.calls
        self._span(rows, event)
        rows.thread.append(self._thread(event))
        rows.correlation.append(number(args.correlation, 62, default=-1))
        rows.stack.append(-1)

    def _range(self, event: Event, kind: int) -> None:
        timeline, args = self._timeline, event.args
        rows = timeline.ranges
        self._span(rows, event)
        rows.thread.append(self._thread(event))
        rows.kind.append(kind)
        detail = stack = -1
        if kind == PYTHON:
            timeline.with_stacks = True
        elif args is not None:
            if args.shapes and kind == OPERATOR:
                detail = self._shape(args)
            if isinstance(args.stack, str) and args.stack:
                timeline.with_stacks = True
                stack = timeline.stacks.number(args.stack[:4_000])
        rows.detail.append(detail)
        rows.stack.append(stack)

    def _shape(self, args: Args) -> int:
        """The number of an operator's shapes and types, as two lists in JSON: ``[[[8, 16], [16, 4]], ["float", "float"]]``."""
        timeline = self._timeline
        text = b"[%b,%b]" % (bytes(args.shapes), bytes(args.types) or b"[]")
        if len(args.shapes) <= 2:
            return -1
        if len(text) > MAX_SHAPE_BYTES:
            return -1
        timeline.with_shapes = True
        return _SHAPES.number(timeline, text)

    def _accelerator(self, event: Event, _: int) -> None:
        self._span(self._timeline.accelerator, event)

    def _overhead(self, event: Event, _: int) -> None:
        start = int(event.ts * 1000 + 0.5)  # type: ignore[operator]
        self._timeline.overhead.append((start, start + max(0, int(event.dur * 1000))))  # type: ignore[operator]

    def _thread(self, event: Event) -> int:
        key = (event.pid, event.tid)
        try:
            found = self._threads.get(key)
        except TypeError:  # lists and objects: no thread has such a name
            key, found = (0, 0), None
        if found is None:
            found = self._threads[key] = self._timeline.thread(self._number_of(key[0]), self._number_of(key[1]))
        return found

    def _number_of(self, value: Any) -> int:
        found = number(value, 62, default=-1)
        if found >= 0:
            return found
        self._others += 1
        return -1 - self._others

    def _small(self, event: Event) -> None:
        """Changes of memory, and the names of threads."""
        args = event.args
        if args is None:
            return
        if event.name == "[memory]" and event.ts is not None and abs(event.ts) < 9e15 and event.ts <= self.limit_us:
            self._timeline.with_memory = True
            allocated, reserved = number(args.allocated, 62, default=-1), number(args.reserved, 62, default=-1)
            if args.memory_type in (1, 2, "1", "2") and allocated >= 0:  # a GPU: c10/core/DeviceType.h CUDA 1 (HIP is masked as it), XPU 12
                self._timeline.memory.append(Memory(int(event.ts * 1000), number(args.memory_device, 31, default=-1), allocated, reserved))
        elif event.ph == "M" and event.name == "thread_name" and isinstance(args.label, str):
            self._timeline.thread_names[self._thread(event)] = args.label[:200]


class _Shapes:
    """Shapes as text, each stored once."""

    def number(self, timeline: Timeline, text: bytes) -> int:
        known: dict[bytes, int] = timeline.__dict__.setdefault("shape_numbers", {})
        found = known.get(text)
        if found is None:
            if len(known) >= 50_000:
                return -1
            found = known[text] = len(timeline.shapes)
            timeline.shapes.append(text.decode("utf-8", "replace"))
        return found


_SHAPES = _Shapes()
_OPERATION, _CALL_KIND, _RANGE_KIND, _ACCELERATOR_KIND, _OVERHEAD = 1, 2, 3, 4, 5
_ADD = {1: Adder._operation, 2: Adder._call, 3: Adder._range, 4: Adder._accelerator, 5: Adder._overhead}  # noqa: SLF001 - its own


def _kind(cat: str) -> tuple[int, int]:
    """(what to do with events of this category, its kind); 0: nothing."""
    name = cat.lower()
    if name in _GPU:
        return _OPERATION, _GPU[name]
    if name in _CALL:
        return _CALL_KIND, 0
    if name in _RANGE:
        return _RANGE_KIND, _RANGE[name]
    if name in _ACCELERATOR:
        return _ACCELERATOR_KIND, 0
    return (_OVERHEAD, 0) if name == "overhead" else (0, 0)


def number(value: Any, bits: int, *, default: int) -> int:
    """A whole number that fits, also out of text such as ``7``, ``0x0`` or ``stream 7``."""
    if type(value) is int and -(1 << 31) <= value < 1 << 31:  # nearly all
        return value
    if isinstance(value, str):
        value = _from_text(value)
    if isinstance(value, float):
        value = int(value) if abs(value) < 9e15 else None
    if not isinstance(value, int) or not -(1 << bits) <= value < 1 << bits:
        return default
    return int(value)


def _from_text(text: str) -> int | None:
    last = text[:40].rpartition(" ")[2]
    try:
        return int(last, 0) if last.startswith(("0x", "0X")) else int(last)
    except ValueError:
        return None
