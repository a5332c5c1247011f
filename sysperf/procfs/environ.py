"""/proc/PID/environ: the variables with which a program was started, ``NAME=VALUE`` with a NUL behind each.

Kernel  https://man7.org/linux/man-pages/man5/proc_pid_environ.5.html
"""

from __future__ import annotations

from sysperf.startup import lazy

MAX_BYTES = 4 << 20
MAX_VARIABLES = 4_096
_NAME = lazy(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def variables(text: str, limit: int = MAX_VARIABLES) -> dict[str, str]:
    """The variables by name. Of two with one name the first counts, as it does for getenv(3).

    Names that no shell can set (functions that bash exports) are left out, and what follows the first `limit` entries.
    """
    values: dict[str, str] = {}
    for entry in text.split("\0", limit)[:limit]:
        name, equals, value = entry.partition("=")
        if equals and _NAME.fullmatch(name):
            values.setdefault(name, value)
    return values
