"""/proc/PID/schedstat and /proc/PID/task/TID/schedstat: how long a thread ran, and how long it was ready without a CPU.

Kernel  https://docs.kernel.org/scheduler/sched-stats.html#proc-pid-schedstat
"""

from __future__ import annotations

from typing import NamedTuple

from sysperf.procfs.numbers import whole

NS = 1e-9


class SchedStat(NamedTuple):
    """Nanoseconds since the thread started."""

    run_ns: int
    wait_ns: int

    @property
    def run_s(self) -> float:
        """Seconds for which it ran."""
        return self.run_ns * NS

    @property
    def wait_s(self) -> float:
        """Seconds for which it was ready and had no CPU."""
        return self.wait_ns * NS


def parse(text: str | bytes | None) -> SchedStat | None:
    """``1234567 8901 23`` is 1.2 ms of running and 8.9 µs of waiting in 23 turns."""
    words = text.split(None, 2) if text else ()
    if len(words) < 2:
        return None
    run_ns, wait_ns = whole(words[0]), whole(words[1])
    return None if run_ns is None or wait_ns is None else SchedStat(run_ns, wait_ns)
