"""The line above a web page: on which machine it was made, when, in which time, by which command."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time

from sysperf.host import redact
from sysperf.model.text import neutral
from sysperf.procfs import stat
from sysperf.report import frame

MAX_COMMAND = 400


def stamped(page: str, args: argparse.Namespace) -> str:
    """The page with that line; what was captured or saved elsewhere is not said to be of this machine."""
    elsewhere = str(getattr(args, "root", None) or "/") != "/" or bool(getattr(args, "saved", None))
    command = neutral(shlex.join(("sysperf", *redact.own_command(sys.argv[1:]))), MAX_COMMAND)
    host = "" if elsewhere else os.uname().nodename
    return frame.stamped(page, (("on", host), ("made", time.strftime("%Y-%m-%d %H:%M:%S %z")), ("in", _took()), ("by", command)))


def _took() -> str:
    """How long this process has run."""
    try:
        with open("/proc/self/stat", "rb", buffering=0) as file:
            own = stat.parse(file.read(1024))
    except OSError:
        own = None
    if own is None:
        return ""
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - own.start_ticks / stat.TICKS_PER_S
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
