"""The verb `analyze`: traces become facts, rules judge them, and each finding gets what a replay says it is worth."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from sysperf import __version__
from sysperf.engine.reading import now
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.judge import Judge, rank, scope_names
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope
from sysperf.host.forked import ending_with_parent
from sysperf.model.errors import TraceError
from sysperf.model.outcome import Gain, Outcome, Report
from sysperf.model.rule import SEVERITIES
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral
from sysperf.trace.accounting.account import Accounting
from sysperf.trace.accounting.verdict import of_job
from sysperf.trace.facts import MAX_PATH, Prediction, Rank, Trace
from sysperf.trace.output.analysis import MIN_GAIN_PCT, Analysis, Finding
from sysperf.trace.ranks import RankSummary, job, summarize
from sysperf.trace.reading.readers import read
from sysperf.trace.replay.fixes import BY_NAME, STRAGGLER, of_straggler, together, together_cpu

MAX_RANKS = 4_096
Progress = Callable[[str, float], None]
"""Told which file is read, and the part of it that was read so far."""


class Result(NamedTuple):
    """An analysis, as it is published and as a report of the audit, which every format shows."""

    analysis: Analysis
    report: Report
    accounting: Accounting | None = None
    """Of a single trace, for faces that draw it."""


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
    return judged(job([read.summary for read in each], ranks), ruleset)


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

    ending_with_parent(signal.SIGKILL)()
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
    judge = Judge(scope_names(snapshot), ruleset.tables, Ledger(snapshot))
    for rule in ruleset.rules:
        if rule.scope == "trace":
            judge.rule(ruleset.compiled(rule.key))
    if accounting is not None:
        trace = _with_gains_of(judge.outcomes, trace, ruleset, accounting)
    outcomes = [_with_gain(outcome, trace, ruleset) for outcome in judge.outcomes]
    outcomes.sort(key=lambda outcome: _order(outcome, trace, ruleset))
    findings = tuple(_finding(outcome, trace, ruleset) for outcome in outcomes if outcome.state == "finding")
    report = Report(sysperf=__version__, snapshot=snapshot, outcomes=tuple(outcomes), tally=judge.tally(outcomes))
    unknown = tuple(sorted({outcome.rule for outcome in outcomes if outcome.state == "unknown"}))
    return Result(Analysis(trace=trace, findings=findings, together=_together(findings, accounting), unknown=unknown), report, accounting)


def _order(outcome: Outcome, trace: Trace, ruleset: Ruleset) -> tuple[object, ...]:
    """Whether the file can be believed first, then findings by what acting gains, by severity, and by what they cost."""
    gain, cost = prediction(outcome, trace, ruleset), exposed(outcome, trace, ruleset) or work(outcome, trace, ruleset)
    is_of_file = outcome.rule.startswith(OF_FILE) and outcome.severity != "info"
    worth = gain.middle if gain is not None and outcome.state == "finding" else 0.0
    severity = SEVERITIES.index(outcome.severity)
    return (not is_of_file, -worth if worth >= MIN_GAIN_PCT else 0.0, severity, -(cost or 0.0), *rank(outcome)[1:])


def subject_rank(outcome: Outcome, trace: Trace) -> Rank | None:
    """The rank that a finding is about; None where it is about all."""
    if len(trace.ranks) == 1:
        return trace.ranks[0]
    return next((rank for rank in trace.ranks if outcome.subject == neutral(rank.path, MAX_PATH)), None)


def exposed(outcome: Outcome, trace: Trace, ruleset: Ruleset) -> float | None:
    """The exposed time that a finding is about, by its rule's `cost`."""
    return _share(outcome, trace, ruleset, "cost", ruleset.of(outcome).rule.cost)


def work(outcome: Outcome, trace: Trace, ruleset: Ruleset) -> float | None:
    """The busy time of the kernels or operators that a finding is about, by its rule's `work`. It is no exposed time: nothing waits."""
    return _share(outcome, trace, ruleset, "work", ruleset.of(outcome).rule.work)


def _share(outcome: Outcome, trace: Trace, ruleset: Ruleset, key: str, text: str) -> float | None:
    """The value of an expression about the rank that a finding is about; None where there is none, or it is unknown."""
    if not text:
        return None
    names = {"trace": trace, "rank": subject_rank(outcome, trace)}
    value = ruleset.of(outcome).expression(text, key)(Scope(names, ruleset.tables))
    return None if isinstance(value, Unknown) or not isinstance(value, int | float) else float(value)


def prediction(outcome: Outcome, trace: Trace, ruleset: Ruleset) -> Prediction | None:
    """What a replay without the finding's cause gains: never more than the time that the finding is about."""
    rank, wanted = subject_rank(outcome, trace), ruleset.of(outcome).rule.predict
    if wanted == STRAGGLER:
        return of_straggler(trace.skew)
    if rank is None or not wanted or not rank.replay.usable:
        return None
    predicted = next((candidate for candidate in rank.replay.predictions if candidate.fix == wanted), None)
    limit = exposed(outcome, trace, ruleset) or work(outcome, trace, ruleset)
    if predicted is None or limit is None or predicted.high <= limit:
        return predicted
    return msgspec.structs.replace(predicted, low=min(predicted.low, limit), high=limit)


def _with_gains_of(outcomes: Sequence[Outcome], trace: Trace, ruleset: Ruleset, accounting: Accounting) -> Trace:
    """The trace with the gains that findings name; those that it has already stay."""
    named = {ruleset.of(outcome).rule.predict for outcome in outcomes if outcome.state == "finding"}
    (rank,) = trace.ranks
    if rank.replay.predictions or not any(named):
        return trace
    return msgspec.structs.replace(trace, ranks=(accounting.with_gains_of(rank, named),))


def _with_gain(outcome: Outcome, trace: Trace, ruleset: Ruleset) -> Outcome:
    predicted = prediction(outcome, trace, ruleset) if outcome.state == "finding" else None
    if predicted is None:
        return outcome
    return msgspec.structs.replace(outcome, gain=Gain(text=f"{predicted.text()} of the step by replay, if {predicted.assumes}; unmeasured"))


def _finding(outcome: Outcome, trace: Trace, ruleset: Ruleset) -> Finding:
    rule = ruleset.of(outcome).rule
    rank = subject_rank(outcome, trace)
    cost = exposed(outcome, trace, ruleset)
    return Finding(
        id=outcome.rule,
        severity=outcome.severity,
        title=outcome.title,
        message=outcome.message,
        subject=outcome.subject if len(trace.ranks) > 1 else "",
        exposed_pct=cost,
        work_pct=work(outcome, trace, ruleset),
        predicted_gain=prediction(outcome, trace, ruleset),
        where=_places(rule.predict, rank),
        why=outcome.why,
        fixes=tuple(fix.title or fix.note for fix in outcome.fixes),
        refs=outcome.refs,
    )


def _places(fix: str, rank: Rank | None) -> tuple[str, ...]:
    """The source lines that pay most for this cause."""
    if rank is None:
        return ()
    of_fix = {
        "sync": rank.sync_sites,
        "pageable": rank.sync_sites,
        "hole": rank.hole_sites,
        "loader": rank.loader_sites,
        "gc": rank.cpu.gc_sites if rank.cpu else (),
        "launch": rank.cpu.between_sites if rank.cpu else (),
    }
    sites = of_fix.get(fix, ())
    lines = dict.fromkeys(site.where for site in sites if site.where)
    return tuple(lines)[:3]


def _together(findings: tuple[Finding, ...], accounting: Accounting | None) -> Prediction | None:
    """All fixes at once, replayed rather than added up."""
    wanted = {finding.predicted_gain.fix: finding for finding in findings if finding.predicted_gain is not None}
    if accounting is not None and accounting.window is not None and not accounting.times and len(wanted) > 1:
        return together_cpu([finding.predicted_gain for finding in wanted.values() if finding.predicted_gain is not None])
    fixes = [BY_NAME[name] for name in wanted if name in BY_NAME]
    if len(fixes) < 2 or accounting is None or accounting.window is None or not accounting.times:
        return None
    low, high = accounting.replayer().gain([together(fixes)])
    low *= min(fix.sure for fix in fixes)
    limit = min(100.0, sum(cause.exposed_pct or cause.work_pct or 0.0 for cause in wanted.values()))
    names = ", ".join(sorted(fix.name for fix in fixes))
    return Prediction(
        fix="together", low=min(low, limit), high=min(high, limit), assumes=f"all of these at once, replayed together: {names}"
    )
