"""What bounds a job: the rank that the others wait for, else what bounds most of its ranks."""

from __future__ import annotations

from operator import itemgetter

from sysperf.trace.accounting.answers import Verdict
from sysperf.trace.accounting.causes import MIN_EXPOSED_PCT
from sysperf.trace.facts import INTERRUPTIONS, Rank, Skew

MAX_PACING_PCT = 1.0
"""Who waits for others in less of its time waits for none."""


def _of_late(rank: Rank, cause: str) -> Verdict:
    """What bounds a rank that is late again and again: what it does longer, and not the collectives that it is late at."""
    if rank.cpu is not None and cause == INTERRUPTIONS:
        share = rank.cpu.interrupted_pct + (rank.hole.scattered_pct or 0.0)
        return (
            "host-bound",
            f"operators and pauses that take long now and then are {share:.0f} % of the time: it waits, or others have its CPU",
        )
    if rank.cpu is not None and rank.verdict == "comm-bound":
        word, name, share = max(
            ("compute-bound", "operators", rank.cpu.operator_pct),
            ("host-bound", "Python between operators", rank.cpu.python_pct),
            ("input-bound", "the loader", rank.cpu.loader_pct),
            key=itemgetter(2),
        )
        return word, f"most time, {share:.0f} %, is {name}"
    return "compute-bound" if rank.verdict == "healthy" else rank.verdict, rank.why


def _of_stages(ranks: tuple[Rank, ...], skew: Skew) -> Verdict | None:
    """The verdict of a pipeline whose stages all wait, as they do while it fills and empties; None where one of them hardly waits."""
    if (skew.stages_pct or 0.0) < MIN_EXPOSED_PCT:
        return None
    least = min(ranks, key=lambda rank: rank.collectives.waiting_pct or 0.0)
    own, waiting = least.collectives.own_pct or 0.0, least.collectives.waiting_pct or 0.0
    if own >= waiting:
        return "comm-bound", f"what stages of a pipeline send each other runs without computation {own:.0f} % of the time"
    return "pipeline-bound", f"each stage of a pipeline waits {waiting:.0f} % of the time or more for others, while it fills and empties"


def _of_pace(ranks: tuple[Rank, ...]) -> Verdict | None:
    """The verdict of the rank that waits for none, which sets the pace of all, where something but its device bounds it."""
    place = min(range(len(ranks)), key=lambda place: ranks[place].collectives.waiting_pct or 0.0)
    rank = ranks[place]
    if (rank.collectives.waiting_pct or 0.0) >= MAX_PACING_PCT or rank.verdict in ("compute-bound", "healthy", "cannot-tell"):
        return None
    return rank.verdict, f"rank {place if rank.rank is None else rank.rank} waits for no other one; there, {rank.why}"


def _waited_for(skew: Skew) -> str:
    """Name who ranks wait for."""
    if skew.once:
        return "what one of them did once"
    return skew.who if skew.late else f"each other, {'for one and then for another' if skew.rotates else 'and for whom most is not clear'}"


def of_job(ranks: tuple[Rank, ...], skew: Skew) -> Verdict:
    """The verdict of the rank that the others wait for most, where they do; else that of most ranks; of one rank, its own."""
    if not ranks:
        return "cannot-tell", "no trace"
    late = next((rank for number, rank in enumerate(ranks) if skew.late[:1] == (number if rank.rank is None else rank.rank,)), None)
    names = [rank.verdict for rank in ranks]
    common = max(sorted(set(names)), key=names.count)
    lost = skew.lost_pct or 0.0
    others_wait = skew.stages_pct is None and lost >= MIN_EXPOSED_PCT  # what bounds a late rank bounds all then
    if late is not None and (others_wait or common == "comm-bound" or (skew.gain_pct or 0.0) >= MIN_EXPOSED_PCT):
        word, why = _of_late(late, skew.cause)
        return word, f"the others wait {lost:.0f} % of the time for {skew.who}; there, {why}"
    if of_stages := _of_stages(ranks, skew):
        return of_stages
    if skew.rotates and lost >= MIN_EXPOSED_PCT:
        return "comm-bound", f"ranks wait {lost:.0f} % of the time for {_waited_for(skew)}"
    if common == "compute-bound" and not (skew.late or skew.once) and lost >= MIN_EXPOSED_PCT:
        unknown = f"ranks wait {lost:.0f} % of the time for {_waited_for(skew)}: what holds them up is not known"
        return _of_pace(ranks) or ("cannot-tell", unknown)
    example = next(number for number, rank in enumerate(ranks) if rank.verdict == common)
    aside = f"; ranks wait {lost:.0f} % for {_waited_for(skew)}" if lost >= 1 else ""
    why, number = f"{ranks[example].why}{aside}", ranks[example].rank
    who = ranks[example].path if number in skew.doubles else f"rank {example if number is None else number}"
    some_stage_waits = skew.stages_pct is not None and max(rank.collectives.waiting_pct or 0.0 for rank in ranks) >= MIN_EXPOSED_PCT
    word = "compute-bound" if common == "healthy" and some_stage_waits else common
    return word, why if len(set(names)) == 1 else f"of {who}, {why}"
