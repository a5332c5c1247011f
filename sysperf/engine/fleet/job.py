"""The verb `fleet job`: which rank and which node hold a running job up, chronic or once, or that none does."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from sysperf import __version__, plugin
from sysperf.engine import reading
from sysperf.engine.fleet import gather
from sysperf.engine.fleet.ranks import LEAD_S, unpacked
from sysperf.fleet import flight
from sysperf.fleet.merge import Merge
from sysperf.host.plain_files import list_folder, read_named
from sysperf.model.errors import UsageError
from sysperf.model.fleet import FleetJob, JobWindow, Silent
from sysperf.model.node import Asked, NodeRecord, RankRecord
from sysperf.model.text import neutral
from sysperf.trace.rank_summary import RankSummary, aligned
from sysperf.trace.ranks import compare

CHRONIC, CHRONIC_WINDOWS, CHRONIC_S = 0.8, 10, 540.0
"""The same rank in 8 of 10 windows, whose first and last begin nine minutes apart or more."""
FEW_LOST_PCT = 1.0
"""Who makes the others wait for less does not hold the job up."""
MORE_WAITS_PCT = MORE_THROTTLED_PCT = 10.0
SLOW_KERNELS = 0.95
MAX_DUMPS = 4_096
Say = Callable[[int, int], object]


class Ranked(NamedTuple):
    """One rank, where it runs, and what its trace tells."""

    node: str
    record: RankRecord
    summary: RankSummary


def job(engine: str, asked: Asked, windows: int, every_s: float, say: Say = lambda *_: None) -> FleetJob:
    """Ask for window after window, and judge them together. Raises SysperfError. Ctrl-C ends it with what is there."""
    start = time.perf_counter()
    seen: list[JobWindow] = []
    begun: list[float] = []
    sizes: set[int] = set()
    silent: tuple[Silent, ...] = ()
    answered = of = 0
    interrupted = False
    while len(seen) < windows and not interrupted:
        begun.append(time.monotonic())
        now = msgspec.structs.replace(asked, begin_ms=round((time.time() + LEAD_S) * 1e3))
        gathered, interrupted = gather.ask(engine, now, "ranks", say)
        records = {name: gathered.record(name) for name in gathered.took_s}
        answered, of = len(records), len(records) + len(gathered.silent)
        silence = Merge(lambda _: None)
        for answer in gathered.silent.values():
            silence.silence(answer.node, answer.state, answer.reason)
        silent = silence.silent()
        sizes |= {rank.world_size for record in records.values() for rank in record.ranks if rank.world_size}
        seen.append(window(records, asked.job))
        if len(seen) < windows and not interrupted:
            interrupted = _slept(begun[-1] + every_s - time.monotonic())
    return judged(
        FleetJob(
            sysperf=__version__,
            taken_at=reading.now(),
            engine=engine or plugin.ENGINES.default,
            job=asked.job,
            asked=of,
            answered=answered,
            silent=silent,
            world_size=max(sizes, default=None),
            windows=tuple(seen),
            interrupted=interrupted,
            took_ms=round((time.perf_counter() - start) * 1e3, 1),
        ),
        begun[-1] - begun[0],
    )


def _slept(seconds: float) -> bool:
    """Wait for the next window; whether Ctrl-C ended it."""
    try:
        time.sleep(max(0.0, seconds))
    except KeyboardInterrupt:
        return True
    return False


def window(records: Mapping[str, NodeRecord], name: str) -> JobWindow:
    """What the ranks show beside each other."""
    ranked, unknown = _ranked(records, name)
    known = [each for each in ranked if each.summary.collectives]
    sizes = {each.record.world_size for each in ranked if each.record.world_size}
    size = max(sizes, default=None)
    if size is None or len(ranked) < size:
        unknown.append(f"{len(ranked)} of {size or 'an unknown number of'} ranks are known; one of the others may be later")
    base = JobWindow(taken_at=reading.now(), ranks=len(known), unknown=tuple(unknown))
    if len(known) < 2:
        return base
    skew = compare(aligned([each.summary for each in known]), [each.record.parts for each in known])
    base = msgspec.structs.replace(base, matched=skew.matched, lost_pct=_rounded(skew.lost_pct), rotates=skew.rotates)
    late = next((each for each in known if each.record.rank == min(skew.late, default=None)), None)
    if late is None or (skew.lost_pct or 0.0) < FEW_LOST_PCT:
        return base
    others = [each for each in known if each.record.rank not in skew.late]
    at_node = {each.record.rank for each in known if each.node == late.node}
    whole = len(skew.late) > 1 and at_node == set(skew.late)
    together = (f"all {len(at_node)} of its ranks are late, and no other is",) if whole else ()
    slow_device = skew.slow_rank == late.record.rank and skew.slow_kernels is not None and skew.slow_kernels < SLOW_KERNELS
    kernels = (f"its kernels run at {100 * (skew.slow_kernels or 0):.0f} % of the median rank's speed",) if slow_device else ()
    return msgspec.structs.replace(
        base,
        late=late.record.rank,
        beside=tuple(sorted(set(skew.late) - {late.record.rank})),
        node=late.node,
        share_pct=_rounded(skew.late_share),
        cause=skew.cause,
        signals=(*together, *kernels, *treated(late.record, [each.record for each in others]), *_found(late, others, records)),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _ranked(records: Mapping[str, NodeRecord], name: str) -> tuple[list[Ranked], list[str]]:
    """(the ranks that nodes told of, by number, what cannot be believed or seen of them)."""
    claims = Counter(rank.rank for record in records.values() for rank in record.ranks)
    ranked: list[Ranked] = []
    unknown: list[str] = []
    for node, record in records.items():
        if record.job != name:
            unknown.append(f"{node}: it tells of another job")
            continue
        for rank in record.ranks:
            if claims[rank.rank] > 1:
                unknown.append(f"rank {rank.rank} of {node}: {claims[rank.rank]} processes say that they are this rank")
            elif rank.problem:
                unknown.append(f"rank {rank.rank} of {node}: {neutral(rank.problem, 200)}")
            else:
                try:
                    ranked.append(Ranked(node, rank, unpacked(rank)))
                except ValueError as error:
                    unknown.append(f"rank {rank.rank} of {node}: {error}")
    return sorted(ranked, key=lambda each: each.record.rank), unknown


def treated(late: RankRecord, others: Sequence[RankRecord]) -> tuple[str, ...]:
    """How the kernel treats the late rank worse than the median of the others; what is unknown of either says nothing."""
    said = []
    waits, usual = late.waits_pct, _median(each.waits_pct for each in others)
    stopped, others_stopped = late.throttled_pct, _median(each.throttled_pct for each in others)
    nice, usual_nice = late.nice, _median(each.nice for each in others)
    if stopped is not None and stopped >= MORE_THROTTLED_PCT and (others_stopped is None or stopped > others_stopped + MORE_THROTTLED_PCT):
        beside = "" if others_stopped is None else f", the others in {others_stopped:.0f} %"
        said.append(f"its CPU quota stops it in {stopped:.0f} % of periods{beside}")
    if nice is not None and usual_nice is not None and nice > usual_nice:
        said.append(f"its priority is nice {nice}, that of the others {usual_nice:.0f}")
    if waits is not None and usual is not None and waits > usual + MORE_WAITS_PCT:
        said.append(f"it waits for a CPU {waits:.0f} % of the time in which it wants one, the others {usual:.0f} %")
    return tuple(said)


def _median(values: Iterable[float | int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _found(late: Ranked, others: Sequence[Ranked], records: Mapping[str, NodeRecord]) -> tuple[str, ...]:
    """What rules find wrong with the late rank's machine, and with none of the others'."""
    elsewhere = {finding.rule for node in {each.node for each in others} - {late.node} for finding in records[node].findings}
    if {each.node for each in others} <= {late.node}:
        return ()
    grave = (each for each in records[late.node].findings if each.severity in ("error", "warning") and each.state == "finding")
    return tuple(f"{neutral(each.rule, 80)}: {neutral(each.message, 200)}" for each in grave if each.rule not in elsewhere)[:4]


def judged(found: FleetJob, span_s: float) -> FleetJob:
    """The verdict of all windows: the rank that most of them name, if more than half do."""
    told = [each for each in found.windows if each.late is not None or each.lost_pct is not None]
    if not told:
        return found
    (late, count), *_ = Counter(each.late for each in told).most_common()
    if late is None or 2 * count <= len(told):
        are_open = 2 * sum(each.is_open for each in told) >= len(told)
        doubt = are_open or len(told) < len(found.windows) or any(each.unknown for each in told) or found.answered < found.asked
        return msgspec.structs.replace(found, verdict="cannot tell" if doubt else "nobody")
    named = [each for each in told if each.late == late]
    chronic = count >= CHRONIC * len(found.windows) if len(found.windows) >= CHRONIC_WINDOWS and span_s >= CHRONIC_S else None
    if any(each.unknown for each in named):  # who is not known may come later still: the slowest rank is the likeliest to miss its trace
        return msgspec.structs.replace(found, late=late, node=named[-1].node)
    second = sum(bool(each.signals) for each in named) * 2 > len(named)
    return msgspec.structs.replace(found, verdict="node" if second else "rank", chronic=chronic, late=late, node=named[-1].node)


def hung(folder: str, name: str) -> FleetJob:
    """What Flight Recorder dumps of a folder say. Raises UsageError."""
    start = time.perf_counter()
    try:
        names = sorted(list_folder(folder, MAX_DUMPS))
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}", "name the folder of TORCH_FR_DUMP_TEMP_FILE") from None
    dumps: dict[int, flight.Dump] = {}
    problems: list[str] = []
    claimed = Counter(map(flight.rank_of, names))
    for file in names:
        rank, shown = flight.rank_of(file), neutral(file, 80)
        if rank is None or claimed[rank] > 1:
            problems.append(f"{shown}: {'its name ends with no rank' if rank is None else f'{claimed[rank]} files are of rank {rank}'}")
            continue
        try:
            dumps[rank] = flight.parse(read_named(os.path.join(folder, file), flight.MAX_DUMP_BYTES))
        except OSError as error:
            problems.append(f"{shown}: {error.strerror or error}")
        except flight.Unreadable as error:
            problems.append(f"{shown}: {error}")
    hangs = flight.hangs(dumps)
    return FleetJob(
        sysperf=__version__,
        taken_at=reading.now(),
        engine="dumps",
        job=name,
        asked=len(names),
        answered=len(dumps),
        verdict="hang" if hangs else "nobody" if len(dumps) > 1 and not problems and _whole(dumps) else "cannot tell",
        hangs=hangs,
        problems=tuple(problems),
        took_ms=round((time.perf_counter() - start) * 1e3, 1),
    )


def _whole(dumps: Mapping[int, flight.Dump]) -> bool:
    """Whether all members of all groups left a dump."""
    return {rank for dump in dumps.values() for ranks in dump.members.values() for rank in ranks} <= dumps.keys()
