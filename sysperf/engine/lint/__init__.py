"""The verb `lint`: the source of scripts becomes facts, rules judge them, and what they say are hypotheses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sysperf import __version__
from sysperf.engine.lint.workers import FILE_S, examine_all
from sysperf.evaluate.compiled import Compiled
from sysperf.evaluate.evidence import Ledger
from sysperf.evaluate.functions import Unknown
from sysperf.evaluate.judge import Judge, scope_names
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.scope import Scope
from sysperf.evaluate.subject import Subject, fingerprint
from sysperf.evaluate.waivers import Baseline, Waiver, apply_waivers
from sysperf.host import redact
from sysperf.model.outcome import Outcome, Report, SourcePlace, Tally
from sysperf.model.rule import SEVERITIES
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral
from sysperf.script.codemods import CODEMODS, changes
from sysperf.script.comments import Accepted, accepted
from sysperf.script.examine import facts, is_relevant
from sysperf.script.facts import Script, Site
from sysperf.script.file import File
from sysperf.script.hypothesis import Examined, Hypothesis, Lint, Unread
from sysperf.script.notebook import Notebook
from sysperf.script.source import Source, Unreadable, read_bytes
from sysperf.script.walk import files

if TYPE_CHECKING:
    from sysperf.collect.gpu import Gpu

MAX_CODE = 200
MAX_HYPOTHESES = 5_000
"""Of one file: a generated one can hold the same line any number of times."""


class Target(NamedTuple):
    """A file to read; one that was named is read whatever stands in it."""

    path: str
    named: bool


def lint(paths: Iterable[str], ruleset: Ruleset, gpus: Gpu | None = None, *, file_s: float = FILE_S) -> Lint:
    """Read and judge scripts and folders of them. `gpus` are the machine's, where rules may ask for them. Raises UsageError."""
    start = time.perf_counter()
    targets = [Target(path, named) for path, named in files(paths)]
    examined = examine_all(
        targets, lambda target: examine_file(target, ruleset, gpus), lambda target, why: unread(target.path, why), file_s=file_s
    )
    return _joined(examined, ruleset, (time.perf_counter() - start) * 1e3)


def _joined(examined: Sequence[Examined], ruleset: Ruleset, took_ms: float) -> Lint:
    return Lint(
        sysperf=__version__,
        files=len(examined),
        lines=sum(file.lines for file in examined),
        rules=len(script_rules(ruleset)),
        hypotheses=tuple(hypothesis for file in examined for hypothesis in file.hypotheses),
        ignored=sum(file.ignored for file in examined),
        undecided=sum(file.undecided for file in examined),
        unread=tuple(file.unread for file in examined if file.unread is not None),
        took_ms=round(took_ms, 1),
    )


def script_rules(ruleset: Ruleset) -> list[str]:
    """The keys of the rules that judge scripts."""
    return [rule.key for rule in ruleset.rules if rule.scope == "script"]


def near(result: Lint, file: str, line: int | None = None, function: str = "") -> tuple[Hypothesis, ...]:
    """The hypotheses about a place that a stack or a trace names: a file's, in a function or across a line where one is given.

    `file` is a path, or the end of one; `function` is its bare name, as stacks have it.
    """
    return tuple(
        hypothesis
        for hypothesis in result.hypotheses
        if f"/{hypothesis.file}".endswith(f"/{file.lstrip('./')}") or f"/{file}".endswith(f"/{hypothesis.file.lstrip('./')}")
        if not function or hypothesis.function.rpartition(".")[2] == function
        if line is None or hypothesis.line <= line <= hypothesis.end_line
    )


def open_source(path: str) -> Source:
    """A script or a notebook. Raises Unreadable."""
    return (Notebook if path.endswith(".ipynb") else Source)(path, read_bytes(path))


def unread(path: str, reason: str, line: int = 0) -> Examined:
    """A file that says nothing."""
    return Examined(file=path, unread=Unread(path, line, neutral(reason)))


def examine_file(target: Target, ruleset: Ruleset, gpus: Gpu | None = None) -> Examined:
    """One file: its facts, judged."""
    try:
        source = open_source(target.path)
        if not target.named and not is_relevant(source):
            return Examined(file=target.path, lines=len(source.starts))
        return judged(File(source), ruleset, gpus)
    except Unreadable as error:
        return unread(target.path, error.reason, error.line)


def judged(file: File, ruleset: Ruleset, gpus: Gpu | None = None) -> Examined:
    """What the rules say of a file that was parsed, less what its comments accept."""
    judging = _Judging(file.source, facts(file), ruleset, gpus)
    comments = accepted(file.source)
    hypotheses = [*judging.hypotheses()]
    kept = [hypothesis for hypothesis in hypotheses if not _is_accepted(hypothesis, comments)]
    kept.sort(key=lambda hypothesis: (hypothesis.cell, hypothesis.line, hypothesis.column, hypothesis.rule))
    return Examined(
        file=file.source.path,
        lines=len(file.source.starts),
        hypotheses=_with_fixes(file, kept[:MAX_HYPOTHESES]),
        ignored=len(hypotheses) - len(kept),
        undecided=judging.undecided,
    )


def _with_fixes(file: File, hypotheses: list[Hypothesis]) -> tuple[Hypothesis, ...]:
    """The hypotheses, with those marked whose code is understood well enough to be changed."""
    if not any(hypothesis.rule in CODEMODS for hypothesis in hypotheses):
        return tuple(hypotheses)
    fixable = {hypothesis for hypothesis in hypotheses if next(changes(file, (hypothesis,)), None) is not None}
    return tuple(msgspec.structs.replace(hypothesis, fixable=True) if hypothesis in fixable else hypothesis for hypothesis in hypotheses)


def _is_accepted(hypothesis: Hypothesis, comments: Accepted) -> bool:
    return bool(comments.lines) and not hypothesis.cell and comments.covers(hypothesis.rule, hypothesis.line, hypothesis.end_line)


class _Judging:
    """The rules of scope `script` on one file."""

    def __init__(self, source: Source, script: Script, ruleset: Ruleset, gpus: Gpu | None) -> None:
        self._source = source
        self._script = script
        self._ruleset = ruleset
        areas = {"script": Area(script), **({} if gpus is None else {"gpu": Area(gpus)})}
        snapshot = Snapshot(taken_at="", root=source.path, areas=areas)
        self._names = scope_names(snapshot)
        self._ledger = Ledger(snapshot)
        self.undecided = 0

    def hypotheses(self) -> Iterator[Hypothesis]:
        """All that fire."""
        for rule_id in script_rules(self._ruleset):
            rule = self._ruleset.compiled(rule_id)
            for subject in self._subjects(rule):
                judge = Judge(self._names, self._ruleset.tables, self._ledger)
                judge.subject(rule, subject)
                for outcome in judge.outcomes:
                    if outcome.state == "finding":
                        yield self._hypothesis(outcome, rule, subject)
                    self.undecided += outcome.state == "unknown"

    def _subjects(self, rule: Compiled) -> list[Subject]:
        if not rule.loop:
            return [Subject()]
        items = rule.items(Scope(dict(self._names), self._ruleset.tables))
        return [] if isinstance(items, Unknown) else [Subject(rule.loop, item, place) for place, item in enumerate(items)]

    def _hypothesis(self, outcome: Outcome, rule: Compiled, subject: Subject) -> Hypothesis:
        site = subject.item if isinstance(subject.item, Site) else self._first_step()
        line, column = site.line or 1, site.column or 1
        cell, line_in_cell = self._source.cell(line)
        code = neutral(redact.source_line(self._source.line(line)), MAX_CODE)
        return Hypothesis(
            rule=outcome.rule,
            witness=rule.rule.witness,
            explains=rule.rule.explains,
            severity=outcome.severity,
            confidence=outcome.confidence,
            title=outcome.title,
            message=outcome.message,
            file=self._source.path,
            cell=cell,
            line=line_in_cell,
            column=column,
            end_line=(site.end_line or line) - line + line_in_cell,
            end_column=site.end_column or column,
            function=site.function or "",
            code=code,
            because=outcome.because,
            why=outcome.why,
            fixes=tuple(fix.title or fix.note for fix in outcome.fixes),
            refs=outcome.refs,
            fingerprint=fingerprint(outcome.rule, f"{self._source.path}\0{site.function}\0{code}"),
        )

    def _first_step(self) -> Site:
        """Return where a statement about the whole file is shown: at its first training loop."""
        loops = [loop for loop in self._script.loops or () if loop.kind == "step"]
        return loops[0] if loops else Site(line=1, column=1, end_line=1, end_column=1)


def without_accepted(result: Lint, waivers: Sequence[Waiver], baseline: Baseline | None, ruleset: Ruleset) -> Lint:
    """The result without what the configuration's waivers or a baseline accept. One call sees some files: nothing is stale in it."""
    outcomes = apply_waivers([_outcome(hypothesis) for hypothesis in result.hypotheses], waivers, baseline, ruleset)
    kept = [hypothesis for hypothesis, outcome in zip(result.hypotheses, outcomes, strict=False) if outcome.state == "finding"]
    return msgspec.structs.replace(result, hypotheses=tuple(kept), ignored=result.ignored + len(result.hypotheses) - len(kept))


def as_report(result: Lint) -> Report:
    """The hypotheses as a report of the audit, which every format shows; what could not be read is unknown there."""
    outcomes = sorted(
        (_outcome(hypothesis) for hypothesis in result.hypotheses), key=lambda hypothesis: SEVERITIES.index(hypothesis.severity)
    )
    tally = Tally(rules=result.rules, findings=len(outcomes), unknown=result.undecided)
    return Report(
        sysperf=result.sysperf, snapshot=Snapshot(taken_at="", areas={}), outcomes=tuple(outcomes), tally=tally, took_ms=result.took_ms
    )


def _outcome(hypothesis: Hypothesis) -> Outcome:
    place = SourcePlace(hypothesis.file, hypothesis.line, hypothesis.column, hypothesis.end_line, hypothesis.end_column, hypothesis.code)
    return Outcome(
        rule=hypothesis.rule,
        state="finding",
        severity=hypothesis.severity,  # type: ignore[arg-type]
        scope="script",
        title=hypothesis.title,
        subject=hypothesis.place,
        message=hypothesis.message,
        why=hypothesis.why,
        because=hypothesis.because,
        confidence=hypothesis.confidence,  # type: ignore[arg-type]
        refs=hypothesis.refs,
        key=f"{hypothesis.rule}@{hypothesis.place}",
        fingerprint=hypothesis.fingerprint,
        place=place,
    )
