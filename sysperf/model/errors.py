"""The errors a user can see, each with the next step; only `sysperf.cli` prints them."""

from __future__ import annotations

import enum
import errno


class Exit(enum.IntEnum):
    """Exit codes of every command."""

    CLEAN = 0
    FINDINGS = 1
    USAGE = 2
    PARTIAL = 3
    ROLLED_BACK = 4


class SysperfError(Exception):
    """Something the user can act on: one line of what, one line of what to do next."""

    code = Exit.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def how_to_read(error: OSError, otherwise: str) -> str:
    """What to do about a file that cannot be read. Where its permissions say no, another name does not help."""
    denied = error.errno in (errno.EACCES, errno.EPERM)
    return "its owner can read it, and root; `ls -ld` of it and of its folders shows why you cannot" if denied else otherwise


class UsageError(SysperfError):
    """The command line asks for something that cannot be."""


class RuleError(SysperfError):
    """A rule file says something that cannot be evaluated."""


class ConfigError(SysperfError):
    """A configuration or baseline file cannot be used."""


class CaptureError(SysperfError):
    """A captured machine or a saved report cannot be read or written."""


class TraceError(SysperfError):
    """A trace cannot be read."""


class Missing(Exception):
    """Raised by a collector when its area cannot be known here; becomes `Area.problem`."""
