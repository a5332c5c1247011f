"""What a process that we fork, or fork from, asks of the kernel: to end with its parent or go on without it, to adopt orphans.

Kernel  https://man7.org/linux/man-pages/man2/prctl.2.html
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def end_with_parent(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends; whether that is so by now is for the caller to ask."""
    import ctypes  # noqa: PLC0415 - 4 ms

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)


def ending_with_parent(number: int) -> Callable[[], object]:
    """Return a call for the child: the kernel sends it this signal when its parent ends. Made before the fork, which loads ctypes once."""
    import ctypes  # noqa: PLC0415 - 4 ms

    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def end_with_parent() -> None:
        prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)
        if os.getppid() != parent:  # it was killed meanwhile
            os._exit(128 + number)

    return end_with_parent


def adopt_orphans() -> None:
    """Become the parent of all that loses its parent below this process."""
    import ctypes  # noqa: PLC0415 - 4 ms

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def leave_behind(stay: Callable[[], object]) -> None:
    """Call something in a process that is nobody's child and has no terminal, and that ends with it. Raises OSError."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            stay()
    finally:
        os._exit(0)


def ended() -> Iterator[tuple[int, int]]:
    """Reap what has ended below this process, orphans too where it adopts them: process ids and exit codes, negative ones of signals."""
    with contextlib.suppress(ChildProcessError):
        while (result := os.waitpid(-1, os.WNOHANG))[0]:
            yield result[0], os.waitstatus_to_exitcode(result[1])


def close_all_but(kept: Collection[int]) -> None:
    """Close every file but these, locks of ours among them; standard streams that are not kept lead to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in {0, 1, 2}.difference(kept):
        os.dup2(null, descriptor)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(descriptor)
