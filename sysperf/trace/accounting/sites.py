"""Places of the program where its threads were while devices waited: in long gaps, for the loader, for the device itself."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container
from typing import NamedTuple

from sysperf.model.finding import Place
from sysperf.startup import lazy
from sysperf.trace import kernels as by_name
from sysperf.trace.accounting.exposed import STARVED, DeviceTime
from sysperf.trace.accounting.nesting import Around, Threads
from sysperf.trace.accounting.passes import is_serving, is_step
from sysperf.trace.accounting.window import LONG_GAP_NS, is_loader
from sysperf.trace.host_facts import Hole, Site
from sysperf.trace.intervals import Interval, Intervals, intersect, length, overlap, subtract, union
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import COPY, GRAPH, Calls, Timeline

MAX_SITES = 8
MAX_BATCHES = 2
"""Batches of one iteration: a program may have two loaders."""
_OWN_WORK = lazy(r"Optimizer\.|<built-in function collect>|(?i:gc(?![a-z0-9])|garbage|checkpoint|.*\bsave\b)")
"""Ranges that say what the host did, and that it was no preparing of data, although a copy to the device came next."""
_OF_DATA = lazy(
    r"(?i)(?<!meta)(?<!up)data(?!_?parallel)|imdecode|decode_?(?:jpe?g|png|frame)|collat|augment|transform(?!er)|tokeni[sz]|preproc|fetch|pictur|image|video|audio|__getitem__|(?:\b|_)(?:open|read|load|sampl)"
    r"|(?:get|next|make|prepare|build|new)_?(?:batch|input|sample|item)"
)
"""Places that say that data is made ready."""
_OF_RESULTS = lazy(
    r"(?i)detoken|tokenization\w*\.py.*decode|postproc|(?:\b|_)(?:save|write)|(?:\b|_)(?:p|ddim|ddpm)_sampl"
    r"|sample_?(?:token|logit|loop|step|next)|logits|load_?(?:state|weight|lora|adapter|model|checkpoint)"
)
"""Places whose words say so, too, and that make something of results, or of the model: tokens, pictures, weights."""
_ADDRESS = lazy(r" object at 0x[0-9a-f]+(?=>$)")


def holes(timeline: Timeline, times: list[DeviceTime], threads: Threads, iterations: int) -> tuple[Hole, tuple[Site, ...]]:
    """Long gaps that the host is to blame for, and where its launching thread was meanwhile.

    Allocation and the loading of device code are causes of their own, and no part of it.
    """
    total, longest, feeding, fed = 0, 0, 0, 0
    pauses = list[_Pause]()
    places: dict[int, list[Interval]] = {}
    rows, to_device = timeline.operations, ByName(timeline.names, by_name.is_h2d)
    loaded = sorted(timeline.ranges.end[index] for index in timeline.marks(is_loader))
    for time in times:
        unnamed = subtract(time.host_exposed, union([*time.calls.alloc, *time.calls.module]))
        for gap in time.gaps:
            if gap.kind != STARVED or gap.end - gap.start < LONG_GAP_NS:
                continue
            parts = intersect(unnamed, [(gap.start, gap.end)])
            ours = length(parts)
            total, longest = total + ours, max(longest, ours)
            is_before_copy = rows.kind[gap.ended_by] == COPY and to_device(rows.name[gap.ended_by])
            if is_before_copy:
                latest = loaded[place - 1] if (place := bisect_left(loaded, gap.end)) else gap.start
                preparing = overlap(parts, (max(gap.start, latest), gap.end))  # what precedes a loader's batch did not make it
                feeding += preparing
                fed += preparing > 0
            call = time.launches.call(gap.ended_by)
            if call is not None and ours:
                places.setdefault(timeline.calls.thread[call], []).extend(parts)
                pauses.append(_Pause(timeline.calls.thread[call], parts, is_before_copy))
    whole = sum(time.window.duration for time in times)
    is_fed = feeding > total / 2 and 2 * fed >= sum(len(time.window.steps) for time in times)
    calls = _Calls(timeline, places)
    sites_of_gaps = of_threads(places, threads, whole, calls)
    unseen = _unseen(pauses, threads, calls, iterations) if not loaded and _may_get_data(timeline) else 0
    return (
        Hole(
            pct=100 * total / whole if whole else 0.0,
            longest_ms=longest / 1e6,
            unseen_pct=100 * unseen / whole if whole else 0.0,
            cause=sites_of_gaps[0].what if sites_of_gaps else "",
            feeds_device=is_fed and bool(sites_of_gaps) and _is_of_data(sites_of_gaps[0]),
        ),
        sites_of_gaps,
    )


class _Pause(NamedTuple):
    """The part of one long gap that the host is to blame for."""

    thread: int
    parts: Intervals
    is_before_copy: bool


def _may_get_data(timeline: Timeline) -> bool:
    """Whether batches may come from the host to the devices, as far as the file tells: what a server copies are requests."""
    if timeline.marks(is_serving):
        return False
    rows, names = timeline.operations, timeline.names
    copied = {name for kind, name in zip(rows.kind, rows.name, strict=True) if kind == COPY}
    calls = {names.texts[name] for name in timeline.calls.name}
    is_untold = GRAPH in rows.kind or not calls or (not copied and any(map(by_name.is_copy_call, calls)))
    return is_untold or not all(by_name.is_d2h(names.texts[name]) or "DtoD" in names.texts[name] for name in copied)


def _unseen(pauses: list[_Pause], threads: Threads, calls: _Calls, iterations: int) -> int:
    """ns of pauses in which the file shows nothing that the thread does: it may make or await a batch, once or twice an iteration.

    What comes more often within an iteration is no loader, unless a copy to the device follows.
    """
    blank = [pause for pause in pauses if _is_blank(pause, threads, calls)]
    are_few = sum(not pause.is_before_copy for pause in blank) <= MAX_BATCHES * iterations
    return sum(length(pause.parts) for pause in blank if pause.is_before_copy or are_few)


def _is_blank(pause: _Pause, threads: Threads, calls: _Calls) -> bool:
    """Whether the thread is in no range or call for most of a pause. The range of a whole step says nothing."""
    moments = [(start + (end - start) * part // 16, end - start) for start, end in pause.parts for part in range(1, 16, 2)]
    around = zip(moments, threads.around(pause.thread, [at for at, _ in moments]), strict=True)
    seen = sum(ns for (at, ns), one in around if (any(one[:4]) and not is_step(one.annotation)) or calls.at(pause.thread, at))
    return 2 * seen < sum(ns for _, ns in moments)


def _is_of_data(site: Site) -> bool:
    """Whether a place says that data is prepared there: a copy that comes next does not tell what the host did before it."""
    place = f"{site.what} {site.where.text if site.where else ''}"
    return not _OWN_WORK.match(site.what) and not _OF_RESULTS.search(place) and bool(_OF_DATA.search(place))


def of_loader(timeline: Timeline, parts: list[Intervals], threads: Threads, whole: int) -> tuple[Site, ...]:
    """Return where the threads that ask a loader for batches are in these times."""
    rows, asking = timeline.ranges, dict[int, list[Interval]]()
    for index in timeline.marks(is_loader):
        asking.setdefault(rows.thread[index], []).append(rows.span(index))
    places = {thread: [span for part in parts for span in intersect(part, union(spans))] for thread, spans in asking.items()}
    return of_threads(places, threads, whole)


class _Calls:
    """The calls that threads were in: of the device's runtime, else of the operating system's libraries."""

    def __init__(self, timeline: Timeline, threads: Container[int]) -> None:
        self._texts = timeline.names.texts
        self._by_thread = [_by_thread(rows, threads) for rows in (timeline.calls, timeline.system_calls)]

    def at(self, thread: int, moment: int) -> str:
        """The latest call of a thread that had begun, if it was not over; empty where there is none."""
        for by_thread in self._by_thread:
            calls = by_thread.get(thread, [])
            place = bisect_right(calls, (moment, math.inf, 0)) - 1
            if place >= 0 and calls[place][1] > moment:
                return self._texts[calls[place][2]]
        return ""


def _by_thread(rows: Calls, threads: Container[int]) -> dict[int, list[tuple[int, int, int]]]:
    """(start, end, name) of the calls of each of these threads, in order."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for row in zip(rows.start, rows.end, rows.name, rows.thread, strict=True):
        if row[3] in threads:
            found.setdefault(row[3], []).append(row[:3])
    for calls in found.values():
        calls.sort()
    return found


def of_threads(places: dict[int, list[Interval]], threads: Threads, whole: int, calls: _Calls | None = None) -> tuple[Site, ...]:
    """Return where threads were during these times, looked up at eight moments of each."""
    cost: Counter[tuple[str, Place | None]] = Counter()
    count: Counter[tuple[str, Place | None]] = Counter()
    for thread, spans in places.items():
        moments = [(start + (end - start) * part // 16, (start, end)) for start, end in spans for part in range(1, 16, 2)]
        latest: dict[tuple[str, Place | None], Interval] = {}
        for (at, span), around in zip(moments, threads.around(thread, [at for at, _ in moments]), strict=True):
            key = _what(around, calls.at(thread, at) if calls else ""), around.line
            cost[key] += (span[1] - span[0]) // 8
            count[key] += latest.get(key) != span
            latest[key] = span
    return tuple(
        Site(what=what, where=where, exposed_pct=100 * lost / whole, count=count[what, where])
        for (what, where), lost in cost.most_common(MAX_SITES)
    )


def _what(around: Around, call: str) -> str:
    """What a thread does there: the user's own range, else the operator, else the function, and the call; `Python` where nothing tells."""
    what = (around.annotation or around.operator or _ADDRESS.sub("", around.function))[:160]
    return f"{what} ({call[:80]})" if what and call else what or call[:160] or "Python between operators"


def of_waits(timeline: Timeline, times: list[DeviceTime], threads: Threads) -> tuple[Site, ...]:
    """The calls whose waiting the device paid for, by operator and source line; most expensive first."""
    blocking = ByName(timeline.names, lambda name: by_name.is_sync_call(name) or by_name.is_copy_call(name))
    rows = timeline.calls
    cost: Counter[tuple[str, Place | None]] = Counter()
    count: Counter[tuple[str, Place | None]] = Counter()
    whole = sum(time.window.duration for time in times)
    by_thread: dict[int, list[int]] = {}
    for index, name in enumerate(rows.name):
        if blocking(name):
            by_thread.setdefault(rows.thread[index], []).append(index)
    for time in times:
        paid = union([*time.sync_exposed, *time.copy_call_exposed])
        starts, ends = [start for start, _ in paid], [end for _, end in paid]
        for thread, indices in by_thread.items():
            concerned = [index for index in indices if bisect_right(ends, rows.start[index]) < bisect_left(starts, rows.end[index])]
            costly = sorted((rows.start[index], index, lost) for index in concerned if (lost := overlap(paid, rows.span(index))))
            for (_, index, lost), around in zip(costly, threads.around(thread, [start for start, _, _ in costly]), strict=True):
                key = around.outer_operator or around.annotation or timeline.names.texts[rows.name[index]], around.line
                cost[key] += lost
                count[key] += 1
    return tuple(
        Site(what=what[:160], where=where, exposed_pct=100 * lost / whole, count=count[what, where])
        for (what, where), lost in cost.most_common(MAX_SITES)
    )
