"""Traces of a running PyTorch process that was started with KINETO_USE_DAEMON=1; the process is not changed.

Such a process asks a daemon every 5 s for a profiling request. This plugin is that daemon for as long as one trace takes.
The process itself writes the file, as its own user.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from sysperf.host import Host, files
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Trace, TraceRequest
from sysperf.plugin import ReportProgress
from sysperf_torch import trace_file
from sysperf_torch.daemon_socket import DaemonSocket, listen
from sysperf_torch.mark import Mark
from sysperf_torch.target import Target, find
from sysperf_torch.wire import Request

MAX_FIRST_REQUEST_S = 40.0
"""A process asks every 5 s; one that imports PyTorch on a busy machine takes longer before its first request."""
MAX_IGNORED = 4
"""Further requests, with no file begun, after which the process has ignored its configuration."""
DROPPED_AFTER, MAX_SENT = 2, 4
"""Kineto drops a trace by time when its own thread wakes up less than the warm-up before the start, as on a loaded machine, and
says so in its log alone. A process that is free at so many further requests has dropped it, and gets it again, so often in all:
https://github.com/pytorch/kineto/blob/main/libkineto/src/GenericActivityProfiler.cpp (canStart)"""
_ENDED = (
    "ask earlier, or for fewer steps: --iterations 2. If its exit code is 134 or 139, PyTorch crashed after all of its work: "
    "one that `sysperf wrap --traceable` starts waits for its trace"
)
"""At exit Kineto waits for its thread, which still takes records apart whose memory is gone: 9 of 10 exits with torch 2.13."""
MAX_DURATION_MS, MAX_ITERATIONS = 60_000, 1_000


def owner(host: Host, pid: int) -> tuple[int, int]:
    """Return (uid, gid) of a process that can be traced from here. Raises SysperfError with the reason where it cannot."""
    target = find(host, pid, os.geteuid())
    return target.uid, target.gid


def trace(host: Host, request: TraceRequest, progress: ReportProgress) -> Trace:
    """Have the process write a trace, and wait for it. Nothing is left behind when this ends otherwise. Raises SysperfError."""
    (written,) = trace_all(host, (request,), progress)
    if isinstance(written, SysperfError):
        raise written
    return written


def trace_all(host: Host, requests: Sequence[TraceRequest], progress: ReportProgress) -> list[Trace | SysperfError]:
    """Have several processes write traces at the same time: of each its trace, or why there is none."""
    start = time.monotonic()
    with contextlib.ExitStack() as cleanup:
        daemons: dict[str | bytes, DaemonSocket] = {}
        sessions = [_opened(host, request, daemons, cleanup, progress) for request in requests]
        open_sessions = [session for session in sessions if isinstance(session, _Session)]
        while open_sessions := [session for session in open_sessions if not session.is_over()]:
            for daemon in daemons.values():
                if (received := daemon.wait(0.5 / len(daemons))) is not None:
                    pid, asked, address = received
                    for session in open_sessions:
                        session.answer(pid, asked, address)
        return [session if isinstance(session, SysperfError) else _moved(session, start) for session in sessions]


def _opened(
    host: Host, request: TraceRequest, daemons: dict[str | bytes, DaemonSocket], cleanup: contextlib.ExitStack, progress: ReportProgress
) -> _Session | SysperfError:
    """A session that its process can answer, or why there is none."""
    try:
        _check(request)
        target = _owned(host, request.pid)
        path = trace_file.output_path(request.output, request.pid)
        folder = cleanup.enter_context(trace_file.scratch(path))
        if target.address not in daemons:
            daemons[target.address] = cleanup.enter_context(listen(target))
        daemons[target.address].targets[target.pid] = target
        mark = cleanup.enter_context(contextlib.closing(Mark(target)))
        return _Session(host, target, daemons[target.address], mark, request, folder, path, progress)
    except SysperfError as error:
        return error


def _owned(host: Host, pid: int) -> Target:
    """The program, when it is ours. Raises SysperfError."""
    target = find(host, pid, os.geteuid())
    if target.uid != os.geteuid():
        raise SysperfError(f"process {pid} belongs to user {target.uid}", f"take its trace as that user: sudo sysperf trace {pid}")
    return target


def _moved(session: _Session, start: float) -> Trace | SysperfError:
    """The trace of a session that is over, where it was asked for."""
    if session.problem is not None:
        return session.problem
    try:
        counts = trace_file.counts(session.written)
        files.give_output_name(session.written, session.path)
    except OSError as error:
        return SysperfError(f"{session.written}: {error.strerror}", "the disk may be full or broken")
    except SysperfError as error:
        return error
    return Trace(session.request.pid, session.path, *counts, round(time.monotonic() - start, 1))


def config(request: TraceRequest, file: str, *, has_gpu: bool) -> str:
    """Return the configuration that is sent to the process, in Kineto's words.

    A trace by time starts after a warm-up of 5 s. It is for the GPU's tracer: a process without a GPU has nothing to warm up.
    """
    warm_up = () if has_gpu else ("ACTIVITIES_WARMUP_PERIOD_SECS=0",)
    if request.iterations:
        when = ["PROFILE_START_ITERATION=0", "PROFILE_START_ITERATION_ROUNDUP=1", f"ACTIVITIES_ITERATIONS={request.iterations}"]
    else:
        when = [f"PROFILE_START_TIME={request.start_ms}", *warm_up, f"ACTIVITIES_DURATION_MSECS={request.duration_ms}"]
    details = [f"PROFILE_REPORT_INPUT_SHAPES={str(request.shapes).lower()}", f"PROFILE_WITH_STACK={str(request.stacks).lower()}"]
    return "\n".join([f"ACTIVITIES_LOG_FILE={file}", *when, *details, ""])


def _check(request: TraceRequest) -> None:
    if bool(request.iterations) == bool(request.duration_ms):
        raise UsageError("a trace is of some iterations or of some seconds", "give either")
    if not 0 <= request.iterations <= MAX_ITERATIONS:
        raise UsageError(f"{request.iterations} iterations: not between 1 and {MAX_ITERATIONS}", "5 iterations are a good number")
    if not 0 <= request.duration_ms <= MAX_DURATION_MS:
        raise UsageError(f"{request.duration_ms / 1000:g} s: not between 0.001 and {MAX_DURATION_MS // 1000}", "1 s can be 20 MB")


class _Session:
    """One trace, from the first request of the process to the complete file."""

    def __init__(
        self,
        host: Host,
        target: Target,
        daemon: DaemonSocket,
        mark: Mark,
        request: TraceRequest,
        folder: str,
        path: str,
        progress: ReportProgress,
    ) -> None:
        self._host, self._target, self._daemon, self._mark, self._folder = host, target, daemon, mark, folder
        self.request, self.path = request, path
        self._progress = progress
        self._start = time.monotonic()
        self._was_asked = False
        self.written = ""
        """The path of the complete file."""
        self.problem: SysperfError | None = None
        self._sent = 0
        """How often the process has got the configuration."""
        self._ignored = 0
        """Requests for work that came although the configuration had been sent."""

    def is_over(self) -> bool:
        """Whether there is a complete file, or a problem."""
        self.written = trace_file.complete(self._folder) or ""
        if not self.written:
            try:
                self._check_limits()
            except SysperfError as error:
                self.problem = error
            else:
                self._progress(f"{self._state()} ({self._elapsed_s():.0f} s)")
                return False
        self._mark.close()
        return True

    def answer(self, pid: int, request: Request, address: str | bytes) -> None:
        """Answer a request, if it is of this process."""
        if pid != self._target.pid:
            return
        send = request.kind == "req" and request.free and (not self._sent or self._was_dropped())
        if send:
            self._mark.set()
        if self._daemon.answer(request, address, self._config() if send else ""):
            self._was_asked = True
            if send:
                self._sent, self._ignored = self._sent + 1, 0
            elif self._sent and request.kind == "req":
                self._ignored = self._ignored + 1 if request.free else 0

    def _config(self) -> str:
        return config(self.request, f"{self._folder}/trace.json", has_gpu=self._target.has_gpu(self._host))

    def _was_dropped(self) -> bool:
        """Whether the process will not take the trace by time that it was asked for, but may take it when asked again."""
        by_time = bool(self.request.duration_ms) and not self.request.start_ms  # one that is to begin with others comes too late now
        return by_time and self._ignored >= DROPPED_AFTER and self._sent < MAX_SENT

    def _begun(self) -> bool:
        """Whether the process has begun to write. The file of a trace by time is made before it is dropped, so it tells nothing."""
        return bool(trace_file.begun(self._folder) and not (self.request.duration_ms and self._ignored))

    def _state(self) -> str:
        if not self._was_asked:
            return f"waiting until process {self._target.pid} asks, which it does every 5 s"
        if not self._sent:
            return "its profiler is at work already: waiting until that is done"
        return "the program traces itself" if self._begun() else "the program has the request"

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def _check_limits(self) -> None:
        """Raise SysperfError when there will be no trace."""
        pid, limit_s = self._target.pid, self.request.limit_s
        if not self._target.alive(self._host):
            raise SysperfError(f"process {pid} ended before its trace was written", _ENDED)
        if not self._was_asked and self._elapsed_s() > min(MAX_FIRST_REQUEST_S, limit_s):
            raise SysperfError(
                f"process {pid} has not asked for {self._elapsed_s():.0f} s",
                "it has not imported torch, or its torch was built without Kineto",
            )
        if self._ignored >= MAX_IGNORED and not self._begun():
            hint = "" if self.request.iterations else "; on a loaded machine try a trace by steps: --iterations 5"
            raise SysperfError(f"process {pid} took the request and started no trace", f"what it prints may tell why{hint}")
        if self._elapsed_s() > limit_s:
            raise SysperfError(
                f"no trace within {limit_s:.3g} s",
                "it counts optimizer steps: --seconds 1 traces by time" if self.request.iterations else "give it more time with --limit",
            )
