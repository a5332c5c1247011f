"""What a data set does anew for each of its samples although it could be done once: opening one file of all, and searching all for one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sysperf.diagnosis.reading import DEFINITION, ReadLine, at_line
from sysperf.model.profile import Frame
from sysperf.startup import lazy

MAX_BODY_LINES = 40
_OPENS = lazy(
    r"\b(?:ZipFile|TarFile|File|open\w*|connect|Environment|load\w*|memmap|read_\w+|from_file)"
    r"\(\s*self\.\w+(?:, *(?:\w+=)?(?:[\"'][^\"']*[\"']|True|False|None|[\w.]*\d[\w.]*))*\s*\)"
)
"""A file whose name does not depend on the sample."""
_LISTS = lazy(
    r"\b(?:listdir|scandir|i?glob|walk)\((?:self\.\w+|os\.path\.join|f?([\"'])(?:\{self\.\w+\}|(?!\1)[^{}])*\1|[\s(),+/])+\)"
    r"|\bself\.\w+\.(?:iterdir|r?glob)\(([\"'])?[^\"'{}()]*\2?\)"
)
"""A folder whose name does not depend on the sample either."""
_LOADS = lazy(r"\b(?:load\w*|read_\w+|reader|DictReader)\((\w+)\s*[,)]|\b(\w+)\.(?:read|readlines)\(\)")
_OF_ITEM = lazy(r"(?:async )?def __getitem__\(self, *(\w+)")
_SEARCHES = r"[\w\])] (?:==|is) {0}\b|\b{0} (?:==|is) (?!\d|None|len)\w|\.eq\({0}\)|\.index\({0}\)|isin\([^()]*\b{0}\b"
_MADE_OF = r"^(\w+) = .*\b{0}\b"


def opens_again(frame: Frame, read_line: ReadLine) -> bool:
    """Whether a line of `__getitem__` opens, lists, or reads the whole of, a file or folder that is the same for each sample."""
    if _parameter(frame, read_line) is None:
        return False
    text = read_line(frame)
    if _OPENS.search(text) or _LISTS.search(text):
        return True
    return (read := _LOADS.search(text)) is not None and any(
        _OPENS.search(line) and re.search(rf"\bas {read[1] or read[2]}:|^{read[1] or read[2]} = ", line)
        for line in _above(frame, read_line)
    )


def searches(frame: Frame, loop: range, read_line: ReadLine) -> bool:
    """Whether a line of `__getitem__`, or the loop around it, compares data with the number of the sample, or with what is made of that."""
    if (parameter := _parameter(frame, read_line)) is None:
        return False
    names = [parameter, *(found[1] for line in _above(frame, read_line) if (found := re.match(_MADE_OF.format(parameter), line)))]
    of_loop = (read_line(at_line(frame, number)) for number in loop[:MAX_BODY_LINES])
    lines = (read_line(frame), *of_loop)
    return any(re.search(_SEARCHES.format(re.escape(name)), line) for name in names for line in lines)


def _parameter(frame: Frame, read_line: ReadLine) -> str | None:
    """What the sample is asked by, where the line is in a data set's `__getitem__` itself, or in a comprehension there."""
    for distance in range(1, MAX_BODY_LINES):
        text = read_line(at_line(frame, (frame.line or 0) - distance))
        if DEFINITION.match(text):
            return found[1] if (found := _OF_ITEM.match(text)) else None
    return None


def _above(frame: Frame, read_line: ReadLine) -> Sequence[str]:
    """The lines of its function above one."""
    lines = []
    for distance in range(1, MAX_BODY_LINES):
        text = read_line(at_line(frame, (frame.line or 0) - distance))
        if DEFINITION.match(text):
            break
        lines.append(text)
    return lines
