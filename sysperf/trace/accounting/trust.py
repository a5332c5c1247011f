"""Whether a trace can be believed: what is impossible in it is counted before anything is concluded."""

from __future__ import annotations

from sysperf.startup import lazy
from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.exposed import MAX_DEVICE_NS, Launches
from sysperf.trace.facts import Trust
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import KERNEL, KERNELS, PYTHON, Timeline

_OF_DEVICE = lazy(
    r"aten::(?:_?cudnn_(?!is_acceptable)|miopen_|_?mps_|_thnn_fused_|_flash_attention|_efficient_attention|_cslt_"
    r"|_scaled_dot_product_(?:flash_attention(?!_for_cpu)|efficient_attention|cudnn_attention|\w*_for_mps|fused_attention_overrideable))"
    r"|(?:nccl|rccl|xccl|hccl):|(?:npu|hpu|xla|mlu|musa)::|triton_"
)
"""Operators that run on one kind of device, and communication between such."""
CLOCK_NS = 1_000
"""Files with whole microseconds round start and length each for itself."""
OVERLAPPING = 9.0
MAX_OVERLAP_NS = 20_000
"""Real traces have such overlaps of 1 to 4 µs."""


def examine(timeline: Timeline, launches: Launches, unrecorded: frozenset[str] = frozenset()) -> Trust:
    """Count what cannot be: over the whole file, not over the window."""
    rows, damage = timeline.operations, timeline.damage
    migrates = ByName(timeline.names, by_name.is_page_migration)
    unlaunched = sum(at is None and not migrates(name) for at, name in zip(launches.times, rows.name, strict=True))
    early = sum(at is not None and start < at for start, at in zip(rows.start, launches.times, strict=True))
    total = len(rows)
    overlaps, dependent = _overlaps(timeline)
    is_silent = not (total or timeline.accelerator)
    used = _device_use(timeline) if KERNELS in unrecorded or is_silent else ""
    cut_before = is_silent and damage.breaks_off and bool(timeline.devices)
    return Trust(
        gpu_ops=total,
        gpu_before_launch=early,
        same_stream_overlaps=overlaps,
        dependent_overlaps=dependent,
        bad_durations=sum(not 0 <= end - start <= MAX_DEVICE_NS for start, end in rows.spans()),
        uncorrelated_gpu_ops=unlaunched,
        uncorrelated_pct=100 * unlaunched / total if total else 0.0,
        damaged_events=damage.events + damage.no_duration,
        dropped_events=damage.dropped,
        truncated=damage.truncated,
        reasons=tuple(damage.reasons),
        device_missing=bool(used) or KERNELS in unrecorded or timeline.mixed or cut_before,
        mixed_programs=timeline.mixed,
        calls_recorded=len(timeline.calls) > 0,
        device_use=used,
        unrecorded=tuple(sorted(unrecorded)),
    )


def _overlaps(timeline: Timeline) -> tuple[int, int]:
    """(how many operations start before their stream's earlier ones end, those of them that may).

    A stream does one thing after the other. But from compute capability 9 on, a kernel may begin a moment before the one before it ends
    (programmatic dependent launch), and ends after it.
    """
    rows = timeline.operations
    early = {number for number, device in timeline.devices.items() if device.capability is not None and device.capability < OVERLAPPING}
    ends: dict[tuple[int, int], int] = {}
    count = dependent = 0
    for index in sorted(range(len(rows)), key=rows.start.__getitem__):
        key = rows.device[index], rows.stream[index]
        latest = ends.get(key, rows.start[index])
        over = latest - rows.start[index]
        count += over > CLOCK_NS
        may = rows.kind[index] == KERNEL and rows.device[index] not in early and rows.end[index] >= latest
        dependent += may and CLOCK_NS < over <= MAX_OVERLAP_NS
        ends[key] = max(latest, rows.end[index])
    return count, dependent


def _device_use(timeline: Timeline) -> str:
    """A call that launches kernels, or an operator or range that only another device than the CPU has; empty where there is none."""
    texts, rows = timeline.names.texts, timeline.ranges
    launches = [texts[name] for name in set(timeline.calls.name) if by_name.is_launch_call(texts[name])]
    ranges = {name for name, kind in zip(rows.name, rows.kind, strict=True) if kind != PYTHON} if not launches else set()
    return min([*launches, *(texts[name] for name in ranges if _OF_DEVICE.match(texts[name]))], default="")[:160]
