"""Which reader a file needs: told by its first bytes, not by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sysperf.model.errors import TraceError
from sysperf.trace.timeline import Timeline

Progress = Callable[[int], None]
_SQLITE = b"SQLite format 3\0"


class TraceReader(NamedTuple):
    """A form of trace: how its files are recognised, and what reads them."""

    name: str
    takes: Callable[[str, bytes], bool]
    read: Callable[[str, Progress], Timeline]


def _kineto(path: str, progress: Progress) -> Timeline:
    from sysperf.trace import kineto  # noqa: PLC0415 - a reader is imported for its own files only

    return kineto.read(path, progress)


def _nsys(path: str, progress: Progress) -> Timeline:
    from sysperf.trace import nsys  # noqa: PLC0415 - as above; sqlite3 is 5 ms

    return nsys.read(path, progress)


def _nsys_report(path: str, progress: Progress) -> Timeline:
    from sysperf.trace import nsys  # noqa: PLC0415 - as above

    return nsys.read_report(path, progress)


READERS = (
    TraceReader("nsys", lambda _, first: first.startswith(_SQLITE), _nsys),
    TraceReader("nsys-rep", lambda path, _: path.endswith(".nsys-rep"), _nsys_report),
    TraceReader(
        "kineto", lambda _, first: first.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[") or first.startswith(b"\x1f\x8b"), _kineto
    ),
)


def read(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read a trace of any known form. Raises TraceError."""
    try:
        with open(path, "rb") as file:
            first = file.read(64)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}", "name a trace: .json, .json.gz, .sqlite or .nsys-rep") from None
    reader = next((one for one in READERS if one.takes(path, first)), None)
    if reader is None:
        raise TraceError(
            f"{path}: {'empty' if not first else 'no form of trace that is known here'}",
            "sysperf reads Chrome traces (.json, .json.gz) and exports of Nsight Systems (.sqlite)",
        )
    return reader.read(path, progress)
