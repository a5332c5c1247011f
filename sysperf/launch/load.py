"""How busy the machine is now: what else wants to run, and how long it waits.

Reads   /proc/loadavg  /proc/pressure/cpu  /proc/meminfo
Kernel  https://docs.kernel.org/filesystems/proc.html
"""

from sysperf.host import Host
from sysperf.procfs import meminfo, psi
from sysperf.procfs.numbers import whole

LOADAVG = "/proc/loadavg"
PRESSURE = "/proc/pressure/cpu"
MEMINFO = "/proc/meminfo"
KEEPABLE_PART = 8
"""All ranks together keep an eighth of the available memory at most."""


def runnable(host: Host) -> int | None:
    """Tasks that run or want to run at this moment, without ourselves."""
    words = (host.text(LOADAVG) or "").split()
    tasks = whole(words[3].partition("/")[0]) if len(words) == 5 else None
    return None if tasks is None else max(tasks - 1, 0)


def steady(first: int | None, second: int | None) -> int | None:
    """Return the smaller of two samples of run queues some milliseconds apart: a moment's wake-ups are no load."""
    return min(first, second) if first is not None and second is not None else None


def pressure(host: Host) -> float | None:
    """The share of the last 10 s in which some task waited for a CPU; None where the kernel does not say."""
    some = psi.parse(host.text(PRESSURE)).some
    return some.avg10 if some else None


def memory_bytes(host: Host) -> tuple[int | None, int | None]:
    """(total, available without swapping)."""
    sizes = meminfo.sizes(host.text(MEMINFO) or "")
    return sizes.get("MemTotal"), sizes.get("MemAvailable")


def keepable_bytes(available: int | None, ranks: int | None) -> int | None:
    """Freed memory that each of some ranks may keep; a power of two, so that it is the same from one start to the next."""
    if available is None:
        return None
    share = available // KEEPABLE_PART // (ranks or 1)
    return 1 << share.bit_length() - 1 if share > 0 else 0
