"""What statements of the step do beside the model, where no call of a library tells it: which one takes most, and what it makes anew."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from sysperf.diagnosis.reading import DEFINITION, LoopOf, ReadLine, Rules, at_line, below_user
from sysperf.model.profile import Frame, Sample
from sysperf.startup import lazy

MAX_BODY_LINES = 60
MIN_CALLS = 0.02
MIN_OF_FORWARD = 0.2
MIN_PROVEN = 0.08
"""Share of the main thread's samples in a line, from which its source is asked for a cure."""
MIN_ACTS = 0.03
"""The same of a model that acts in an environment: its calls are short, and what is made of them takes more."""
MAX_ASKED = 12
"""Lines that are asked for."""
MIN_OF_LARGEST = 0.7
"""Of two statements of about the same size, of which one is within the other, the better proof is taken."""
PROVEN = ("reported", "fixed", "discarded", "grows", "sums", "same", "weights", "rows", "data")
"""Kinds of cures, the surest first."""
UNNAMED = frozenset(("other", "python", "looping", "to_host", "computed_readback"))
"""What a sample shows that says nothing of what it is for."""
_APPENDS = lazy(r"^((?:self\.)?\w+)(?:: [^=]+)? = (?:torch\.|np\.|numpy\.)?(?:cat|concat|concatenate|[vh]stack|append)\(\s*[\[(]?\s*\1\b")
_GIVES = r"^(?:[\w.]+, *)*{0}(?:, *[\w.]+)*(?:: [^=]+)? = |^for \b.*\b{0}\b.* in "
_RETAINS = lazy(r"\bbackward\(.*\bretain_graph=True")
_PASSES = lazy(r"\.backward\(")
_USES = lazy(r"\.step\(|\.b?grads?\b|\bgrads?\b|_grads?\b|clip_grad|gradient|optim|\bupdate|_step\(")
"""What looks at the gradients of one pass, or uses them."""
_OF_PARAMETERS = lazy(r"\b(?:named_)?parameters\(|param_groups|\bparams\b")
_UPDATES = lazy(r"\w -= |\.data(?:\.\w+_\(| = )|\.(?:sub_|addcdiv_)\(")
"""A weight itself is changed, and not only its gradient."""

_PRODUCTS = lazy(r" @ |\b(?:matmul|mm|bmm|addmm|einsum|linalg|svd|eigh|qr|inverse)\b|newton")
"""Of matrices, as Muon and Shampoo make them: no fused optimizer has these."""


class Hot(NamedTuple):
    """The statement with most of the time, in how many samples it was seen, and the lines in which they are."""

    statement: Frame
    seen: int
    own: int
    """Of those, the samples in which no function of PyTorch is called that is written in Python."""
    within: Counter[Frame]
    cure: str = ""
    """The kind of cure that its source proves."""
    in_loops: bool = False
    """Whether most of them are in loops within it."""


Seen = tuple[Sample, Sequence[Frame]]
"""A sample, and the program's lines that are at work in it."""


class Tells(NamedTuple):
    """What the source says of a line: of what it does, of a model that it calls, and of one function that it calls."""

    line: Callable[[Frame], str] = lambda _: ""
    call: Callable[[Frame], str] = lambda _: ""
    part: Callable[[Frame, str], str] = lambda *_: ""
    sample: Callable[[Frame], str] = lambda _: ""
    """What it makes of a sample of a data set."""
    loop: Callable[[Frame], tuple[str, ...]] = lambda _: ()
    """How the loop around it works."""
    one_part: Callable[[Frame], bool] = lambda _: False
    """Whether it calls a model of which an optimizer has one part alone."""
    searches: Callable[[Frame], bool] = lambda _: False
    """Whether it looks for something in a list."""


NOTHING = Tells()


class Work:
    """The samples in which the program's own code is at work beside its models, by the lines that are on the stack."""

    def __init__(self, samples: Sequence[Sample], rules: Rules) -> None:
        self._rules = rules
        self._of_step = _functions_of_steps(samples, rules)
        self._by_line: dict[Frame, list[Seen]] = {}
        self._calls: dict[Frame, list[Seen]] = {}
        self._of_samples: dict[Frame, list[Seen]] = {}
        """Lines that make a sample of a data set, in the DataLoader."""
        for sample in samples:
            phase = rules.phase(sample.frames)
            by_line = self._of_samples if phase == "inline fetch" else self._by_line
            for frame in dict.fromkeys(own := self._own(sample.frames, phase)):
                by_line.setdefault(frame, []).append((sample, own))
            for frame in set(self._callers(sample.frames)) if phase == "forward" else ():
                self._calls.setdefault(frame, []).append((sample, [frame]))

    def _own(self, frames: Sequence[Frame], phase: str) -> list[Frame]:
        """The program's lines that are at work themselves, innermost first, up to the one in the function of the step.

        What a module, a backward pass or a DataLoader calls is its own from its own lines on.
        """
        if phase not in ("other", "forward", "backward", "inline fetch"):
            return []
        users: list[Frame] = []
        for frame in frames:
            if self._rules.phase([frame]) != "other":
                return users
            if self._rules.user_frame([frame]) is not None:
                users.append(frame)
                if phase == "other" and (frame.file, frame.function) in self._of_step:
                    return users
        return []

    def _callers(self, frames: Sequence[Frame]) -> Iterable[Frame]:
        """The program's lines that call a module, themselves or by a function of the program."""
        below = itertools.dropwhile(lambda frame: self._rules.phase([frame]) != "forward", frames)
        return [frame for frame in below if self._rules.user_frame([frame]) is not None]

    def proven(self, least: float, tells: Tells) -> Hot | None:
        """The statement for which the source proves a cure, of those in so many samples; None: it proves none."""
        found: list[tuple[Frame, int, str, list[Seen]]] = []
        for by_line, cure_of in (
            (self._by_line, tells.line),
            (self._calls, tells.call),
            (self._of_samples, tells.sample),
        ):
            counts = Counter({frame: _count(seen) for frame, seen in by_line.items()})
            for frame, count in counts.most_common(MAX_ASKED):
                if count >= least and (cure := cure_of(frame)) in PROVEN:
                    found.append((frame, count, cure, by_line[frame]))
                elif count >= least and by_line is self._by_line:
                    found += self._parts(frame, least, tells)
        largest = max((count for _, count, _, _ in found), default=0)
        alike = [one for one in found if one[1] >= MIN_OF_LARGEST * largest]
        if not alike:
            return None
        frame, count, cure, seen = min(alike, key=lambda one: (PROVEN.index(one[2]), -one[1]))
        own = sum(sample.count for sample, _ in seen if not any(part.is_of_torch for part in below_user(sample.frames, self._rules)))
        within: Counter[Frame] = Counter()
        for sample, users in seen:
            within[users[0]] += sample.count
        return Hot(frame, count, own, within, cure)

    def calls(self, cure: str, least: float, tells: Tells) -> Counter[Frame]:
        """Count the samples of forward passes in the lines that call models in a way with this cure."""
        counts = Counter({frame: _count(seen) for frame, seen in self._calls.items()}).most_common(MAX_ASKED)
        return Counter({frame: count for frame, count in counts if count >= least and tells.call(frame) == cure})

    def _parts(self, frame: Frame, least: float, tells: Tells) -> list[tuple[Frame, int, str, list[Seen]]]:
        """The function that a line calls for most of its time, where its source proves a cure of that part."""
        by_function: dict[str, list[Seen]] = {}
        for sample, own in self._by_line[frame]:
            if (place := own.index(frame)) > 0:
                by_function.setdefault(own[place - 1].function.rpartition(".")[2], []).append((sample, own))
        name, seen = max(by_function.items(), key=lambda one: _count(one[1]), default=("", []))
        if _count(seen) < least or (cure := tells.part(frame, name)) not in PROVEN:
            return []
        return [(frame, _count(seen), cure, seen)]

    def in_loops(self, hot: Hot, loop_of: LoopOf) -> bool:
        """Whether most of a statement's samples are in loops within it."""
        at, loop = hot.statement, loop_of(hot.statement)
        if any(line.file == at.file and line.line in loop for line in self._calls):
            loop = range(0)  # one of steps
        lines = [line for line in self._by_line if line.file == at.file and (line.line == at.line or line.line in loop)]
        seen = [one for line in lines for one in self._by_line[line] if one[1][-1] == line]
        of_loops = sum(
            sample.count for sample, users in seen
            if users[-1].line != at.line or (loop and len(users) > 1) or any(map(loop_of, users[:-1]))
        )  # fmt: skip
        return of_loops >= MIN_OF_LARGEST * hot.seen


def hottest(samples: Sequence[Sample], kinds_of: Sequence[Collection[str]], rules: Rules, head_of: Callable[[Frame], Frame]) -> Hot | None:
    """Return the statement with most samples that nothing names, outside of forward, backward and optimizer; None: there is none.

    `head_of` gives the head of a loop for its lines, unless the loop is one of steps.
    """
    of_step = _functions_of_steps(samples, rules)
    counts: Counter[Frame] = Counter()
    own: Counter[Frame] = Counter()
    within: dict[Frame, Counter[Frame]] = {}
    for sample, found in zip(samples, kinds_of, strict=True):
        user = rules.user_frame(sample.frames)
        if user is None or "other" not in found or not UNNAMED.issuperset(found):
            continue
        at = next((frame for frame in sample.frames if (frame.file, frame.function) in of_step and rules.user_frame([frame])), None)
        if at is not None:
            at = head_of(at)
            counts[at] += sample.count
            own[at] += 0 if any(frame.is_of_torch for frame in below_user(sample.frames, rules)) else sample.count
            within.setdefault(at, Counter())[user] += sample.count
    if not counts:
        return None
    statement, count = counts.most_common(1)[0]
    return Hot(statement, count, own[statement], within[statement])


def named(
    samples: Sequence[Sample], hot: Hot | None, rules: Rules, loop_of: LoopOf, tells: Tells
) -> Hot | None:  # fmt: skip
    """Find the statement that is said: the one whose cure is proven, or the largest where that is much larger."""
    work, total = Work(samples, rules), sum(sample.count for sample in samples)
    proven = work.proven(MIN_PROVEN * total, tells)
    if proven is not None and (hot is None or proven.seen >= 0.5 * hot.seen):
        return proven._replace(in_loops=proven.cure == "data" and work.in_loops(proven, loop_of))
    if hot is None:
        return None
    cure = tells.line(hot.statement)
    return hot._replace(cure=cure, in_loops=work.in_loops(hot, loop_of))


def _count(seen: Iterable[Seen]) -> int:
    return sum(sample.count for sample, _ in seen)


def row_gradients(samples: Sequence[Sample], rules: Rules, least: float, tells: Tells) -> Counter[Frame]:
    """Count the samples of backward passes in the lines of a loop that makes the gradients of one row at a time."""
    users = ((sample, rules.user_frame(sample.frames)) for sample in samples if rules.phase(sample.frames) == "backward")
    lines: Counter[Frame] = Counter()
    for sample, user in users:
        if user is not None:
            lines[user] += sample.count
    return Counter({frame: count for frame, count in lines.most_common(MAX_ASKED) if count >= least and "gradients" in tells.loop(frame)})


def searching(samples: Sequence[Sample], rules: Rules, least: float, tells: Tells) -> Counter[Frame]:
    """Count the samples in each line that looks for something in a list itself, or has Python's `random` take it out of a deque."""
    lines: Counter[Frame] = Counter()
    for sample in samples:
        user = rules.user_frame(sample.frames)
        if user is not None and all(frame.file.endswith("/random.py") for frame in below_user(sample.frames, rules)):
            lines[user] += sample.count
    return Counter({frame: count for frame, count in lines.most_common(MAX_ASKED) if count >= least and tells.searches(frame)})


def unoptimized(samples: Sequence[Sample], rules: Rules, is_unoptimized: Callable[[Frame], bool]) -> Counter[Frame]:
    """Count the samples of forward passes in each line that calls a model whose weights nobody updates; of lines with a part of them."""
    calls: Counter[Frame] = Counter()
    for sample in samples:
        if rules.phase(sample.frames) == "forward" and (callers := _callers(sample.frames, rules)):
            calls[callers[0]] += sample.count
    least = MIN_OF_FORWARD * sum(calls.values())
    return Counter({frame: seen for frame, seen in calls.items() if seen >= least and is_unoptimized(frame)})


def _functions_of_steps(samples: Iterable[Sample], rules: Rules) -> set[tuple[str, str]]:
    """The functions that call a model or train. One sample in fifty is none: a stack may be torn, and show what never was."""
    counts: Counter[tuple[str, str]] = Counter()
    calls: Counter[tuple[str, str]] = Counter()
    for sample in samples:
        for count, frames in ((counts, sample.frames), (calls, _callers(sample.frames, rules))):
            for function in {(frame.file, frame.function) for frame in frames}:
                count[function] += sample.count
    return {function for function, seen in calls.items() if seen >= MIN_CALLS * counts[function]}


def _callers(frames: Sequence[Frame], rules: Rules) -> list[Frame]:
    """The user's frames that call a model, a backward pass or an optimizer; none of what these call."""
    phases = [number for number, frame in enumerate(frames) if rules.phase([frame]) in ("forward", "backward", "optimizer")]
    return [frame for frame in frames[phases[-1] + 1 :] if rules.user_frame([frame])] if phases else []


def calls_of_modules(samples: Iterable[Sample], rules: Rules) -> Counter[tuple[str, int]]:
    """Count the samples in which a line calls a module."""
    counts: Counter[tuple[str, int]] = Counter()
    for sample in samples:
        calls = itertools.pairwise(sample.frames)
        lines = {(outer.file, outer.line or 0) for inner, outer in calls if rules.phase([inner]) == "forward" and rules.user_frame([outer])}
        for line in lines:
            counts[line] += sample.count
    return counts


def appends(frame: Frame, loop: range, read_line: ReadLine) -> bool:
    """Whether a line makes a longer array of one that is kept from step to step, and copies all of it."""
    if (found := _APPENDS.match(read_line(frame))) is None:
        return False
    if found[1].startswith("self."):
        return True
    gives = re.compile(_GIVES.format(re.escape(found[1])))
    lines = (read_line(at_line(frame, number)) for number in loop[:MAX_BODY_LINES] if number != frame.line)
    return bool(loop) and not any(gives.match(line) for line in lines)


def passes_again(frame: Frame, loop: range, read_line: ReadLine) -> bool:
    """Whether a backward pass keeps its graph for another one that comes before the optimizer's step."""
    if not _RETAINS.search(read_line(frame)):
        return False
    lines = [read_line(at_line(frame, number)) for number in loop[:MAX_BODY_LINES]]
    if 0 < len(loop) <= MAX_BODY_LINES and not any(map(_USES.search, lines)):
        return True
    for distance in range(1, MAX_BODY_LINES):
        text = read_line(at_line(frame, (frame.line or 0) + distance))
        if _USES.search(text) or DEFINITION.match(text):
            return False
        if _PASSES.search(text):
            return True
    return False


def updates_by_hand(frames: Sequence[Frame], rules: Rules, loop_of: LoopOf, read_line: ReadLine) -> bool:
    """Whether an optimizer that the program has written itself is at work: a class of PyTorch's kind, or a loop through parameters."""
    user = rules.user_frame(frames)
    if user is None:
        return False
    if _PRODUCTS.search(read_line(user)):
        return False
    inside = next((number for number, frame in enumerate(frames) if "/torch/optim/" in "/" + frame.file), None)
    if inside is not None:
        return rules.user_frame(frames[:inside]) is not None
    loop = [read_line(at_line(user, number)) for number in loop_of(user)[:MAX_BODY_LINES]]
    text = "\n".join(loop)
    return bool(loop) and _OF_PARAMETERS.search(loop[0]) is not None and ".grad" in text and _UPDATES.search(text) is not None
