"""Call stacks of a running Python program, taken from outside by py-spy: the program is neither stopped nor changed.

Always `--nonblocking` and never `--native`: reading stacks costs the program nothing that we could measure, stopping it for
each sample up to 13 %, and unwinding native frames 33 to 42 % (docs/profiling.md). What is read while the program runs may be
torn, so a dump that fails is tried again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time

from sysperf.host import Host
from sysperf.host.commands import Failed, output
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Frame, Samples, Stacks
from sysperf_pyspy import reading
from sysperf_pyspy.refusal import explained

RATE_HZ = 50
MAX_SECONDS = 600
DUMP_S = 10.0
"""A dump takes 12 to 150 ms; a starved machine gets more."""
TRIES = 8
SPARE_S = 20.0
"""What finding the interpreter and writing the samples may take beside sampling."""


def dump(host: Host, pid: int) -> Stacks:
    """Return where all threads of a program are now. Raises SysperfError."""
    program = _program(host, pid)
    for attempt in range(TRIES):
        time.sleep(0.02 * attempt)
        with contextlib.suppress(reading.Torn, ValueError):
            return reading.stacks(_run(host, pid, DUMP_S, program, "dump", "--json", "--nonblocking", "--pid", str(pid)), pid)
    raise SysperfError(
        f"the stacks of process {pid} changed while they were read, {TRIES} times", f"sysperf stacks {pid} --seconds 5 takes many samples"
    )


def sample(host: Host, pid: int, seconds: int) -> Samples:
    """Return where its threads are, 50 times a second, those that wait included. Raises SysperfError."""
    if not 1 <= seconds <= MAX_SECONDS:
        raise UsageError(f"--seconds {seconds}: not between 1 and {MAX_SECONDS}")
    program = _program(host, pid)
    how = ("--format", "raw", "--output", "/dev/stdout", "--nonblocking", "--idle", "--threads", "--full-filenames")
    long = ("--rate", str(RATE_HZ), "--duration", str(seconds))
    try:
        stacks = reading.samples(_run(host, pid, seconds + SPARE_S, program, "record", *how, *long, "--pid", str(pid)))
    except reading.Torn:
        stacks = ()
    if not stacks:
        raise SysperfError(f"py-spy saw no Python stack of process {pid} in {seconds} s", f"sysperf stacks {pid} looks once")
    return Samples(pid, seconds, RATE_HZ, stacks)


def sequence(host: Host, pid: int, rate_hz: int) -> tuple[tuple[Frame, ...], ...]:
    """Return where the main thread was within one second, in the order of time, the innermost call first. Raises SysperfError."""
    program = _program(host, pid)
    how = ("--format", "speedscope", "--output", "/dev/stdout", "--nonblocking", "--idle", "--threads", "--full-filenames")
    try:
        stacks = reading.sequence(
            _run(host, pid, 1 + SPARE_S, program, "record", *how, "--rate", str(rate_hz), "--duration", "1", "--pid", str(pid))
        )
    except (reading.Torn, ValueError):
        stacks = ()
    if not stacks:
        raise SysperfError(f"py-spy saw no Python stack of process {pid} in a second", f"sysperf stacks {pid} looks once")
    return stacks


def _program(host: Host, pid: int) -> str:
    """Return where py-spy is: in the environment of this sysperf, or on PATH. Raises UsageError."""
    if not host.live:
        raise UsageError("a captured machine has no running programs", "take stacks on the machine itself")
    if pid < 1 or not host.exists(f"/proc/{pid}"):
        raise UsageError(f"there is no process {pid}", "`sysperf ps` lists the PyTorch programs")
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    path = beside if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if path is None:
        raise UsageError("call stacks need py-spy, which is not installed", f"{sys.executable} -m pip install py-spy")
    return os.path.abspath(path)


def _run(host: Host, pid: int, seconds: float, *argv: str) -> bytes:
    """What py-spy prints. Raises Torn where another try may help, else SysperfError."""
    try:
        return output(argv, "py-spy", seconds)
    except Failed as error:
        if any(sign in error.complaint for sign in reading.TORN):
            raise reading.Torn from None
        raise explained(host, pid, error.complaint) from None
    except OSError as error:
        raise SysperfError(str(error), "the machine may be too busy: try again") from None
