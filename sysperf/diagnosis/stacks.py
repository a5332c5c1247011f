"""What a main thread does, by samples of its stack: the phase of the step, and activities that cost time in any phase.

A phase says where in a step a sample was; an activity says what was done there. An activity is told by the file and function
of a library's call, or by the text of the user's own line where the call is one that leaves no frame, such as `.item()`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sysperf.diagnosis.facts import Stacks
from sysperf.host import redact
from sysperf.model.finding import Place
from sysperf.model.profile import Frame, Sample, Samples
from sysperf.startup import lazy

MAX_LINES = 24
MAX_TEXT = 200
PHASES = {
    "loader wait": "loader_wait",
    "inline fetch": "inline_fetch",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
}

ReadLine = Callable[[Frame], str]
"""Gives the text of a line of the program; empty where it cannot be read."""


class Rules(NamedTuple):
    """How a stack is read: which phase it belongs to, and which of its frames is the user's own."""

    phase: Callable[[Sequence[Frame]], str]
    user_frame: Callable[[Iterable[Frame]], Frame | None]


class _Call(NamedTuple):
    """A library's call that tells an activity."""

    activity: str
    path: str
    functions: frozenset[str] = frozenset()
    """Empty: any."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CALLS = (
    _Call("anomaly", "/torch/autograd/anomaly_mode.py"),
    _Call("anomaly", "/traceback.py", _names("format_stack extract_stack extract _extract_from_extended_frame_gen walk_stack")),
    _Call("profiling", "/torch/profiler/profiler.py"),
    _Call("profiling", "/torch/autograd/profiler.py", _names("__init__ _parse_kineto_results start_trace")),
    _Call("profiling", "/cProfile.py"),
    _Call("profiling", "/tracemalloc.py"),
    _Call("checkpoint", "/torch/serialization.py", _names("save _save _legacy_save persistent_id")),
    _Call("checkpoint", "/torch/distributed/checkpoint/"),
    _Call("checkpoint", "/safetensors/torch.py", _names("save_file save_model save")),
    _Call("logging", "/logging/__init__.py"),
    _Call("logging", "/logging/handlers.py"),
    _Call("logging", "/torch/utils/tensorboard/"),
    _Call("logging", "/tensorboardX/"),
    _Call("logging", "/wandb/"),
    _Call("logging", "/mlflow/"),
    _Call("logging", "/torch/_tensor_str.py"),
    _Call("opening", "/torch/serialization.py", _names("load _load _legacy_load")),
    _Call("opening", "/PIL/Image.py", _names("open preinit")),
    _Call("opening", "/numpy/lib/npyio.py", _names("load")),
    _Call("opening", "/numpy/lib/_npyio_impl.py", _names("load")),
    _Call("opening", "/pathlib.py", _names("open read_bytes read_text")),
    _Call("compiling", "/torch/_dynamo/convert_frame.py"),
    _Call("compiling", "/torch/_dynamo/symbolic_convert.py"),
    _Call("compiling", "/torch/_dynamo/output_graph.py"),
    _Call("compiling", "/torch/_inductor/compile_fx.py", _names("compile_fx compile_fx_inner fx_codegen_and_compile _compile_fx_inner")),
    _Call("compiling", "/torch/_inductor/codecache.py", _names("load compile load_async load_pybinding_async")),
    _Call("compiling", "/torch/jit/_trace.py"),
    _Call("collective", "/torch/distributed/distributed_c10d.py"),
    _Call("locking", "/threading.py", _names("wait acquire join _wait_for_tstate_lock")),
    _Call("locking", "/queue.py", _names("get put")),
    _Call("locking", "/concurrent/futures/_base.py", _names("result wait")),
    _Call("serving", "/selectors.py", _names("select")),
    _Call("serving", "/socketserver.py", _names("serve_forever")),
    _Call("serving", "/socket.py", _names("accept")),
    _Call("serving", "/zmq/"),
    _Call("serving", "/prompt_toolkit/"),
    _Call("worker_start", "/multiprocessing/popen_fork.py", _names("__init__ _launch wait poll")),
    _Call("worker_start", "/multiprocessing/popen_spawn_posix.py"),
    _Call("worker_start", "/multiprocessing/popen_forkserver.py"),
    _Call("worker_start", "/multiprocessing/process.py", _names("start join")),
    _Call("worker_start", "/torch/utils/data/dataloader.py", _names("_shutdown_workers __del__")),
    _Call("loader_start", "/torch/utils/data/dataloader.py", _names("__init__ _shutdown_workers __del__ _reset")),
    _Call("collate", "/torch/utils/data/_utils/collate.py"),
    _Call("shipping", "/multiprocessing/reduction.py", _names("dump")),
    _Call("shipping", "/multiprocessing/popen_spawn_posix.py", _names("_launch")),
    _Call("shipping", "/multiprocessing/popen_forkserver.py", _names("_launch")),
)

_LINES = {
    "readback": lazy(r"\.(?:item|tolist|numpy|cpu)\(\)"),
    "collection": lazy(r"\b(?:gc\.collect|empty_cache)\("),
    "checkpoint": lazy(r"\b(?:f(?:data)?sync|torch\.save)\("),
    "logging": lazy(r"\bprint\(|\.(?:write|writelines|writerow|flush|log|info|debug|add_scalar)\(|\b(?:json|yaml)\.dump\("),
    "opening": lazy(
        r"\b(?:open|np\.(?:load|fromfile|memmap)|torch\.load|Image\.open|listdir|scandir|glob|stat)\(|\.(?:read|read_bytes|read_text|open)\("
    ),
    "sleeping": lazy(r"\bsleep\("),
    "serving": lazy(r"\b(?:input|readline|accept|recv|poll|epoll_wait)\("),
    "collective": lazy(r"\b(?:all_reduce|all_gather|broadcast|barrier|reduce_scatter|all_to_all)\w*\("),
    "locking": lazy(r"\.(?:acquire|join)\(\)|\.wait\("),
}
_IMPORT = "<frozen importlib._bootstrap"
_OWN = frozenset(("python", "worker_start", "loader_start", "loader_wait", "inline_fetch", *PHASES.values()))
ACTIVITIES = tuple(dict.fromkeys((*(call.activity for call in _CALLS), *_LINES, "importing", "python")))


def describe(samples: Samples, rules: Rules, read_line: ReadLine, *, pid: int = 0) -> Stacks | None:
    """The shares of the main thread's time; None where no sample of it was taken."""
    main = [sample for sample in samples.samples if sample.tid == (pid or samples.pid) or sample.thread == "MainThread"]
    total = sum(sample.count for sample in main)
    if not total:
        return None
    counts: Counter[str] = Counter()
    lines: dict[str, Counter[Frame]] = {}
    for sample in main:
        user = rules.user_frame(sample.frames)
        for kind in kinds(sample, rules, read_line):
            counts[kind] += sample.count
            if user is not None:
                lines.setdefault(kind, Counter())[user] += sample.count
    shares = {kind: count / total for kind, count in counts.items()}
    others = {sample.tid for sample in samples.samples if sample not in main and _at_work(sample, rules, read_line)}
    return Stacks(samples=total, **shares, other_threads=len(others), lines=_hottest(lines, total, read_line))


def kinds(sample: Sample, rules: Rules, read_line: ReadLine) -> set[str]:
    """The phase of a sample, and its activities."""
    phase = PHASES[rules.phase(sample.frames)]
    names = {phase, *activities(sample.frames, rules, read_line)}
    if phase == "inline_fetch" and rules.user_frame(sample.frames) is not None and _in_collate(sample.frames, rules):
        names.add("collate")
    if not names - {"loader_start"} - set(PHASES.values()) and _in_own_code(sample.frames, rules):
        names.add("python")
    return names


def _in_own_code(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the user's code is at work, or what it calls outside of PyTorch."""
    return next((user for frame in frames if (user := rules.user_frame([frame]) is not None) or "-packages/torch/" in frame.file), False)


def activities(frames: Sequence[Frame], rules: Rules, read_line: ReadLine) -> set[str]:
    """What a stack does: by the calls of libraries in it, or by the user's line where that is the innermost call."""
    if _imports(frames, rules):
        return {"importing"}
    names = {call.activity for frame in frames for call in _CALLS if _is(frame, call)}
    innermost = rules.user_frame(frames[:1])
    if innermost is not None and (text := read_line(innermost)):
        names |= {activity for activity, pattern in _LINES.items() if pattern.search(text)}
    return names


def _imports(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the user's line imports a module. The line itself may be in one that is being imported, which may be all of a program."""
    called = itertools.takewhile(lambda frame: rules.user_frame([frame]) is None, frames)
    return any(frame.file.startswith(_IMPORT) for frame in called)


def _is(frame: Frame, call: _Call) -> bool:
    path = "/" + frame.file
    if call.path not in path or (call.path.endswith(".py") and not path.endswith(call.path)):
        return False
    return not call.functions or frame.function.rpartition(".")[2] in call.functions


def _in_collate(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the loader's `fetch` called a collate function: its line is the second one of `fetch`."""
    for inner, outer in itertools.pairwise(frames):
        if outer.file.endswith("/torch/utils/data/_utils/fetch.py") and rules.user_frame([inner]) is not None:
            return inner.function.rpartition(".")[2] not in ("__getitem__", "__getitems__", "<listcomp>", "__next__", "__iter__")
    return False


def _at_work(sample: Sample, rules: Rules, read_line: ReadLine) -> bool:
    """Whether another thread was in the user's code, and did not wait there."""
    user = rules.user_frame(sample.frames)
    return user is not None and not activities(sample.frames, rules, read_line) & {"locking", "sleeping", "serving", "opening"}


def _hottest(lines: dict[str, Counter[Frame]], total: int, read_line: ReadLine) -> tuple[Place, ...]:
    """The line that was seen most in each phase and activity."""
    hottest = []
    for kind, frames in lines.items():
        frame, count = frames.most_common(1)[0]
        text = " ".join(redact.source_line(read_line(frame)).split())[:MAX_TEXT]
        hottest.append(Place(frame.file, frame.line or 0, frame.function[:MAX_TEXT], text, kind, count / total))
    return tuple(sorted(hottest, key=lambda place: -(place.share or 0.0))[:MAX_LINES])
