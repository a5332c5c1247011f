"""The verb `node ranks`: what the ranks of a job on this machine show while they are traced at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sysperf import paths
from sysperf.collect.cgroup import Cgroup, read_group, throttled_share
from sysperf.engine.analyze import account_for
from sysperf.host import Host
from sysperf.model.errors import SysperfError, UsageError
from sysperf.model.node import MAX_RECORD_BYTES, NodeRecord, RankRecord
from sysperf.model.profile import Trace, TraceRequest
from sysperf.model.record import Record, to_json
from sysperf.model.text import neutral
from sysperf.procfs import environ, schedstat
from sysperf.procfs.rank_variables import SLURM, global_rank
from sysperf.procfs.stat import parse as parse_stat
from sysperf.trace.intervals import Intervals
from sysperf.trace.rank_summary import Entry, RankSummary, summarize
from sysperf.trace.rank_times import parts

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "TORCHELASTIC_RUN_ID")
"""How schedulers and torchrun name a job to its processes."""
MAX_RANKS = 128
MAX_EXPOSED = 3
MAX_KERNELS, MAX_KERNEL_NAME = 12, 80
BETWEEN = "between two: "
"""How the name of what one rank sends to another begins in a record."""
LIBRARY = "libtorch_cpu"
MAX_MAPS_BYTES = 16 << 20
LEAD_S = 20.0
"""A process asks for work every 5 s, and the tracer of a GPU warms up for 5 s."""
TraceAll = Callable[[Host, Sequence[TraceRequest], Callable[[str], object]], list[Trace | SysperfError]]


class Found(Record):
    """A process that is a rank of the job."""

    pid: int
    rank: int
    world_size: int


class _Treated(Record):
    """How the kernel has treated a process so far."""

    run_ns: int | None = None
    wait_ns: int | None = None
    nice: int | None = None
    group: Cgroup | None = None


def find(host: Host, job: str) -> tuple[Found, ...]:
    """The processes with PyTorch that are ranks of this job: of a family the one that the others descend from. Raises UsageError."""
    if not host.live:
        raise UsageError("a captured machine has no running programs", "ask on the machine itself")
    found: dict[int, Found] = {}
    parents: dict[int, int] = {}
    for path in host.glob("/proc/[0-9]*"):
        pid = int(path.rpartition("/")[2])
        if not _is_of(pid, job) or LIBRARY not in (host.text(f"{path}/maps", MAX_MAPS_BYTES) or ""):
            continue
        variables = environ.variables(host.text(f"{path}/environ", environ.MAX_BYTES) or "")
        place = global_rank(variables, started_by_srun=SLURM.rank in variables and "SLURM_STEP_ID" in variables)
        stat = parse_stat(host.text(f"{path}/stat"))
        if place.rank >= 0 and stat is not None and not stat.has_ended:
            found[pid], parents[pid] = Found(pid, place.rank, place.world_size), stat.ppid
    return tuple(
        sorted((each for pid, each in found.items() if not _descends(pid, each.rank, parents, found)), key=lambda each: each.rank)
    )[:MAX_RANKS]


def _is_of(pid: int, job: str) -> bool:
    """Whether a process was started as part of this job. Names of jobs are hidden in what `Host` reads; here nothing is kept."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read(environ.MAX_BYTES).split(b"\0")
    except OSError:
        return False
    return any(f"{name}={job}".encode() in variables for name in JOBS)


def _descends(pid: int, rank: int, parents: Mapping[int, int], found: Mapping[int, Found]) -> bool:
    """Whether its parent is a process of the same rank, as that of a loader's worker is."""
    parent = found.get(parents[pid])
    return parent is not None and parent.rank == rank


def traced(host: Host, found: Sequence[Found], trace_all: TraceAll, window_s: float, begin_ms: int, limit_s: float) -> list[RankRecord]:
    """Trace them all at the same time, and keep what comparing them needs. Raises SysperfError."""
    from sysperf.host.scratch import Scratch  # noqa: PLC0415 - 5 ms that records without ranks do without

    end = time.monotonic() + limit_s
    alone = bool(found) and found[0].world_size == len(found)
    while True:
        before = {each.pid: _treated(host, each.pid) for each in found}
        with Scratch("ranks", paths.temporary_home()) as folder:
            begin, begun = _begin(begin_ms), time.monotonic()
            requests = [
                TraceRequest(each.pid, 0, round(window_s * 1e3), output=f"{folder}/{each.pid}.json", limit_s=end - begun, start_ms=begin)
                for each in found
            ]
            traces = trace_all(host, requests, lambda _: None)
            treated = [_with_treatment(each, before[each.pid], _treated(host, each.pid)) for each in found]
            # A busy rank can miss the beginning. No other node waits for a job that is all here, so it is asked again.
            missed = any(isinstance(trace, SysperfError) for trace in traces)
            if not (missed and alone) or end - time.monotonic() < 2 * (time.monotonic() - begun):
                return [_record(each, trace) for each, trace in zip(treated, traces, strict=True)]


def _begin(asked_ms: int) -> int:
    """Moment at which the window begins: as the collector says, unless its clock is another than ours."""
    now = time.time()
    return asked_ms if now < asked_ms / 1e3 < now + 4 * LEAD_S else round((now + LEAD_S) * 1e3)


def _treated(host: Host, pid: int) -> _Treated:
    stats = [schedstat.parse(host.text(path)) for path in host.glob(f"/proc/{pid}/task/[0-9]*/schedstat")]
    known = [stat for stat in stats if stat is not None]
    stat = parse_stat(host.text(f"/proc/{pid}/stat"))
    return _Treated(
        run_ns=sum(stat.run_ns for stat in known) if known else None,
        wait_ns=sum(stat.wait_ns for stat in known) if known else None,
        nice=stat.nice if stat else None,
        group=read_group(host, pid),
    )


def _with_treatment(found: Found, before: _Treated, after: _Treated) -> RankRecord:
    """A rank, and how the kernel treated it between two readings."""
    waits = None
    if None not in (before.run_ns, before.wait_ns, after.run_ns, after.wait_ns):
        ran, waited = after.run_ns - before.run_ns, after.wait_ns - before.wait_ns  # type: ignore[operator]  # none is None
        waits = round(100 * waited / (ran + waited), 1) if ran >= 0 <= waited and ran + waited else None
    stopped = throttled_share(before.group, after.group)
    return RankRecord(
        rank=found.rank,
        pid=found.pid,
        world_size=found.world_size,
        waits_pct=waits,
        throttled_pct=None if stopped is None else round(100 * stopped, 1),
        nice=after.nice,
    )


def _record(plain: RankRecord, trace: Trace | SysperfError) -> RankRecord:
    """What of one rank travels; the trace stays, and goes."""
    if isinstance(trace, SysperfError):
        return msgspec.structs.replace(plain, problem=neutral(str(trace), 200))
    try:
        accounting = account_for(trace.path)
        facts, summary = accounting.facts(with_gains=False), summarize(accounting)
    except SysperfError as error:
        return msgspec.structs.replace(plain, problem=neutral(str(error), 200))
    return packed(plain, summary, {name: round(value, 2) for name, value in parts(facts).items()})


def packed(plain: RankRecord, summary: RankSummary, times: Mapping[str, float]) -> RankRecord:
    """A summary as a node sends it."""
    named = [(f"{BETWEEN if entry.is_between_two else ''}{entry.key}", entry) for entry in summary.collectives]
    names = {name: place for place, name in enumerate(dict.fromkeys(name for name, _ in named))}
    rows = tuple((names[name], entry.start, entry.took, _flat(entry)) for name, entry in named)
    longest = sorted(summary.kernels.items(), key=lambda item: -item[1][1])[:MAX_KERNELS]
    return msgspec.structs.replace(
        plain,
        window_ns=summary.window_ns,
        names=tuple(neutral(name, 120) for name in names),
        collectives=rows,
        kernels={neutral(name, MAX_KERNEL_NAME): figures for name, figures in longest},
        parts=dict(times),
    )


def _flat(entry: Entry) -> tuple[int, ...]:
    """The longest of its exposed times, from its start."""
    longest = sorted(entry.alone, key=lambda span: span[0] - span[1])[:MAX_EXPOSED]
    return tuple(time - entry.start for span in sorted(longest) for time in span)


def unpacked(record: RankRecord) -> RankSummary:
    """The summary in what a node sent. Raises ValueError for one that no trace can have."""
    entries = []
    for place, start, took, flat in record.collectives:
        alone: Intervals = [*zip(flat[::2], flat[1::2], strict=True)]
        ordered = [0, *flat, took]
        if not 0 <= place < len(record.names) or took < 0 or ordered != sorted(ordered):
            raise ValueError("a collective that cannot be")
        name, exposed = record.names[place], [(start + low, start + high) for low, high in alone]
        entries.append(Entry(name, start, start + took, exposed, name.startswith(BETWEEN)))
    if record.window_ns < 0 or any(count < 1 or total < 0 for count, total in record.kernels.values()):
        raise ValueError("a time below 0")
    return RankSummary(record.rank, record.window_ns, entries, dict(record.kernels))


def fitted(record: NodeRecord, ranks: Sequence[RankRecord]) -> NodeRecord:
    """The record with its ranks, all with the same part of their collectives where not all fit."""
    share = 1.0
    while True:
        cut = tuple(_cut(rank, share) for rank in ranks)
        whole = msgspec.structs.replace(record, ranks=cut)
        if len(to_json(whole)) <= MAX_RECORD_BYTES - 1_024 or share < 0.01:
            return whole
        share *= 0.7


def _cut(rank: RankRecord, share: float) -> RankRecord:
    """The first collectives of a rank, with their names and their part of the window."""
    if share == 1.0 or not rank.collectives:
        return rank
    kept = rank.collectives[: max(1, int(share * len(rank.collectives)))]
    used = sorted({row[0] for row in kept})
    places = {place: number for number, place in enumerate(used)}
    return msgspec.structs.replace(
        rank,
        window_ns=round(rank.window_ns * len(kept) / len(rank.collectives)),
        names=tuple(rank.names[place] for place in used),
        collectives=tuple((places[place], *rest) for place, *rest in kept),
    )
