"""The verb `analyze`: traces become facts, rules judge them, and each finding gets what a replay says it is worth."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from sysperf import __version__
from sysperf.engine.reading import now
from sysperf.evaluate.judge import Answer, judge
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope
from sysperf.evaluate.subject import with_subject
from sysperf.host.forked import end_with_parent
from sysperf.model.errors import TraceError
from sysperf.model.finding import MACHINE, Finding, Gain, Place, Report, by_weight
from sysperf.model.rule import SEVERITIES
from sysperf.model.snapshot import Area, Snapshot
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.accounting.job_verdict import of_job
from sysperf.trace.facts import Prediction, Rank, Trace
from sysperf.trace.intervals import Intervals
from sysperf.trace.output.analysis import MIN_GAIN_PCT, Analysis
from sysperf.trace.output.drawing import Subject
from sysperf.trace.output.words import of_runtime
from sysperf.trace.rank_summary import RankSummary, summarize
from sysperf.trace.ranks import job, waits
from sysperf.trace.reading.readers import read
from sysperf.trace.replay.fixes import BY_NAME, COMMUNICATION, MIN_COST_PCT, STRAGGLER, of_straggler, together, together_cpu

MAX_RANKS = 4_096
Progress = Callable[[str, float], None]
"""Told which file is read, and the part of it that was read so far."""


class Result(NamedTuple):
    """An analysis, as it is published and as a report of the audit, which every format shows."""

    analysis: Analysis
    report: Report
    accounting: Accounting | None = None
    """Of a single trace, for faces that draw it."""
    waits: tuple[tuple[int, Intervals], ...] = ()
    """Of several ranks, those that tell most: the place of the file, and when it waits for others."""


class _Read(NamedTuple):
    """One file's facts, and what a comparison of ranks needs of it."""

    rank: Rank
    summary: RankSummary


def analyze(paths: Sequence[str], ruleset: Ruleset, progress: Progress = lambda *_: None, *, every_gain: bool = True) -> Result:
    """Read traces, one a rank, and judge them; without `every_gain`, only the gains that findings name are predicted. Raises TraceError."""
    if len(paths) > MAX_RANKS:
        raise TraceError(f"{len(paths)} files: at most {MAX_RANKS} ranks are compared", "name the traces of some ranks")
    _refuse_twice(paths)
    if len(paths) == 1:
        accounting = account_for(paths[0], progress)
        return judged(Trace(ranks=(accounting.facts(with_gains=every_gain),)), ruleset, accounting)
    each = _each(paths, progress)
    ranks = tuple(read.rank for read in each)
    summaries = [read.summary for read in each]
    trace = job(summaries, ranks)
    return judged(trace, ruleset)._replace(waits=tuple((index, waits(summaries, index)) for index in telling(trace)))


def subjects(result: Result, paths: Sequence[str]) -> list[Subject]:
    """What a picture of these traces shows: of several ranks, the one that waits most, and the first that is late. Raises TraceError."""
    trace = result.analysis.trace
    if not result.waits:
        return [Subject(result.accounting or account_for(paths[0]))]
    late, who = trace.skew.late, trace.skew.who if trace.skew.late else "other ranks"
    return [
        Subject(account_for(paths[index]), f"rank {number}", spans, "other ranks" if number in late else who)
        for index, spans in result.waits
        for number in (_number(trace, index),)
    ]


def telling(trace: Trace) -> list[int]:
    """The files, by their place, that tell why ranks wait: of the rank that waits most, and of the first that is late."""
    places = range(len(trace.ranks))
    late = [index for index in places if _number(trace, index) in trace.skew.late][:1]
    waiting = [index for index in places if index not in late]
    most = max(waiting, key=lambda index: trace.ranks[index].collectives.waiting_pct or 0.0, default=0)
    return [most, *late]


def _number(trace: Trace, index: int) -> int:
    """What a rank is called: its number, else the place of its file."""
    number = trace.ranks[index].rank
    return index if number is None else number


def _refuse_twice(paths: Sequence[str]) -> None:
    """Raise TraceError where two of the paths lead to one file: it would be taken for two ranks."""
    seen: dict[tuple[int, int], str] = {}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue  # whoever reads it says so
        identity = status.st_dev, status.st_ino
        if identity in seen:
            raise TraceError(f"{path} is the same file as {seen[identity]}", "name the trace of each rank once")
        seen[identity] = path


def account_for(path: str, progress: Progress = lambda *_: None) -> Accounting:
    """The accounting of one file. Raises TraceError."""
    whole = _size(path)
    return Accounting(read(path, lambda count: progress(path, min(1.0, count / whole))))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size or 1
    except OSError:
        return 1


def _each(paths: Sequence[str], progress: Progress) -> list[_Read]:
    """Every file's facts; files are read by as many processes as there are CPUs for us."""
    workers = min(len(paths), len(os.sched_getaffinity(0)))
    reads: list[_Read] = []
    if workers < 2:
        for path in paths:
            reads.append(_read(path))
            progress(path, 1.0)
        return reads
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - 30 ms that one trace does without
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - as above

    try:
        with ProcessPoolExecutor(workers, initializer=_end_with_parent) as pool:
            for path, read in zip(paths, pool.map(_read, paths), strict=True):
                reads.append(read)
                progress(path, 1.0)
    except BrokenProcessPool:
        raise TraceError(
            "a process that read a trace was ended from outside", "is there enough memory for as many traces at once?"
        ) from None
    return reads


def _end_with_parent() -> None:
    """End a worker when the process that wants the facts does, also where that was killed. A worker waits for work for ever."""
    import multiprocessing  # noqa: PLC0415 - for several traces only
    import signal  # noqa: PLC0415 - as above

    end_with_parent(signal.SIGKILL)
    parent = multiprocessing.parent_process()
    by_server = multiprocessing.get_start_method() == "forkserver"  # which is the parent then, and ends with ours
    if parent is None or (not parent.is_alive() if by_server else os.getppid() != parent.pid):
        os._exit(1)  # it ended before the kernel knew


def _read(path: str) -> _Read:
    accounting = account_for(path)
    return _Read(accounting.facts(), summarize(accounting))


OF_FILE = "trust."
"""The area of causes that tell whether the file can be believed."""


def judged(trace: Trace, ruleset: Ruleset, accounting: Accounting | None = None) -> Result:
    """The findings of these facts; `accounting` allows to replay several fixes together."""
    verdict, why = of_job(trace.ranks, trace.skew)
    trace = msgspec.structs.replace(trace, verdict=verdict, why=why)
    snapshot = Snapshot(taken_at=now(), root=trace.ranks[0].file if trace.ranks else "", areas={"trace": Area(trace)})
    judged = judge(ruleset, snapshot, ("trace",))
    if accounting is not None:
        trace = _with_gains_of(judged.answers, trace, accounting)
    found = sorted((_complete(answer, trace, ruleset) for answer in judged.answers), key=_order)
    if trace.verdict == "healthy" and (named := _most_serious(found)):
        trace = msgspec.structs.replace(trace, verdict="compute-bound", why=f"{trace.why}, and {named}")
    outcomes = tuple(answer.finding for answer in found)
    report = Report(sysperf=__version__, snapshot=snapshot, outcomes=outcomes, tally=judged.tally(outcomes))
    findings = tuple(_without_only_file(finding, trace) for finding in report.findings())
    unknown = tuple(sorted({finding.rule for finding in outcomes if finding.state == "unknown"}))
    analysis = Analysis(trace=trace, findings=findings, together=_together(found, accounting), unknown=unknown)
    return Result(analysis, report, accounting)


def _most_serious(found: Sequence[Answer]) -> str:
    """What a busy device could do without, in words: a warning that is about much of its time; empty where there is none."""
    for answer in found:
        finding, one = answer.finding, answer.item.value
        share = max(finding.cost_pct or 0.0, finding.work_pct or 0.0)
        if finding.state == "finding" and finding.severity in ("error", "warning") and share >= MIN_GAIN_PCT:
            whole = f"the time of rank {one.rank}" if isinstance(one, Rank) and one.rank is not None else "it"
            return f"`{finding.rule}` is about {share:.0f} % of {whole}"
    return ""


def _order(answer: Answer) -> tuple[object, ...]:
    """Whether the file can be believed first, then findings by what acting gains, by severity, and by what they cost."""
    finding = answer.finding
    is_of_file = finding.rule.startswith(OF_FILE) and finding.severity != "info"
    gain = finding.gain.middle if finding.gain.middle is not None and finding.state == "finding" else 0.0
    cost = finding.cost_pct or finding.work_pct or 0.0
    return (not is_of_file, -gain if gain >= MIN_GAIN_PCT else 0.0, SEVERITIES.index(finding.severity), -cost, *by_weight(finding)[1:])


def _complete(answer: Answer, trace: Trace, ruleset: Ruleset) -> Answer:
    """The answer with what it costs and, of a finding, what acting gains and where; what gains nothing now is no warning."""
    subject, rule = _rank_of(answer, trace), answer.rule
    scope = Scope({"trace": trace, "rank": subject}, ruleset.tables)
    cost, work = rule.percent("cost", scope), rule.percent("work", scope)
    finding = msgspec.structs.replace(answer.finding, cost_pct=cost, work_pct=work)
    if finding.state == "finding":
        predicted = _prediction(rule.rule.predict, subject, trace, cost or work)
        gain = finding.gain if predicted is None else _gain(predicted)
        severity = "info" if finding.severity == "warning" and gain.high is not None and gain.high < MIN_COST_PCT else finding.severity
        finding = msgspec.structs.replace(finding, severity=severity, gain=gain, places=_places(rule.rule.predict, subject))
    return answer._replace(finding=of_runtime(finding, (subject or trace.ranks[0]).runtime if trace.ranks else None))


def _rank_of(answer: Answer, trace: Trace) -> Rank | None:
    """The rank that a finding is about; None where it is about all."""
    if len(trace.ranks) == 1:
        return trace.ranks[0]
    return answer.item.value if isinstance(answer.item.value, Rank) else None


def _prediction(fix: str, rank: Rank | None, trace: Trace, limit: float | None) -> Prediction | None:
    """What a replay without the finding's cause gains: never more than the time that the finding is about."""
    if fix == STRAGGLER:
        return of_straggler(trace.skew)
    if rank is None or not fix or not rank.replay.usable:
        return None
    predicted = next((candidate for candidate in rank.replay.predictions if candidate.fix == fix), None)
    if predicted is not None and fix == COMMUNICATION and _waits_for_late(rank, trace):
        predicted = msgspec.structs.replace(predicted, low=0.0, assumes=f"{predicted.assumes}; 0 while it waits for {trace.skew.who}")
    if predicted is None or limit is None or predicted.high <= limit:
        return predicted
    return msgspec.structs.replace(predicted, low=min(predicted.low, limit), high=limit)


def _waits_for_late(rank: Rank, trace: Trace) -> bool:
    """Whether this rank waits for a late one, so that what it does sooner makes it wait longer."""
    number = trace.ranks.index(rank) if rank.rank is None else rank.rank
    return bool(trace.skew.late) and number not in trace.skew.late


def _gain(predicted: Prediction) -> Gain:
    text = f"{predicted.text()} of the step by replay, if {predicted.assumes}; unmeasured"
    return Gain("replay", text, predicted.low, predicted.middle, predicted.high, predicted.assumes)


def _with_gains_of(answers: Sequence[Answer], trace: Trace, accounting: Accounting) -> Trace:
    """The trace with the gains that findings name; those that it has already stay."""
    named = {answer.rule.rule.predict for answer in answers if answer.finding.state == "finding"}
    (rank,) = trace.ranks
    if rank.replay.predictions or not any(named):
        return trace
    return msgspec.structs.replace(trace, ranks=(accounting.with_gains_of(rank, named),))


def _without_only_file(finding: Finding, trace: Trace) -> Finding:
    """A finding of a single trace is about that one, which the document names."""
    return with_subject(finding, MACHINE) if len(trace.ranks) == 1 else finding


def _places(fix: str, rank: Rank | None) -> tuple[Place, ...]:
    """The source lines that pay most for this cause."""
    if rank is None:
        return ()
    of_fix = {
        "sync": rank.sync_sites,
        "readbacks": rank.cpu.readback_sites if rank.cpu else (),
        "pageable": rank.sync_sites,
        "hole": rank.hole_sites,
        "loader": rank.loader_sites,
        "gc": rank.cpu.gc_sites if rank.cpu else (),
        "launch": rank.cpu.between_sites if rank.cpu else (),
    }
    sites = of_fix.get(fix, ())
    return tuple(dict.fromkeys(site.where for site in sites if site.where is not None))[:3]


def _together(found: Iterable[Answer], accounting: Accounting | None) -> Prediction | None:
    """All fixes at once, replayed rather than added up."""
    wanted = {answer.rule.rule.predict: answer.finding for answer in found if answer.finding.gain.basis == "replay"}
    if accounting is not None and accounting.window is not None and not accounting.times and len(wanted) > 1:
        return together_cpu({fix: finding.gain for fix, finding in wanted.items()})
    fixes = [BY_NAME[name] for name in wanted if name in BY_NAME]
    if len(fixes) < 2 or accounting is None or accounting.window is None or not accounting.times:
        return None
    low, high = accounting.replayer().gain([together(fixes)])
    low *= min(fix.sure for fix in fixes)
    limit = min(100.0, sum(finding.cost_pct or finding.work_pct or 0.0 for finding in wanted.values()))
    names = ", ".join(sorted(fix.name for fix in fixes))
    return Prediction(
        fix="together", low=min(low, limit), high=min(high, limit), assumes=f"all of these at once, replayed together: {names}"
    )
