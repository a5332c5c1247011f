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
"""Of a longer script, the imports stand at the beginning; a longer file beside it was written by a program."""
MAX_ASKED = 4 * MAX_FILES
"""How often files are asked for more: what one needs of another may need more of the first."""
_LISTENS = lazy(r"\bbackward\(|[lL]oader|\bepochs?\b|\.cuda\(|\.to\(|\w_step\b|Trainer|\.item\(")
"""A script in which none of these stands has no steps, batches or loaders of which others could say anything."""
_IMPORT = lazy(
    r"(?m)^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(((?:[^)#]|#.*){0,2000})|([^\n#;(]{0,2000}))|import[ \t]+([^\n#;]{1,2000}))"
)
"""No two neighbours of it fit the same text: a line that was made to be long costs its length."""
_STATEMENT = lazy(r"(?m)^(?=[^\s#)\]}])")
"""Where a statement of the module begins. In a long text without indentation it may not; what is cut there cannot be parsed."""
_DEFINITION = lazy(r"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)")
_HEIR = lazy(r"class[ \t]+\w+[ \t]*\(([^:]{0,400})")
_UNASKED = lazy(r"__all__\b|if[ \t]+__name__\b")
_QUOTES = ('"""', "'''")
_TEXT = lazy(
    r'#.*|"""[^"\\]*(?:(?:\\(?s:.)|"(?!""))[^"\\]*)*"""|"(?:\\(?s:.)|[^"\\\n])*"'
    r"|'''[^'\\]*(?:(?:\\(?s:.)|'(?!''))[^'\\]*)*'''|'(?:\\(?s:.)|[^'\\\n])*'"
)
"""A comment, or a text that begins and ends."""
_WORD = lazy(r"[^\W\d]\w*")
_ALL = frozenset("*")


def imported(scripts: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """Find the files that scripts, by their paths and contents, import from beside them, and what those import; at most `MAX_FILES`.

    Of each, the part that is asked of it, with all else as empty lines.
    """
    read = [(path, _text(path, content)) for path, content in scripts]
    waiting = [(path, content[:MAX_SCRIPT_BYTES], _ALL | _words(content)) for path, content in read if _LISTENS.search(content)]
    scripts_read = {os.path.realpath(path) for path, _ in read}
    found: dict[str, _Neighbour] = {}
    left = MAX_BYTES
    for _ in range(MAX_ASKED):
        if not waiting:
            break
        for each, names in _named(*waiting.pop(0)).items():
            real = os.path.realpath(each)
            known = found.get(real)
            if real in scripts_read or (known is None and len(found) == MAX_FILES) or (known is not None and names <= known.asked):
                continue
            asked = names | (known.asked if known is not None else frozenset())
            whole = known.whole if known is not None else _text(each, None)
            part, used = _part(whole, asked)
            more = len(part) - (len(known.part) if known is not None else 0)
            if more > left or len(whole) > MAX_SCRIPT_BYTES:
                continue
            left -= more
            found[real] = _Neighbour(known.path if known is not None else each, whole, asked, part)
            waiting.append((each, part, used))
    return {each.path: each.part.encode("utf-8", "surrogateescape") for each in found.values()}


class _Neighbour(NamedTuple):
    """A file that is read with another: by its path, with what is asked of it."""

    path: str
    whole: str
    asked: frozenset[str]
    part: str


class _Statement(NamedTuple):
    """A statement of a module; of a function or a class with its name, and of a class with the names of its bases."""

    text: str
    name: str = ""
    bases: frozenset[str] = frozenset()

    @property
    def is_unasked(self) -> bool:
        """Whether an import does not run it, or it says of all names that they are there."""
        return not self.name and _UNASKED.match(self.text) is not None


def _part(text: str, asked: frozenset[str]) -> tuple[str, frozenset[str]]:
    """The statements of a module, with those definitions that are asked for, that these need, and that inherit from them; and all names."""
    statements = [*_statements(text)]
    used = asked | _words("".join(each.text for each in statements if not each.name and not each.is_unasked))
    left = [each for each in statements if each.name]
    kept: set[str] = set()
    while more := {each for each in left if each.name in used or not kept.isdisjoint(each.bases)}:
        left = [each for each in left if each not in more]
        kept |= {each.name for each in more}
        used |= _words("".join(each.text for each in more))
    gone = {*left, *(each for each in statements if each.is_unasked)}
    if any(_is_in_a_text(each.text) for each in gone):
        return text, asked | _words(text)
    return "".join("\n" * each.text.count("\n") if each in gone else each.text for each in statements), used


def _is_in_a_text(statement: str) -> bool:
    """Whether it is no statement, but a part of a text, or of what holds one: it has quotes that belong to others."""
    if any(statement.count(quotes) % 2 for quotes in _QUOTES):
        return True
    left = _TEXT.sub("", statement) if any(quotes in statement for quotes in _QUOTES) else ""
    return '"' in left or "'" in left


def _statements(text: str) -> Iterator[_Statement]:
    """What a module consists of, as far as indentation tells it."""
    decorators = ""
    for each in _STATEMENT.split(text):
        if each.startswith("@"):
            decorators += each
            continue
        definition, heir = _DEFINITION.match(each), _HEIR.match(each)
        yield _Statement(decorators + each, definition[1] if definition else "", _words(heir[1]) if heir else frozenset())
        decorators = ""
    yield _Statement(decorators)


def _words(text: str) -> frozenset[str]:
    """The names in a text, besides those of its imports."""
    return frozenset(_WORD.findall(_IMPORT.sub("", text) if "import" in text else text))


def _text(path: str, content: bytes | None) -> str:
    """What stands in a file, so that it can be made bytes again; nothing where it cannot be read."""
    try:
        return (read_bytes(path) if content is None else content).decode("utf-8", "surrogateescape")
    except Unreadable:
        return ""


def _named(path: str, text: str, used: frozenset[str]) -> dict[str, frozenset[str]]:
    """The files that imports of a text name, as far as what they give is used, and what is asked of those.

    Relative ones, those of its package, and of a script those in its folder.
    """
    folder = os.path.dirname(os.path.abspath(path))
    top, package = folder, ""
    while os.path.isfile(os.path.join(top, "__init__.py")) and top != os.path.dirname(top):
        top, package = os.path.split(top)
    found: dict[str, frozenset[str]] = {}
    for source, bracketed, names, plain in _IMPORT.findall(text):
        given = _listed(bracketed or names)
        is_star = "*" in (bracketed or names)
        given = {} if is_star else {name: each for name, each in given.items() if "*" in used or name in used}
        modules = [source] if source else [each for name, each in _listed(plain).items() if "*" in used or name.partition(".")[0] in used]
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


def _listed(names: str) -> dict[str, str]:
    """The names of ``a, b.c as d`` by what they are called here; nothing that is no name, and so no other folder."""
    words = (part.split() for line in names.splitlines() for part in line.partition("#")[0].split(","))
    return {part[-1]: part[0] for part in words if part and part[0].replace(".", "").isidentifier()}


def _at(place: str, names: Collection[str]) -> Iterator[tuple[str, bool]]:
    """The module at a place, or the modules of the package there that are named, and the package where it is asked for something else."""
    modules = [each for name in names if os.path.isfile(each := os.path.join(place, f"{name}.py"))]
    own = (f"{place}.py", os.path.join(place, "__init__.py"))
    yield from ((each, False) for each in own if not (names and len(modules) == len(names)) and os.path.isfile(each))
    yield from ((each, True) for each in modules)
