"""Nsight Systems exports: SQLite files of any schema, with whatever tables and columns they have.

Reads   CUPTI_ACTIVITY_KIND_{KERNEL,MEMCPY,MEMSET,GRAPH_TRACE,RUNTIME}  NVTX_EVENTS  StringIds  OSRT_API  SCHED_EVENTS  TARGET_INFO_GPU …
Format  https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference

A table that is absent is unknown, never empty. The file is opened read-only and immutable: a lock of its writer, or a
journal beside it, changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from sysperf import paths
from sysperf.model.errors import TraceError
from sysperf.trace.timeline import Timeline

REPORT = ".nsys-rep"
_SQLITE = b"SQLite format 3\0"
EXPORT_LIMIT_S = 600
MAX_VALUE_BYTES = 128 << 20
"""Of one value, and of what many rows have in one column."""
Progress = Callable[[int], None]


def recognises(path: str, first: bytes) -> bool:
    """Whether this is an SQLite file, or a report that nsys can export."""
    return first.startswith(_SQLITE) or (path.endswith(REPORT) and first[:1] not in (b"{", b"["))


def read(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read an export, or a report by way of one. Raises TraceError where it is neither, or is damaged."""
    if path.endswith(REPORT):
        return read_report(path, progress)
    import sqlite3  # noqa: PLC0415 - 5 ms that other traces do without

    address = f"file:{_quoted(os.path.abspath(path))}?mode=ro&immutable=1"
    try:
        with open(path, "rb"):
            pass
        try:
            return _read(address, path, progress, str)
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            return _read(address, path, progress, lambda raw: raw.decode("utf-8", "replace"))
    except sqlite3.DataError:
        raise TraceError(
            f"{path}: a value in it is larger than {MAX_VALUE_BYTES >> 20} MiB", "is it an export of Nsight Systems?"
        ) from None
    except (sqlite3.Error, MemoryError) as error:
        raise TraceError(f"{path}: {error}", "export it again: nsys export --type sqlite REPORT.nsys-rep") from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}", "name a trace that you can read") from None


def _quoted(path: str) -> str:
    """A path as SQLite's addresses have it (https://www.sqlite.org/uri.html): these three have a meaning there."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _read(address: str, path: str, progress: Progress, text: Callable[[bytes], str]) -> Timeline:
    """Read an export; SQLite itself makes `str`, which is faster and refuses broken text."""
    import sqlite3  # noqa: PLC0415 - as above

    from sysperf.trace.reading.nsys_tables import Reader  # noqa: PLC0415 - as above

    connection = sqlite3.connect(address, uri=True)
    connection.text_factory = text
    if sys.version_info >= (3, 11):  # an older Python takes as much memory as the largest value in the file
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    try:
        return Reader(connection, path, progress).read()
    finally:
        connection.close()


def read_report(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read an ``.nsys-rep`` by way of `nsys export`. Raises TraceError with the command to run where nsys is not installed."""
    import shlex  # noqa: PLC0415 - for reports only
    import shutil  # noqa: PLC0415 - for reports only
    import subprocess  # noqa: PLC0415 - as above
    import tempfile  # noqa: PLC0415 - as above

    nsys = shutil.which("nsys")
    command = f"nsys export --type sqlite --output {shlex.quote(path.removesuffix(REPORT) + '.sqlite')} {shlex.quote(path)}"
    if nsys is None:
        raise TraceError(f"{path}: only nsys itself can read this", f"where Nsight Systems is installed, run: {command}")
    with tempfile.TemporaryDirectory(dir=paths.temporary_home()) as folder:
        output = f"{folder}/export.sqlite"
        try:
            done = subprocess.run(
                [nsys, "export", "--type", "sqlite", "--output", output, os.path.abspath(path)],
                capture_output=True,
                timeout=EXPORT_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TraceError(f"{path}: nsys export: {error}", f"run it yourself: {command}") from None
        if done.returncode or not os.path.exists(output):
            raise TraceError(
                f"{path}: nsys export failed: {done.stderr.decode('utf-8', 'replace').strip()[-200:]}", f"run it yourself: {command}"
            )
        timeline = read(output, progress)
        timeline.file = path
        return timeline
