"""Which CPUs belong together: threads of a core, cores of a package, kinds of cores.

Kernel  https://docs.kernel.org/admin-guide/cputopology.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sysperf.model.cpuset import MAX_CPU, CpuSet
from sysperf.startup import lazy

Groups = tuple[CpuSet, ...]

SAME_KIND = 1.2
"""Capacities and frequencies of one kind vary by favoured cores and binning: less than this factor apart, they are one kind.
(GB10: 718 and 731, then 997 to 1024. Raptor Lake: 1.4 against 1.9 GHz.)"""

_CPU = lazy(r"cpu([0-9]{1,5})")


def cpu_numbers(names: Sequence[str]) -> CpuSet:
    """The CPUs that have a folder in /sys/devices/system/cpu, out of its names."""
    matches = (_CPU.fullmatch(name) for name in names)
    return CpuSet(int(match[1]) for match in matches if match and int(match[1]) <= MAX_CPU)


def partition(online: CpuSet, mates_of: Callable[[int], CpuSet | None]) -> Groups | None:
    """The online CPUs in groups of mates, asking one CPU of each group; None when one does not know its mates."""
    seen, groups = CpuSet(), []
    for cpu in online:
        if cpu in seen:
            continue
        mates = mates_of(cpu)
        if mates is None:
            return None
        groups.append((mates & online | CpuSet((cpu,))) - seen)
        seen |= groups[-1]
    return tuple(groups)


def by_capacity(numbers: Sequence[tuple[int, CpuSet]]) -> Groups:
    """The kinds of cores out of each core's capacity or frequency, least first: split where one is clearly above the one before it."""
    kinds: list[CpuSet] = []
    before = 0
    for number, group in sorted(numbers, key=lambda pair: pair[0]):
        if kinds and number < before * SAME_KIND:
            kinds[-1] |= group
        else:
            kinds.append(group)
        before = number
    return tuple(kinds)
