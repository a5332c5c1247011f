"""The files of its own folder or package that a script imports: they are read with it, and nothing is said of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from sysperf.script.source import Unreadable, read_bytes
from sysperf.startup import lazy

MAX_FILES = 30
MAX_BYTES = 1 << 20
"""Of a longer script, the imports stand at the beginning; what it imports is no longer together."""
_IMPORT = lazy(
    rb"(?m)^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(((?:[^)#]|#.*){0,2000})|([^\n#;(]{0,2000}))|import[ \t]+([^\n#;]{1,2000}))"
)
"""No two neighbours of it fit the same text: a line that was made to be long costs its length."""


def imported(scripts: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """The files that scripts, by their paths and contents, import from beside them, and what those import; at most `MAX_FILES`."""
    waiting = [*scripts]
    seen = {os.path.realpath(path) for path, _ in waiting}
    found: list[str] = []
    left = MAX_BYTES
    while waiting:
        path, content = waiting.pop(0)
        for each in _named(path, _text(path) if content is None else content[:MAX_BYTES]):
            if len(found) == MAX_FILES:
                return found
            if (real := os.path.realpath(each)) not in seen:
                seen.add(real)
                if (size := _size(each)) <= left:
                    left -= size
                    found.append(each)
                    waiting.append((each, None))
    return found


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # it went away since it was seen
        return 0


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
    for source, bracketed, names, plain in _IMPORT.findall(text):
        named = _listed(bracketed or names)
        for module in [source.decode()] if source else _listed(plain):
            if base := _base(module, folder, top, package):
                yield from _at(os.path.join(base, *filter(None, module.split("."))), named)


def _base(module: str, folder: str, top: str, package: str) -> str:
    """The folder in which the first part of a module's name lies; empty where that is not the script's folder or package."""
    dots = len(module) - len(module.lstrip("."))
    if dots:
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        return folder if package and f"{folder}{os.sep}".startswith(f"{os.path.join(top, package)}{os.sep}") else ""
    if package:
        return top if module.partition(".")[0] == package else ""
    return folder


def _listed(names: bytes) -> list[str]:
    """The names of ``a, b.c as d``, each once; nothing that is no name, and so no other folder."""
    words = (part.split() for line in names.decode("utf-8", "replace").splitlines() for part in line.partition("#")[0].split(","))
    return [*dict.fromkeys(part[0] for part in words if part and part[0].replace(".", "").isidentifier())]


def _at(place: str, names: Iterable[str]) -> Iterator[str]:
    """The module or the package at a place, and modules of that package."""
    for each in (f"{place}.py", os.path.join(place, "__init__.py"), *(os.path.join(place, f"{name}.py") for name in names)):
        if os.path.isfile(each):
            yield each
