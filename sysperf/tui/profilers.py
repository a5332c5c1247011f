"""The profilers of this machine, for the dashboard. Each is imported when its key is pressed."""

from __future__ import annotations

import os
import tempfile

from sysperf import plugin
from sysperf.host import Host
from sysperf.model.errors import UsageError
from sysperf.model.profile import Stacks, Trace, TraceRequest
from sysperf.plugin import ReportProgress
from sysperf.tui.doors import Profilers

ITERATIONS = 5


def here() -> Profilers:
    """Those of this machine."""
    return Profilers(_stacks, _traceable, _trace, ITERATIONS)


def _stacks(pid: int) -> Stacks:
    return plugin.stack_taker().dump(Host(), pid)


def _traceable(pid: int) -> str:
    """The folder of the trace. The dashboard stays who it is, and so leaves other users' programs to the command, which does not."""
    uid, _ = plugin.tracer().owner(Host(), pid)
    if uid != os.geteuid():
        raise UsageError(f"process {pid} belongs to user {uid}", f"sudo sysperf trace {pid}")
    return os.getcwd() if os.access(".", os.W_OK) else tempfile.gettempdir()


def _trace(pid: int, tell: ReportProgress) -> Trace:
    return plugin.tracer().trace(Host(), TraceRequest(pid, ITERATIONS), tell)
