"""`sysperf lint --watch`: look again whenever a file changes, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from sysperf.model.errors import UsageError
from sysperf.script.walk import files

EVERY_S = 0.5
"""A look asks for the times of all files: 2 ms for a thousand."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def watch(paths: Iterable[str], exclude: Sequence[str], show: Callable[[], int]) -> int:
    """Show, wait for a change, show again. Raises UsageError for the standard input, KeyboardInterrupt at the end."""
    named = [*paths]
    if "-" in named:
        raise UsageError("the standard input does not change", "name files or folders with --watch")
    while True:
        before = state(named, exclude)
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        show()
        sys.stderr.write("sysperf: waiting for a change, Ctrl-C ends it\n")
        while state(named, exclude) == before:
            time.sleep(EVERY_S)


def state(paths: Sequence[str], exclude: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """What tells that a file has changed, by path: inode, size and time of its last change; editors replace files, too."""
    found: dict[str, tuple[int, int, int]] = {}
    for path, _ in files((path for path in paths if os.path.lexists(path)), exclude):
        try:
            status = os.stat(path)
        except OSError:  # it went away meanwhile, which is a change
            continue
        found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found
