"""What a main thread does, by samples of its stack: the phase of the step, and activities that cost time in any phase.

What tells each activity is declared in `activities`; here is what calls and lines alone do not tell.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from sysperf.diagnosis import each_sample, statements
from sysperf.diagnosis.activities import ACTIVITIES, Call, Stacks
from sysperf.diagnosis.made_again import makes_constants, takes_row
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
FORWARD, TRAINING = "forward", ("backward", "optimizer")

ReadLine = Callable[[Frame], str]
"""Gives the text of a line of the program; empty where it cannot be read."""
OnLine = Callable[[Frame], bool]
"""Tells of a line's source whether only reports use what it makes, or whether it calls a model whose weights nobody updates."""
LoopOf = Callable[[Frame], range]
"""Gives the lines of the innermost loop or comprehension around a line of the program; none where it is in none, or nobody knows."""


class Rules(NamedTuple):
    """How a stack is read: which phase it belongs to, and which of its frames is the user's own."""

    phase: Callable[[Sequence[Frame]], str]
    user_frame: Callable[[Iterable[Frame]], Frame | None]


_CHECKPOINTING = ("/torch/utils/checkpoint.py", "/activation_checkpointing/checkpointing.py", "/checkpoint/checkpoint_activations.py")
"""Of PyTorch, DeepSpeed and fairscale. The innermost of these calls and of a backward pass tells what is done."""
_RECOMPUTES = frozenset(("recompute_fn", "unpack_hook", "backward"))
_BACKWARD = Call.of("/torch/autograd/__init__.py: backward")
_DEEPCOPY = Call.of("/copy.py: deepcopy")
MIN_OF_TENSORS = 0.05
"""Share of the samples of deep copies that call PyTorch, below which no weights are copied."""
MIN_IN_LOOP = 0.05
"""Share of the samples in a loop that train or call a model, from which the loop is one of steps."""
_GETS = Call.of("/multiprocessing/queues.py: get")
"""Of a loader's queue. What it receives is made again in C, which leaves no frame below `get`."""
_RECEIVES = Call.of("/multiprocessing/connection.py"), Call.of("/torch/multiprocessing/reductions.py")
"""A tensor's shared memory is asked of the worker that has it."""
_ITERATION = Call.of("/torch/_tensor.py: __iter__")
"""Going through a tensor, whose tensors of elements are made there at once: what it is for, the user's line tells."""

_OF_PARAMETERS = lazy(r"\b(?:named_)?(?:parameters|buffers|modules|children)\(|param_groups|state_dict|\.grad\b|\bparams\b")
_LOOP = lazy(r"^for (\w+)(?:, *\w+)* in .*:$")
_OF_ELEMENT = r"\b{0}\.(?:item|tolist|numpy|cpu)\(\)|\b(?:float|int)\({0}\)"
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
_EVALUATES = lazy(r"(?:^|_)(?:eval|evaluat(?!e_actions)\w*|valid|validat\w*|val)(?:_|$)")
"""Names of the functions of a program that evaluate; `evaluate_actions` of PPO is a forward pass of training."""
_SWITCH = lazy(r"\.(eval|train)\((?:True)?\)")
_FUNCTION = lazy(r"(?:async )?def |class |@")
MAX_BODY_LINES = 60
_IMPORT = "<frozen importlib._bootstrap"
_IN_OWN_CODE = frozenset(
    (
        "loader_start", "evaluation", "preparing", "converting", "spinning", "drawing", "one_hot", "constants", "looping", "configuring",
        "to_host", "appending", "from_processes", "opened_again", "searched", "image_decode", "image_resize",
    )
)  # fmt: skip
"""Activities that are the program's own time, too."""
_OWN = frozenset(("python", "worker_start", "loader_start", "loader_wait", "inline_fetch", *PHASES.values()))


def describe(
    samples: Samples,
    rules: Rules,
    read_line: ReadLine,
    *,
    pid: int = 0,
    is_rank: bool = False,
    loop_of: LoopOf = lambda _: range(0),
    only_reported: OnLine = lambda _: False,
    is_unoptimized: OnLine = lambda _: False,
) -> Stacks | None:
    """The shares of the main thread's time; None where no sample of it was taken. A rank waits for what it exchanges with others."""
    main = [sample for sample in samples.samples if sample.tid == (pid or samples.pid) or sample.thread == "MainThread"]
    total = sum(sample.count for sample in main)
    if not total:
        return None
    counts: Counter[str] = Counter()
    lines: dict[str, Counter[Frame]] = {}
    kinds_of = _kinds_in_their_program(main, rules, read_line, loop_of)
    for sample, found in zip(main, kinds_of, strict=True):
        user = rules.user_frame(sample.frames)
        if is_rank and "locking" in found and _waits_for_work(sample.frames, rules, read_line):
            found -= {"locking"}
            found |= {"collective"}
        for kind in found:
            counts[kind] += sample.count
            if user is not None:
                lines.setdefault(kind, Counter())[user] += sample.count
    counts["recompute"] = min(total, sum(sample.count for sample in samples.samples if recomputes(sample.frames)))
    if checkpointed := _calls_of_checkpointing(main, rules):
        lines["recompute"] = checkpointed
    if (hot := statements.hottest(main, kinds_of, rules, _heads(main, rules, loop_of))) is not None:
        counts["statement"], counts["statement_own"] = hot.seen, hot.own
        lines |= {"statement": Counter({hot.statement: hot.seen}), "within": hot.within}
    if counts["forward"] and (of_others := statements.unoptimized(main, rules, is_unoptimized)):
        counts["unoptimized"] = round(counts["backward"] * sum(of_others.values()) / counts["forward"])
        lines["unoptimized"] = of_others
    shares = {kind: count / total for kind, count in counts.items()}
    others = [sample for sample in samples.samples if sample not in main and _at_work(sample, rules, read_line)]
    if at_work := _users_of(others, rules):
        lines["other_threads"] = at_work
    needless = only_reported(hot.statement) if hot is not None else None
    threads = len({sample.tid for sample in others})
    return Stacks(samples=total, **shares, other_threads=threads, needless=needless, lines=_hottest(lines, total, read_line))


def _kinds_in_their_program(samples: Sequence[Sample], rules: Rules, read_line: ReadLine, loop_of: LoopOf) -> list[set[str]]:
    """What each sample does, as far as the others tell what its functions are for."""
    every = [kinds(sample, rules, read_line, loop_of) for sample in samples]
    evaluating = _functions_in(samples, rules, (FORWARD,)) - _functions_in(samples, rules, TRAINING)
    saving, other_copies = _functions_that_save(samples, every, rules), _copies_of_no_tensors(samples)
    all_lines, of_modules = _lines(samples), statements.calls_of_modules(samples, rules)
    of_step = _lines(sample for sample in samples if rules.phase(sample.frames) in (FORWARD, *TRAINING))
    for sample, found in zip(samples, every, strict=True):
        user = rules.user_frame(sample.frames)
        if user is not None and _function(user) in saving and "other" in found:
            found &= {"other"}
            found |= {"checkpoint"}
        if "weights" in found and sample in other_copies:
            found -= {"weights"}
            found |= {"python"}
        if _evaluates(sample.frames, rules, evaluating, read_line):
            found.add("evaluation")
        if user is not None and found <= {"other", "forward", "python"} and _calls_only_torch(sample.frames, rules):
            loop, of_others = loop_of(user), of_modules if "forward" in found else of_step
            within = of_others and loop and not _are_in(of_others, user.file, loop, all_lines)
            found.update({"looping"} if within and not _goes_through_parameters(user, loop, read_line) else ())
    return every


def _lines(samples: Iterable[Sample]) -> Counter[tuple[str, int]]:
    """Count the samples in which each line is on the stack."""
    counts: Counter[tuple[str, int]] = Counter()
    for sample in samples:
        for line in {(frame.file, frame.line or 0) for frame in sample.frames}:
            counts[line] += sample.count
    return counts


def _are_in(some: Counter[tuple[str, int]], file: str, loop: range, every: Counter[tuple[str, int]]) -> bool:
    """Whether samples of these lines are in a loop: those of steps and passes are in most. A stack may be torn, and show what never was."""
    return sum(some[file, line] for line in loop) >= MIN_IN_LOOP * sum(every[file, line] for line in loop)


def _calls_only_torch(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the user's line is at work itself, or a function of PyTorch that is written in Python."""
    return all("-packages/torch/" in frame.file for frame in _below_user(frames, rules))


def _heads(samples: Sequence[Sample], rules: Rules, loop_of: LoopOf) -> Callable[[Frame], Frame]:
    """Give the head of the loop around a line; the line itself where that is a loop of steps, or none."""
    every, of_step = _lines(samples), _lines(sample for sample in samples if rules.phase(sample.frames) in (FORWARD, *TRAINING))

    def head_of(frame: Frame) -> Frame:
        loop = loop_of(frame)
        return msgspec.structs.replace(frame, line=loop.start) if loop and not _are_in(of_step, frame.file, loop, every) else frame

    return head_of


def _goes_through_parameters(frame: Frame, loop: range, read_line: ReadLine) -> bool:
    return _OF_PARAMETERS.search(read_line(msgspec.structs.replace(frame, line=loop.start))) is not None


def _copies_of_no_tensors(samples: Iterable[Sample]) -> list[Sample]:
    """Deep copies, where next to none of them calls PyTorch: what is copied are no weights."""
    copies = [sample for sample in samples if any(map(_DEEPCOPY.is_of, sample.frames))]
    of_tensors = sum(sample.count for sample in copies if _copies_a_tensor(sample.frames))
    return [] if of_tensors >= MIN_OF_TENSORS * sum(sample.count for sample in copies) else copies


def _copies_a_tensor(frames: Sequence[Frame]) -> bool:
    """Whether PyTorch is called within the outermost deep copy."""
    outermost = max(number for number, frame in enumerate(frames) if _DEEPCOPY.is_of(frame))
    return any("-packages/torch/" in frame.file for frame in frames[:outermost])


def recomputes(frames: Sequence[Frame]) -> bool:
    """Whether activation checkpointing computes again: autograd calls it, and where it is reentrant calls autograd itself after that."""
    for frame in frames:
        if _BACKWARD.is_of(frame):
            return False
        if frame.file.endswith(_CHECKPOINTING) and frame.function.rpartition(".")[2] in _RECOMPUTES:
            return True
    return False


def _calls_of_checkpointing(samples: Iterable[Sample], rules: Rules) -> Counter[Frame]:
    """The user's lines that call for it, in forward passes: where it computes again they are gone."""
    lines: Counter[Frame] = Counter()
    for sample in samples:
        calls = [number for number, frame in enumerate(sample.frames) if frame.file.endswith(_CHECKPOINTING)]
        if calls and not recomputes(sample.frames) and (user := rules.user_frame(sample.frames[calls[-1] + 1 :])) is not None:
            lines[user] += sample.count
    return lines


def kinds(sample: Sample, rules: Rules, read_line: ReadLine, loop_of: LoopOf) -> set[str]:
    """The phase of a sample, and its activities."""
    phase = PHASES[rules.phase(sample.frames)]
    if phase == "loader_wait" and (work := _work_in_loader(sample.frames, rules)):
        return {"other", work}
    names = {phase, *activities(sample.frames, rules, read_line)}
    if phase == "inline_fetch" and rules.user_frame(sample.frames) is not None and _in_collate(sample.frames, rules):
        names.add("collate")
    if phase == "inline_fetch" and takes_row(sample.frames, rules, read_line):
        names.add("rows")
    if phase == "forward" and makes_constants(sample.frames, rules, read_line, loop_of):
        names.add("constants")
    names |= _of_own_lines(sample.frames, phase, rules, read_line, loop_of)
    if not names - _IN_OWN_CODE - set(PHASES.values()) and _in_own_code(sample.frames, rules):
        names.add("python")
    if "collective" in names and (user := rules.user_frame(sample.frames)) is not None:
        names |= _exchanged(user, loop_of(user), read_line)
    if "profiling" not in names and _profiles(sample.frames):
        names.add("profiled")
    return names


def _exchanged(frame: Frame, loop: range, read_line: ReadLine) -> set[str]:
    """What ranks exchange in a line, tensor by tensor: gradients, or weights in a loop through those of a model."""
    if _ONE_GRADIENT.search(read_line(frame)):
        return {"one_gradient"}
    whole = "".join(read_line(msgspec.structs.replace(frame, line=line)) for line in loop[:BODY_LINES])
    return {"weights_sent"} if loop and _goes_through_parameters(frame, loop, read_line) and ".grad" not in whole else set()


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


def _profiles(frames: Iterable[Frame]) -> bool:
    return any("profiling" in _of_call(frame.file, frame.function) for frame in frames)


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


def _functions_in(samples: Iterable[Sample], rules: Rules, phases: Collection[str]) -> set[tuple[str, str]]:
    """The functions on the stacks of these phases."""
    return {_function(frame) for sample in samples if rules.phase(sample.frames) in phases for frame in sample.frames}


def _functions_that_save(samples: Sequence[Sample], kinds_of: Iterable[set[str]], rules: Rules) -> set[tuple[str, str]]:
    """The program's functions that write checkpoints and call no model: what else they do, as to compress and to copy, is for these."""
    users = (rules.user_frame(sample.frames) for sample, found in zip(samples, kinds_of, strict=True) if "checkpoint" in found)
    return {_function(user) for user in users if user is not None} - _functions_in(samples, rules, (FORWARD, *TRAINING))


def _evaluates(frames: Sequence[Frame], rules: Rules, evaluating: Collection[tuple[str, str]], read_line: ReadLine) -> bool:
    """Whether a function of the program is on the stack that evaluates, by its name or its lines, and calls a model and does not train."""
    return any(
        _function(frame) in evaluating
        and rules.user_frame([frame]) is not None
        and (_EVALUATES.search(frame.function.rpartition(".")[2]) or _switches_to_evaluation(frame, read_line))
        for frame in frames
    )


def _switches_to_evaluation(frame: Frame, read_line: ReadLine) -> bool:
    """Whether its function turns a model to evaluation above this line, and back to training below it."""
    return _next_switch(frame, read_line, -1) == "eval" and _next_switch(frame, read_line, 1) == "train"


def _next_switch(frame: Frame, read_line: ReadLine, step: int) -> str:
    """The first switch of a model within the function, from a line on."""
    for distance in range(MAX_BODY_LINES):
        text = read_line(msgspec.structs.replace(frame, line=(frame.line or 0) + step * distance))
        if distance and _FUNCTION.match(text):
            return ""
        if (found := _SWITCH.search(text)) is not None:
            return found[1]
    return ""


def _waits_for_work(frames: Sequence[Frame], rules: Rules, read_line: ReadLine) -> bool:
    """Whether the user's line itself waits, as for a collective that was begun before: waits of Python's own are within its library."""
    innermost = rules.user_frame(frames[:1])
    return innermost is not None and ".wait(" in read_line(innermost)


def _function(frame: Frame) -> tuple[str, str]:
    return frame.file, frame.function


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
    if "profiling" in names and not _profiles(_below_user(frames, rules)):
        names -= {"profiling"}
    innermost = rules.user_frame(frames[1:2] if frames and _ITERATION.is_of(frames[0]) else frames[:1])
    if innermost is not None and (text := read_line(innermost)):
        names |= {name for name, told_by in ACTIVITIES.items() if told_by.line and told_by.line.search(text)}
        if _goes_through_elements(innermost, text, read_line):
            names |= {"elements", "readback"}
    return _in_its_place(names, frames, rules)


def _goes_through_elements(frame: Frame, text: str, read_line: ReadLine) -> bool:
    """Whether a line is the head of a loop that makes a number of each element: a tensor makes one tensor each for it."""
    if (loop := _LOOP.search(text)) is None or frame.line is None:
        return False
    of_element = re.compile(_OF_ELEMENT.format(loop[1]))
    return any(of_element.search(read_line(msgspec.structs.replace(frame, line=frame.line + below))) for below in range(1, BODY_LINES + 1))


def _in_its_place(names: set[str], frames: Sequence[Frame], rules: Rules) -> set[str]:
    """Name what is done after who does it: a program's own logger logs, where it reads values or waits for the disk, too.

    A wait for the disk while something is saved is a checkpoint.
    """
    loads = any("/torch/utils/data/" in frame.file for frame in frames)
    if loads or "children" in names:
        names = names - {"serving", "from_processes"}
    if "children" in names and (loads or names & {"loader_start", "compiling"}):
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
    return any(frame.file.startswith(_IMPORT) for frame in _below_user(frames, rules))


def _below_user(frames: Sequence[Frame], rules: Rules) -> Iterable[Frame]:
    """The calls that the user's innermost line made."""
    return itertools.takewhile(lambda frame: rules.user_frame([frame]) is None, frames)


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


def _users_of(samples: Iterable[Sample], rules: Rules) -> Counter[Frame]:
    """The user's lines in which these samples are."""
    users: Counter[Frame] = Counter()
    for sample in samples:
        if (user := rules.user_frame(sample.frames)) is not None:
            users[user] += sample.count
    return users


def _hottest(lines: dict[str, Counter[Frame]], total: int, read_line: ReadLine) -> tuple[Place, ...]:
    """The line that was seen most in each phase and activity."""
    hottest = []
    for kind, frames in lines.items():
        frame, count = frames.most_common(1)[0]
        text = " ".join(redact.source_line(read_line(frame)).split())[:MAX_TEXT]
        hottest.append(Place(frame.file, frame.line or 0, frame.function[:MAX_TEXT], text, kind, count / total))
    return tuple(sorted(hottest, key=lambda place: -(place.share or 0.0))[:MAX_LINES])
