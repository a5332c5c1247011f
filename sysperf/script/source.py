"""One source file: read within bounds, decoded as Python decodes it, with positions for people and for edits.

Encoding  https://docs.python.org/3/reference/lexical_analysis.html#encoding-declarations
"""

from __future__ import annotations

import errno
import io
import tokenize
from bisect import bisect_right
from functools import cached_property

from sysperf.host.plain_files import open_plain, read_bounded
from sysperf.startup import lazy

MAX_BYTES = 16 << 20
HEAD_BYTES = 8192
"""Enough for the two lines in which an encoding may be named."""
_LINE_END = lazy(r"\r\n|\r|\n")


class Unreadable(Exception):
    """A file whose facts cannot be known: why, and the line where reading stopped (0: none)."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


class Source:
    """The text of a file, and what it takes to write it back byte for byte."""

    def __init__(self, path: str, raw: bytes) -> None:
        """Decode. Raises Unreadable."""
        self.path = path
        self.raw = raw
        self.text, self.encoding = _decoded(raw)

    @cached_property
    def starts(self) -> list[int]:
        """The offset at which each line begins; lines end as Python's tokenizer ends them."""
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    @property
    def line_count(self) -> int:
        """The number of its lines; behind the end of the last one there is none."""
        return len(self.starts) - (self.starts[-1] == len(self.text))

    def offset(self, line: int, column: int) -> int:
        """The offset in the text of a position of `ast`: line from 1, column in bytes of UTF-8."""
        start = self.starts[line - 1]
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        content = self.text[start:end]
        return start + (column if content.isascii() else len(content.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore")))

    def place(self, offset: int) -> tuple[int, int]:
        """(line, column) of an offset, both from 1; the column in characters."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def line(self, number: int) -> str:
        """A line without its end."""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].rstrip("\r\n")

    def cell(self, line: int) -> tuple[int, int]:
        """(number of a notebook's cell, line in it); 0 for what is no notebook."""
        return 0, line

    def encode(self, text: str) -> bytes:
        """Another text in this file's encoding, with its byte order mark. Raises UnicodeEncodeError."""
        return text.encode(self.encoding)


def read(path: str) -> Source:
    """Read a source file. Raises Unreadable for what is missing, no plain file, too large or not text."""
    return Source(path, read_bytes(path))


def read_bytes(path: str) -> bytes:
    """The content of a plain file of at most `MAX_BYTES`, to which no other user's link leads root astray. Raises Unreadable."""
    try:
        return read_bounded(open_plain(path), path, MAX_BYTES)
    except OSError as error:
        reasons = {errno.EFBIG: f"larger than {MAX_BYTES >> 20} MiB", errno.EINVAL: "no plain file"}
        raise Unreadable(reasons.get(error.errno or 0) or error.strerror or str(error)) from None
    except ValueError as error:  # a NUL in the name
        raise Unreadable(str(error)) from None


def _decoded(raw: bytes) -> tuple[str, str]:
    """(text, encoding). Raises Unreadable."""
    if (null := raw.find(b"\0")) >= 0:
        raise Unreadable("a NUL byte: no text", raw.count(b"\n", 0, null) + 1)
    try:
        head = raw[:HEAD_BYTES].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(head[: head.rfind(b"\n") + 1] or head).readline)
        text = raw.decode(encoding)
        if text.encode(encoding) != raw:  # an encoding with state, such as UTF-7: an edit could change other bytes
            raise Unreadable(f"its encoding {encoding} cannot be written back unchanged")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not {error.encoding}, and no comment names another encoding", raw.count(b"\n", 0, error.start) + 1) from None
    except (SyntaxError, LookupError, ValueError) as error:
        raise Unreadable(f"unknown encoding: {error}", 1) from None
    return text, encoding
