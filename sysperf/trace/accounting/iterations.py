"""The iterations of a program, also where nobody marked them, and the one that took longer than the others."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from heapq import nlargest
from operator import eq

from sysperf.startup import lazy
from sysperf.trace import kernels as by_name
from sysperf.trace.accounting import losses
from sysperf.trace.accounting.passes import are_layers, is_layer, is_step, outermost_modules, outermost_operators, passes_of_training
from sysperf.trace.accounting.window import LONG_GAP_NS, Window, launching_thread, loader_calls, steps
from sysperf.trace.host_facts import Steps
from sysperf.trace.intervals import Interval, length, median
from sysperf.trace.timeline import ANNOTATION, COPY, GRAPH, KERNEL, OPERATOR, SET, Spans, Timeline

MIN_REPEATS, MIN_NAMED = 4, 3
"""Iterations; of those whose ranges say that they are steps, as an optimizer's and a loader's do, fewer do. From one to the next, so that
the last range ends the last one."""
MAX_SPREAD = 3.0
"""Iterations of one program do not differ by more; what does is no iteration, or no steady state."""
MIN_COVERED = 0.5
DEVIATIONS, TIMES_MEDIAN, MIN_STEPS = 3 * 1.4826, 1.2, 4
MIN_ALIKE = 0.8
MIN_TURNS = 3
"""So often optimizers must take their turns before these are iterations."""
ROUNDED_NS = 1_000
"""By so much times differ from those of the program: one range may begin before the last one ended."""
_FORWARD = lazy(r"(?i)forward(?![a-z])")
"""What a step of inference is called, too."""
_PIECE = lazy(r"## |Torch-Compiled|CompiledF|nccl:|gloo:|c10d|FSDP::|record_param_comms")
"""Ranges that PyTorch has several of in a step, such as one a layer."""
_NUMBERS = lazy(r"\d+")
_OPTIMIZER = lazy(r"Optimizer\.step#")
_MARKED = {"steady": "ProfilerStep", "all_steps": "ProfilerStep", "loader": "loader"}
_OF_DEVICE = frozenset(("kernels", "operations", "pauses"))
"""Iterations as devices do them: what is lost is in none of them."""


def find(timeline: Timeline, window: Window) -> tuple[str, list[Interval]]:
    """(what was used, the iterations): marked steps, else optimizer steps, loader calls, NVTX ranges, the model's calls, what repeats."""
    if window.rule in ("steady", "all_steps") or (losses.are_known(timeline) and steps(timeline)):
        return _MARKED.get(window.rule, ""), list(window.steps)  # where none of the marked ones is whole, nor is what else repeats
    lost = losses.begins(timeline)
    optimizer_steps = losses.whole(timeline, _between(timeline.ranges.spans_of(_optimizer_marks(timeline))))
    if len(optimizer_steps) >= MIN_NAMED:
        return "optimizer", _of_window(optimizer_steps, window) if window.rule == "loader" else optimizer_steps[1:]
    loader_steps = losses.whole(timeline, _between(loader_calls(timeline).spans))
    if len(loader_steps) >= MIN_NAMED:
        return "loader", loader_steps[1:]
    others: dict[str, Callable[[Timeline], list[Interval]]] = {
        "NVTX": _annotations,
        "modules": lambda timeline: _period(timeline.ranges, outermost_modules(timeline, window), 1),
        "kernels": lambda timeline: _launched_apart(timeline, _on_device(timeline, (KERNEL, GRAPH))),
        "operations": lambda timeline: _launched_apart(timeline, _on_device(timeline)),
        "operators": lambda timeline: _operators(timeline, window),
        "pauses": lambda timeline: _pauses(timeline, window),
        "passes": lambda timeline: _between(passes_of_training(timeline)),
    }
    launching = _launching(timeline, window, lost)
    named = losses.whole(timeline, _without_long_start(_annotations(timeline, is_step)))
    if len(named) >= MIN_NAMED and _cover(named, launching) and not are_layers(timeline, window, len(named)):
        return "NVTX", named
    for by, candidates_of in others.items():
        found = candidates_of(timeline)
        candidates = found if by in _OF_DEVICE else losses.whole(timeline, found)
        if is_regular(candidates, launching if by in ("NVTX", "modules", "passes") else window) and not are_layers(
            timeline, window, len(candidates)
        ):
            return by, candidates
        if by == "NVTX" and _is_one_step(timeline, launching):
            break
    return "", []


def _launching(timeline: Timeline, window: Window, lost: int | None) -> Window:
    """Return when the host launches what the devices do in the window, maybe far ahead of them; the window, where no launch is known."""
    until = window.end if lost is None else min(lost, window.end)
    calls, texts = timeline.calls, timeline.names.texts
    launches = {name for name in set(calls.name) if by_name.is_launch_call(texts[name])}
    launched = [start for start, name in zip(calls.start, calls.name, strict=True) if name in launches and start < until]
    return window._replace(start=min(launched), end=max(launched)) if launched else window


def _is_one_step(timeline: Timeline, launching: Window) -> bool:
    """Whether one range that says that it is a step encloses all that the program launches: what repeats in it are its layers."""
    rows, (low, high) = timeline.ranges, launching.span
    marks = timeline.ranges_named(lambda name: is_step(name) or bool(_FORWARD.match(name)))
    return any(rows.kind[index] == ANNOTATION and rows.start[index] <= low and high < rows.end[index] for index in marks)


def _of_window(iterations: list[Interval], window: Window) -> list[Interval]:
    """Return those that lie in the window for the most part: of what lies outside, the window's parts tell nothing."""
    low, high = window.span
    return [(start, end) for start, end in iterations if 2 * (min(end, high) - max(start, low)) > end - start]


def is_regular(iterations: list[Interval], window: Window) -> bool:
    """Whether these are iterations: several, of similar length, most of the window."""
    if len(iterations) < MIN_REPEATS:
        return False
    lengths = [end - start for start, end in iterations]
    return max(lengths) <= MAX_SPREAD * median(lengths) and _cover(iterations, window)


def _cover(iterations: list[Interval], window: Window) -> bool:
    """Whether these, which do not overlap, are most of the window."""
    return sum(end - start for start, end in iterations) >= MIN_COVERED * window.duration


def _without_long_start(iterations: list[Interval]) -> list[Interval]:
    """Leave out the first ones that take longer than iterations differ: there a program starts up. Later ones do what it does."""
    most = MAX_SPREAD * median([end - start for start, end in iterations]) if iterations else 0.0
    return list(itertools.dropwhile(lambda span: span[1] - span[0] > most, iterations))


def describe(by: str, spans: list[Interval]) -> Steps:
    """What is known of the iterations."""
    lengths = sorted((end - start) / 1e6 for start, end in spans)
    if not lengths:
        return Steps()
    middle = median(lengths)
    deviation = median(abs(length - middle) for length in lengths)
    longest = lengths[-1]
    known = len(lengths) >= MIN_STEPS and by in ("ProfilerStep", "optimizer", "loader")
    outlier = longest > middle + DEVIATIONS * deviation and longest >= TIMES_MEDIAN * middle
    span = (max(end for _, end in spans) - min(start for start, _ in spans)) / 1e6
    return Steps(
        by=by,
        count=len(spans),
        median_ms=middle,
        longest_ms=longest,
        outlier=outlier if known else None,
        outlier_excess_pct=100 * max(0.0, longest - middle) / span if known and span else None,
        steady=True,
    )


def _between(marks: list[Interval]) -> list[Interval]:
    starts = [start for start, _ in marks]
    return list(itertools.pairwise(starts))


def _optimizer_marks(timeline: Timeline) -> list[int]:
    """The first step of an optimizer in each iteration: programs with several (GANs, Muon beside Adam) take their steps in turn."""
    rows, marks = timeline.ranges, list[int]()
    for index in sorted(timeline.marks(_OPTIMIZER.match), key=rows.start.__getitem__):
        if not marks or rows.start[index] >= rows.end[marks[-1]]:  # one within another belongs to it
            marks.append(index)
    updates = _updates(timeline, marks) if marks else []
    turns = _turns(updates) if len(set(updates[1:])) > 1 else _turns(_new_batches(timeline, marks))
    return marks[:: max(turns, 1)]


def _turns(kinds: Sequence[Hashable]) -> int:
    """How many of these come before the first kind comes again, again and again; the first turn may differ. 0: they do not repeat."""
    longest = len(kinds) // MIN_TURNS
    return next((turns for turns in range(1, longest + 1) if all(map(eq, kinds[turns:-turns], kinds[2 * turns :]))), 0)


def _updates(timeline: Timeline, marks: list[int]) -> list[tuple[int, int]]:
    """What each step of an optimizer does: its name, and how many operators and calls it consists of."""
    rows, calls = timeline.ranges, timeline.calls
    threads = {rows.thread[index] for index in marks}
    starts = sorted(
        itertools.chain(
            (
                start
                for start, thread, kind in zip(rows.start, rows.thread, rows.kind, strict=True)
                if kind == OPERATOR and thread in threads
            ),
            (start for start, thread in zip(calls.start, calls.thread, strict=True) if thread in threads),
        )
    )
    return [(rows.name[index], bisect_left(starts, rows.end[index]) - bisect_left(starts, rows.start[index])) for index in marks]


def _new_batches(timeline: Timeline, marks: list[int]) -> list[bool]:
    """Whether the program asked its loader for a batch before each of these, since the one before it."""
    asked = [start for start, _ in loader_calls(timeline).spans]
    places = [bisect_left(asked, timeline.ranges.start[index]) for index in marks]
    return [after > before for before, after in itertools.pairwise([0, *places])]


def _annotations(timeline: Timeline, are_wanted: Callable[[str], bool] = bool) -> list[Interval]:
    """The range of one such name on one thread that covers most time without overlapping itself; a step's name may tell its number, too."""
    rows, spans_of = timeline.ranges, defaultdict[tuple[str, int], list[Interval]](list)
    for name, indices in timeline.ranges_by_name.items():
        text = timeline.names.texts[name]
        text = _NUMBERS.sub("", text) if is_step(text) or _FORWARD.match(text) else text
        for index in indices if are_wanted(text) and not _PIECE.match(text) and not is_layer(text) else ():
            if rows.kind[index] == ANNOTATION:
                spans_of[text, rows.thread[index]].append(rows.span(index))
    longest = nlargest(20, spans_of.values(), length)
    for spans in map(sorted, longest):
        if len(spans) >= MIN_REPEATS and all(before[1] <= after[0] + ROUNDED_NS for before, after in itertools.pairwise(spans)):
            return _between(spans)
    return []


def _on_device(timeline: Timeline, kinds: Collection[int] = (KERNEL, GRAPH, COPY, SET)) -> list[int]:
    """The operations of these kinds of the device that does most of them, in order."""
    rows = timeline.operations
    order = sorted((index for index, kind in enumerate(rows.kind) if kind in kinds), key=rows.start.__getitem__)
    if not order:
        return []
    device = Counter(rows.device[index] for index in order).most_common(1)[0][0]
    return [index for index in order if rows.device[index] == device]


def _operators(timeline: Timeline, window: Window) -> list[Interval]:
    """The period of the outermost operators of the main thread, where no device did anything."""
    main = None if timeline.operations else launching_thread(timeline, window)
    return _period(timeline.ranges, outermost_operators(timeline, main))


def _pauses(timeline: Timeline, window: Window) -> list[Interval]:
    """What is between the pauses that cost most, of a device or else of the main thread: a server waits behind each request.

    Those behind one operation and before another one delimit iterations where there is a pause each time that the program gets there, or
    after the same number of operations. What takes the CPU away from a program does neither.
    """
    rows: Spans = timeline.operations or timeline.ranges
    order = _on_device(timeline) if timeline.operations else outermost_operators(timeline, launching_thread(timeline, window))
    places, visits, costs = defaultdict[tuple[int, int], list[int]](list), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    frontier = itertools.accumulate((rows.end[index] for index in order), max)
    for position, (end, (before, after)) in enumerate(zip(frontier, itertools.pairwise(order), strict=False), 1):
        pair, pause = (rows.name[before], rows.name[after]), rows.start[after] - end
        visits[pair] += 1
        if pause >= LONG_GAP_NS:
            places[pair].append(position)
            costs[pair] += pause
    pair = max(costs, key=costs.__getitem__, default=(-1, -1))
    positions = places[pair]
    if len(positions) < MIN_REPEATS:
        return []
    distances = [after - before for before, after in itertools.pairwise(positions)]
    is_each_time = len(positions) >= MIN_ALIKE * visits[pair]
    is_alike = is_each_time or Counter(distances).most_common(1)[0][1] >= MIN_ALIKE * len(distances)
    return _between([rows.span(order[position]) for position in positions]) if is_alike and costs[pair] * 2 >= sum(costs.values()) else []


def _launched_apart(timeline: Timeline, order: list[int]) -> list[Interval]:
    """The period of these operations, if there is more than one launch for each: one graph holds all layers of a step."""
    rows = timeline.operations
    spans = _period(rows, order)
    starts = {start for start, _ in spans}
    calls = [rows.correlation[index] for index in order if rows.start[index] in starts and rows.correlation[index] >= 0]
    return spans if len(set(calls)) >= len(calls) / 2 else []


def _period(rows: Spans, order: list[int], least: int = 8) -> list[Interval]:
    """Return the times from one to the next of the rarest name that comes back after so many others at least, again and again.

    None where a rarer one comes back, too, and too seldom: then the others repeat within a step, as layers do.
    """
    if len(order) < least * MIN_REPEATS:
        return []
    places: dict[int, list[int]] = {}
    for position, index in enumerate(order):
        places.setdefault(rows.name[index], []).append(position)
    for positions in sorted(places.values(), key=len):
        if len(positions) >= MIN_REPEATS and _is_periodic(positions, least):
            return _between([rows.span(order[position]) for position in positions])
        if 1 < len(positions) < MIN_REPEATS and _is_periodic(positions, least) and _is_throughout(positions, len(order)):
            return []
    return []


def _is_throughout(positions: list[int], count: int) -> bool:
    """Whether something that is periodic is so from the first operation to the last."""
    period = 1.05 * median([after - before for before, after in itertools.pairwise(positions)])
    return positions[0] <= period and count - positions[-1] <= period


def _is_periodic(positions: list[int], least: int) -> bool:
    distances = [after - before for before, after in itertools.pairwise(positions)]
    middle = median(distances)
    return middle >= least and sum(abs(distance - middle) <= max(1, 0.05 * middle) for distance in distances) >= 0.8 * len(distances)
