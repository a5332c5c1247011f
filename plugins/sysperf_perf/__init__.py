"""Samples of machine code in which a program's threads spend CPU time, by the kernel's `perf`; the program is neither stopped nor changed.

A frame is a symbol and the library that it is in. Where the program runs with Python's perf trampolines (`python -X perf`,
PYTHONPERFSUPPORT=1), whole stacks are taken, and their Python functions appear with their files. Only what runs is seen, not
where a thread waits.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time

from sysperf import paths
from sysperf.host import Host
from sysperf.host.commands import Failed, output
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.profile import Samples, Stacks, Thread
from sysperf_perf import reading
from sysperf_perf.refusal import explained

RATE_HZ = 99
MAX_SECONDS = 600
SPARE_S = 15.0
"""Looking symbols up in libraries of a gigabyte takes seconds, more on a busy machine."""


def dump(host: Host, pid: int) -> Stacks:
    """Return where each thread that runs was seen last, within a second. Raises SysperfError."""
    last: dict[int, Thread] = {}
    for sample in sample_once(host, pid, 1).samples:
        if sample.tid is not None:
            last[sample.tid] = Thread(sample.tid, sample.thread, True, sample.frames)
    return Stacks(pid, tuple(last[tid] for tid in sorted(last)))


def sample(host: Host, pid: int, seconds: int) -> Samples:
    """Return where its threads run, 99 times a second of CPU time. Raises SysperfError."""
    if not 1 <= seconds <= MAX_SECONDS:
        raise UsageError(f"--seconds {seconds}: not between 1 and {MAX_SECONDS}")
    return sample_once(host, pid, seconds)


def sample_once(host: Host, pid: int, seconds: int) -> Samples:
    """The same, for a dump too."""
    program = _program(host, pid)
    with tempfile.TemporaryDirectory(prefix="sysperf-perf-", dir=paths.temporary_home()) as folder:
        file = f"{folder}/perf.data"
        how = ("-g",) if has_trampolines(host, pid) else ()
        _run(
            host,
            pid,
            seconds + SPARE_S,
            program,
            "record",
            "-q",
            "-N",  # else it copies every library of the program into ~/.debug, and leaves them there
            "-F",
            str(RATE_HZ),
            *how,
            "-p",
            str(pid),
            "-o",
            file,
            "--",
            "sleep",
            str(seconds),
        )
        fields = ("-F", "comm,tid,ip,sym,dso")
        printed = _run(host, pid, SPARE_S, program, "script", "-i", file, *fields)
    return Samples(pid, seconds, RATE_HZ, reading.samples(printed))


def has_trampolines(host: Host, pid: int) -> bool:
    """Whether Python writes down where its functions are, so that their stacks can be walked."""
    return host.exists(f"/proc/{pid}/root/tmp/perf-{pid}.map") is True


def _program(host: Host, pid: int) -> str:
    """Return where perf is. Raises UsageError."""
    if not host.live:
        raise UsageError("a captured machine has no running programs", "take samples on the machine itself")
    if pid < 1 or not host.exists(f"/proc/{pid}"):
        raise UsageError(f"there is no process {pid}", "`sysperf ps` lists the PyTorch programs")
    path = shutil.which("perf")
    if path is None:
        raise UsageError("samples of machine code need perf, which is not installed", "sudo apt install linux-perf (or linux-tools)")
    return os.path.abspath(path)


def _run(host: Host, pid: int, seconds: float, *argv: str) -> bytes:
    """What perf prints. Raises SysperfError."""
    start = time.monotonic()
    try:
        return output(argv, "perf", seconds)
    except Failed as error:
        raise explained(host, pid, error.complaint) from None
    except OSError as error:
        raise SysperfError(str(error), f"it took {time.monotonic() - start:.0f} s: the machine may be too busy") from None
