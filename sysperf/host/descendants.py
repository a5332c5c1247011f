"""The processes below one process: found by the kernel's lists of children, signalled, killed and reaped.

Reads   /proc/PID/task/*/children, or where the kernel has none (no CONFIG_PROC_CHILDREN) /proc/*/stat
Kernel  https://docs.kernel.org/filesystems/proc.html#proc-pid-task-tid-children-information-about-task-children
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from sysperf.procfs.children import parse as parse_children
from sysperf.procfs.stat import parse as parse_stat

MAX_THREADS = 1_024
MAX_BYTES = 1 << 20


def children_finder() -> Callable[[int], list[int]]:
    """How the children of many processes are found at one moment.

    Kernels that do not list them: all processes are asked for their parents then, once.
    """
    me = os.getpid()
    return children if os.access(f"/proc/{me}/task/{me}/children", os.R_OK) else _by_parent()


def descendants(pid: int) -> list[int]:
    """All processes below this one, parents first."""
    children_of = children_finder()
    pids = children_of(pid)
    for child in pids:  # the list grows while it is walked
        pids += children_of(child)
    return pids


def children(pid: int, max_threads: int = MAX_THREADS) -> list[int]:
    """The processes that the threads of this one started, or adopted; none where the kernel does not list them."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")[:max_threads]
    except OSError:
        return []
    return [child for thread in threads for child in parse_children(_content(f"/proc/{pid}/task/{thread}/children"))]


def _by_parent() -> Callable[[int], list[int]]:
    below: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := parse_stat(_content(f"/proc/{name}/stat"))) is not None:
            below.setdefault(stat.ppid, []).append(stat.pid)
    return lambda pid: list(below.get(pid, ()))


def _content(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(MAX_BYTES)
    except OSError:
        return b""


def signal_descendants(number: int) -> None:
    """Send a signal to all that is below this process."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def kill_descendants() -> int:
    """Kill and reap all that is below this process, which has adopted orphans; return how many there were at first."""
    first = len(descendants(os.getpid()))
    while True:
        signal_descendants(signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return first
