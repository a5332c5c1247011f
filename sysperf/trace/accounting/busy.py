"""Busy time: the operators that launched a device's kernels, by the shapes of their inputs.

Kernels belong to the innermost operator around their launch; those of a graph, of Triton, or of a file without operators stand for
themselves. Floating-point operations are those of products and convolutions; bytes are those that an operator reads and writes at least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.exposed import TINY_KERNEL_NS, DeviceTime
from sysperf.trace.accounting.nesting import Threads
from sysperf.trace.accounting.products import MAX_COUNT, WIDTHS, Inputs, product
from sysperf.trace.device_facts import BusyRow
from sysperf.trace.intervals import median
from sysperf.trace.peaks import bandwidth_gb_s, dense_16bit
from sysperf.trace.timeline import PRODUCTS, Timeline

MAX_ROWS = 12
MAX_SHAPES = 100


class Use(NamedTuple):
    """What one operator, or one kernel without an operator, did with inputs of one shape."""

    name: str
    detail: int
    """Index into `Timeline.shapes`; -1: unknown."""
    took: list[int]
    """ns of each kernel."""
    kernels: Counter[int]
    """ns by the name of the kernel."""
    calls: set[int]


def uses(time: DeviceTime, threads: Threads) -> list[Use]:
    """The kernels of the window by the operator that launched them and its shapes; those that take most first."""
    timeline, rows, found = time.timeline, time.timeline.operations, dict[tuple[str, int], Use]()
    ranges, calls, texts = timeline.ranges, timeline.calls, timeline.names.texts
    for index in time.members:
        call = time.launches.calls[index]
        operator = threads.operator(calls.thread[call], calls.start[call]) if call is not None and not rows.graph[index] else None
        kernel = rows.name[index]
        alone = operator is None or by_name.is_collective(texts[kernel].lower())
        key = (by_name.short(texts[kernel]), -1) if alone or operator is None else (texts[ranges.name[operator]], ranges.detail[operator])
        use = found.get(key)
        if use is None:
            use = found[key] = Use(*key, [], Counter(), set())
        use.took.append(rows.end[index] - rows.start[index])
        use.kernels[kernel] += use.took[-1]
        use.calls.add(-1 - index if alone or operator is None else operator)
    return sorted(found.values(), key=lambda use: -sum(use.took))


def table(time: DeviceTime, found: Iterable[Use], device_name: str | None) -> tuple[BusyRow, ...]:
    """The uses that take most of the kernels' time."""
    found = list(found)
    whole = sum(sum(use.took) for use in found)
    return tuple(_row(time.timeline, use, whole, device_name) for use in found[:MAX_ROWS] if whole)


def _row(timeline: Timeline, use: Use, whole: int, device_name: str | None) -> BusyRow:
    ns, text = sum(use.took), timeline.shapes[use.detail] if use.detail >= 0 else ""
    kernel = timeline.names.texts[use.kernels.most_common(1)[0][0]]
    one, inputs = product(use.name, text), Inputs.of(text)
    flop, moved = one.flop, one.bytes or _bytes(inputs)
    peak = dense_16bit(device_name) if one.is_half else None
    bandwidth = bandwidth_gb_s(device_name)
    tflops = flop * len(use.calls) / ns / 1e3 if flop else None
    speed = moved * len(use.calls) / ns if moved and (flop or _is_of_memory(kernel.lower())) else None
    return BusyRow(
        operator=use.name[:120],
        shapes=_shown(inputs),
        kernel=by_name.short(kernel),
        count=len(use.calls),
        share_pct=100 * ns / whole,
        ms=ns / 1e6,
        tflops=tflops,
        peak_pct=100 * tflops / peak if tflops and peak and tflops <= peak else None,
        gb_per_s=speed if speed and (not bandwidth or speed <= bandwidth) else None,
        bound=_bound(use, flop, moved, peak, bandwidth, kernel.lower()),
    )


def _bound(use: Use, flop: int, moved: int, peak: float | None, bandwidth: float | None, kernel: str) -> str:
    """The side of the roofline that this is on, by operations a byte; empty where the file does not tell."""
    if by_name.is_collective(kernel):
        return "exchange"
    if median(use.took) < TINY_KERNEL_NS:
        return "launch"
    if flop and moved and peak and bandwidth:
        return "compute" if flop / moved >= 1e3 * peak / bandwidth else "memory"
    return "memory" if not flop and _is_of_memory(kernel) else ""


def _is_of_memory(kernel: str) -> bool:
    """Whether a kernel goes through memory element by element."""
    return not by_name.is_matmul(kernel) and (by_name.is_pointwise(kernel) or by_name.is_copy(kernel) or by_name.is_softmax(kernel))


def misaligned(timeline: Timeline, found: Iterable[Use]) -> tuple[int, list[str]]:
    """(ns in 16-bit products with a dimension that is no multiple of 8, these products, those that take most first)."""
    chosen = [
        use for use in found if use.name in PRODUCTS and use.detail >= 0 and product(use.name, timeline.shapes[use.detail]).is_misaligned
    ]
    return sum(sum(use.took) for use in chosen), [f"{use.name} {_shown(Inputs.of(timeline.shapes[use.detail]))}" for use in chosen]


def _bytes(inputs: Inputs) -> int:
    """What an elementwise operator reads, and writes as much as its largest input; 0: unknown."""
    try:
        sizes = list(_sizes(inputs))
        moved = sum(sizes) + max(sizes, default=0)
    except (TypeError, OverflowError):
        return 0
    return moved if 0 <= moved < MAX_COUNT else 0


def _sizes(inputs: Inputs) -> Iterator[int]:
    """The bytes of each tensor among the inputs."""
    for shape, kind in zip(inputs.shapes, inputs.types, strict=False):
        if isinstance(shape, list) and shape and all(isinstance(size, int) for size in shape):
            count = WIDTHS.get(str(kind).lower(), 0)
            for size in shape:
                count *= size
            yield count


def _shown(inputs: Inputs) -> str:
    """Shapes for people: ``4096x1024, 1024x512``, with a multiplication sign."""
    tensors = ("×".join(map(str, shape)) for shape in inputs.shapes if isinstance(shape, list) and shape and not isinstance(shape[0], list))
    return ", ".join(tensors)[:MAX_SHAPES]
