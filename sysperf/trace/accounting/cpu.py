"""Training on the CPU: operators by their own time, waiting for the loader, and Python between operators."""

from __future__ import annotations

import re
from collections import Counter
from heapq import nlargest

from sysperf.model.finding import Place
from sysperf.startup import lazy
from sysperf.trace.accounting import pauses, readbacks
from sysperf.trace.accounting.host_time import COMMUNICATION, HostTime
from sysperf.trace.accounting.nesting import Threads, exclusive
from sysperf.trace.accounting.passes import outermost_operators
from sysperf.trace.accounting.sites import of_threads
from sysperf.trace.accounting.window import LONG_GAP_NS, Window, is_loader
from sysperf.trace.host_facts import Cpu, Hole, Site
from sysperf.trace.intervals import Interval, Intervals, intersect, length, median, overlap, subtract, union
from sysperf.trace.timeline import OPERATOR, Timeline

TINY_OPERATOR_NS = 20_000
MAX_TOP = 12
MAX_CALLS = 50
MAX_GAPS = 500
_MATMUL = lazy(r"aten::(?:addmm|mm|bmm|baddbmm|mkldnn_|_?slow_conv|thnn_conv|convolution|_convolution|conv\dd|linear|matmul)|mkldnn|onednn")
_FALLBACK = lazy(r"aten::(?:_slow_conv|slow_conv|thnn_conv|_nnpack_spatial)")
_COPY = lazy(r"aten::(?:copy_|_to_copy|contiguous|clone|to)$")
_OTHER_THREAD = lazy(r"<built-in method (?:acquire|get) of _(?:thread\.R?[lL]ock|queue\.SimpleQueue|multiprocessing\.SemLock)>")
"""Waiting for another thread or process, whose work on the CPU the file does not show."""


def describe(host: HostTime, threads: Threads) -> tuple[Cpu, Hole, tuple[Site, ...]]:
    """Return where the time of the window goes: the facts, the long times between operators, and where the main thread is then."""
    timeline, window, main, operators = host.timeline, host.window, host.main, host.operators
    texts, whole = timeline.names.texts, window.duration
    own, counts, tiny = self_times(host, threads)

    def of_names(pattern: re.Pattern[str]) -> float:
        return 100 * sum(time for name, time in own.items() if pattern.match(texts[name])) / whole

    between = subtract([window.span], union([*host.computing, *host.communicating, *host.compiling, *host.loader]))
    collecting = intersect(host.collecting, between)
    code = subtract(between, collecting)
    long = [gap for gap in code if gap[1] - gap[0] >= LONG_GAP_NS]
    iterations = [span for span in host.iterations[1] if span[1] > span[0]]
    found = pauses.classify(long, _parts(timeline), iterations)
    own_pauses = sorted((*found.regular, *found.periodic)) if len(iterations) > 1 else long
    where = of_threads({main: own_pauses}, threads, whole) if main is not None and operators else ()
    hole = _hole(found, own_pauses, window, iterations, where) if operators else Hole(recurring_pct=0.0, recurring_least_pct=0.0)
    _, python = _recurring(subtract(code, long), iterations)
    read = readbacks.describe(host, threads, iterations)
    facts = Cpu(
        operators=len(operators),
        operator_pct=host.share(host.computing),
        interrupted_pct=100 * pauses.interrupted(_computing(timeline, operators), iterations) / whole,
        loader_pct=host.share(host.loader),
        loader_operator_pct=host.share(intersect(host.running, host.loader)),
        compile_pct=host.share(host.compiling),
        compile_recurring_pct=100 * length(host.compiling_again) / max(1, window.end - host.settled),
        communication_pct=host.share(host.communicating),
        python_pct=host.share(between),
        python_recurring_pct=host.share(code) if python is None else _with_pauses(python, hole),
        gc_pct=host.share(collecting),
        between_sites=of_threads({main: nlargest(MAX_GAPS, subtract(code, long), key=_length)}, threads, whole)
        if timeline.with_stacks and main is not None
        else (),
        gc_sites=of_threads({main: collecting}, threads, whole) if main is not None else (),
        matmul_pct=of_names(_MATMUL),
        fallback_pct=of_names(_FALLBACK),
        copy_pct=of_names(_COPY),
        own_copy_pct=host.share(_asked_for(host)),
        optimizer_pct=host.share(subtract(host.optimizing, long)),
        readback_pct=read.pct,
        readbacks_per_step=read.per_step,
        readback_sites=read.sites,
        tiny_operator_share=100 * tiny / (sum(counts.values()) or 1),
        operators_per_step=sum(counts.values()) / window.iterations
        if window.iterations
        else _per_iteration(timeline, operators, iterations),
        threads=len({timeline.ranges.thread[i] for i in operators}),
        top=tuple(
            Site(what=texts[name][:160], where=_line(timeline, threads, window, name), exposed_pct=100 * time / whole, count=counts[name])
            for name, time in own.most_common(MAX_TOP)
        ),
    )
    return facts, hole, where


def _computing(timeline: Timeline, operators: list[int]) -> list[pauses.Part]:
    """The operators that lie in no other one, in order."""
    rows = timeline.ranges
    return pauses.outermost((rows.start[i], rows.end[i], rows.name[i]) for i in operators)


def _parts(timeline: Timeline) -> list[pauses.Part]:
    """What the file's threads did that is no pause, in order."""
    rows = timeline.ranges
    talking = timeline.ranges_named(COMMUNICATION.match)
    loading = timeline.marks(is_loader)
    chosen = (*(i for i, kind in enumerate(rows.kind) if kind == OPERATOR), *talking, *loading)
    return pauses.outermost((rows.start[i], rows.end[i], rows.name[i]) for i in chosen)


def _hole(found: pauses.Pauses, own: Intervals, window: Window, iterations: Intervals, where: tuple[Site, ...]) -> Hole:
    """The pauses as facts: what the program's own cost by iteration, and what is left."""
    whole, is_known = window.duration, len(iterations) > 1
    least, middle = _recurring(found.regular, iterations)
    seldom = pauses.shares(found.periodic, iterations)
    all_of_them = length(found.regular) + length(found.periodic) + length(found.scattered)
    return Hole(
        recurring_pct=None if middle is None else _combined(middle, seldom.high),
        recurring_least_pct=None if least is None else _combined(least, seldom.low) * (1 - _share_waiting(where)),
        periodic_pct=seldom.high if is_known else None,
        returns=_recurrence(bool(middle), seldom.every) if is_known else "",
        scattered_pct=100 * length(found.scattered) / whole if is_known else None,
        pct=100 * all_of_them / whole,
        longest_ms=max((end - start for start, end in own), default=0) / 1e6,
        cause=where[0].what if where else "",
    )


def _with_pauses(python: float, hole: Hole) -> float:
    """Add the shares of short times between operators and of the program's pauses."""
    return (hole.recurring_pct or 0.0) + python * (1 - (hole.periodic_pct or 0.0) / 100)


def _combined(usual: float, seldom: float) -> float:
    """Combine what a median step has with what only some have: a median step is what these leave."""
    return seldom + usual * (1 - seldom / 100)


def _recurrence(in_most: bool, every: float | None) -> str:
    """How often pauses come back."""
    often = "" if every is None else f"every {round(every, 1):g} steps"
    return " and ".join(filter(None, ("in most steps" if in_most else "", often)))


def _length(span: Interval) -> int:
    return span[1] - span[0]


def _share_waiting(where: tuple[Site, ...]) -> float:
    """The share of these places' time in which another thread is waited for: what that one could do sooner is unknown."""
    waiting = sum(site.exposed_pct for site in where if _OTHER_THREAD.match(site.what))
    return waiting / (sum(site.exposed_pct for site in where) or 1)


def parts(host: HostTime) -> dict[str, Intervals]:
    """The times of the loader, of compilation, of operators outside both, and of the rest."""
    return {
        "loader": host.loader,
        "compilation": host.compiling,
        "operators": host.computing,
        "Python between operators": subtract([host.window.span], union([*host.loader, *host.compiling, *host.computing])),
    }


def _recurring(parts: Intervals, iterations: Intervals) -> tuple[float | None, float | None]:
    """The first quartile (of few the least) and the median by iteration; None where there are not two of them."""
    shares = sorted(100 * overlap(parts, span) / (span[1] - span[0]) for span in iterations)
    return (shares[len(shares) // 4], median(shares)) if len(shares) > 1 else (None, None)


def _per_iteration(timeline: Timeline, operators: list[int], iterations: Intervals) -> float | None:
    """How many of these operators start in an iteration, on average."""
    if not iterations:
        return None
    low, high = iterations[0][0], iterations[-1][1]
    return sum(low <= timeline.ranges.start[index] < high for index in operators) / len(iterations)


def _line(timeline: Timeline, threads: Threads, window: Window, name: int) -> Place | None:
    """The source line that most of an operator's longest calls come from; None where the file has no stacks."""
    if not timeline.with_stacks:
        return None
    rows, took = timeline.ranges, Counter[Place | None]()
    calls = [index for index in timeline.ranges_by_name.get(name, ()) if window.start <= rows.start[index] < window.end]
    for index in nlargest(MAX_CALLS, calls, key=lambda index: rows.end[index] - rows.start[index]):
        for around in threads.around(rows.thread[index], [rows.start[index]]):
            took[around.line] += rows.end[index] - rows.start[index]
    return took.most_common(1)[0][0] if took else None


def _asked_for(host: HostTime) -> Intervals:
    """The copies and conversions that the main thread makes outside other operators, the loader and optimizers."""
    rows = host.timeline.ranges
    copying = {number for number, text in enumerate(host.timeline.names.texts) if _COPY.match(text)}
    outermost = outermost_operators(host.timeline, host.main) if copying else []
    asked = host.window.covered(rows.spans_of(i for i in outermost if rows.name[i] in copying))
    return subtract(asked, union([*host.loader, *host.optimizing]))


def self_times(host: HostTime, threads: Threads) -> tuple[Counter[int], Counter[int], int]:
    """(exclusive ns by name, calls by name, calls that are tiny) of the operators that start in the window, outside loader and compiler."""
    rows, elsewhere = host.timeline.ranges, union([*host.loader, *host.compiling])
    own: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    tiny = 0
    low, high = host.window.span
    for thread in list(threads.threads()):
        mine = [i for i in threads.ranges(thread) if rows.kind[i] == OPERATOR and low <= rows.start[i] < high]
        if elsewhere:
            mine = [i for i in mine if not overlap(elsewhere, (rows.start[i], rows.start[i] + 1))]
        for index, time in exclusive(host.timeline, mine):
            own[rows.name[index]] += max(0, time - overlap(host.engine_pauses, rows.span(index))) if index in host.engine else time
            counts[rows.name[index]] += 1
            tiny += rows.end[index] - rows.start[index] < TINY_OPERATOR_NS
    return own, counts, tiny
