"""How often a program goes through its model: what repeats more often within a pass is a layer, and no step."""

from __future__ import annotations

from collections import Counter, defaultdict

from sysperf.startup import lazy
from sysperf.trace.accounting.window import BACKWARD, Window
from sysperf.trace.intervals import Interval, length, union
from sysperf.trace.kernels import ByName
from sysperf.trace.timeline import ANNOTATION, OPERATOR, Timeline

_MODULE = lazy(r"nn\.Module: ")
_LAYER = lazy(
    r"(?i)(?:[\w-]+[./: ])*[a-z]*_?(?:layer|block|attention|attn|mlp|ffn|moe|expert|norm|conv|embedding)s?(?:[._ #-]?\d+)?"
    r"(?:[./: ]+(?:forward|fwd))?$"
)
"""Ranges that are named after a part of a model."""
_STEP = lazy(r"(?i)execute_|(?:train(?:ing)?|model|decode|prefill|inference)?[_ ]?(?:step|iter(?:ation)?|batch)(?![a-z])")
"""Ranges that say that they are a step: vLLM's `execute_32_context…`, SGLang's `step[DECODE bs=32]`, and what people call theirs."""


_SERVING = lazy(
    r"execute_.*(?:context|generation)|step\[(?:\w+_)?(?:EXTEND|DECODE|MIXED|PREFILL|VERIFY|IDLE)\b|\[Executor\] .*\b(?:ctx|gen) reqs"
)
"""The steps of vLLM, SGLang and TensorRT-LLM."""


def is_serving(name: str) -> bool:
    """Whether a range is a step of a server, which gets requests, and no batches of a loader."""
    return bool(_SERVING.match(name))


def is_step(name: str) -> bool:
    """Whether a range says that it is a step."""
    return bool(_STEP.match(name))


def is_layer(name: str) -> bool:
    """Whether a range is named after a part of a model, which a step has several of."""
    return bool(_LAYER.match(name))


def are_layers(timeline: Timeline, window: Window, count: int) -> bool:
    """Whether what repeats so often are parts of a pass: ranges say so, or the program calls its model or goes backward more seldom."""
    calls = Counter(timeline.ranges.name[index] for index in outermost_modules(timeline, window))
    passes = max(calls.values(), default=0), len(passes_of_training(timeline))
    return any(0 < 2 * number <= count for number in passes) or _named_layers(timeline) >= count


def _named_layers(timeline: Timeline) -> int:
    """How many ranges of one name that says that they are layers follow each other without much between them."""
    rows, found = timeline.ranges, 0
    for name, indices in timeline.ranges_by_name.items():
        spans = rows.spans_of(indices) if is_layer(timeline.names.texts[name]) and rows.kind[indices[0]] == ANNOTATION else []
        if spans and 2 * length(union(spans)) >= max(end for _, end in spans) - min(start for start, _ in spans):
            found = max(found, len(spans))
    return found


def outermost_modules(timeline: Timeline, window: Window) -> list[int]:
    """The calls of modules that no other one makes, in order; where the file has modules."""
    rows, (low, high) = timeline.ranges, window.span
    inside = [index for index in timeline.ranges_named(_MODULE.match, python=True) if rows.end[index] > low and rows.start[index] < high]
    outermost = list[int]()
    for index in sorted(inside, key=lambda index: (rows.start[index], -rows.end[index])):
        if not outermost or rows.end[index] > rows.end[outermost[-1]]:  # times are rounded: one may begin before the last one ended
            outermost.append(index)
    return outermost


def passes_of_training(timeline: Timeline) -> list[Interval]:
    """Forward and backward passes, one behind the other; on a GPU, the operators of a backward pass are those of a thread of autograd's."""
    rows, is_backward = timeline.ranges, ByName(timeline.names, lambda name: bool(BACKWARD.match(name)))
    if not timeline.ranges_named(BACKWARD.match):
        return []
    outermost = _outermost(timeline)
    backward = [index for ours in outermost.values() for index in ours if is_backward(rows.name[index])]
    forward = ([index for index in ours if not is_backward(rows.name[index])] for ours in outermost.values())
    passes = list[Interval]()
    before = True
    for index in sorted([*backward, *max(forward, key=len, default=[])], key=rows.start.__getitem__):
        if (now := is_backward(rows.name[index])) or not before:
            passes[-1:] = [(passes[-1][0], rows.end[index])] if passes else [rows.span(index)]
        else:
            passes.append(rows.span(index))
        before = now
    return passes


def outermost_operators(timeline: Timeline, thread: int | None) -> list[int]:
    """The operators of a thread that lie in no other one, in order."""
    return _outermost(timeline, thread).get(thread, []) if thread is not None else []


def _outermost(timeline: Timeline, only: int | None = None) -> dict[int, list[int]]:
    """The operators that lie in no other one, by thread; of all threads, or of one."""
    rows, outermost = timeline.ranges, defaultdict[int, list[int]](list)
    ours = [index for index, thread in enumerate(rows.thread) if only in (None, thread) and rows.kind[index] == OPERATOR]
    for index in sorted(ours, key=lambda index: (rows.start[index], -rows.end[index])):
        found = outermost[rows.thread[index]]
        if not found or rows.start[index] >= rows.end[found[-1]]:
            found.append(index)
    return outermost
