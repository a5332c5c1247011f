"""How a main thread spends its time: waiting for data, making it, forward, backward, optimizer, or the rest.

A stack belongs to the first phase that one of its calls names. The order is that of who calls whom: a dataset may run a
model, checkpointing runs the model's forward within backward, and a closure runs both within the optimizer's step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sysperf.model.profile import Frame, Phase, Sample, Samples, Split

WAIT, FETCH, FORWARD, BACKWARD, OPTIMIZER, OTHER = PHASES = ("loader wait", "inline fetch", "forward", "backward", "optimizer", "other")

_LIBRARIES = ("/site-packages/", "/dist-packages/")
_STRING = "<string>"
_WORKER = ("/torch/utils/data/_utils/fetch.py", "/torch/utils/data/_utils/collate.py")


def split(samples: Samples) -> Split:
    """The shares of the main thread's time."""
    of_main = [sample for sample in samples.samples if is_main(sample, samples.pid)]
    total = sum(sample.count for sample in of_main)
    counts: dict[str, int] = dict.fromkeys(PHASES, 0)
    lines: dict[str, Counter[Frame]] = {name: Counter() for name in PHASES}
    for sample in of_main:
        name = phase(sample.frames)
        counts[name] += sample.count
        if (frame := user_frame(sample.frames)) is not None:
            lines[name][frame] += sample.count
    return Split(
        samples.pid, samples.seconds, samples.rate_hz, total, tuple(_phase(name, counts[name], lines[name], total) for name in PHASES)
    )


def is_main(sample: Sample, pid: int) -> bool:
    """Whether this is the main thread: by its number, or by its name where the program is in a container with numbers of its own."""
    return sample.tid == pid or sample.thread == "MainThread"


def phase(frames: Sequence[Frame]) -> str:
    """The phase that a stack belongs to."""
    seen = {_phase_of(frame) for frame in frames}
    return next((name for name in (FETCH, WAIT, BACKWARD, FORWARD, OPTIMIZER) if name in seen), OTHER)


def _phase_of(frame: Frame) -> str:
    """What one call tells. The DataLoader's own code counts as waiting, unless it fetches in this thread."""
    path, function = "/" + frame.file, frame.function.rpartition(".")[2]
    if path.endswith(_WORKER):
        return FETCH
    if path.endswith("/torch/utils/data/dataloader.py"):
        return FETCH if "_SingleProcess" in frame.function else WAIT
    if path.endswith(("/torch/autograd/graph.py", "/torch/autograd/__init__.py")):
        return BACKWARD if function in ("_engine_run_backward", "backward", "grad") else OTHER
    if path.endswith("/torch/nn/modules/module.py"):
        return FORWARD if function in ("_call_impl", "_wrapped_call_impl") else OTHER
    if "/torch/optim/" in path or path.endswith("/torch/amp/grad_scaler.py"):
        return OPTIMIZER
    return OTHER


def user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost call in code that is neither Python's own nor installed.

    What is compiled from a string is the program itself (`python -c`), or a function that a library has generated, as for a dataclass.
    """
    users = [frame for frame in frames if frame.line is not None and _users(frame.file) and not frame.is_of_torch]
    return next((frame for frame in users if frame.file != _STRING), users[0] if users else None)


def _users(path: str) -> bool:
    if path.startswith("<frozen ") or any(part in path for part in _LIBRARIES):
        return False
    head, library, _ = path.rpartition("/lib/python3")  # the standard library
    return not (library and "." in path[len(head) + len(library) :].partition("/")[0])


def _phase(name: str, count: int, lines: Counter[Frame], total: int) -> Phase:
    if not count:
        return Phase(name, 0, 0.0)
    hottest, seen = next(iter(lines.most_common(1)), (None, 0))
    return Phase(name, count, count / total, hottest, seen / total)
