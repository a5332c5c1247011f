"""What the events of a short Kineto trace tell that its analysis does not: types, values read back, passes without a use."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import NamedTuple

import msgspec

from sysperf.diagnosis.facts import Traced
from sysperf.model.errors import TraceError
from sysperf.model.record import Json, from_json

MAX_BYTES = 256 << 20
MIN_RECORDED = 40
"""Operators recorded for a backward pass; with fewer, the share is unknown."""
_READBACK = frozenset(("aten::_local_scalar_dense",))
_FLOATS = frozenset(("float", "double", "c10::Half", "c10::BFloat16"))
_LOOKUP = "aten::embedding_dense_backward"
FEW_ROWS, MIN_ROWS = 0.05, 20_000
"""What a batch looks up at most of a table's rows, and how many these are at least, where its gradient is next to all zeros."""
_REDUCTIONS = ("gloo:all_reduce", "nccl:all_reduce", "c10d::allreduce_")


class _Event(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    dur: float = 0.0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Recorded(NamedTuple):
    """An operator that autograd numbered, or its function of the backward pass. Times are microseconds."""

    begin: float
    end: float
    sequence: int
    is_backward: bool


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


class _Args(msgspec.Struct):
    types: Json = msgspec.field(name="Input type", default=None)
    shapes: Json = msgspec.field(name="Input Dims", default=None)
    sequence: Json = msgspec.field(name="Sequence number", default=None)
    forward_thread: Json = msgspec.field(name="Fwd thread id", default=None)


class _Lookup(msgspec.Struct):
    """The gradient of a lookup: (gradient, indices, number of rows, …)."""

    shapes: list[list[int]] = msgspec.field(name="Input Dims", default_factory=list)
    values: list[str] = msgspec.field(name="Concrete Inputs", default_factory=list)


def details(path: str) -> Traced:
    """What the events of a trace with shapes tell. Raises TraceError."""
    try:
        if os.path.getsize(path) > MAX_BYTES:
            raise TraceError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        with open(path, "rb") as file:
            events = from_json(file.read(MAX_BYTES), _File).events
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: {error}") from None
    return _details([event for event in events if event.ph == "X"])


def _details(events: list[_Event]) -> Traced:
    names: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    recorded: list[_Recorded] = []
    spent = number = 0.0
    for event in events:
        names[_kind(event.name)] += 1
        if event.cat == "cpu_op":
            spent, number = spent + event.dur, number + 1
            _look_at(event, by_type, recorded)
    zeros = sum(event.dur for event in events if event.name == _LOOKUP and _fills_with_zeros(event))
    steps, passes = names["Optimizer.step"], names["DistributedDataParallel.forward"]
    reductions = max((names[name] for name in _REDUCTIONS), default=0)
    typed = sum(by_type.values())
    return Traced(
        double=by_type["double"] / typed if typed else None,
        half=by_type["c10::Half"] / typed if typed else None,
        zero_gradients=zeros / _window_us(events) if number else None,
        unused_graph=_unused(recorded),
        readbacks_per_step=names["readback"] / steps if steps else None,
        reductions_per_step=reductions / passes if passes else None,
        backwards_per_step=passes / steps if steps and passes else None,
        operator_us=spent / number if number else None,
    )


def _kind(name: str) -> str:
    if name in _READBACK:
        return "readback"
    return "Optimizer.step" if name.startswith("Optimizer.step#") else name


def _unused(recorded: list[_Recorded]) -> float | None:
    """The share of what was recorded that no backward pass used; None where too little is known.

    A pass begins with what was recorded last. So one that the trace cuts says nothing of what was recorded first: what counts came before
    the last pass after which the program recorded again. What is recorded within an operator of a pass is made again for it.
    """
    forward, backward = set[int](), set[int]()
    latest, whole, busy_until = -1, -1, 0.0
    for at, end, sequence, is_backward in sorted(recorded):
        if is_backward:
            backward.add(sequence)
            latest, busy_until = max(latest, sequence), max(busy_until, end)
        else:
            forward.add(sequence)
            whole = latest if at >= busy_until else whole
    if backward:
        forward = {sequence for sequence in forward if sequence <= whole}
    return len(forward - backward) / len(forward) if len(forward) >= MIN_RECORDED else None


def _window_us(events: list[_Event]) -> float:
    return max(1.0, max(event.ts + event.dur for event in events) - min(event.ts for event in events))


def _fills_with_zeros(event: _Event) -> bool:
    """Whether a table's gradient is made of which next to no row was looked up."""
    try:
        lookup = from_json(event.args, _Lookup)
        rows, looked_up = int(lookup.values[2]), math.prod(lookup.shapes[1])
    except (ValueError, IndexError):
        return False
    return rows >= MIN_ROWS and looked_up <= FEW_ROWS * rows


def _look_at(event: _Event, by_type: Counter[str], recorded: list[_Recorded]) -> None:
    try:
        args = from_json(event.args, _Args)
    except ValueError:
        return
    if types := _float_types(args):
        by_type[next((kind for kind in ("double", "c10::Half") if kind in types), "float")] += round(event.dur * 1_000)
    if isinstance(args.sequence, int):
        recorded.append(_Recorded(event.ts, event.ts + event.dur, args.sequence, bool(args.forward_thread)))


def _float_types(args: _Args) -> set[str]:
    """The types of floats among its operands. One without dimensions is a number of Python, which is float64 and changes no type."""
    if not isinstance(args.types, list):
        return set()
    shapes = args.shapes if isinstance(args.shapes, list) and len(args.shapes) == len(args.types) else [None] * len(args.types)
    return {kind for kind, shape in zip(args.types, shapes, strict=True) if kind in _FLOATS and shape != []}
