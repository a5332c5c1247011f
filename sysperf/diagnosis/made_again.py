"""What a step makes anew although it could be made once or at once, by a function's call: its arguments tell what it depends on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec

from sysperf.model.profile import Frame
from sysperf.startup import lazy


class Rules(Protocol):
    """Which of the frames of a stack is the user's own."""

    @property
    def user_frame(self) -> Callable[[Iterable[Frame]], Frame | None]:
        """Return the innermost one."""


ReadLine = Callable[[Frame], str]

MAX_BODY_LINES = 40
_DEFINITION = lazy(r"(?:async )?def |class |@")
_NO_HELPER = frozenset(("forward", "__call__", "__init__", "<module>", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>"))
_SIZE = lazy(r"\b[A-Za-z_][\w.]*\.(?:shape|size|device|dtype|ndim|dim)\b(?:\([^()]*\))?(?:\[[^\]]*\])?|\blen\([^()]*\)|\b\w+=")
_LEARNED = r"\w*(?:weight|bias|scale|sigma|alpha|beta|gamma|param|log_|table|embed|project)"
_OWN = lazy(rf"\bself\.(?!{_LEARNED})\w+(?:\.\w+)*(?!\w*\()")
_NAME = lazy(r"[A-Za-z_][\w.]*")
_OF_SIZES = lazy(
    r"[A-Z_0-9]+|[nbtlhwkd]|\w*(?:len|length|size|dim|heads?|width|height|steps?|count|num|device|dtype)\w*|int|float|True|False|None|max|min|torch\.\w+"
)
_GRAPH = lazy(r"edge\w*|adj\w*|graph\w*")
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


def makes_constants(frames: Sequence[Frame], rules: Rules, read_line: ReadLine) -> bool:
    """Whether a function is at work that makes tensors of sizes, or normalises a graph; none that draws random numbers, or has weights."""
    below = list(itertools.takewhile(lambda frame: rules.user_frame([frame]) is None, frames))
    users = [frame for frame in frames[len(below) :] if rules.user_frame([frame]) is not None]
    if len(users) < 2 or any("/torch/nn/modules/" in frame.file for frame in below):
        return False
    inner, caller = users[:2]
    name = inner.function.rpartition(".")[2]
    arguments = _arguments(read_line(caller), name)
    if name in _NO_HELPER or arguments is None or not _depends_on_sizes(arguments, name):
        return False
    return not any(map(_VARIES.search, (name, *_body(inner, read_line))))


def _arguments(text: str, function: str) -> str | None:
    """What stands in the brackets of a function's call; None where the line does not show all of it."""
    _, call, after = text.partition(f"{function}(")
    depth = 1
    for number, letter in enumerate(after):
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return after[:number] if call else None
    return None


def _depends_on_sizes(arguments: str, function: str) -> bool:
    names = _NAME.findall(_OWN.sub("0", _SIZE.sub("", arguments)))
    others = [name for name in names if not _OF_SIZES.fullmatch(name)]
    return not others or (all(map(_GRAPH.fullmatch, others)) and _OF_GRAPHS.search(function) is not None)


def _body(frame: Frame, read_line: ReadLine) -> list[str]:
    """The lines of a function around one, as far as they are near."""
    lines = [read_line(frame)]
    for step in (-1, 1):
        for distance in range(1, MAX_BODY_LINES):
            text = read_line(msgspec.structs.replace(frame, line=(frame.line or 0) + step * distance))
            if _DEFINITION.match(text):
                break
            lines.append(text)
    return lines
