"""How busy the machine is now: what else wants to run, and how long it waits.

Reads   /proc/loadavg  /proc/pressure/cpu  /proc/meminfo
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

import re

from sysperf.host import Host
from sysperf.model.text import parse_size
from sysperf.startup import lazy

LOADAVG = "/proc/loadavg"
PRESSURE = "/proc/pressure/cpu"
MEMINFO = "/proc/meminfo"
_LOADAVG = lazy(r"(\d{1,6}\.\d\d) \d{1,6}\.\d\d \d{1,6}\.\d\d (\d{1,7})/\d{1,9} ")
_SOME = lazy(r"^some avg10=(\d{1,3}\.\d\d)", re.MULTILINE)


def runnable(host: Host) -> int | None:
    """Tasks that run or want to run at this moment, without ourselves."""
    found = _LOADAVG.match(host.text(LOADAVG) or "")
    return max(int(found[2]) - 1, 0) if found else None


def steady(first: int | None, second: int | None) -> int | None:
    """Of two looks some milliseconds apart, what was there both times: a moment's wake-ups are no load."""
    return min(first, second) if first is not None and second is not None else None


def pressure(host: Host) -> float | None:
    """The share of the last 10 s in which some task waited for a CPU; None where the kernel does not say."""
    found = _SOME.search(host.text(PRESSURE) or "")
    return min(float(found[1]) / 100, 1.0) if found else None


def memory_bytes(host: Host) -> tuple[int | None, int | None]:
    """(total, available without swapping)."""
    sizes = host.pairs(MEMINFO) or {}
    return _size(sizes.get("MemTotal")), _size(sizes.get("MemAvailable"))


def _size(text: str | None) -> int | None:
    try:
        return parse_size(text) if text else None
    except ValueError:
        return None
