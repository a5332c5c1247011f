"""What a trace does not tell, and which figures are unknown because of it.

What is absent is unknown and never zero. Nsight Systems leaves out tables without rows, and any profiler can be told to record
less, so that calls decide: where they launched kernels or copied, and the file has no such operation, those were not recorded.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.exposed import Launches
from sysperf.trace.accounting.window import Window
from sysperf.trace.declared import GAPS, IDLE, LAUNCHES, known
from sysperf.trace.facts import Rank, Replay
from sysperf.trace.host_facts import Hole
from sysperf.trace.timeline import (
    CALL_NAMES,
    CALLS,
    COPIES,
    COPY,
    GRAPH,
    GRAPH_KERNELS,
    GRAPHS,
    KERNEL,
    KERNELS,
    SET,
    SETS,
    Timeline,
)


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


def has_idle(words: frozenset[str]) -> bool:
    """Whether the time in which a device did nothing is known."""
    return not words.intersection(IDLE)


def has_gaps(words: frozenset[str]) -> bool:
    """Whether it is known what ended a gap, and so whom the device waited for."""
    return not words.intersection(GAPS)


def without_unknown(rank: Rank, words: frozenset[str]) -> Rank:
    """The facts of a rank without those that need what is not in the file."""
    if not words or not (rank.has_device or rank.trust.device_missing):
        return rank
    return msgspec.structs.replace(
        known(rank, words),
        figures=known(rank.figures, words),
        devices=tuple(known(device, words) for device in rank.devices),
        hole=rank.hole if has_gaps(words) else Hole(pct=None),
        host=known(rank.host, words),
        replay=rank.replay if has_idle(words) else Replay(why=f"nothing of these is in the file: {', '.join(sorted(words))}"),
    )
