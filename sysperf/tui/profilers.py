"""The profilers of this machine, for the dashboard. Each is imported when its key is pressed."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from sysperf import plugin
from sysperf.host import Host
from sysperf.model.errors import UsageError
from sysperf.model.profile import TraceRequest
from sysperf.plugin import ReportProgress
from sysperf.tui.actions import Profilers

if TYPE_CHECKING:
    from sysperf.trace.analysis import Analysis

ITERATIONS = 5


def here(stacks: str = "", traces: str = "") -> Profilers:
    """Return this machine's profilers: the plugins of these names, or the defaults."""
    return Profilers(
        lambda pid: plugin.stack_taker(stacks).dump(Host(), pid),
        lambda pid: _trace_folder(pid, traces),
        lambda pid, progress: plugin.tracer(traces).trace(Host(), TraceRequest(pid, ITERATIONS), progress),
        ITERATIONS,
        _analysis,
    )


def _trace_folder(pid: int, name: str) -> str:
    """Return the folder of the trace. The dashboard keeps its user, and so leaves other users' programs to the command, which does not."""
    uid, _ = plugin.tracer(name).owner(Host(), pid)
    if uid != os.geteuid():
        raise UsageError(f"process {pid} belongs to user {uid}", f"sudo sysperf trace {pid}")
    return os.getcwd() if os.access(".", os.W_OK) else tempfile.gettempdir()


def _analysis(path: str, progress: ReportProgress) -> Analysis:
    """Return what `sysperf analyze` says of this trace."""
    from sysperf.engine import analyze, judging  # noqa: PLC0415 - no dashboard needs it before a trace is taken

    return analyze.analyze([path], judging.load_rules(), lambda _, part: progress(f"reading it ({part:.0%})")).analysis
