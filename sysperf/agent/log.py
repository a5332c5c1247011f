"""Log lines on stderr: with the priority that journald understands where it listens, plain on terminals, in files and in containers.

Protocol  https://www.freedesktop.org/software/systemd/man/latest/sd-daemon.html
          https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#%24JOURNAL_STREAM
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

from sysperf.model.text import neutral

NAME = "sysperf.agent"
NOTICE = 25
"""Between INFO and WARNING: what somebody wants to read, though nothing is broken."""
MAX_CHARACTERS = 4_000
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (NOTICE, 5), (logging.INFO, 6), (logging.DEBUG, 7))


class Lines(logging.Formatter):
    """One line each, whatever is in it."""

    def __init__(self, *, prefixed: bool) -> None:
        super().__init__()
        self._prefixed = prefixed

    def format(self, record: logging.LogRecord) -> str:
        text = neutral(record.getMessage(), MAX_CHARACTERS)
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        return f"<{priority}>{text}" if self._prefixed else f"sysperf agent: {text}"


def is_journal(stream: TextIO) -> bool:
    """Whether systemd has connected this stream with its journal."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def logger(stream: TextIO | None = None) -> logging.Logger:
    """The agent's log, set up to write to stderr."""
    out = stream or sys.stderr
    handler = logging.StreamHandler(out)
    handler.setFormatter(Lines(prefixed=is_journal(out)))
    log = logging.getLogger(NAME)
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("asyncio").handlers[:] = [handler]
    logging.raiseExceptions = False  # a log that nobody reads any more must not stop us
    return log
