"""What a trace does not tell, and which figures are unknown because of it.

What is absent is unknown and never zero. Nsight Systems leaves out tables without rows, and any profiler can be told to record
less, so that calls decide: where they launched kernels or copied, and the file has no such operation, those were not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.exposed import Launches
from sysperf.trace.accounting.window import Window
from sysperf.trace.facts import CollectiveFacts, DeviceFacts, Figures, Hole, Rank, Replay, Work
from sysperf.trace.timeline import (
    CALL_NAMES,
    CALLS,
    COPIES,
    COPY,
    DIRECTIONS,
    GRAPH,
    GRAPH_KERNELS,
    GRAPHS,
    KERNEL,
    KERNEL_NAMES,
    KERNELS,
    MEMORY_KINDS,
    SET,
    SETS,
    Timeline,
)

LAUNCHES = "launches"
"""Besides what readers say (`Timeline.absent`): which call launched an operation."""

_COPIES = ("copy_exposed_pct", "h2d_exposed_pct", "d2h_exposed_pct")
_PAGEABLE = (
    "h2d_pinned_exposed_pct", "pageable_wait_pct", "pageable_h2d_wait_pct",
    "pageable_h2d", "pageable_d2h", "pageable_h2d_per_step", "pageable_d2h_per_step",
)  # fmt: skip
_IDLE = (
    "gpu_busy_pct_mean", "dataloader_exposed_pct", "sync_exposed_pct", "copy_api_exposed_pct", "alloc_api_exposed_pct",
    "host_exposed_pct", "host_starved_pct", "dispatch_idle_pct", "idle_queued_pct", "host_late_pct", "idle_long_gaps_pct",
    "longest_gap_ms",
)  # fmt: skip
_GAPS = ("host_starved_pct", "dispatch_idle_pct", "idle_queued_pct", "host_late_pct")
_CALLS = (
    "sync_api_ms_per_step", "sync_api_pct", "sync_exposed_pct", "copy_api_pct", "copy_api_exposed_pct", "launch_api_pct",
    "alloc_api_exposed_pct", "host_exposed_pct", "host_starved_pct", "dispatch_idle_pct",
)  # fmt: skip
_NAMES = ("matmul_time_share", "tensor_core_share", "nccl_pct", "nccl_exposed_pct", "nccl_kernels_per_step")
_OF_KERNELS = ("kernels", "kernels_per_step", "tiny_kernel_share", *_NAMES)
_FIGURES = {
    COPIES: (*_COPIES, *_PAGEABLE, *_IDLE),
    CALLS: (*_CALLS, "idle_queued_pct", "host_late_pct", "pageable_wait_pct", "pageable_h2d_wait_pct"),
    LAUNCHES: (*_GAPS, "pageable_wait_pct", "pageable_h2d_wait_pct"),
    KERNEL_NAMES: _NAMES,
    GRAPHS: (*_COPIES, *_PAGEABLE, *_IDLE, *_OF_KERNELS),
    GRAPH_KERNELS: _OF_KERNELS,
    CALL_NAMES: _CALLS,
    DIRECTIONS: ("h2d_exposed_pct", "d2h_exposed_pct", *_PAGEABLE),
    MEMORY_KINDS: _PAGEABLE,
}
"""The figures that need each. Memsets are too short to matter for idle time."""


def unrecorded(timeline: Timeline, launches: Launches, window: Window | None) -> frozenset[str]:
    """What of the program's doing the file does not hold; of its graphs, those of the window."""
    words = {word for word in timeline.absent if word not in (KERNELS, COPIES, SETS)}
    kinds = set(timeline.operations.kind)
    if not timeline.calls.name or CALL_NAMES in timeline.absent:
        words |= {KERNELS, COPIES, SETS} & timeline.absent
        words |= {CALLS} if kinds else set()
    if kinds and not any(at is not None for at in launches.times):
        words.add(LAUNCHES)
    for word, kind, question in _ASKED_FOR:
        if kind not in kinds and _unanswered(timeline, launches, question):
            words.add(word)
    if GRAPH not in kinds and _unanswered(timeline, launches, by_name.is_graph_launch) and not _may_be_unlaunched(timeline, launches):
        words.add(GRAPHS)
    if window is not None and GRAPH in kinds and _has_graphs(timeline, window):
        words.add(GRAPH_KERNELS)
    return frozenset(words)


def _may_be_unlaunched(timeline: Timeline, launches: Launches) -> bool:
    """Whether there are as many kernels without a launch as launches of graphs: not every driver says what launched a graph's kernels."""
    texts, names = timeline.names.texts, timeline.calls.name
    wanted = {name for name in set(names) if by_name.is_graph_launch(texts[name])}
    unlaunched = sum(at is None and kind == KERNEL for at, kind in zip(launches.times, timeline.operations.kind, strict=True))
    return unlaunched >= sum(name in wanted for name in names)


def _has_graphs(timeline: Timeline, window: Window) -> bool:
    """Whether CUDA graphs whose kernels are not in the file took a part of the window."""
    rows, (low, high) = timeline.operations, window.span
    return any(kind == GRAPH and end > low and start < high for kind, start, end in zip(rows.kind, rows.start, rows.end, strict=True))


def _is_set_call(name: str) -> bool:
    return "Memset" in name


_ASKED_FOR = (
    (KERNELS, KERNEL, by_name.is_launch_call),
    (COPIES, COPY, by_name.is_copy_call),
    (SETS, SET, _is_set_call),
)


def _unanswered(timeline: Timeline, launches: Launches, question: Callable[[str], bool]) -> bool:
    """Whether there are such calls, and none of them launched an operation of any kind: some devices fill and copy by kernels."""
    names, texts = timeline.calls.name, timeline.names.texts
    asked = {name for name in set(names) if question(texts[name])}
    answered = {names[call] for call in launches.calls if call is not None} if asked else set()
    return bool(asked) and not asked & answered


def has_idle(words: Iterable[str]) -> bool:
    """Whether the time in which a device did nothing is known: copies and graphs that are not in the file would look like it."""
    return not {KERNELS, COPIES, GRAPHS}.intersection(words)


def has_gaps(words: Iterable[str]) -> bool:
    """Whether it is known what ended a gap, and so whom the device waited for."""
    return has_idle(words) and not {CALLS, LAUNCHES, CALL_NAMES}.intersection(words)


def known(figures: Figures, words: Iterable[str]) -> Figures:
    """The figures without those that need what is not in the file."""
    unknown = {name for word in words for name in _FIGURES.get(word, ())}
    return msgspec.structs.replace(figures, **dict.fromkeys(unknown)) if unknown else figures


def without_unknown(rank: Rank, words: frozenset[str]) -> Rank:
    """The facts of a rank without those that need what is not in the file."""
    if not words or not (rank.has_device or rank.trust.device_missing):
        return rank
    calls, names = words & {CALLS, CALL_NAMES}, words & {KERNEL_NAMES, GRAPHS, GRAPH_KERNELS}
    gaps, idle = has_gaps(words), has_idle(words)
    did = rank.host if gaps else msgspec.structs.replace(rank.host, refill_pct=None, refill_short_pct=None, start_up_pct=None)
    return msgspec.structs.replace(
        rank,
        figures=known(rank.figures, words),
        devices=tuple(_device(device, idle=idle, gaps=gaps) for device in rank.devices),
        loader_recurring_pct=rank.loader_recurring_pct if idle else None,
        hole=rank.hole if gaps else Hole(pct=None),
        hole_sites=rank.hole_sites if gaps else (),
        sync_sites=rank.sync_sites if idle and not calls else (),
        host=msgspec.structs.replace(did, module_load_pct=None) if calls else did,
        work=Work() if names else rank.work,
        busy=() if names else rank.busy,
        collectives=CollectiveFacts() if names else rank.collectives,
        replay=rank.replay if idle else Replay(why=f"nothing of these is in the file: {', '.join(sorted(words))}"),
    )


def _device(device: DeviceFacts, *, idle: bool, gaps: bool) -> DeviceFacts:
    if not idle:
        device = msgspec.structs.replace(device, busy_pct=None, idle_ms=None, gaps=None, longest_gaps=())
    return device if gaps else msgspec.structs.replace(device, starved_gaps=None, queued_gaps=None)
