"""What else used the CPUs during a run, so that a disturbed pair can be dropped whole. Blind to which variant ran.

Reads   /proc/stat
Kernel  https://docs.kernel.org/filesystems/proc.html (1.7 Miscellaneous kernel statistics in /proc/stat)
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from sysperf.host import Host
from sysperf.model.record import Record
from sysperf.procfs.numbers import whole
from sysperf.procfs.stat import TICKS_PER_S

MIN_HISTORY = 4
"""Runs before which no run is called disturbed: what is usual here is not known yet."""
MIN_EXCESS_CPUS, MIN_EXCESS_SHARE, MIN_EXCESS_S = 0.3, 0.1, 0.2
"""A run is disturbed when others use so many CPUs, such a share of all CPUs, and so much CPU time more than usual.

CPU time is counted in ticks of 10 ms, of which a short run has few."""
_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ, _STEAL = 0, 1, 2, 5, 6, 7


class Clock(NamedTuple):
    """CPU time since boot, of all CPUs together."""

    at_s: float
    busy_s: float
    stolen_s: float


class Load(Record):
    """What others took during a run, in CPUs."""

    others: float
    """CPUs that other processes used."""
    stolen: float
    """CPUs that the hypervisor gave to others."""
    seconds: float

    @property
    def total(self) -> float:
        """CPUs that the run could not have."""
        return self.others + self.stolen


def read(host: Host) -> Clock | None:
    """Return the clock of this moment; None where /proc/stat cannot be read."""
    words = (host.text("/proc/stat") or "").partition("\n")[0].split()[1:]
    ticks = [whole(word) for word in words]
    if len(ticks) <= _STEAL or None in ticks:
        return None
    seconds = [(tick or 0) / TICKS_PER_S for tick in ticks]
    return Clock(time.monotonic(), sum(seconds[place] for place in (_USER, _NICE, _SYSTEM, _IRQ, _SOFTIRQ)), seconds[_STEAL])


def between(before: Clock | None, after: Clock | None, own_cpu_s: float) -> Load | None:
    """Return what others took between two moments; None where either is unknown."""
    if before is None or after is None or after.at_s <= before.at_s:
        return None
    elapsed_s = after.at_s - before.at_s
    others_s = max(0.0, after.busy_s - before.busy_s - own_cpu_s)
    return Load(others_s / elapsed_s, (after.stolen_s - before.stolen_s) / elapsed_s, elapsed_s)


def disturbance(load: Load | None, history: Sequence[Load], cpus: int = 0) -> str:
    """Say why a run was disturbed, compared with what was usual in all earlier runs; "" when it was not."""
    if load is None or len(history) < MIN_HISTORY:
        return ""
    usual = median(earlier.total for earlier in history)
    excess = load.total - usual
    limit = max(MIN_EXCESS_CPUS, MIN_EXCESS_SHARE * (cpus or os.cpu_count() or 1), MIN_EXCESS_S / load.seconds)
    return f"others took {load.total:.1f} CPUs, usually {usual:.1f}" if excess > limit else ""
