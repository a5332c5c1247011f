"""Nsight Systems exports: SQLite files of any schema, with whatever tables and columns they have.

Reads   CUPTI_ACTIVITY_KIND_{KERNEL,MEMCPY,MEMSET,GRAPH_TRACE,RUNTIME}  NVTX_EVENTS  StringIds  OSRT_API  SCHED_EVENTS  TARGET_INFO_GPU …
Format  https://docs.nvidia.com/nsight-systems/UserGuide/index.html#sqlite-schema-reference

A table that is absent is unknown, never empty. The file is opened read-only and immutable: a lock of its writer, or a
journal beside it, changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sysperf import paths
from sysperf.host.plain_files import open_plain
from sysperf.model.errors import TraceError
from sysperf.trace.timeline import Timeline

if TYPE_CHECKING:
    import sqlite3

REPORTS = (".nsys-rep", ".qdrep")
"""Reports of today, and of before 2021.4."""
_SQLITE = b"SQLite format 3\0"
EXPORT_LIMIT_S = 600
MAX_VALUE_BYTES = 128 << 20
"""Of one value, and of what many rows have in one column."""
Progress = Callable[[int], None]


def recognises(path: str, first: bytes) -> bool:
    """Whether this is an SQLite file, or a report that nsys can export."""
    return first.startswith(_SQLITE) or (path.endswith(REPORTS) and first[:1] not in (b"{", b"["))


def read(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read an export, or a report by way of one. Raises TraceError where it is neither, or is damaged."""
    if path.endswith(REPORTS):
        return read_report(path, progress)
    import sqlite3  # noqa: PLC0415 - 5 ms that other traces do without

    try:
        try:
            return _read(path, progress, str)
        except sqlite3.OperationalError as error:
            if "decode to UTF-8" not in str(error):
                raise
            return _read(path, progress, lambda raw: raw.decode("utf-8", "replace"))
    except sqlite3.DataError:
        raise TraceError(
            f"{path}: a value in it is larger than {MAX_VALUE_BYTES >> 20} MiB", "is it an export of Nsight Systems?"
        ) from None
    except (sqlite3.Error, MemoryError) as error:
        raise TraceError(
            f"{path}: {error}", "copy it again from where it was written, or export it again: nsys export --type sqlite REPORT.nsys-rep"
        ) from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}", "name a trace that you can read") from None


def _read(path: str, progress: Progress, text: Callable[[bytes], str]) -> Timeline:
    """Read an export; SQLite itself makes `str`, which is faster and refuses broken text."""
    import sqlite3  # noqa: PLC0415 - as above

    from sysperf.trace.reading.nsys_tables import Reader  # noqa: PLC0415 - as above

    connection = _connected(path)
    connection.text_factory = text
    if sys.version_info >= (3, 11):  # an older Python takes as much memory as the largest value in the file
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    try:
        timeline = Reader(connection, path, progress).read()
    except TraceError as error:
        unfolded = _unfolded(path)
        raise TraceError(f"{error}: {unfolded}", "fold it in: sqlite3 FILE 'PRAGMA wal_checkpoint'") if unfolded else error from None
    finally:
        connection.close()
    timeline.damage.truncated = timeline.damage.truncated or _unfolded(path)
    return timeline


def _unfolded(path: str) -> str:
    """What of the file is beside it, in SQLite's log of what was written last; empty where nothing is."""
    try:
        return f"a part of it is in {os.path.basename(path)}-wal" if os.stat(f"{path}-wal").st_size else ""
    except OSError:
        return ""


def _connected(path: str) -> sqlite3.Connection:
    """SQLite's view of a plain file. It opens names, not descriptors: that the file is the one that was looked at is asked afterwards."""
    import sqlite3  # noqa: PLC0415 - as above

    with _held(path) as handle:
        before = _times_open(handle)
        connection = sqlite3.connect(f"file:/proc/self/fd/{handle}?mode=ro&immutable=1", uri=True)
        if _times_open(handle) == before:
            connection.close()
            raise OSError(errno.ESTALE, "it was exchanged while it was opened")
        return connection


@contextlib.contextmanager
def _held(path: str) -> Iterator[int]:
    handle = open_plain(path)
    try:
        yield handle
    finally:
        os.close(handle)


def _times_open(handle: int) -> int:
    """How many descriptors of this process are of this file."""
    identity, times = os.fstat(handle), 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            times += os.path.samestat(os.fstat(int(descriptor)), identity)
    return times


def read_report(path: str, progress: Progress = lambda _: None) -> Timeline:
    """Read an ``.nsys-rep`` by way of `nsys export`. Raises TraceError with the command to run where nsys is not installed."""
    import shlex  # noqa: PLC0415 - for reports only
    import shutil  # noqa: PLC0415 - for reports only
    import subprocess  # noqa: PLC0415 - as above
    import tempfile  # noqa: PLC0415 - as above

    nsys = shutil.which("nsys")
    command = f"nsys export --type sqlite --output {shlex.quote(os.path.splitext(path)[0] + '.sqlite')} {shlex.quote(path)}"
    if nsys is None:
        raise TraceError(f"{path}: only nsys itself can read this", f"where Nsight Systems is installed, run: {command}")
    with tempfile.TemporaryDirectory(dir=paths.temporary_home()) as folder, _held(path) as handle:
        output, report = f"{folder}/export.sqlite", f"{folder}/report{os.path.splitext(path)[1]}"
        os.symlink(f"/proc/{os.getpid()}/fd/{handle}", report)  # its name may be another file's by now
        try:
            done = subprocess.run(
                [nsys, "export", "--type", "sqlite", "--output", output, report],
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
