"""The files of its own folder or package that a script imports: they are read with it, and nothing is said of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from sysperf.script.source import Unreadable, read_bytes
from sysperf.startup import lazy

MAX_FILES = 12
MAX_BYTES = 96 << 10
"""Of what is imported, together: it takes 0.1 to 0.2 s, as long as the program needs for a script alone."""
MAX_SCRIPT_BYTES = 1 << 20
"""Of a longer script, the imports stand at the beginning."""
_LISTENS = lazy(rb"\bbackward\(|[lL]oader|\bepochs?\b|\.cuda\(|\.to\(|\w_step\b|Trainer|\.item\(")
"""A script in which none of these stands has no steps, batches or loaders of which others could say anything."""
_IMPORT = lazy(
    rb"(?m)^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(((?:[^)#]|#.*){0,2000})|([^\n#;(]{0,2000}))|import[ \t]+([^\n#;]{1,2000}))"
)
"""No two neighbours of it fit the same text: a line that was made to be long costs its length."""
_ALL = frozenset("*")


def imported(scripts: Iterable[tuple[str, bytes | None]]) -> list[str]:
    """The files that scripts, by their paths and contents, import from beside them, and what those import; at most `MAX_FILES`."""
    read = [(path, _text(path) if content is None else content) for path, content in scripts]
    waiting = [(path, content[:MAX_SCRIPT_BYTES], _ALL) for path, content in read if _LISTENS.search(content)]
    seen: dict[str, frozenset[str]] = {os.path.realpath(path): _ALL for path, _ in read}
    found: list[str] = []
    left = MAX_BYTES
    while waiting:
        for each, names in _named(*waiting.pop(0)).items():
            asked = names if os.path.basename(each) == "__init__.py" else _ALL
            known = seen.get(real := os.path.realpath(each))
            if known is None:
                if len(found) == MAX_FILES:
                    return found
                if (size := _size(each)) > left:
                    continue
                left -= size
                found.append(each)
            if known is None or (_ALL.isdisjoint(known) and not asked <= known):
                seen[real] = asked | (known or frozenset())
                waiting.append((each, _text(each), asked))
    return found


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # it went away since it was seen
        return 0


def _text(path: str) -> bytes:
    try:
        return read_bytes(path)
    except Unreadable:
        return b""


def _named(path: str, text: bytes, asked: frozenset[str]) -> dict[str, frozenset[str]]:
    """The files that imports of a text name, as far as they give what is asked of it, and what is asked of those.

    Relative ones, those of its package, and of a script those in its folder.
    """
    folder = os.path.dirname(os.path.abspath(path))
    top, package = folder, ""
    while os.path.isfile(os.path.join(top, "__init__.py")) and top != os.path.dirname(top):
        top, package = os.path.split(top)
    found: dict[str, frozenset[str]] = {}
    for source, bracketed, names, plain in _IMPORT.findall(text):
        given = _listed(bracketed or names)
        if not source:
            wanted = _ALL
        elif "*" in (bracketed or names).decode("utf-8", "replace"):
            given, wanted = {}, asked
        else:
            given = given if "*" in asked else {name: each for name, each in given.items() if name in asked}
            wanted = frozenset(given.values())
        for module in [source.decode()] if source else _listed(plain).values():
            if wanted and (source or "*" in asked) and (base := _base(module, folder, top, package)):
                for each in _at(os.path.join(base, *filter(None, module.split("."))), given.values()):
                    found[each] = found.get(each, frozenset()) | wanted
    return found


def _base(module: str, folder: str, top: str, package: str) -> str:
    """The folder in which the first part of a module's name lies; empty where that is not the script's folder or package."""
    dots = len(module) - len(module.lstrip("."))
    if dots:
        for _ in range(dots - 1):
            folder = os.path.dirname(folder)
        return folder if package and f"{folder}{os.sep}".startswith(f"{os.path.join(top, package)}{os.sep}") else ""
    if package:
        return top if module.partition(".")[0] == package != "torch" else ""  # what PyTorch's own names are is known
    return folder


def _listed(names: bytes) -> dict[str, str]:
    """The names of ``a, b.c as d`` by what they are called here; nothing that is no name, and so no other folder."""
    words = (part.split() for line in names.decode("utf-8", "replace").splitlines() for part in line.partition("#")[0].split(","))
    return {part[-1]: part[0] for part in words if part and part[0].replace(".", "").isidentifier()}


def _at(place: str, names: Collection[str]) -> Iterator[str]:
    """The module at a place, or modules of the package there, and the package itself where it is asked for something else."""
    modules = [each for name in names if os.path.isfile(each := os.path.join(place, f"{name}.py"))]
    own = (f"{place}.py", os.path.join(place, "__init__.py"))
    yield from (each for each in own if not (names and len(modules) == len(names)) and os.path.isfile(each))
    yield from modules
