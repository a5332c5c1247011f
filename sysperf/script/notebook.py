"""The code cells of a Jupyter notebook as one source; lines of the shell and of IPython do nothing, cells that are no Python are left out.

Format  https://nbformat.readthedocs.io/en/latest/format_description.html
"""

from __future__ import annotations

from bisect import bisect_right

from sysperf.model.record import Json, JsonObject, from_json
from sysperf.script.source import Source, Unreadable
from sysperf.script.syntax import parse
from sysperf.startup import lazy

_SHELL = ("%", "!", "?")
_MAGIC = lazy(r"\w+(, *\w+)* *= *[%!]\w|[\w.]+\?\??\s*$")
"""``files = !ls``, ``x = %timeit -o f()``, ``torch.nn.Linear?``."""


class Notebook(Source):
    """A notebook: positions are those of its cells."""

    def __init__(self, path: str, raw: bytes) -> None:
        """Decode. Raises Unreadable."""
        self.path = path
        self.raw = raw
        self.encoding = "utf-8"
        self._firsts: list[int] = []
        self._numbers: list[int] = []
        self.problem = ""
        """The first cell that is no Python, and why."""
        self.text = self._joined(_cells(raw))

    def _joined(self, cells: list[tuple[int, str]]) -> str:
        parts: list[str] = []
        line = 1
        for number, text in cells:
            self._firsts.append(line)
            self._numbers.append(number)
            parts.append(self._python(number, text) + "\n")
            line += parts[-1].count("\n")
        return "".join(parts)

    def _python(self, number: int, text: str) -> str:
        """A cell as Python; one that is none is blank, and named."""
        python = _translated(text)
        try:
            parse(python)
        except Unreadable as error:
            self.problem = self.problem or f"cell {number}, line {error.line} is {error.reason}; the other cells were read"
            return "\n" * text.count("\n")
        return python

    def cell(self, line: int) -> tuple[int, int]:
        """(number of the cell, line in it) of a line of the joined text."""
        place = bisect_right(self._firsts, line) - 1
        return (self._numbers[place], line - self._firsts[place] + 1) if place >= 0 else (0, line)


def _cells(raw: bytes) -> list[tuple[int, str]]:
    """(number from 1, text) of each code cell. Raises Unreadable."""
    try:
        book = from_json(raw, JsonObject)
        language = _language(book.get("metadata", {}))
        sheets = book.get("worksheets", [book])  # version 3 has sheets, and calls the source `input`
        cells = [cell for sheet in sheets for cell in sheet.get("cells", [])]
        code_cells = [
            (number, cell.get("source", cell.get("input", ""))) for number, cell in enumerate(cells, 1) if cell.get("cell_type") == "code"
        ]
        found = [(number, _text(source)) for number, source in code_cells]
    except (ValueError, AttributeError, TypeError) as error:
        raise Unreadable(f"no notebook: {error}") from None
    if "python" not in language.lower():
        raise Unreadable(f"a notebook in {language}")
    return found


def _language(metadata: JsonObject) -> str:
    """The language of the cells, as the kernel or what ran them last says; Python where nothing does."""
    names = (metadata.get("kernelspec", {}).get("language"), metadata.get("language_info", {}).get("name"))
    return next((name for name in names if isinstance(name, str) and name), "python")


def _text(source: Json) -> str:
    """A cell's text: one text, or a list of lines."""
    text = source if isinstance(source, str) else "".join(source)
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _translated(text: str) -> str:
    """A cell line by line: magics and shell commands become `pass`; a cell of another language (``%%bash``) is blank."""
    lines = text.split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%") and first.split()[0] not in ("%%time", "%%timeit", "%%capture", "%%prun"):
        return "\n" * (len(lines) - 1)
    kept: list[str] = []
    continues = False
    for line in lines:
        bare = line.lstrip()
        if continues or (bare.startswith(_SHELL) and not _is_percent(bare, kept)) or _MAGIC.match(bare):
            kept.append("" if continues else line[: len(line) - len(bare)] + "pass")
            continues = line.endswith("\\")
        else:
            kept.append(line)
    return "\n".join(kept)


def _is_percent(bare: str, above: list[str]) -> bool:
    """Whether a line that begins with % continues an expression: the line above is not whole."""
    return bare.startswith("%") and bool(above) and above[-1].rstrip().endswith(("(", ",", "\\"))
