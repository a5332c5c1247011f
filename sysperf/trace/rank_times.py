"""How the time of a rank is divided, and what a late one has more of than the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sysperf.trace.facts import INTERRUPTIONS, Rank
from sysperf.trace.intervals import median

MIN_EXCESS_PCT = 1.0
"""A kind of time of which a late rank has less than this more is not named as the cause."""
HOST, LOADER = "host time", "loader time"
MORE_WORK = 1.25
"""Times the work of the other ranks, without interruptions, from which a rank has more of it; even ones on two busy CPUs had up to 1.17."""

_OF_DEVICE: dict[str, Callable[[Rank], float]] = {
    LOADER: lambda rank: rank.figures.dataloader_exposed_pct or 0.0,
    HOST: lambda rank: rank.figures.host_starved_pct or 0.0,
    "synchronisation": lambda rank: rank.figures.sync_exposed_pct or 0.0,
    "kernel time": lambda rank: (rank.figures.kernel_busy_pct or 0.0) - (rank.figures.nccl_exposed_pct or 0.0),
    "copying": lambda rank: rank.figures.h2d_exposed_pct or 0.0,
}
_OF_CPU: dict[str, Callable[[Rank], float]] = {
    LOADER: lambda rank: rank.cpu.loader_pct if rank.cpu else 0.0,
    "time between operators": lambda rank: rank.cpu.python_recurring_pct if rank.cpu else 0.0,
    "time in operators": lambda rank: rank.cpu.operator_pct - rank.cpu.interrupted_pct if rank.cpu else 0.0,
    INTERRUPTIONS: lambda rank: (rank.cpu.interrupted_pct if rank.cpu else 0.0) + (rank.hole.scattered_pct or 0.0),
}
"""What a rank can have more time in."""
BESIDE = frozenset((LOADER, HOST, "time between operators"))
"""Of these, what a busy machine does not stretch as it stretches operators: on the CPU it is that of the median step."""


def parts(rank: Rank) -> dict[str, float]:
    """The times of a rank of which a late one can have more, in percent of its window."""
    return {name: part(rank) for name, part in (_OF_DEVICE if rank.has_device else _OF_CPU).items()}


def cause(late: Sequence[int], parts: Sequence[Mapping[str, float]]) -> str:
    """Name the time of which the late ranks have more than the others' median; empty where they have hardly more of any.

    Who works longer is interrupted more often, too: interruptions are the cause where the work is that of the others, or nearly.
    """
    late_ones = [each for index, each in enumerate(parts) if index in late]
    others = [each for index, each in enumerate(parts) if index not in late]
    more = {name: usual(late_ones, (name,)) - usual(others, (name,)) for name in parts[late[0]]}
    interrupted, work = more.pop(INTERRUPTIONS, 0.0), tuple(more)
    ordinary = usual(others, work)
    working = usual(late_ones, work) - ordinary
    if interrupted >= MIN_EXCESS_PCT and (interrupted >= 2 * working or working < (MORE_WORK - 1) * ordinary):
        return INTERRUPTIONS
    most = max(more, key=more.__getitem__, default="")
    return most if most and more[most] >= MIN_EXCESS_PCT else ""


def usual(ranks: Sequence[Mapping[str, float]], names: Sequence[str]) -> float:
    """The median of what these times come to, over the ranks of which they are known: an older agent may not tell some."""
    return median([sum(map(each.__getitem__, names)) for each in ranks if each.keys() >= set(names)] or [0.0])
