"""The tree of `nn.Module` calls, by the device's time of what they launch, on a CPU by that of their operators.

Files that were recorded with `with_modules` or `with_stack` have them.
Modules of one class in one place count together, so that a model's layers are one line. The backward pass runs outside of modules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from sysperf.startup import lazy
from sysperf.trace.accounting.exposed import DeviceTime
from sysperf.trace.accounting.host_time import HostTime
from sysperf.trace.accounting.passes import outermost_operators
from sysperf.trace.device_facts import ModuleRow
from sysperf.trace.timeline import Timeline

MIN_SHARE_PCT, MAX_DEPTH, MAX_ROWS = 1.0, 5, 40
_MODULE = lazy(r"nn\.Module: (.+?)(?:_\d+)?$")
Path = tuple[str, ...]
Work = list[tuple[int, int]]
"""When something is launched or begins, and how long it takes."""


def of_device(time: DeviceTime) -> tuple[ModuleRow, ...]:
    """The modules that launched most of the window's kernels, each below the one that called it."""
    timeline, rows, launched = time.timeline, time.timeline.operations, defaultdict[int, Work](list)
    for index in time.members:
        call = time.launches.calls[index]
        if call is not None:
            launched[timeline.calls.thread[call]].append((timeline.calls.start[call], rows.end[index] - rows.start[index]))
    return _tree(timeline, launched, sum(rows.end[index] - rows.start[index] for index in time.members))


def of_cpu(host: HostTime) -> tuple[ModuleRow, ...]:
    """The modules in which operators run longest on the main thread, each below the one that called it."""
    timeline, window, rows, main = host.timeline, host.window, host.timeline.ranges, host.main
    inside = [index for index in outermost_operators(timeline, main) if window.start <= rows.start[index] < window.end]
    took = [(rows.start[index], rows.end[index] - rows.start[index]) for index in inside]
    return _tree(timeline, {main: took} if main is not None else {}, sum(ns for _, ns in took))


def _tree(timeline: Timeline, done: Mapping[int, Work], whole: int) -> tuple[ModuleRow, ...]:
    took, calls = Counter[Path](), Counter[Path]()
    for ns, path, begun in _visits(timeline, timeline.ranges_named(_MODULE.match, python=True), done):
        took.update({path[:depth]: ns for depth in range(1, len(path) + 1)})
        calls.update(path[:depth] for depth in begun)
    return tuple(_ordered(took, calls, whole))[:MAX_ROWS] if whole else ()


def _visits(timeline: Timeline, ours: list[int], done: Mapping[int, Work]) -> Iterator[tuple[int, Path, list[int]]]:
    """(ns of what is done, the modules around, depths of those that did nothing before) in the order of each thread's time.

    So a call counts with its first work, also where the device does it much later than the host calls it.
    """
    ranges, texts = timeline.ranges, timeline.names.texts
    called = defaultdict[int, list[int]](list)
    for index in ours:
        called[ranges.thread[index]].append(index)
    for thread, indices in called.items():
        events = [(ranges.start[index], 0, -ranges.end[index], index) for index in indices]
        events += [(at, 1, 0, ns) for at, ns in done.get(thread, ())]
        open_: list[tuple[int, str]] = []  # (end, class)
        counted = 0  # so many of them, from the outermost on, have done something
        for at, is_work, _, value in sorted(events):
            while open_ and open_[-1][0] <= at:
                open_.pop()
            counted = min(counted, len(open_))
            if not is_work:
                name = _MODULE.match(texts[ranges.name[value]])
                open_.append((ranges.end[value], name[1][:60] if name else ""))
            elif path := tuple(name for _, name in open_[:MAX_DEPTH]):
                yield value, path, list(range(counted + 1, len(path) + 1))
                counted = len(open_)


def _ordered(took: Counter[Path], calls: Counter[Path], whole: int, under: Path = ()) -> Iterator[ModuleRow]:
    """Each module behind the one that called it, those that take most first."""
    below = sorted((path for path in took if path[:-1] == under), key=lambda path: -took[path])
    for path in below:
        share = 100 * took[path] / whole
        if share >= MIN_SHARE_PCT:
            yield ModuleRow(name=path[-1], depth=len(path) - 1, calls=calls[path], share_pct=share)
            yield from _ordered(took, calls, whole, path)
