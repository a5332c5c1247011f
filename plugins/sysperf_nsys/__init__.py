"""Traces of a running program by NVIDIA Nsight Systems, as an SQLite export that `sysperf analyze` reads.

nsys cannot attach to any process: it traces programs that were started by `nsys launch`, which wait for `nsys start`. Such a program has
the number of its session in its environment. The program is not changed; while it is traced it is slower.

nsys    https://docs.nvidia.com/nsight-systems/UserGuide/index.html (launch, start, stop, sessions list, export)
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import tempfile
import time

from sysperf.host import Host, files
from sysperf.host.commands import Failed, output
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Trace, TraceRequest
from sysperf.plugin import ReportProgress
from sysperf_nsys import sessions

COMMAND_S = 30.0
EXPORT_S = 600.0
STOP_S = 180.0
DEFAULT_MS = 2_000
MAX_MS = 60_000
_WITHOUT_SAMPLES = "--sample=none", "--cpuctxsw=none", "--stats=false"
"""Samples of the CPU need rights and slow the program down, and `sysperf analyze` reads none."""
_TABLES = {*(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")), "NVTX_EVENTS", "OSRT_API"}
_LAUNCH = "start it with: nsys launch --trace=cuda,nvtx,osrt python train.py"


def owner(host: Host, pid: int) -> tuple[int, int]:
    """Return (uid, gid) of a process that can be traced from here. Raises SysperfError with the reason where it cannot."""
    _program()
    if not host.live or pid < 1 or not host.exists(f"/proc/{pid}"):
        raise UsageError(f"there is no process {pid}", "`sysperf ps` lists the PyTorch programs")
    if sessions.number_of(host, pid) is None:
        raise SysperfError(f"process {pid} was not started by nsys, which cannot attach to it", _LAUNCH)
    status = os.stat(f"/proc/{pid}")
    return status.st_uid, status.st_gid


def trace(host: Host, request: TraceRequest, progress: ReportProgress) -> Trace:
    """Have nsys trace its session for the time that was asked for, and export what it wrote. Raises SysperfError."""
    if request.iterations and not request.duration_ms:
        raise UsageError("nsys counts no steps of the optimizer", f"sysperf trace {request.pid} --with nsys --seconds 2")
    duration_s = min(request.duration_ms or DEFAULT_MS, MAX_MS) / 1_000
    owner(host, request.pid)
    path, program, start = _path(request), _program(), time.monotonic()
    number = sessions.number_of(host, request.pid) or ""
    session = sessions.name_of(number, _sessions(program))
    with tempfile.TemporaryDirectory(prefix=".sysperf-nsys-", dir=os.path.dirname(path)) as folder:
        report = f"{folder}/report"
        _run(program, COMMAND_S, "start", f"--session={session}", f"--output={report}", *_WITHOUT_SAMPLES)
        try:
            _wait(host, request.pid, duration_s, progress)
        finally:
            _stop(program, session, number, report)
        progress("it is exported")
        _run(program, EXPORT_S, "export", "--type=sqlite", f"--output={folder}/export.sqlite", f"{report}.nsys-rep")
        events = count(f"{folder}/export.sqlite")
        files.give_output_name(f"{folder}/export.sqlite", path)
    return Trace(request.pid, path, os.path.getsize(path), events, 0, round(time.monotonic() - start, 1))


def count(path: str) -> int:
    """The kernels, copies, calls and ranges in an export; tables that are empty are not in it."""
    events = 0
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as export:
            tables = {str(row[0]) for row in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in sorted(tables & _TABLES):
                events += int(export.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - a name of our own list
    except sqlite3.Error as error:
        raise SysperfError(f"what nsys exported is no SQLite file: {error}", "the disk may be full") from None
    return events


def _wait(host: Host, pid: int, duration_s: float, progress: ReportProgress) -> None:
    """Wait for so long, or until the program ends: nsys then stops by itself."""
    end = time.monotonic() + duration_s
    while (left := end - time.monotonic()) > 0 and host.exists(f"/proc/{pid}"):
        progress(f"the program is traced ({duration_s - left:.0f} s)")
        time.sleep(min(0.5, left))


def _stop(program: str, session: str, number: str, report: str) -> None:
    """Stop the collection, also when this is interrupted. That of a program that ended has stopped already. Raises SysperfError."""
    try:
        _run(program, STOP_S, "stop", f"--session={session}")
    except SysperfError as error:
        end, printed = time.monotonic() + COMMAND_S, _sessions(program)
        while sessions.listed(number, printed) and time.monotonic() < end:
            time.sleep(0.5)
            printed = _sessions(program)
        if os.path.exists(f"{report}.nsys-rep"):
            return
        if sessions.listed(number, printed):
            goes_on = f"{error}: the program is still traced, and {sessions.count(printed)} sessions are open"
            raise SysperfError(
                goes_on, f"nsys shutdown --session={shlex.quote(session)} --kill=none ends it, and leaves the program"
            ) from None
        raise


def _sessions(program: str) -> str:
    return _run(program, COMMAND_S, "sessions", "list")


def _path(request: TraceRequest) -> str:
    path = os.path.abspath(request.output or f"sysperf-trace-{request.pid}-{time.strftime('%Y%m%d-%H%M%S')}.sqlite")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists", "choose another name with --output: nothing is overwritten")
    if not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        raise UsageError(f"{os.path.dirname(path)}: cannot be written to", "choose another folder with --output")
    return path


def _program() -> str:
    """Return where nsys is. Raises UsageError."""
    path = shutil.which("nsys")
    if path is None:
        raise UsageError("these traces need nsys, which is not installed", "https://developer.nvidia.com/nsight-systems")
    return os.path.abspath(path)


def _run(program: str, seconds: float, *arguments: str) -> str:
    """What nsys prints. Raises SysperfError."""
    try:
        return output((program, *arguments), f"nsys {arguments[0]}", seconds).decode("utf-8", "replace")
    except Failed as error:
        raise SysperfError(str(error), "run it by hand to see all that it says") from None
    except OSError as error:
        raise SysperfError(str(error), "the machine may be too busy: try again") from None
