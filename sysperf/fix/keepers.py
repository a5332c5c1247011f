"""The processes that end leases and hold what only a process can: whether they run, and ending them."""

from __future__ import annotations

import contextlib
import os
import signal

from sysperf.fix import process
from sysperf.host import Host
from sysperf.model.change import Keeper


def alive(keeper: Keeper) -> bool:
    """Whether that very process still runs."""
    try:
        return process.start_time(Host(), keeper.pid) == keeper.start_time
    except (OSError, ValueError, IndexError):
        return False


def dismiss(keeper: Keeper | None) -> None:
    """End a keeper whose transaction is over; what it holds goes with it."""
    if keeper and not keeper.is_helper and keeper.pid != os.getpid() and alive(keeper):
        with contextlib.suppress(OSError):
            os.kill(keeper.pid, signal.SIGKILL)
