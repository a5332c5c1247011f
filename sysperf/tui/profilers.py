"""The profilers of this machine, for the dashboard. Each is imported when its key is pressed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sysperf import paths, plugin
from sysperf.host import Host
from sysperf.model.errors import UsageError
from sysperf.model.profile import TraceRequest
from sysperf.plugin import ReportProgress
from sysperf.tui.actions import Diagnose, Profilers, Tell

if TYPE_CHECKING:
    from sysperf.diagnosis.verdict import Verdict
    from sysperf.trace.output.analysis import Analysis

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


def diagnosis(stacks: str = "", traces: str = "") -> Diagnose:
    """Return what diagnoses this machine's programs, with the plugins of these names."""

    def diagnose(pid: int, tell: Tell) -> Verdict:
        from sysperf.engine import diagnose, judging  # noqa: PLC0415 - no dashboard needs it before a key is pressed
        from sysperf.engine.configuration import read_config  # noqa: PLC0415 - as above
        from sysperf.live.gpus import Gpus  # noqa: PLC0415 - as above

        config, gpus = read_config(), Gpus()
        try:
            terms = judging.load_terms(config, judging.configured_rules(config))
            return diagnose.diagnose(pid, terms, diagnose.Options(stacks_with=stacks, traces_with=traces), tell=tell, gpus=gpus.sample)
        finally:
            gpus.close()

    return diagnose


def _trace_folder(pid: int, name: str) -> str:
    """Return the folder of the trace. The dashboard keeps its user, and so leaves other users' programs to the command, which does not."""
    uid, _ = plugin.tracer(name).owner(Host(), pid)
    if uid != os.geteuid():
        raise UsageError(f"process {pid} belongs to user {uid}", f"sudo sysperf trace {pid}")
    return os.getcwd() if os.access(".", os.W_OK) else paths.temporary_home()


def _analysis(path: str, progress: ReportProgress) -> Analysis:
    """Return what `sysperf analyze` says of this trace."""
    from sysperf.engine import analyze, judging  # noqa: PLC0415 - no dashboard needs it before a trace is taken
    from sysperf.engine.configuration import read_config  # noqa: PLC0415 - as above

    return analyze.analyze([path], judging.trace_rules(read_config()), lambda _, part: progress(f"reading it ({part:.0%})")).analysis
