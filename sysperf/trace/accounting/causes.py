"""What a device waits for, by cause; and, where copies or collectives run alone, whether these or something else holds the program up."""

from __future__ import annotations

from sysperf.trace.device_facts import Figures
from sysperf.trace.facts import Rank

MIN_EXPOSED_PCT = 15.0
MIN_BUSY_PCT = 80.0
MIN_HELD_PCT = 10.0
"""What gains less when it is gone does not bound a program."""
MIN_OTHERWISE_BUSY_PCT = 50.0
"""A device that hardly does anything else is bound by it all the same."""
MIN_RIVAL_PCT = 5.0
"""Of the time: what costs less is not compared with what runs alone."""
CLEARLY_MORE = 1.25
"""Times the gain without what runs alone, from which another cause bounds the program."""
ALONE = {"comm-bound": "collectives", "copy-bound": "copies"}
"""What a device does with nothing beside it, in words. That holds a program up only where the host is not as slow."""


def of_device(rank: Rank) -> dict[str, float]:
    """Every cause by the verdict that it leads to, in percent of the time."""
    return {**_own(rank), "comm-bound": rank.figures.nccl_exposed_pct or 0.0}


def _own(rank: Rank) -> dict[str, float]:
    """What a device waits for that is not another rank, in percent of the time."""
    figures = rank.figures
    return {
        "input-bound": rank.loader_recurring_pct or 0.0,
        "host-bound": (figures.host_starved_pct or 0.0) + (figures.host_late_pct or 0.0),
        "sync-bound": figures.blocked_pct or 0.0,
        "copy-bound": (figures.h2d_exposed_pct or 0.0) + (figures.d2h_exposed_pct or 0.0),
    }


def longest_own_pct(rank: Rank) -> float:
    """Return, in percent of its time, what a rank loses by the one of its own causes that has most."""
    if rank.cpu is not None and not rank.has_device:
        return max(rank.loader_recurring_pct or 0.0, rank.cpu.python_recurring_pct + rank.cpu.gc_pct + rank.cpu.compile_recurring_pct)
    return max(_own(rank).values())


def least_busy(figures: Figures) -> float:
    """How busy the device is, or at least is: copies that are not in the file come on top of its kernels."""
    return (figures.kernel_busy_pct if figures.gpu_busy_pct_mean is None else figures.gpu_busy_pct_mean) or 0.0


def contested(rank: Rank) -> tuple[str, ...]:
    """The verdicts between which only replays decide: one by what runs alone on a device, and those that cost something beside it.

    Copies may run alone while the host would be no sooner with the next launches, and collectives beside a host that computes.
    """
    if not rank.has_device:
        return ()
    causes = of_device(rank)
    word = max(causes, key=causes.__getitem__)
    if word not in ALONE or causes[word] < MIN_EXPOSED_PCT:
        return ()
    return word, *(other for other, share in causes.items() if other != word and share >= MIN_RIVAL_PCT)


def held(rank: Rank) -> dict[str, float]:
    """What replays gain without each of the contested causes."""
    return {held.verdict: held.gain for held in rank.replay.held}


def rival_of(rank: Rank, alone: str) -> str:
    """The verdict whose cause gains clearly more than what runs alone by replays, and costs enough by itself; empty where none does."""
    gains, costs = held(rank), of_device(rank)
    rivals = (word for word in gains if word not in ALONE and costs[word] >= MIN_EXPOSED_PCT)
    rival = max(rivals, key=gains.__getitem__, default="")
    is_more = alone in ALONE and alone in gains and rival and gains[rival] >= max(MIN_EXPOSED_PCT, CLEARLY_MORE * gains[alone])
    return rival if is_more else ""


def holds_nothing_up(rank: Rank, verdict: str, busy: float) -> str:
    """Why a device is but busy, where a replay without what runs alone takes as long; empty where it does not."""
    figures, gained = rank.figures, held(rank).get(verdict)
    alone = (figures.nccl_exposed_pct if verdict == "comm-bound" else figures.copy_exposed_pct) or 0.0
    if verdict not in ALONE or gained is None or gained >= MIN_HELD_PCT:
        return ""
    if busy < MIN_BUSY_PCT or busy - alone < MIN_OTHERWISE_BUSY_PCT:
        return ""
    if gained < MIN_RIVAL_PCT and max(held(rank).values()) >= MIN_EXPOSED_PCT:
        return ""  # what costs little time itself gains much: it holds up what seems to run alone
    what = f"without {ALONE[verdict]} that run alone it would gain {gained:.0f} %"
    return f"the device is busy {busy:.0f} % of the time, and {what}, by replay"


def is_balanced(rank: Rank, verdict: str) -> str:
    """Why what runs alone need not bound a device that does little else; empty where a replay without it gains enough, or there is none."""
    gained = held(rank).get(verdict)
    if verdict not in ALONE or gained is None or gained >= MIN_HELD_PCT:
        return ""
    alone = f"{ALONE[verdict]} run alone {of_device(rank)[verdict]:.0f} % of the time"
    return f"{alone}, and without them a replay gains {gained:.0f} %: something else takes as long"
