"""What a process that we fork, or fork from, asks of the kernel: to end with its parent, to adopt orphans, to hold no file open.

Kernel  https://man7.org/linux/man-pages/man2/prctl.2.html
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def ending_with_parent(number: int) -> Callable[[], object]:
    """Return a call for the child: the kernel sends it this signal when its parent ends. Made before the fork, which loads ctypes once."""
    import ctypes  # noqa: PLC0415 - 4 ms

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of all that loses its parent below this process."""
    import ctypes  # noqa: PLC0415 - 4 ms

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


def close_all_but(kept: Collection[int]) -> None:
    """Close every file but these, locks of ours among them; standard streams that are not kept lead to /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in {0, 1, 2}.difference(kept):
        os.dup2(null, descriptor)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(descriptor)
