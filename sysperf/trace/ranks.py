"""Ranks of one job beside each other: who is late at collectives, and whose device is slow.

All ranks leave a collective together, so the time that one spends in it beyond the shortest is time that it waited for the
rank that came last. No clocks of different machines need to agree for that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from sysperf.trace.accounting.trust import CLOCK_NS
from sysperf.trace.accounting.verdict import of_rank
from sysperf.trace.behind import exposed_more, keeps_their_pace, slack_pct, stays_behind
from sysperf.trace.device_facts import ExchangeRow
from sysperf.trace.facts import INTERRUPTIONS, Rank, Skew, Trace
from sysperf.trace.intervals import Intervals, length, median, union
from sysperf.trace.rank_summary import MIN_MATCHED, Entry, RankSummary, leaving_together
from sysperf.trace.rank_times import BESIDE, HOST, LOADER, cause, parts, usual
from sysperf.trace.stages import Alone, alone, slowest

ROTATES_BELOW = 50.0
"""Percent of the waiting. A rank that causes no more than that is not the late one."""
TOGETHER_PCT, ALIKE = 80.0, 2
"""Several that cause so much of it, and none of them more than twice what another does, are late together."""
MIN_TIMES = 1.8
"""Steps, weighed by what each costs, in which a rank must be late to be one of several; of one step, collectives."""
MIN_CHANCE = 1.7
"""The waiting that a rank causes must be so many times its own spread. Three equally long waits are 1.73 times theirs."""
MUCH_MORE = 4
"""Times what the next rank causes."""
SELDOM = 12
"""A rank is late in each step where chance alone puts the same rank last in all of them in fewer than one of so many jobs."""
MIN_MORE_PCT = 10.0
"""A late rank spends at least so much more of the window on one kind of time than the others."""
MOSTLY_PCT, MIN_STEPS = 75.0, 4
"""Where so much of the waiting is in one step, of at least so many, a rank did something once, and is not called late."""
MIN_KERNELS = 20
MIN_LOST_PCT, MIN_HELD_UP_PCT = 1.0, 5.0
"""Who makes the others wait for less is not late; and who makes them wait for so much is not healthy."""
IN_TURN = 0.25
"""Of what ranks wait on average, what each waits at least where one is late and then another: who never waits is not one of them."""
SLOWER = 1.1
"""Times what a kernel takes on the median rank, from which it is slower."""


def job(each: list[RankSummary], ranks: tuple[Rank, ...]) -> Trace:
    """The ranks beside each other, and what each loses by its own collectives and by waiting for others in them."""
    each = leaving_together(each)
    compared, skew = [], compare(each, [parts(rank) for rank in ranks])
    stages = alone(each)
    own, waiting = ([one.own for one in stages], [one.share - one.own for one in stages]) if stages else (_own(each), _waiting(each))
    for number, rank, share, wait in zip(_numbers(each, range(len(each))), ranks, own, waiting, strict=True):
        collectives = msgspec.structs.replace(rank.collectives, own_pct=share, waiting_pct=wait, kinds=_kinds(rank, ranks))
        if stages:
            collectives = msgspec.structs.replace(collectives, sent_pct=(share or 0.0) + (wait or 0.0))
        told = msgspec.structs.replace(rank, collectives=collectives)
        waits_for_many = skew.rotates or (stages and number not in skew.late)
        word, why = of_rank(told if waits_for_many else _without_waiting(told, share))
        if word == "healthy" and number in skew.late and (skew.lost_pct or 0.0) >= MIN_HELD_UP_PCT:
            word, why = "compute-bound", f"{why}, and others wait for it"
        compared.append(msgspec.structs.replace(told, verdict=word, why=why))
    return Trace(ranks=tuple(compared), skew=skew)


def _without_waiting(rank: Rank, own: float | None) -> Rank:
    """A rank whose collectives take what they take alone: waiting for one rank is no communication, and in a single step bounds none."""
    if own is None:
        return rank
    cpu = msgspec.structs.replace(rank.cpu, communication_pct=own) if rank.cpu else None
    return msgspec.structs.replace(rank, cpu=cpu, figures=msgspec.structs.replace(rank.figures, nccl_exposed_pct=own))


def _own(each: list[RankSummary]) -> list[float | None]:
    """Return, by rank, the percentage of its window that collectives run alone without waiting: the shortest did not wait."""
    matched = _places(each)
    if len(matched) < MIN_MATCHED:
        return [None] * len(each)
    shares: list[float | None] = []
    for index, summary in enumerate(each):
        least = [entry.took for entry in summary.collectives]
        for places in matched:
            least[places[index]] = min(rank.collectives[place].took for rank, place in zip(each, places, strict=True))
        own = union(span for entry, took in zip(summary.collectives, least, strict=True) for span in entry.working(took))
        shares.append(100 * length(own) / summary.window_ns if summary.window_ns else None)
    return shares


def _waiting(each: list[RankSummary]) -> list[float | None]:
    """Return, by rank, the percentage of its window that it waits in collectives for ranks that come later."""
    matched = _matched(each)
    if len(matched) < MIN_MATCHED:
        return [None] * len(each)
    waited = [_waited((entries[index], min(entry.took for entry in entries)) for entries in matched) for index in range(len(each))]
    spans = [_compared_ns(summary, len(matched)) for summary in each]
    return [100 * wait / span if span else None for wait, span in zip(waited, spans, strict=True)]


def _kinds(rank: Rank, ranks: tuple[Rank, ...]) -> tuple[ExchangeRow, ...]:
    """A rank's collectives by kind and size, with the shortest of all ranks: it waited least, so it tells most of the links."""
    shortest: dict[tuple[str, int | None], ExchangeRow] = {}
    for row in (row for one in ranks for row in one.collectives.kinds):
        best = shortest.setdefault((row.name, row.bytes), row)
        shortest[row.name, row.bytes] = min(best, row, key=lambda one: one.shortest_ms)
    best_of = ((row, shortest[row.name, row.bytes]) for row in rank.collectives.kinds)
    return tuple(msgspec.structs.replace(row, shortest_ms=best.shortest_ms, bus_gb_per_s=best.bus_gb_per_s) for row, best in best_of)


def compare(each: list[RankSummary], parts: Sequence[Mapping[str, float]]) -> Skew:
    """Return who the others wait for, and whose kernels are slow."""
    matched = _matched(each)
    if doubles := _doubles(each):
        return Skew(ranks=len(each), doubles=doubles)
    base = msgspec.structs.replace(_slow_kernels(each), ranks=len(each), matched=len(matched))
    if stages := alone(each):
        return _of_stages(each, stages, parts, base)
    if len(matched) < MIN_MATCHED:
        return base
    waited = [_waited((entries[index], min(entry.took for entry in entries)) for entries in matched) for index in range(len(each))]
    spans = [_compared_ns(summary, len(matched)) for summary in each]
    caused, once = _caused(matched), _is_mostly_once(matched, each[0].steps)
    by_step = _caused_by_step(matched, each[0].steps)
    late = [] if once else _late(caused, by_step, len(each)) or _late_by_work(caused, parts) or _late_each_step(by_step, len(each))
    shares = [100 * waited[index] / spans[index] for index in range(len(each)) if index not in late and spans[index]]
    lost = sum(shares) / len(shares) if shares else None
    why = cause(late, parts) if late else ""
    all_load = why == LOADER and keeps_their_pace(each, late, [part[LOADER] for part in parts])
    slack = slack_pct(each, late) if late and why == HOST else 100.0
    are_as_slow = slack < MIN_LOST_PCT or (late and lost and why in ("", HOST) and stays_behind(each, matched, late, lost))
    if all_load or are_as_slow:
        late, shares = [], [100 * wait / span for wait, span in zip(waited, spans, strict=True) if span]
        lost = sum(shares) / len(shares)
    if not late or (lost or 0.0) < MIN_LOST_PCT:  # of what few of the ranks wait, the others do not take turns
        is_spread = bool(shares) and lost is not None and 2 * median(shares) >= lost >= MIN_LOST_PCT and min(shares) >= IN_TURN * lost
        is_spread = is_spread and _far_the_latest(Counter({index: sum(times) for index, times in caused.items()})) is None
        return msgspec.structs.replace(base, lost_pct=lost, rotates=bool(caused) and is_spread and not once and not all_load, once=once)
    gain = _gain(matched, late, parts, max(spans)) if any(spans) else None
    return msgspec.structs.replace(
        base,
        late=_numbers(each, late),
        late_share=100 * sum(sum(caused[index]) for index in late) / sum(map(sum, caused.values())),
        lost_pct=lost,
        gain_pct=None if gain is None else min(gain, slack),
        most_pct=None if lost is None else min(lost, slack),
        rotates=False,
        cause=why,
    )


def _of_stages(each: list[RankSummary], stages: Sequence[Alone], parts: Sequence[Mapping[str, float]], base: Skew) -> Skew:
    """Return which stages of a pipeline the others wait for, and what even those wait. Who was interrupted has no more to do."""
    shares = [one.share for one in stages]
    base, late = msgspec.structs.replace(base, stages_pct=min(shares), rotates=False), slowest(shares)
    if not late or (reason := cause(late, parts)) == INTERRUPTIONS:
        return base
    others = [share for index, share in enumerate(shares) if index not in late]
    least = max(shares[index] for index in late)
    return msgspec.structs.replace(
        base,
        late=_numbers(each, late),
        lost_pct=sum(others) / len(others) - least,
        gain_pct=min(others) - least,
        cause=reason,
    )


def _numbers(each: list[RankSummary], chosen: Sequence[int]) -> tuple[int, ...]:
    """Return what these ranks are called: by their number, else their place."""
    return tuple(index if (number := each[index].rank) is None else number for index in chosen)


def _late(caused: Mapping[int, Sequence[int]], by_step: Sequence[Mapping[int, int]], ranks: int) -> list[int]:
    """The ranks that the others wait for, the latest first; empty where none is late, or one is and then another.

    One alone causes most of the waiting. Several, such as those of one node, cause nearly all, each about as much, and again and again:
    of ranks that are late once, chance makes a few.
    """
    lost = {index: sum(times) for index, times in caused.items()}
    ordered, whole = sorted(lost, key=lost.__getitem__, reverse=True), sum(lost.values())
    alike = [index for index in ordered if ALIKE * lost[index] >= lost[ordered[0]]]
    if 1 < len(alike) <= ranks / 2 and 100 * sum(lost[index] for index in alike) >= TOGETHER_PCT * whole:
        times = {index: [step[index] for step in by_step if index in step] if len(by_step) > 1 else caused[index] for index in alike}
        return alike if all(lost[index] ** 2 >= MIN_TIMES * sum(ns * ns for ns in times[index]) for index in alike) else []
    each_time = by_step if len(by_step) >= MIN_STEPS else [{index: ns} for index, times in caused.items() for ns in times]
    is_late = ordered and 100 * lost[ordered[0]] > ROTATES_BELOW * whole and _is_beyond_chance(each_time, ordered[0])
    return ordered[:1] if is_late else []


def _late_by_work(caused: Mapping[int, Sequence[int]], parts: Sequence[Mapping[str, float]]) -> list[int]:
    """The rank that causes nearly all waiting, maybe by chance, where what it does beside computing, in each step, takes far longer too."""
    lost = {index: sum(times) for index, times in caused.items()}
    most = max(lost, key=lost.__getitem__, default=-1)
    if most < 0 or 100 * lost[most] < TOGETHER_PCT * sum(lost.values()) or len(caused[most]) < MIN_MATCHED:
        return []
    others = [each for index, each in enumerate(parts) if index != most]
    more = max((ns - usual(others, (name,)) for name, ns in parts[most].items() if name in BESIDE), default=0.0)
    return [most] if more >= MIN_MORE_PCT else []


def _late_each_step(by_step: Sequence[Mapping[int, int]], ranks: int) -> list[int]:
    """The rank that causes far more waiting than any other, in so many steps (of eight ranks, in three) that it is hardly chance."""
    lost = Counter[int]()
    for of_step in by_step:
        lost.update(of_step)
    most = _far_the_latest(lost)
    if most is None:
        return []
    steps_late = lost[most] ** 2 / sum(of_step.get(most, 0) ** 2 for of_step in by_step)
    return [most] if ranks ** (steps_late - 1) >= SELDOM else []


def _caused_by_step(matched: list[list[Entry]], steps: Intervals) -> list[dict[int, int]]:
    """Return, step by step, the time in ns that each rank causes; all is one step where none is known."""
    starts, by_step = [start for start, _ in steps], defaultdict[int, list[list[Entry]]](list)
    for entries in matched:
        by_step[bisect_right(starts, entries[0].start)].append(entries)
    return [{index: sum(times) for index, times in _caused(of_step).items()} for of_step in by_step.values()]


def _far_the_latest(lost: Counter[int]) -> int | None:
    """The rank that causes more than half of the waiting, and far more than the next one."""
    (most, ns), (_, next_ns) = [*lost.most_common(2), (-1, 0), (-1, 0)][:2]
    return most if 100 * ns > ROTATES_BELOW * lost.total() and ns >= MUCH_MORE * next_ns else None


def _is_beyond_chance(each_time: Iterable[Mapping[int, int]], late: int) -> bool:
    """Whether a rank comes late again and again: what interrupts it once delays all collectives of a step.

    Of two ranks, one always causes more than half of the waiting, by one long pause maybe.
    """
    signed = [2 * caused.get(late, 0) - sum(caused.values()) for caused in each_time]
    return sum(signed) ** 2 >= MIN_CHANCE**2 * sum(ns * ns for ns in signed)


def _waited(entries: Iterable[tuple[Entry, int]]) -> int:
    """ns that one rank waits in these collectives, each of which could take so long at least; those beside each other count once."""
    return length(_exposed(entries))


def _exposed(entries: Iterable[tuple[Entry, int]]) -> Intervals:
    return union(span for entry, least in entries for span in entry.waiting(least))


def waits(each: list[RankSummary], index: int) -> Intervals:
    """Return when a rank waits in collectives for ranks that come later."""
    return _exposed((entries[index], min(entry.took for entry in entries)) for entries in _matched(each))


def _gain(matched: list[list[Entry]], late: Sequence[int], parts: Sequence[Mapping[str, float]], span: float) -> float:
    """Percent that would be won if the late ranks came no later than the last of the others.

    Of collectives that queue up behind one that waits, what they take themselves is exposed by it, too: as far as the late ranks have
    more time in something.
    """
    more = {name: usual([parts[index] for index in late], (name,)) for name in parts[late[0]]}
    others = [each for index, each in enumerate(parts) if index not in late]
    most = max((ns - usual(others, (name,)) for name, ns in more.items()), default=0.0)
    return max(100 * _until_next(matched, late) / span, min(100 * exposed_more(matched, late) / span, most))


def _until_next(matched: list[list[Entry]], late: Sequence[int]) -> int:
    """ns that would be won if the late ranks came no later than the last of the others, who then waits less."""
    next_last = defaultdict[int, list[tuple[Entry, int]]](list)
    for entries in matched:
        others = [(entry.took, index) for index, entry in enumerate(entries) if index not in late]
        _, index = min(others)
        next_last[index].append((entries[index], min(entry.took for entry in entries)))
    return sum(map(_waited, next_last.values()))


def _caused(matched: list[list[Entry]]) -> dict[int, list[int]]:
    """Return, by rank, the times in ns that it came behind the median rank, as far as the others then had nothing to compute.

    How often a rank is last tells little: of ranks that come at the same time, chance makes one the last by a microsecond.
    """
    caused = defaultdict[int, list[int]](list)
    for entries in matched:
        took = [entry.took for entry in entries]
        least, middle = min(took), median(took)
        idle = sum(length(entry.waiting(least)) for entry in entries) / (sum(took) - least * len(took) or 1)
        for index, time in enumerate(took):
            if idle and middle - time > CLOCK_NS:
                caused[index].append(round((middle - time) * idle))
    return caused


def _is_mostly_once(matched: list[list[Entry]], steps: Intervals) -> bool:
    """Whether nearly all waiting is in one of several steps, as where a rank writes a file once: all its collectives come late then."""
    starts, lost = [start for start, _ in steps], Counter[int]()
    for entries in matched if len(steps) >= MIN_STEPS else ():
        least = min(entry.took for entry in entries)
        lost[bisect_right(starts, entries[0].start)] += sum(length(entry.waiting(least)) for entry in entries)
    return bool(lost) and 100 * max(lost.values()) > MOSTLY_PCT * lost.total()


def _compared_ns(summary: RankSummary, matched: int) -> float:
    """The part of a rank's window that the others have, too: of large files, each is examined until a time of its own."""
    of_all = sum(not entry.is_between_two for entry in summary.collectives)
    return summary.window_ns * matched / of_all if of_all else 0.0


def _matched(each: list[RankSummary]) -> list[list[Entry]]:
    """Each collective that every rank has, rank by rank."""
    return [[rank.collectives[place] for rank, place in zip(each, places, strict=True)] for places in _places(each)]


def _places(each: list[RankSummary]) -> list[list[int]]:
    """Return where each collective that every rank has stands in the lists of the ranks; of files of one rank, none does."""
    if _doubles(each):
        return []
    by_key: dict[tuple[str, int], list[int]] = defaultdict(list)
    for summary in each:
        seen: Counter[str] = Counter()
        for place, entry in enumerate(summary.collectives):
            if not entry.is_between_two:
                by_key[entry.key, seen[entry.key]].append(place)
                seen[entry.key] += 1
    return [places for places in by_key.values() if len(places) == len(each) > 1]


def _doubles(each: list[RankSummary]) -> tuple[int, ...]:
    """The numbers that several files say that their rank has: they are of several runs or times, and nobody waited for another."""
    numbers = Counter(summary.rank for summary in each)
    return tuple(sorted(number for number, count in numbers.items() if number is not None and count > 1))


def _slow_kernels(each: list[RankSummary]) -> Skew:
    """Return the rank whose kernels are the slowest, and by how much, by the mean durations of kernels that all ranks have."""
    shared = set.intersection(*(set(rank.kernels) for rank in each)) if len(each) > 1 else set()
    names = [name for name in shared if all(rank.kernels[name][0] >= MIN_KERNELS for rank in each)]
    took = [[rank.kernels[name][1] / rank.kernels[name][0] for name in names] for rank in each]
    sums = list(map(sum, took))
    if not any(sums):
        return Skew()
    slowest = max(range(len(each)), key=sums.__getitem__)
    usual = [median(of_name) for of_name in zip(*took, strict=True)]
    slower = sum(mine >= SLOWER * other for mine, other in zip(took[slowest], usual, strict=True))
    number = each[slowest].rank
    return Skew(
        slow_kernels=median(sums) / sums[slowest],
        slow_names_pct=100 * slower / len(names),
        slow_rank=slowest if number is None else number,
    )
