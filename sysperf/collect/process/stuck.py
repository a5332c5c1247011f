"""Tasks that wait in the kernel and cannot be interrupted (state D), for a disk, a server or a driver that does not answer.

Reads   /proc/[pid]/stat, twice, a second apart
Kernel  https://docs.kernel.org/filesystems/proc.html (table 1-4)
"""

from __future__ import annotations

import os
import time
from typing import Annotated

from sysperf.host import Host
from sysperf.model.record import Record, fact
from sysperf.model.text import neutral
from sysperf.procfs.numbers import whole
from sysperf.procfs.stat import Stat, parse

CALL = "stuck-tasks"
LOOK_S = 1.0
MAX_PROCESSES = 20_000
MAX_STUCK = 64
_BLOCKED = "D"


class Stuck(Record):
    """A process whose main thread was blocked at both looks and used no CPU in between."""

    pid: Annotated[int, fact("process number", CALL)]
    name: Annotated[str, fact("its name", CALL)]


def stuck(host: Host) -> tuple[Stuck, ...] | None:
    """The processes that are stuck now; only `--deep` looks, which takes a second where any is blocked."""
    tasks = host.call(CALL, _look_twice, list[tuple[int, str]]) if host.deep else None
    return None if tasks is None else tuple(Stuck(pid, neutral(name, 40)) for pid, name in tasks[:MAX_STUCK])


def _look_twice() -> list[tuple[int, str]]:
    before = {stat.pid: stat for name in os.listdir("/proc")[:MAX_PROCESSES] if whole(name) is not None and (stat := _blocked(name))}
    if not before:
        return []
    time.sleep(LOOK_S)
    after = (_blocked(str(pid)) for pid in before)
    return [(stat.pid, stat.comm) for stat in after if stat and _did_nothing(before[stat.pid], stat)]


def _blocked(pid: str) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = parse(file.read(4096))
    except OSError:
        return None
    return stat if stat is not None and stat.state == _BLOCKED else None


def _did_nothing(before: Stat, after: Stat) -> bool:
    return (before.start_ticks, before.cpu_ticks) == (after.start_ticks, after.cpu_ticks)
