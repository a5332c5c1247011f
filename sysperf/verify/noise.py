"""Which pairs were disturbed, so that they can be dropped whole. Blind to which variant ran.

What others took is not the program's doing: each run is compared with all earlier ones. Waiting, clocks and heat may be its own
doing, in one variant more than in the other: there a pair counts unless its two runs met conditions further apart than those of
the pairs before it, which says the same when the two variants change places.

Reads   /proc/stat
Kernel  https://docs.kernel.org/filesystems/proc.html (1.7 Miscellaneous kernel statistics in /proc/stat)
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from sysperf.host import Host
from sysperf.model.comparison import Conditions
from sysperf.model.record import Record
from sysperf.procfs import cpu_ticks
from sysperf.procfs.stat import TICKS_PER_S

MIN_HISTORY = 4
"""Runs before which no run is called disturbed: what is usual here is not known yet."""
MIN_EXCESS_CPUS, MIN_EXCESS_SHARE, MIN_EXCESS_S = 0.3, 0.1, 0.2
"""A run is disturbed when others use so many CPUs, such a share of all CPUs, and so much CPU time more than usual.

CPU time is counted in ticks of 10 ms, of which a short run has few."""
MAX_OTHERS_ON_GPU = 0.05
"""Share of the time in which others' kernels may run more than usual."""
MIN_PAIRS = 2
"""Pairs before which none is called uneven."""
MIN_APART_S = 0.2
"""Waiting and slow-downs are counted from so much time on: a short run has few ticks of them."""


class Bound(NamedTuple):
    """How much further apart than usual the two runs of a pair may be."""

    field: str
    """Of the conditions."""
    name: str
    most: float
    unit: Literal["share", "ratio", "°C"]
    """Shares of the time, ratios of clocks."""


BOUNDS = (
    Bound("cpu_waiting", "tasks waited for CPUs", 0.25, "share"),
    Bound("memory_waiting", "tasks waited for memory", 0.1, "share"),
    Bound("io_waiting", "tasks waited for storage", 0.1, "share"),
    Bound("cpu_slowed", "heat slowed the CPUs", 0.05, "share"),
    Bound("cpu_mhz", "the CPUs' clock", 0.1, "ratio"),
    Bound("cpu_celsius", "the CPUs' temperature", 10.0, "°C"),
    Bound("gpu_mhz", "the GPUs' clock", 0.05, "ratio"),
    Bound("gpu_celsius", "the GPUs' temperature", 10.0, "°C"),
    Bound("gpu_slowed", "the GPUs were slowed down", 0.1, "share"),
)


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
    ticks = cpu_ticks.of_all(host.text("/proc/stat"))
    return None if ticks is None else Clock(time.monotonic(), ticks.worked / TICKS_PER_S, ticks.steal / TICKS_PER_S)


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


def others_on_gpus(now: Conditions | None, history: Sequence[Conditions]) -> str:
    """Say that other programs computed on the run's GPUs more than usual; "" where they did not, or it is unknown.

    Who is there all the time is a condition of the study, and no disturbance.
    """
    known = [earlier.gpu_others for earlier in history if earlier.gpu_others is not None]
    if now is None or now.gpu_others is None or len(known) < MIN_HISTORY:
        return ""
    usual = median(known)
    if now.gpu_others <= usual + MAX_OTHERS_ON_GPU:
        return ""
    return f"others computed on its GPUs {now.gpu_others:.0%} of the time{f', usually {usual:.0%}' if usual else ''}"


def constant(other_cpus: Sequence[float | None], on_gpus: Sequence[float | None], cpus: int = 0) -> list[str]:
    """Say who was there in nearly all runs: the result holds for a machine that is shared like this."""
    cpus = cpus or os.cpu_count() or 1
    sentences = []
    if (usual := _always(other_cpus)) > max(MIN_EXCESS_CPUS, MIN_EXCESS_SHARE * cpus):
        sentences.append(f"others took {usual:.1f} of {cpus} CPUs all the time: the result holds beside them")
    if (usual := _always(on_gpus)) > MAX_OTHERS_ON_GPU:
        sentences.append(f"others computed on its GPUs {usual:.0%} of the time, all the time: the result holds beside them")
    return sentences


def _always(values: Sequence[float | None]) -> float:
    """What nine of ten runs met at least; 0 where too few tell."""
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 10] if len(known) >= MIN_HISTORY else 0.0


Pair = tuple[Conditions | None, Conditions | None]
"""The conditions of both runs, in any order."""


def uneven(pair: Pair, earlier: Sequence[Pair], shortest_s: float) -> str:
    """Say what the two runs of a pair met so differently that they cannot be compared; "" where they can. `shortest_s`: of the two runs."""
    if len(earlier) < MIN_PAIRS:
        return ""
    for bound in BOUNDS:
        apart = _apart(pair, bound)
        usual = [value for before in earlier if (value := _apart(before, bound)) is not None]
        if apart is None or len(usual) < MIN_PAIRS:
            continue
        most = max(bound.most, MIN_APART_S / shortest_s) if bound.unit == "share" else bound.most
        if apart > median(usual) + most:
            return f"{bound.name}: {_shown(pair, bound)}"
    return ""


def _apart(pair: Pair, bound: Bound) -> float | None:
    """How far apart the two runs are; None where one of them is unknown."""
    first, second = _values(pair, bound)
    if first is None or second is None:
        return None
    if bound.unit == "ratio":
        return abs(math.log(second) - math.log(first)) if first > 0 and second > 0 else None
    return abs(second - first)


def _values(pair: Pair, bound: Bound) -> tuple[float | None, float | None]:
    first, second = (None if met is None else getattr(met, bound.field) for met in pair)
    return first, second


def _shown(pair: Pair, bound: Bound) -> str:
    low, high = sorted(value for value in _values(pair, bound) if value is not None)
    if bound.unit == "share":
        return f"{low:.0%} of one run, {high:.0%} of the other"
    return f"{low:.0f} {'MHz' if bound.unit == 'ratio' else bound.unit} in one run, {high:.0f} in the other"
