"""Has a program that ends while it is traced wait until its trace is written.

At exit the C library destroys Kineto's objects while Kineto's own thread still takes records apart, and the program crashes after all of
its work, with code 134 or 139: 9 of 10 times with torch 2.13. Python's own handlers run before that, so one of them waits here, and no
longer than a trace can take. No error of ours reaches the program. A process that leaves by os._exit, as workers of loaders do, neither
crashes nor waits.
"""

import atexit
import contextlib
import fcntl
import os
import sys
import time

MARK = os.environ.get("KINETO_IPC_SOCKET_DIR", "") + "/traced-{}"
"""The file that sysperf_torch holds locked from the request that it sends to a process until the trace is whole."""
SCRATCH = "/.sysperf-trace-"
"""What the folders are named into which sysperf_torch has a process write."""
MAX_WAIT_S = 90.0
MAX_SILENT_S = 70.0
"""A file that Kineto holds open and has not written to for so long belongs to no trace any more: the longest one takes a minute."""
POLL_S, SAID_AFTER_S, SETTLED_S = 0.02, 1.0, 0.2
STEPS = 50
"""A trace of some steps ends after these, and the program makes none any more: so many are told to Kineto each time."""


class Waiter:
    """Waits when this process ends; a forked child has no thread of Kineto's, so it waits only where it imports torch itself."""

    def __init__(self) -> None:
        self.is_needed = True

    def forked(self) -> None:
        self.is_needed = "torch" not in sys.modules

    def wait(self) -> None:
        if not self.is_needed or "torch" not in sys.modules or not is_traced():
            return
        with contextlib.suppress(Exception, KeyboardInterrupt):
            sys.stdout.flush()
            wait_for_trace()


def wait_for_trace() -> None:
    start, was_said = time.monotonic(), False
    while is_traced() and time.monotonic() - start < MAX_WAIT_S:
        make_steps()
        time.sleep(POLL_S)
        if not was_said and time.monotonic() - start > SAID_AFTER_S:
            was_said = True
            sys.stderr.write("sysperf: the program is done, and ends once its trace is written (Ctrl-C: at once)\n")
    time.sleep(SETTLED_S)


def is_traced() -> bool:
    return is_marked() or is_written()


def is_marked() -> bool:
    """Whether somebody holds the file of this process locked; one that was killed left it, and holds it no more."""
    try:
        file = os.open(MARK.format(os.getpid()), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def is_written() -> bool:
    """Whether Kineto holds the file of a trace open, as when whoever asked for it has given up."""
    return any(is_open_trace(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))


def is_open_trace(descriptor: str) -> bool:
    try:
        return SCRATCH in os.readlink(descriptor) and time.time() - os.stat(descriptor).st_mtime < MAX_SILENT_S
    except OSError:
        return False


def make_steps() -> None:
    step = getattr(sys.modules.get("torch.autograd"), "_kineto_step", None)
    if step is not None:
        for _ in range(STEPS):
            step()


waiter = Waiter()
atexit.register(waiter.wait)
os.register_at_fork(after_in_child=waiter.forked)
