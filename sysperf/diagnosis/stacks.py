"""What a main thread does, by samples of its stack: the phase of the step, and activities that cost time in any phase.

What one sample shows is told in `kinds`; here is what only all of them together tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from sysperf.diagnosis import statements
from sysperf.diagnosis.activities import Call, Stacks
from sysperf.diagnosis.kinds import activities, kinds
from sysperf.diagnosis.reading import DEFINITION, LoopOf, ReadLine, Rules, at_line, below_user
from sysperf.host import redact
from sysperf.model.finding import Place
from sysperf.model.profile import Frame, Sample, Samples
from sysperf.startup import lazy

MAX_LINES = 24
MAX_TEXT = 200
FORWARD, TRAINING = "forward", ("backward", "optimizer")

OnLine = Callable[[Frame], bool]
"""Tells of a line's source whether it calls a model whose weights nobody updates."""
"""Tells which kind of cure a line's source proves."""
_CHECKPOINTING = ("/torch/utils/checkpoint.py", "/activation_checkpointing/checkpointing.py", "/checkpoint/checkpoint_activations.py")
"""Of PyTorch, DeepSpeed and fairscale. The innermost of these calls and of a backward pass tells what is done."""
_RECOMPUTES = frozenset(("recompute_fn", "unpack_hook", "backward"))
_BACKWARD = Call.of("/torch/autograd/__init__.py: backward")
_DEEPCOPY = Call.of("/copy.py: deepcopy")
MIN_OF_TENSORS = 0.05
"""Share of the samples of deep copies that call PyTorch, below which no weights are copied."""
MIN_IN_LOOP = 0.05
"""Share of the samples in a loop that train or call a model, from which the loop is one of steps."""
MIN_BESIDE = 0.01
"""The same for other lines of the loop than the one that is asked for: a torn stack has that one, mostly."""
_EVALUATES = lazy(r"(?:^|_)(?:eval|evaluat(?!e_actions)\w*|valid|validat\w*|vali?|test(?:ing)?)(?:_|$)")
"""Names of the functions of a program that evaluate; `evaluate_actions` of PPO is a forward pass of training."""
_SWITCH = lazy(r"\.(eval|train)\((?:True)?\)")
MAX_BODY_LINES = 60


def describe(
    samples: Samples,
    rules: Rules,
    read_line: ReadLine,
    *,
    pid: int = 0,
    is_rank: bool = False,
    loop_of: LoopOf = lambda _: range(0),
    is_unoptimized: OnLine = lambda _: False,
    tells: statements.Tells = statements.NOTHING,
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
    largest = statements.hottest(main, kinds_of, rules, _heads(main, rules, loop_of))
    if (hot := statements.named(main, largest, rules, loop_of, tells)) is not None:
        counts["statement"], counts["statement_own"] = hot.seen, hot.own
        lines |= {
            "statement": Counter({hot.statement: hot.seen}),
            "within": hot.within,
            **({"pieces": hot.within} if _in_pieces(hot) else {}),
        }
    of_others, of_rest = (statements.unoptimized(main, rules, is_so) for is_so in (is_unoptimized, tells.one_part))
    counts["unoptimized"], counts["beside_part"] = (_backward_passes(counts, found.total()) for found in (of_others, of_rest))
    work, least = statements.Work(main, rules), statements.MIN_PROVEN * total
    of_source = {kind: work.calls(kind, least, tells) for kind in ("singles", "layers", "cells", "detached")}
    of_source["acts"] = work.calls("acts", statements.MIN_ACTS * total, tells)
    of_source["detached"] = _without(of_source["detached"], of_others)
    of_source["searching"] = statements.searching(main, rules, least, tells)
    of_source["row_gradients"] = statements.row_gradients(main, rules, least, tells)
    counts.update({kind: max(found.values(), default=0) for kind, found in of_source.items()})
    counts["detached"] = _backward_passes(counts, counts["detached"])
    lines |= {kind: found for kind, found in (("unoptimized", of_others), ("beside_part", of_rest), *of_source.items()) if found}
    shares = {kind: count / total for kind, count in counts.items()}
    others = [sample for sample in samples.samples if sample not in main and _at_work(sample, rules, read_line)]
    if at_work := _users_of(others, rules):
        lines["other_threads"] = at_work
    threads = len({sample.tid for sample in others})
    return Stacks(
        samples=total, **shares, other_threads=threads, cure=hot.cure if hot is not None else None, loop=_loop(lines, hot, tells),
        fetch_loop=_loop_of("inline_fetch", lines, tells),
        lines=_hottest(lines, total, read_line),
    )  # fmt: skip


def _without(lines: Counter[Frame], others: Counter[Frame]) -> Counter[Frame]:
    """Return lines that are not counted elsewhere."""
    return Counter({line: seen for line, seen in lines.items() if line not in others})


def _backward_passes(counts: Counter[str], forward: int) -> int:
    """The samples of the backward passes of a part of the forward passes, which has as much of these."""
    return round(counts["backward"] * forward / counts["forward"]) if counts["forward"] else 0


def _in_pieces(hot: statements.Hot | None) -> bool:
    """Whether a statement is a loop over pieces; one of which a loss is made may be the model."""
    return hot is not None and hot.in_loops and hot.cure != "loss"


def _loop(lines: dict[str, Counter[Frame]], hot: statements.Hot | None, tells: statements.Tells) -> tuple[str, ...]:
    """How the loop works in which most of the time is spent that is spent in loops."""
    pieces = ("pieces",) if _in_pieces(hot) else ()
    largest = [lines[kind].most_common(1)[0] for kind in ("looping", "row_gradients") if kind in lines]
    if not largest and hot is not None and hot.in_loops:
        largest = hot.within.most_common(1)
    at = max(largest, key=lambda one: one[1], default=(None, 0))[0]
    if at is None:
        return pieces
    of_data = (hot is not None and hot.cure == "data" and (at in hot.within or bool(pieces))) or tells.line(at) == "data"
    return (*pieces, *tells.loop(at), *(["data"] if of_data else []))


def _loop_of(kind: str, lines: dict[str, Counter[Frame]], tells: statements.Tells) -> tuple[str, ...]:
    """How the loop works in which most of an activity is."""
    return tells.loop(lines[kind].most_common(1)[0][0]) if kind in lines else ()


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
            within = of_others and loop and not _are_in(of_others, user, loop, all_lines)
            found.update({"looping"} if within else ())
    return every


def _lines(samples: Iterable[Sample]) -> Counter[tuple[str, int]]:
    """Count the samples in which each line is on the stack."""
    counts: Counter[tuple[str, int]] = Counter()
    for sample in samples:
        for line in {(frame.file, frame.line or 0) for frame in sample.frames}:
            counts[line] += sample.count
    return counts


def _are_in(some: Counter[tuple[str, int]], user: Frame, loop: range, every: Counter[tuple[str, int]]) -> bool:
    """Whether samples of these lines are in a loop: those of steps and passes are in most. A stack may be torn, and show what never was."""
    total = sum(every[user.file, line] for line in loop)
    seen, beside = (sum(some[user.file, line] for line in loop if line != left_out) for left_out in (None, user.line))
    return seen >= MIN_IN_LOOP * total or beside >= MIN_BESIDE * total


def _calls_only_torch(frames: Sequence[Frame], rules: Rules) -> bool:
    """Whether the user's line is at work itself, or a function of PyTorch that is written in Python."""
    return all(frame.is_of_torch for frame in below_user(frames, rules))


def _heads(samples: Sequence[Sample], rules: Rules, loop_of: LoopOf) -> Callable[[Frame], Frame]:
    """Give the head of the loop around a line; the line itself where that is a loop of steps, or none."""
    every, of_step = _lines(samples), _lines(sample for sample in samples if rules.phase(sample.frames) in (FORWARD, *TRAINING))

    def head_of(frame: Frame) -> Frame:
        loop = loop_of(frame)
        return at_line(frame, loop.start) if loop and not _are_in(of_step, frame, loop, every) else frame

    return head_of


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
        text = read_line(at_line(frame, (frame.line or 0) + step * distance))
        if distance and DEFINITION.match(text):
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
