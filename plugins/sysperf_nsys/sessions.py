"""The session in which nsys started a program: its number is in the program's environment, its name in nsys's list."""

from __future__ import annotations

import re
from typing import NamedTuple

from sysperf.host import Host
from sysperf.model.errors import SysperfError
from sysperf.procfs import environ

VARIABLE = "NSYS_PROFILING_SESSION_ID"
MAX_LINES = 1_000
_LINE = re.compile(r"\s*(\d+)\s+\S+\s+(\S+)\s+\d+\s+(\S.*?)\s*")
_NAME = re.compile(r"[\w.\[][\w .\[\]-]{0,100}")
"""Names become an argument. That of a session that was given none is `[default]`."""


class Session(NamedTuple):
    """One line of nsys's list."""

    state: str
    name: str


def number_of(host: Host, pid: int) -> str | None:
    """The number of the program's session; None where nsys did not start it, or its environment is not ours to read."""
    text = host.text(f"/proc/{pid}/environ", 4 << 20)
    number = environ.variables(text).get(VARIABLE, "") if text is not None else ""
    return number if number.isascii() and number.isdigit() and len(number) < 20 else None


def listed(number: str, printed: str) -> Session | None:
    """The session with this number, of a list with the columns ``ID TIME STATE LAUNCH NAME``; None where it has none."""
    for line in printed.splitlines()[:MAX_LINES]:
        columns = _LINE.fullmatch(line[:1_000])
        if columns and columns[1] == number and _NAME.fullmatch(columns[3]):
            return Session(columns[2], columns[3])
    return None


def count(printed: str) -> int:
    """How many sessions a list has."""
    return sum(_LINE.fullmatch(line[:1_000]) is not None for line in printed.splitlines()[:MAX_LINES])


def name_of(number: str, printed: str) -> str:
    """The name of a session. Raises SysperfError where nsys lists none of this number."""
    session = listed(number, printed)
    if session is None:
        raise SysperfError(f"nsys has no session {number} any more", "`nsys sessions list` shows those that it has")
    return session.name
