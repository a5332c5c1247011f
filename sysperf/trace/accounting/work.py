"""What a device's kernels do, by their names, and what matrix products their operators asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable

from sysperf.model.record import joined
from sysperf.startup import lazy
from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.busy import Use, misaligned
from sysperf.trace.accounting.exposed import DeviceTime, members
from sysperf.trace.accounting.nesting import Threads
from sysperf.trace.accounting.products import product
from sysperf.trace.accounting.window import optimizer_steps
from sysperf.trace.device_facts import KERNEL_KINDS, CollectiveFacts, ExchangeRow, Work
from sysperf.trace.intervals import Interval, median, subtract, union
from sysperf.trace.peaks import dense_16bit

_SENDING = lazy(r"(?:c10d::|\w*ccl:|gloo:|mpi:)(send|recv)")
SMALL_COLLECTIVE_BYTES = 1_000_000
SLOW_COLLECTIVE = 1.25
MIN_REPEATS = 4
MIN_WAVE = 0.5
"""Blocks for each multiprocessor. Persistent kernels leave some multiprocessors to collectives."""
MAX_NAMED = 3
MAX_KINDS = 12
MIN_TOLD = 0.9
"""Of the time of kernels that multiply: their operators' shapes tell the operations."""


def describe(time: DeviceTime, used: list[Use]) -> Work:
    """The kinds of work of one device, and of these uses of its operators."""
    rows, signatures = time.timeline.operations, time.timeline.signatures
    ours = time.members
    if not ours:
        return Work()

    def share(question: Callable[[str], bool]) -> float:
        return _part(time, members(time, time.kernels_named(question)))

    iterations = time.window.iterations
    launched = sorted((at, index) for index in ours if (at := time.launches.times[index]) is not None)
    in_optimizer = _launched_in(launched, optimizer_steps(time.timeline, time.timeline.device_processes.get(time.device, ())))
    zeroing = _launched_in(launched, _ranges(time, "Optimizer.zero_grad#"))
    exchanging = set(time.kernels_named(by_name.is_collective))
    small = [i for i in ours if 0 <= rows.blocks[i] < MIN_WAVE * _one_wave(time) and i not in exchanging]
    flash = share(by_name.is_flash)
    parts = [_launched_in(launched, _ranges(time, name)) for name in ("aten::_softmax", "aten::bmm", "aten::baddbmm")]
    found = Work(
        optimizer_pct=_part(time, in_optimizer) if in_optimizer is not None else share(by_name.is_optimizer),
        optimizer_kernels_per_step=len(in_optimizer) / iterations if iterations and in_optimizer is not None else None,
        launches_per_step=_launches(time, ours) / iterations if iterations else None,
        optimizer_launches_per_step=_launches(time, in_optimizer) / iterations if iterations and in_optimizer is not None else None,
        zero_grad_launches_per_step=_launches(time, zeroing) / iterations if iterations and zeroing is not None else None,
        zero_grad_kernels_per_step=len(zeroing) / iterations if iterations and zeroing is not None else None,
        zero_grad_pct=_part(time, zeroing) if zeroing is not None else None,
        softmax_pct=share(lambda name: by_name.is_softmax(name) and "log" not in name),
        unfused_attention_pct=_part(time, [i for part in parts for i in part or ()]) if parts[0] and (parts[1] or parts[2]) else 0.0,
        efficient_attention_pct=share(by_name.is_efficient_attention),
        flash_attention_pct=flash,
        plain_matmul_pct=share(lambda name: by_name.is_matmul(name) and by_name.is_plain_product(name, signatures) is True),
        plain_matmul_share=_plain_share(time),
        small_wave_pct=_part(time, small) if any(blocks >= 0 for blocks in rows.blocks) else None,
        small_wave_kernels=_longest(time, small),
        graph_share=100 * sum(rows.graph[index] for index in ours) / len(ours),
        **{name: share(kind.is_one) for name, kind in KERNEL_KINDS.items()},  # type: ignore[arg-type]  # all of them are shares
    )
    return joined(found, _products(time, used), _misaligned(time, used))


def _longest(time: DeviceTime, indices: list[int]) -> tuple[str, ...]:
    """The names of these kernels that take most of their time."""
    rows, took = time.timeline.operations, Counter[str]()
    for index in indices:
        took[by_name.short(time.timeline.names.texts[rows.name[index]])] += rows.end[index] - rows.start[index]
    return tuple(name for name, _ in took.most_common(MAX_NAMED))


def _plain_share(time: DeviceTime) -> float | None:
    """Return the share of the matmuls' time in plain 32-bit kernels, in percent; None where names that do not tell could decide it."""
    rows, texts = time.timeline.operations, time.timeline.names.texts
    by_number, took = Counter[int](), Counter[bool | None]()
    for index in members(time, time.kernels_named(by_name.is_matmul)):
        by_number[rows.name[index]] += rows.end[index] - rows.start[index]
    for number, ns in by_number.items():
        took[by_name.is_plain_product(texts[number].lower(), time.timeline.signatures)] += ns
    whole = sum(took.values())
    return None if not whole or took[True] < whole / 2 <= took[True] + took[None] else 100 * took[True] / whole


def _one_wave(time: DeviceTime) -> float:
    """Thread blocks that give every multiprocessor one: Kineto writes blocks per multiprocessor, Nsight Systems the number."""
    if time.timeline.form == "kineto":
        return 1.0
    device = time.timeline.devices.get(time.device)
    return float(device.multiprocessors) if device and device.multiprocessors else 0.0


def _launches(time: DeviceTime, indices: list[int]) -> int:
    """How many calls launched these kernels: one for all of a CUDA graph. Kernels whose call is unknown count each for itself."""
    calls = [time.launches.calls[index] for index in indices]
    return len(set(calls) - {None}) + calls.count(None)


def _part(time: DeviceTime, indices: list[int]) -> float:
    return time.share(time.covered(indices))


def _ranges(time: DeviceTime, prefix: str) -> list[Interval]:
    """The ranges whose names start so."""
    return time.timeline.ranges.spans_of(time.timeline.ranges_named(lambda name: name.startswith(prefix)))


def _launched_in(launched: list[tuple[int, int]], spans: list[Interval]) -> list[int] | None:
    """Return, out of (launch, operation) in order, the operations that were launched in these times; None where there are none."""
    if not spans:
        return None
    places = ((bisect_left(launched, (start, -1)), bisect_left(launched, (end, -1))) for start, end in union(spans))
    return [index for first, last in places for _, index in launched[first:last]]


def _misaligned(time: DeviceTime, used: list[Use]) -> Work:
    """The 16-bit products whose dimensions are no multiples of 8, by the time of their kernels; unknown without shapes."""
    whole = sum(sum(use.took) for use in used)
    if not time.timeline.with_shapes or not whole:
        return Work()
    ns, names = misaligned(time.timeline, used)
    return Work(misaligned_pct=100 * ns / whole, misaligned=tuple(names[:MAX_NAMED]))


def _products(time: DeviceTime, used: list[Use]) -> Work:
    """FLOP of products, convolutions and attention by the shapes of the operators that launched their kernels, in the time of the window.

    Unknown where shapes do not tell what most of such kernels compute, as those of graphs and of other libraries.
    """
    texts = time.timeline.names.texts
    flop, told, whole = 0, 0, 0
    for use in used:
        one = product(use.name, time.timeline.shapes[use.detail]).flop if use.detail >= 0 else 0
        multiplying = sum(ns for kernel, ns in use.kernels.items() if by_name.is_matmul(texts[kernel].lower()))
        flop += one * len(use.calls)
        told += multiplying if one else 0
        whole += multiplying
    if not flop or told < MIN_TOLD * whole:
        return Work()
    tflops = flop / (time.window.duration / 1e9) / 1e12
    device = time.timeline.devices.get(time.device)
    peak = dense_16bit(device.name if device else None)
    return Work(tflops=tflops, mfu_pct=100 * tflops / peak if peak else None)


def collectives(time: DeviceTime, threads: Threads) -> CollectiveFacts:
    """Number and size of collectives, and time lost in those slower than their like."""
    timeline, rows = time.timeline, time.timeline.operations
    ours = members(time, time.kernels_named(by_name.is_collective))
    if not ours:
        return CollectiveFacts()
    iterations = time.window.iterations
    known = [(index, timeline.collectives[rows.detail[index]]) for index in ours if rows.detail[index] >= 0]
    sized = [item.bytes for _, item in known if item.bytes >= 0]
    alike: dict[tuple[str, int], list[int]] = {}
    for index, collective in known:
        if collective.bytes > 0:
            alike.setdefault((collective.name, collective.bytes), []).append(rows.end[index] - rows.start[index])
    lost = 0.0
    for took in alike.values():
        middle = sorted(took)[len(took) // 2]
        if len(took) >= MIN_REPEATS:
            lost += sum(duration - middle for duration in took if duration > SLOW_COLLECTIVE * middle)
    return CollectiveFacts(
        kinds=_kinds(time, ours, threads),
        per_step=len(ours) / iterations if iterations else None,
        small_share=100 * sum(size < SMALL_COLLECTIVE_BYTES for size in sized) / len(sized) if sized else None,
        slow_pct=100 * lost / time.window.duration if alike else None,
        sent_pct=_sent(time, ours, threads),
    )


def _sent(time: DeviceTime, ours: list[int], threads: Threads) -> float:
    """The share of the time in what one rank exchanges with one other, without any other kernel."""
    between_two = [index for index in ours if is_between_two(time, index, threads)]
    others = time.covered(time.kernels_named(lambda name: not by_name.is_collective(name))) if between_two else []
    return time.share(subtract(time.covered(between_two), others))


def is_between_two(time: DeviceTime, index: int, threads: Threads) -> bool:
    """Whether a collective is what one rank sends to another, by its description or the operator that launched it."""
    detail = time.timeline.operations.detail[index]
    return (detail >= 0 and time.timeline.collectives[detail].is_between_two) or bool(sent_as(time, index, threads))


def is_sending(name: str) -> bool:
    """Whether an operator or range sends something to one rank, or receives from it."""
    return bool(_SENDING.match(name))


def sent_as(time: DeviceTime, index: int, threads: Threads) -> str:
    """`send` or `recv` where the operator that launched this exchanges it with one rank: the kernel is that of an exchange of all, too."""
    call, calls, ranges = time.launches.calls[index], time.timeline.calls, time.timeline.ranges
    operator = None if call is None else threads.operator(calls.thread[call], calls.start[call])
    sent = _SENDING.match(time.timeline.names.texts[ranges.name[operator]]) if operator is not None else None
    return sent[1] if sent else ""


def _kinds(time: DeviceTime, ours: list[int], threads: Threads) -> tuple[ExchangeRow, ...]:
    """Collectives by kind and size. Without a description, the operator or the kernel's name tells the kind."""
    timeline, rows = time.timeline, time.timeline.operations
    alike: dict[tuple[str, int, int], list[int]] = {}
    for index in ours:
        detail = rows.detail[index]
        known = timeline.collectives[detail] if detail >= 0 else None
        name = known.name if known else sent_as(time, index, threads) or by_name.short(timeline.names.texts[rows.name[index]])
        key = name, known.bytes if known else -1, (known.ranks if known else 0) or timeline.world_size or 0
        alike.setdefault(key, []).append(index)
    took = {key: [rows.end[index] - rows.start[index] for index in indices] for key, indices in alike.items()}
    chosen = sorted(took.items(), key=lambda item: -sum(item[1]))[:MAX_KINDS]
    return tuple(
        ExchangeRow(
            name=name[:60],
            bytes=size if size >= 0 else None,
            count=len(each),
            median_ms=median(each) / 1e6,
            shortest_ms=min(each) / 1e6,
            bus_gb_per_s=bus_bandwidth(name, size, ranks, min(each)),
            share_pct=time.share(time.covered(alike[name, size, ranks])),
        )
        for (name, size, ranks), each in chosen
    )


def bus_bandwidth(name: str, size: int, ranks: int, ns: int) -> float | None:
    """GB/s on the links for what one rank puts in, as nccl-tests counts it (PERFORMANCE.md there); None where nobody knows."""
    lowered = name.lower().replace("_", "")
    if size <= 0 or ranks < 2 or ns <= 0:
        return None
    others = ranks - 1
    factors = {
        "allreduce": 2 * others / ranks,
        "allgather": others,
        "reducescatter": others / ranks,
        "alltoall": others / ranks,
        "broadcast": 1.0,
    }
    factor = next((factor for kind, factor in factors.items() if kind in lowered), None)
    return size * factor / ns if factor is not None else None
