"""The session in which nsys started a program: its number is in the program's environment, its name in nsys's list."""

from __future__ import annotations

from sysperf.host import Host
from sysperf.model.errors import SysperfError
from sysperf.procfs import environ

VARIABLE = "NSYS_PROFILING_SESSION_ID"
MAX_LINES = 1_000


def number_of(host: Host, pid: int) -> str | None:
    """The number of the program's session; None where nsys did not start it, or its environment is not ours to read."""
    text = host.text(f"/proc/{pid}/environ", 4 << 20)
    number = environ.variables(text).get(VARIABLE, "") if text is not None else ""
    return number if number.isascii() and number.isdigit() and len(number) < 20 else None


def name_of(number: str, printed: str) -> str:
    """The name of a session, the last column of ``ID TIME STATE LAUNCH NAME``. Raises SysperfError."""
    for line in printed.splitlines()[:MAX_LINES]:
        words = line.split()
        if len(words) > 2 and words[0] == number and _is_name(words[-1]):
            return words[-1]
    raise SysperfError(f"nsys has no session {number} any more", "`nsys sessions list` shows those that it has")


def _is_name(word: str) -> bool:
    """Names become part of an argument: letters, digits and what joins them."""
    return all(char.isalnum() or char in "-_." for char in word) and not word.startswith("-")
