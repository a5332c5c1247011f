"""One timed run of a program, under a guard process that ends whatever the program started, also when sysperf is killed.

The guard is forked from us, is the subreaper of all that the program leaves behind (prctl(2), PR_SET_CHILD_SUBREAPER), and
waits on three things at once: the program's end (pidfd_open(2)), its output, and a pipe that closes when we die.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

import msgspec

from sysperf.host.descendants import kill_descendants, signal_descendants
from sysperf.host.forked import adopt_orphans
from sysperf.model.record import Record
from sysperf.verify.output import FAILED_TO_START, Match, Output

TERM_GRACE_S = 5.0
TICK_S = 1.0
STDERR = 2
MAX_POLL_S = 86_400.0
"""poll(2) takes 24 days at most, and a run may be given more."""


class Finished(Record):
    """How one run went."""

    wall_s: float
    cpu_s: float
    """CPU time of the program and all its descendants."""
    page_faults: int
    """Minor page faults of the same."""
    exit_code: int
    """Negative: the signal that ended it."""
    match: Match | None = None
    """What the metric's pattern matched last."""
    tail: str = ""
    """The end of its output, both streams."""
    timed_out: bool = False
    left_behind: int = 0
    """Processes that ran on after the program had ended; they were killed."""
    error: str = ""
    """Why it could not be started."""


class Meanwhile(NamedTuple):
    """What is done again and again while a program runs. What it raises ends the run."""

    every_s: float
    act: Callable[[], object]
    check: Callable[[], object] = lambda: None
    """What is done at each tick of `ticking`."""


def ticking(tick: Callable[[float], object], renewing: Meanwhile | None = None) -> Meanwhile:
    """Tell each second for how long the program has run, beside what else is done meanwhile."""
    began = time.monotonic()
    renewed = began

    def act() -> None:
        nonlocal renewed
        now = time.monotonic()
        tick(now - began)
        if renewing is not None:
            renewing.check()
        if renewing is not None and now - renewed >= renewing.every_s:
            renewing.act()
            renewed = now

    return Meanwhile(min(TICK_S, renewing.every_s) if renewing else TICK_S, act)


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    limit_s: float,
    pattern: str = "",
    cwd: str = ".",
    meanwhile: Meanwhile | None = None,
    show_output: bool = False,
) -> Finished:
    """Run a program to its end, or kill it after `limit_s`. Ctrl-C kills it and all its descendants. Raises OSError.

    With `show_output` what it prints goes to our stderr, too.
    """
    life_read, life_write = os.pipe()
    result_read, result_write = os.pipe()
    guard = os.fork()
    if guard == 0:
        os.close(life_write)
        os.close(result_read)
        _guard(life_read, result_write, argv, env, limit_s, pattern, cwd, show_output=show_output)
    os.close(life_read)
    os.close(result_write)
    try:
        result = _read_all(result_read, meanwhile)
    finally:
        os.close(life_write)  # the guard kills what still runs
        os.close(result_read)
        os.waitpid(guard, 0)
    if not result:
        raise OSError("the process that guards the run was killed")
    return msgspec.msgpack.decode(result, type=Finished)


def _read_all(descriptor: int, meanwhile: Meanwhile | None) -> bytes:
    parts: list[bytes] = []
    while True:
        while meanwhile and not select.select([descriptor], [], [], meanwhile.every_s)[0]:
            meanwhile.act()
        part = os.read(descriptor, 65_536)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _guard(
    life: int, result: int, argv: Sequence[str], env: Mapping[str, str], limit_s: float, pattern: str, cwd: str, *, show_output: bool
) -> NoReturn:
    """The guard process: never returns, and writes nothing of its own to our streams."""
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        adopt_orphans()
        finished = _guarded(life, argv, env, limit_s, pattern, cwd, show_output=show_output)
        os.write(result, msgspec.msgpack.encode(finished))  # JSON has no nan, which a program may print
    except BaseException:  # noqa: BLE001 - a forked copy of us must end here, whatever happens
        kill_descendants()
    os._exit(0)


def _guarded(
    life: int, argv: Sequence[str], env: Mapping[str, str], limit_s: float, pattern: str, cwd: str, *, show_output: bool
) -> Finished:
    out_read, out_write = os.pipe2(os.O_CLOEXEC)
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _exec(argv, env, cwd, out_write)
    os.close(out_write)
    output = Output(out_read, pattern, STDERR if show_output else None)
    timed_out = _wait(pid, life, output, start + limit_s)
    wall_s = time.monotonic() - start
    exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    output.drain()
    left_behind = kill_descendants()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    error = f"{argv[0]}: {os.strerror(exit_code - _EXEC_FAILED)}" if exit_code > _EXEC_FAILED and output.failed_to_start else ""
    cpu_s = usage.ru_utime + usage.ru_stime
    return Finished(wall_s, cpu_s, usage.ru_minflt, exit_code, output.match, output.tail(), timed_out, left_behind, error)


_EXEC_FAILED = 126


def _exec(argv: Sequence[str], env: Mapping[str, str], cwd: str, output: int) -> NoReturn:
    """The program, with no input and its output into our pipe."""
    try:
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - the user's own command, as typed
    except OSError as error:
        os.write(1, FAILED_TO_START)
        os._exit(_EXEC_FAILED + min(error.errno or 1, 120))
    finally:
        os._exit(_EXEC_FAILED)


def _wait(pid: int, life: int, output: Output, deadline: float) -> bool:
    """Wait for the program's end; return whether it was killed at the deadline. Ends this process when our parent died."""
    process = os.pidfd_open(pid)
    poll = select.poll()
    for descriptor in (process, life, output.descriptor):
        poll.register(descriptor, select.POLLIN)
    timed_out, next_signal = False, signal.SIGTERM
    while True:
        events = dict(poll.poll(min(MAX_POLL_S, max(0.0, deadline - time.monotonic())) * 1e3))
        if life in events:
            kill_descendants()
            os._exit(1)
        if output.descriptor in events and not output.read():
            poll.unregister(output.descriptor)
        if output.search_took_too_long():
            signal_descendants(signal.SIGKILL)
        if process in events:
            os.close(process)
            return timed_out
        if time.monotonic() >= deadline:
            timed_out = True
            signal_descendants(next_signal)
            next_signal, deadline = signal.SIGKILL, time.monotonic() + TERM_GRACE_S
