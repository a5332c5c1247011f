"""What one sample of a stack shows: the phase of the step, and activities, by calls, by the user's line and by the lines around it."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence

from sysperf.diagnosis import each_sample, statements
from sysperf.diagnosis.activities import ACTIVITIES, Call
from sysperf.diagnosis.made_again import asks_frame, makes_constants, takes_row
from sysperf.diagnosis.reading import LoopOf, ReadLine, Rules, at_line, below_user
from sysperf.model.profile import Frame, Sample
from sysperf.startup import lazy

PHASES = {
    "loader wait": "loader_wait",
    "inline fetch": "inline_fetch",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
}
_GETS = Call.of("/multiprocessing/queues.py: get")
"""Of a loader's queue. What it receives is made again in C, which leaves no frame below `get`."""
_INDICES = Call.of("/torch/utils/data/dataloader.py: _next_index")
_RECEIVES = Call.of("/multiprocessing/connection.py"), Call.of("/torch/multiprocessing/reductions.py")
"""A tensor's shared memory is asked of the worker that has it."""
_OF_LINE = Call.of("/torch/_tensor.py: __iter__"), Call.of("/random.py: choices <listcomp>")
"""Going through a tensor, whose tensors of elements are made there at once, or through weights: what it is for, the user's line tells."""
_OF_PARAMETERS = lazy(r"\b(?:named_)?(?:parameters|buffers|modules|children)\(|param_groups|state_dict|\.grad\b|\bparams\b")
_LOOP = lazy(r"^for (\w+)(?:, *\w+)* in .*:$")
_OF_ELEMENT = r"\b{0}\.(?:item|tolist|numpy|cpu)\(\)|\b(?:float|int)\({0}\)"
_TEXT = lazy(r"\bsplit\((?:\)|f?[\"'])|\bre\.split\(|\bsplitlines\(|\bcsv\.|\breadlines?\(|\bjson\.|\bopen\(")
BODY_LINES = 3
"""Lines of a loop that are looked at for what it does with each element."""
_LOGS = lazy(
    r"(?:^|\.)(?:add_(?:scalars?|histogram|images?|text|figure|video|audio|embedding|pr_curve|hparams)|emit"
    r"|(?:write|log|record|track|report)(?:_(?:to_\w+|\w*(?:steps?|metrics?|scalars?|stats|statistics|hist\w*|summar\w+|gradients?|grads?"
    r"|weights|params|parameters|images?|values|loss(?:es)?|all|everything|progress|row|line|event)))?)$"
    r"|\w*(?:Logger|SummaryWriter|Tracker|EventWriter|Reporter|Experiment|Telemetry)\."
)
"""Names of the functions and classes of a program's own logger."""
_LOGARITHM = lazy(
    r"(?:[^.]*(?<!Logger)(?<!SummaryWriter)(?<!Tracker)(?<!EventWriter)(?<!Reporter)(?<!Experiment)(?<!Telemetry)\.)?log(?:_(?:loss(?:es)?|weights|values|params|parameters|grad\w*))?$"
)
"""Names among them that may be those of a logarithm: what these only compute is none of a logger's work."""
_OF_LOGGERS = frozenset(
    ("syncing", "readback", "to_host", "computed_readback", "statistics", "elements", "opening", "preparing", "converting", "serving")
)
"""What loggers do, too: values are read, written to a file, a database or a service, and waited for."""
_SAVES = lazy(r"save|checkpoint|ckpt|snapshot")
_ONE_GRADIENT = lazy(r"\b(?:all_)?reduce\(\s*\w+\.grad\b")
_CHECKS = lazy(r"(?:^|_)(?:nans?|isnan|infs?|finite|numerics)(?:_|$)|detect_anomal")
"""Names of the functions of a program that look through tensors for what is no number."""
_METRICS = lazy(
    r"(?:^|_)(?:metrics|(?:compute|update|get|calc\w*)_metric|accuracy|f1_score|auc|auroc|m_?iou|mean_iou|bleu|rouge|[wc]er"
    r"|confusion_matrix)(?:_|$)"
)
"""Names of the functions of a program that compute metrics. One with a loss in its name may train, as the overlap of boxes does."""
_IMPORT = "<frozen importlib._bootstrap"
_IN_OWN_CODE = frozenset(
    (
        "loader_start", "evaluation", "preparing", "converting", "spinning", "drawing", "one_hot", "constants", "looping", "configuring",
        "to_host", "appending", "from_processes", "opened_again", "searched", "image_decode", "image_resize",
    )
)  # fmt: skip
"""Activities that are the program's own time, too."""


_OF_WHO_IS_CALLED = frozenset(("profiling", "attending"))
"""Activities that are told where the program calls a library, and not where a notebook, a server or a profiler calls the program."""


def kinds(sample: Sample, rules: Rules, read_line: ReadLine, loop_of: LoopOf) -> set[str]:
    """The phase of a sample, and its activities."""
    phase = PHASES[rules.phase(sample.frames)]
    if phase == "loader_wait" and (work := _work_in_loader(sample.frames, rules)):
        return {"other", work}
    if phase == "inline_fetch" and any(_INDICES.is_of(frame) for frame in sample.frames):
        return {"other", "sampler"}  # workers would not do it
    names = {phase, *activities(sample.frames, rules, read_line)}
    if phase == "inline_fetch" and rules.user_frame(sample.frames) is not None and _in_collate(sample.frames, rules):
        names.add("collate")
    if phase == "inline_fetch" and takes_row(sample.frames, rules, read_line):
        names.add("rows")
    if phase == "inline_fetch" and asks_frame(sample.frames):
        names.add("of_frame")
    if phase == "forward" and makes_constants(sample.frames, rules, read_line, loop_of):
        names.add("constants")
    names |= _of_own_lines(sample.frames, phase, rules, read_line, loop_of)
    if not names - _IN_OWN_CODE - set(PHASES.values()) and _in_own_code(sample.frames, rules):
        names.add("python")
    if "collective" in names and (user := rules.user_frame(sample.frames)) is not None:
        names |= _exchanged(user, loop_of(user), read_line)
    if "profiling" not in names and _does("profiling", sample.frames):
        names.add("profiled")
    return names


def _exchanged(frame: Frame, loop: range, read_line: ReadLine) -> set[str]:
    """What ranks exchange in a line, tensor by tensor: gradients, or weights in a loop through those of a model."""
    if _ONE_GRADIENT.search(read_line(frame)):
        return {"one_gradient"}
    whole = "".join(read_line(at_line(frame, line)) for line in loop[:BODY_LINES])
    return {"weights_sent"} if loop and goes_through_parameters(frame, loop, read_line) and ".grad" not in whole else set()


def _of_own_lines(frames: Sequence[Frame], phase: str, rules: Rules, read_line: ReadLine, loop_of: LoopOf) -> set[str]:
    """What the user's line does by how it stands among others."""
    if (user := rules.user_frame(frames)) is None:
        return set()
    if phase == "inline_fetch":
        found = {"opened_again"} if each_sample.opens_again(user, read_line) else set[str]()
        return found | ({"searched"} if each_sample.searches(user, loop_of(user), read_line) else set())
    if phase == "backward":
        return {"retained"} if statements.passes_again(user, loop_of(user), read_line) else set()
    if phase in ("optimizer", "other") and statements.updates_by_hand(frames, rules, loop_of, read_line):
        return {"own_optimizer"}
    return {"appending"} if phase == "other" and statements.appends(user, loop_of(user), read_line) else set()


def _does(kind: str, frames: Iterable[Frame]) -> bool:
    return any(kind in _of_call(frame.file, frame.function) for frame in frames)


@functools.lru_cache(maxsize=8_192)
def _of_call(file: str, function: str) -> frozenset[str]:
    """The activities that one call tells; the same calls are on many stacks."""
    frame = Frame(function, file, None)
    return frozenset(name for name, told_by in ACTIVITIES.items() if any(call.is_of(frame) for call in told_by.calls))


def _work_in_loader(frames: Sequence[Frame], rules: Rules) -> str:
    """What the main thread does itself in a loader that has workers: it draws indices, and makes objects of what they send."""
    inner = frames[: next(number for number, frame in enumerate(frames) if "/torch/utils/data/dataloader.py" in frame.file)]
    if any(_GETS.is_of(frame) for frame in inner):
        return "" if any(call.is_of(frame) for frame in inner for call in _RECEIVES) else "unpickling"
    draws = any("/torch/utils/data/sampler.py" in frame.file or rules.user_frame([frame]) is not None for frame in inner)
    return "sampler" if draws else ""


def _in_own_code(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the user's code is at work, or what it calls outside of PyTorch."""
    return next((user for frame in frames if (user := rules.user_frame([frame]) is not None) or "-packages/torch/" in frame.file), False)


def activities(frames: Sequence[Frame], rules: Rules, read_line: ReadLine) -> set[str]:
    """What a stack does: by the calls of libraries in it, or by the user's line where that is the innermost call."""
    if _imports(frames, rules):
        return {"importing"}
    names = set[str]().union(*(_of_call(frame.file, frame.function) for frame in frames))
    if "image_decode" in names:
        names -= {"image_resize"}  # Pillow decodes where the first pixel is asked for
    for kind in names & _OF_WHO_IS_CALLED:
        if not _does(kind, below_user(frames, rules)):
            names = names - {kind}
    innermost = rules.user_frame(itertools.islice(itertools.dropwhile(_is_of_line, frames), 1))
    if innermost is not None and (text := read_line(innermost)):
        names |= {name for name, told_by in ACTIVITIES.items() if told_by.line and told_by.line.search(text)}
        if "elements" in names or _goes_through_elements(innermost, text, read_line):
            of_text = ".item(" not in text and _reads_text(innermost, read_line)
            names = names - {"elements"} if of_text else names | {"elements", "readback"}
    return _in_its_place(names, frames, rules)


def _is_of_line(frame: Frame) -> bool:
    return any(call.is_of(frame) for call in _OF_LINE)


def _reads_text(frame: Frame, read_line: ReadLine) -> bool:
    """Whether a line, or one shortly above it, takes a text apart: the numbers that it makes are of that."""
    at = frame.line or 0
    return any(_TEXT.search(read_line(at_line(frame, line))) for line in range(max(1, at - BODY_LINES), at + 1))


def _goes_through_elements(frame: Frame, text: str, read_line: ReadLine) -> bool:
    """Whether a line is the head of a loop that makes a number of each element: a tensor makes one tensor each for it."""
    if (loop := _LOOP.search(text)) is None or frame.line is None:
        return False
    of_element = re.compile(_OF_ELEMENT.format(loop[1]))
    return any(of_element.search(read_line(at_line(frame, frame.line + below))) for below in range(1, BODY_LINES + 1))


def _in_its_place(names: set[str], frames: Sequence[Frame], rules: Rules) -> set[str]:
    """Name what is done after who does it: a program's own logger logs, where it reads values or waits for the disk, too.

    A wait for the disk while something is saved is a checkpoint.
    """
    loads = any("/torch/utils/data/" in frame.file for frame in frames)
    if loads or "children" in names:
        names = names - {"serving", "from_processes"}
    if "children" in names:
        names = names - {"opening"}  # what is read is what a process writes
    of_loader = any("/torch/utils/data/" in frame.file for frame in below_user(frames, rules))
    if "children" in names and (of_loader or names & {"loader_start", "compiling"}):
        return names - {"children"}
    if rules.phase(frames) != "other" or names & {"checkpoint", "children"}:
        return names - {"weights", "preparing", "converting"}
    functions = [frame.function for frame in frames if rules.user_frame([frame]) is not None]
    if not names and any(_CHECKS.search(function) for function in functions):
        return {"checking"}
    if names & {*_OF_LOGGERS, "weights", "logging"} or not names:
        loggers = [function for function in functions[:-1] if _LOGS.search(function)]  # the outermost one is the program itself
        if loggers and (names or not all(map(_LOGARITHM.fullmatch, loggers))):
            return {*names - _OF_LOGGERS, "logging"}
        if names & {"syncing", "weights"} and any(_SAVES.search(function) for function in functions):
            return {*names - {"syncing", "weights"}, "checkpoint"}
    of_metrics = not names - {"readback", "to_host", "computed_readback"} and any(map(_computes_metrics, functions[:-1]))
    return {*names, "statistics"} if of_metrics else names


def _computes_metrics(function: str) -> bool:
    return "loss" not in function.lower() and _METRICS.search(function.rpartition(".")[2]) is not None


def _imports(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the user's line imports a module. The line itself may be in one that is being imported, which may be all of a program."""
    return any(frame.file.startswith(_IMPORT) for frame in below_user(frames, rules))


def _in_collate(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the loader's `fetch` called a collate function: its line is the second one of `fetch`."""
    for inner, outer in itertools.pairwise(frames):
        if outer.file.endswith("/torch/utils/data/_utils/fetch.py") and rules.user_frame([inner]) is not None:
            return inner.function.rpartition(".")[2] not in ("__getitem__", "__getitems__", "<listcomp>", "__next__", "__iter__")
    return False


def goes_through_parameters(frame: Frame, loop: range, read_line: ReadLine) -> bool:
    return _OF_PARAMETERS.search(read_line(at_line(frame, loop.start))) is not None
