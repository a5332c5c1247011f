"""Long sentences of the documentation, and docstrings that begin with a riddle: `make lint` fails where there are more than there were.

    python .ci/prose.py            check
    python .ci/prose.py PAGE …     list the long sentences of these pages

A sentence has at most 25 words; code, tables and links' addresses do not count. `LONG` says how many longer ones each page still has: lower
it when you have rewritten one, and never raise it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_WORDS = 25
UNCLEAR = frozenset((
    "of", "those", "who", "where", "that", "whose", "these", "this", "its", "it", "by", "in", "from", "to", "with", "without", "at", "on",
    "no", "not", "also", "beside", "behind", "there", "for", "as", "until", "such", "when", "nothing",
))  # fmt: skip
"""First words of docstrings: a reader who skims them learns what a thing does or is from a verb or a noun."""
LONG = {
    "docs/architecture.md": 2,
}

_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^\|.*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INLINE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_BLOCK_START = re.compile(r"\n(?=\s*(?:[-*]|\d+\.|#+)\s)|\n\s*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|(?<=[.!?]\))\s+")


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of words, sentence) of each sentence that is too long; a colon or semicolon ends one, as a reader pauses there."""
    for pattern in (_CODE, _COMMENT, _TABLE):
        text = pattern.sub("\n\n", text)
    text = _LINK.sub(r"\1", _INLINE.sub("code", text))
    for block in _BLOCK_START.split(text):
        for sentence in _SENTENCE_END.split(" ".join(block.split())):
            words = [word for word in sentence.split() if any(char.isalnum() for char in word)]
            if len(words) > MAX_WORDS:
                yield len(words), sentence


def pages() -> list[Path]:
    """Return the pages that are checked: not the changelog, which is a list."""
    return [page for page in sorted(ROOT.glob("*.md")) if page.name != "CHANGELOG.md"] + sorted((ROOT / "docs").glob("**/*.md"))


def unclear_docstrings() -> Iterator[str]:
    """Yield the file and the first words of each docstring that begins with neither a verb nor a noun."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted([*(ROOT / "sysperf").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]):
        nodes = ast.walk(ast.parse(path.read_text()))
        for text in (ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)):
            if text and text.split()[0].strip("`*,.:(").lower() in UNCLEAR:
                yield f"{path.relative_to(ROOT)}: {text[:80]}"


def main(names: list[str]) -> int:
    if names:
        for name in names:
            for words, sentence in long_sentences(Path(name).read_text()):
                print(f"{words:3} {sentence}")
        return 0
    wrong = 0
    for page in pages():
        name = str(page.relative_to(ROOT))
        found, known = len(list(long_sentences(page.read_text()))), LONG.get(name, 0)
        if found != known:
            more = f"python .ci/prose.py {name} lists them" if found > known else "lower its number in .ci/prose.py"
            print(f"{name}: {found} sentences of more than {MAX_WORDS} words, {known} are known: {more}")
            wrong += 1
    for docstring in unclear_docstrings():
        print(f"{docstring}: begin with a verb or a noun")
        wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
