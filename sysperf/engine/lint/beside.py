"""The files of its own folder or package that a script imports: they are read with it, and nothing is said of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sysperf.script.source import Unreadable, read_bytes
from sysperf.startup import lazy

MAX_FILES = 30
MAX_BYTES = 1 << 20
"""Of a longer file, the imports stand at the beginning."""
_IMPORT = lazy(rb"(?m)^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+\(?([\w \t,]*)|import[ \t]+([\w.]+))")


def imported(scripts: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """The files that scripts, by their paths and contents, import from beside them, and what those import; at most `MAX_FILES`."""
    waiting = [*scripts]
    seen = {os.path.realpath(path) for path, _ in waiting}
    found: list[str] = []
    while waiting:
        path, content = waiting.pop(0)
        for each in _named(path, _text(path) if content is None else content):
            if len(found) < MAX_FILES and (real := os.path.realpath(each)) not in seen:
                seen.add(real)
                found.append(each)
                waiting.append((each, None))
    return found


def _text(path: str) -> bytes:
    try:
        return read_bytes(path)[:MAX_BYTES]
    except Unreadable:
        return b""


def _named(path: str, text: bytes) -> Iterator[str]:
    """The files that imports of a text name: relative ones, those of its package, and of a script those in its folder."""
    folder = os.path.dirname(os.path.abspath(path))
    top, package = folder, ""
    while os.path.isfile(os.path.join(top, "__init__.py")) and top != os.path.dirname(top):
        top, package = os.path.split(top)
    for dots, source, names, plain in _IMPORT.findall(text):
        parts = [part for part in (source or plain).decode().split(".") if part]
        base = folder
        for _ in dots[1:]:
            base = os.path.dirname(base)
        if dots and not package:
            continue
        if not dots and package:
            base = top if parts[:1] == [package] else ""
        if base and (base == top or base.startswith(os.path.join(top, package))):
            yield from _at(os.path.join(base, *parts), [name.strip() for name in names.decode().split(",")])


def _at(place: str, names: Iterable[str]) -> Iterator[str]:
    """The module or the package at a place, and modules of that package."""
    for each in (f"{place}.py", os.path.join(place, "__init__.py"), *(os.path.join(place, f"{name}.py") for name in names if name)):
        if os.path.isfile(each):
            yield each
