"""Neighbours of PyTorch programs, and what owners are called."""

from __future__ import annotations

import functools

from sysperf.tui.now import Now
from sysperf.tui.source import Neighbour

LOADER = "pt_data_worker"


def outside(now: Now) -> list[Neighbour]:
    """The busiest processes that are neither PyTorch programs nor helpers of one."""
    torch = {process.pid for process in now.processes()}
    return [one for one in now.neighbours if one.pid not in torch and one.parent not in torch and one.name != LOADER]


@functools.lru_cache(256)
def owner(user: int | None, *, here: bool) -> str:
    """The name of a user of this machine; elsewhere the number."""
    if user is None:
        return "?"
    if user == 0:
        return "root"
    if here:
        import pwd  # noqa: PLC0415 - for users of this machine only

        try:
            return pwd.getpwuid(user).pw_name
        except KeyError:
            pass
    return str(user)
