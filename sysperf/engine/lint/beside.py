"""The files of its own folder or package that a script imports: they are read with it, and nothing is said of them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sysperf.script.source import Unreadable, read_bytes
from sysperf.startup import lazy

MAX_FILES = 12
MAX_BYTES = 96 << 10
"""Of what is read of them, together: it takes 0.1 to 0.2 s, as long as the program needs for a script alone."""
MAX_SCRIPT_BYTES = 1 << 20
"""Of a longer script, the imports stand at the beginning."""
_LISTENS = lazy(rb"\bbackward\(|[lL]oader|\bepochs?\b|\.cuda\(|\.to\(|\w_step\b|Trainer|\.item\(")
"""A script in which none of these stands has no steps, batches or loaders of which others could say anything."""
_IMPORT = lazy(
    rb"(?m)^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(((?:[^)#]|#.*){0,2000})|([^\n#;(]{0,2000}))|import[ \t]+([^\n#;]{1,2000}))"
)
"""No two neighbours of it fit the same text: a line that was made to be long costs its length."""
_STATEMENT = lazy(rb"(?m)^(?=[^\s#)\]}])")
"""Where a statement of the module begins. In a long text without indentation it may not; what is cut there cannot be parsed."""
_DEFINITION = lazy(rb"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)")
_UNASKED = lazy(rb"__all__\b|if[ \t]+__name__\b")
_WORD = lazy(rb"[^\W\d]\w*")
_ALL = frozenset("*")


def imported(scripts: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """Find the files that scripts, by their paths and contents, import from beside them, and what those import; at most `MAX_FILES`.

    Of each, the part that is asked of it, with all else as empty lines.
    """
    read = [(path, _text(path) if content is None else content) for path, content in scripts]
    waiting = [(path, content[:MAX_SCRIPT_BYTES], _ALL) for path, content in read if _LISTENS.search(content)]
    scripts_read = {os.path.realpath(path) for path, _ in read}
    found: dict[str, _Neighbour] = {}
    left = MAX_BYTES
    while waiting:
        for each, names in _named(*waiting.pop(0)).items():
            real = os.path.realpath(each)
            known = found.get(real)
            if real in scripts_read or (known is None and len(found) == MAX_FILES) or (known is not None and names <= known.asked):
                continue
            asked = names | (known.asked if known is not None else frozenset())
            whole = known.whole if known is not None else _text(each)
            part = _part(whole, asked)
            more = len(part) - (len(known.part) if known is not None else 0)
            if more > left:
                continue
            left -= more
            found[real] = _Neighbour(known.path if known is not None else each, whole, asked, part)
            waiting.append((each, part, asked))
    return {each.path: each.part for each in found.values()}


class _Neighbour(NamedTuple):
    """A file that is read with another: by its path, with what is asked of it."""

    path: str
    whole: bytes
    asked: frozenset[str]
    part: bytes


def _part(text: bytes, asked: frozenset[str]) -> bytes:
    """The statements of a module, and those definitions of it that are asked for, that these need, and that inherit from them."""
    statements = _definitions(text)
    needed = asked | _words(b"".join(each for name, each in statements if not name and not _UNASKED.match(each)))
    waiting = {number: each for number, each in enumerate(statements) if each[0]}
    kept: set[str] = set()
    while True:
        more = [number for number, (name, each) in waiting.items() if name in needed or (kept and not kept.isdisjoint(_bases(each)))]
        if not more:
            break
        for number in more:
            name, each = waiting.pop(number)
            kept.add(name)
            needed |= _words(each)
    gone = {*waiting, *(number for number, (name, each) in enumerate(statements) if not name and _UNASKED.match(each))}
    return b"".join(b"\n" * each.count(b"\n") if number in gone else each for number, (_, each) in enumerate(statements))


def _definitions(text: bytes) -> list[tuple[str, bytes]]:
    """The statements of a module, as far as indentation tells them, with the names of functions and classes."""
    found: list[tuple[str, bytes]] = []
    decorators = b""
    for each in _STATEMENT.split(text):
        definition = _DEFINITION.match(each)
        if each.startswith(b"@"):
            decorators += each
        else:
            found.append((definition[1].decode("utf-8", "replace") if definition else "", decorators + each))
            decorators = b""
    return [*found, ("", decorators)]


def _words(text: bytes) -> frozenset[str]:
    """The names in a text, besides those of its imports."""
    return frozenset(word.decode("utf-8", "replace") for word in _WORD.findall(_IMPORT.sub(b"", text)))


def _bases(definition: bytes) -> frozenset[str]:
    """The names between the brackets of a class."""
    return _words(definition.partition(b"class ")[2].partition(b":")[0].partition(b"(")[2])


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
    used = _words(text) | asked
    found: dict[str, frozenset[str]] = {}
    for source, bracketed, names, plain in _IMPORT.findall(text):
        given = _listed(bracketed or names)
        is_star = "*" in (bracketed or names).decode("utf-8", "replace")
        given = {} if is_star else {name: each for name, each in given.items() if "*" in asked or name in used}
        modules = (
            [source.decode()]
            if source
            else [each for name, each in _listed(plain).items() if "*" in asked or name.partition(".")[0] in used]
        )
        for module in modules if given or is_star or not source else ():
            if base := _base(module, folder, top, package):
                for each, is_whole in _at(os.path.join(base, *filter(None, module.split("."))), given.values()):
                    wanted = used if is_whole or not given else frozenset(given.values())
                    found[each] = found.get(each, frozenset()) | wanted
    return {each: wanted - _ALL for each, wanted in found.items()}


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


def _at(place: str, names: Collection[str]) -> Iterator[tuple[str, bool]]:
    """The module at a place, or the modules of the package there that are named, and the package where it is asked for something else."""
    modules = [each for name in names if os.path.isfile(each := os.path.join(place, f"{name}.py"))]
    own = (f"{place}.py", os.path.join(place, "__init__.py"))
    yield from ((each, False) for each in own if not (names and len(modules) == len(names)) and os.path.isfile(each))
    yield from ((each, True) for each in modules)
