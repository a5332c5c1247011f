"""What a step makes anew although it could be made once or at once, by a function's call: its arguments tell what it depends on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sysperf.diagnosis.reading import DEFINITION, LoopOf, ReadLine, Rules, at_line, below_user
from sysperf.model.profile import Frame
from sysperf.startup import lazy

MAX_BODY_LINES = 40
_PASSES = frozenset(("forward", "__call__"))
_NO_HELPER = frozenset((*_PASSES, "__init__", "<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>"))
_SIZE = lazy(r"\b[A-Za-z_][\w.]*\.(?:shape|size|device|dtype|ndim|dim)\b(?:\([^()]*\))?(?:\[[^\]]*\])?|\blen\([^()]*\)|\b\w+=")
_LEARNED = r"\w*(?:weight|bias|scale|sigma|alpha|beta|gamma|param|log_|table|embed|project)"
_OWN = lazy(rf"\bself\.(?!{_LEARNED})\w+(?:\.\w+)*(?!\w*\()")
_NAME = lazy(r"[A-Za-z_][\w.]*")
_OF_SIZES = lazy(
    r"[A-Z_0-9]+|(?!\w*(?:lens|lengths)\b)\w*(?:len|length|size|dim|head|width|height|num|device|dtype)\w*"
    r"|int|float|True|False|None|max|min|torch\.\w+"
)
"""Names of one size for all. Lengths of texts are data, as are numbers of steps, unless the caller takes them from a shape."""
_FROM_SHAPE = r"^[\w, ()]*\b{0}\b[\w, ()]* = .*(?:\.shape\b|\.size\(|\blen\()"
_CHANGED = r"{0}\b(?:\[[^\]]*\])?(?:, *[\w., ]+?)? *(?:[-+*/|&@]?=(?!=)|\.\w+_\()"
_GRAPH = lazy(r"edge\w*|adj\w*|graph\w*")
_HANDED_ON = lazy(r"\b(?<!\.)([A-Za-z_]\w*)((?:\.\w+)*)(\[)?(?![\w.]*[(=])")
_TARGETS = lazy(r"\bfor (.+?) in |^([\w., *()\[\]]+?) = |^with .* as (\w+)")
_OF_GRAPHS = lazy(r"(?:^|_)(?:norm(?:ali[sz]\w*)?|laplacian|adj\w*|degrees?|self_loops)(?:_|$)")
_VARIES = lazy(rf"rand|bernoulli|normal_\(|uniform|multinomial|dropout|noise|sample|Parameter|self\.{_LEARNED}|\.to\(")
_TENSOR_OF = r"(?:(?:torch\.)?(?:as_tensor|tensor|from_numpy|FloatTensor|float|int)\()?"
_ROW = lazy(rf"return \(?{_TENSOR_OF}self\.\w+\[\w+\](?:, *{_TENSOR_OF}self\.\w+\[\w+\])*[()]*$")
_MEMORY = "/torch/utils/data/dataset.py"


def takes_row(frames: Sequence[Frame], rules: Rules, read_line: ReadLine) -> bool:
    """Whether a data set's own line only takes an element of what lies in memory: TensorDataset's, or one that looks like it."""
    if frames[0].file.endswith(_MEMORY):
        return True
    user = rules.user_frame(frames[:1])
    return user is not None and user.function.rpartition(".")[2] == "__getitem__" and _ROW.match(read_line(user)) is not None


def asks_frame(frames: Sequence[Frame]) -> bool:
    """Whether a DataFrame in memory is at work: an index, a column or a filter of pandas or Polars, and no file that they read."""
    files = ["/" + frame.file for frame in frames]
    return any("/pandas/core/" in file or "/polars/" in file for file in files) and not any(
        "/pandas/io/" in file or "/polars/io/" in file for file in files
    )


def makes_constants(frames: Sequence[Frame], rules: Rules, read_line: ReadLine, loop_of: LoopOf) -> bool:
    """Whether a function is at work that makes tensors of sizes, or normalises a graph; none that draws random numbers, or has weights."""
    below = below_user(frames, rules)
    users = [frame for frame in frames[len(below) :] if rules.user_frame([frame]) is not None]
    if len(users) < 2 or any("/torch/nn/modules/" in frame.file for frame in below):
        return False
    inner, caller, *outer = users
    name = inner.function.rpartition(".")[2]
    arguments = _arguments(read_line(caller), name)
    if name in _NO_HELPER or arguments is None or (unknown := _others(arguments, _body(caller, read_line))) is None:
        return False
    if unknown and not (all(map(_GRAPH.fullmatch, unknown)) and _OF_GRAPHS.search(name) and _stays(outer, read_line, loop_of)):
        return False
    return not any(map(_VARIES.search, (name, arguments, *_body(inner, read_line))))


def _arguments(text: str, function: str) -> str | None:
    """What stands in the brackets of a function's call; None where the line does not show all of it."""
    _, call, after = text.partition(f"{function}(")
    depth = 1
    for number, letter in enumerate(after):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return after[:number] if call else None
    return None


def _others(arguments: str, caller: Sequence[str]) -> list[str] | None:
    """The names in a call's arguments that are none of sizes; None where a module's own among them is changed by the caller."""
    rest = _SIZE.sub("", arguments)
    if any(re.search(_CHANGED.format(re.escape(own)), line) for own in _OWN.findall(rest) for line in caller):
        return None
    names = [name for name in _NAME.findall(_OWN.sub("0", rest)) if not _OF_SIZES.fullmatch(name)]
    return [name for name in names if not any(re.search(_FROM_SHAPE.format(re.escape(name)), line) for line in caller)]


def _stays(callers: Sequence[Frame], read_line: ReadLine, loop_of: LoopOf) -> bool:
    """Whether the loops that call a model hand the same graph on; a trainer's loop, which nobody sees, may not."""
    loops = [(frame, loop) for frame in callers if frame.function.rpartition(".")[2] not in _PASSES and (loop := loop_of(frame))]
    return bool(loops) and not any(_handed_on(read_line(frame)) & _targets(frame, loop, read_line) for frame, loop in loops)


def _handed_on(text: str) -> set[str]:
    """The variables in a line whose names are those of graphs; where there are none, or an element is taken of one, all of them."""
    found = _HANDED_ON.findall(text.partition(" = ")[2] or text)
    graphs = [(root, element) for root, path, element in found if _GRAPH.fullmatch((root + path).rpartition(".")[2])]
    return {root for root, _ in graphs} if graphs and not any(element for _, element in graphs) else {root for root, *_ in found}


def _targets(frame: Frame, loop: range, read_line: ReadLine) -> set[str]:
    """What a loop gives a value, as far as its lines are near."""
    lines = (read_line(at_line(frame, number)) for number in loop[: 2 * MAX_BODY_LINES])
    return {name for line in lines for found in _TARGETS.findall(line) for text in found for name in _NAME.findall(text)}


def _body(frame: Frame, read_line: ReadLine) -> list[str]:
    """The lines of a function around one, as far as they are near."""
    lines = [read_line(frame)]
    for step in (-1, 1):
        for distance in range(1, MAX_BODY_LINES):
            text = read_line(at_line(frame, (frame.line or 0) + step * distance))
            if DEFINITION.match(text):
                break
            lines.append(text)
    return lines
