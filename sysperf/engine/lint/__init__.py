"""The verb `lint`: the source of scripts becomes facts, rules judge them, and what they say are hypotheses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sysperf import __version__
from sysperf.engine.lint.workers import FILE_S, examine_all
from sysperf.evaluate.judge import Answer, judge
from sysperf.evaluate.remedy import source_fix
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import fingerprint, with_subject
from sysperf.evaluate.waivers import Baseline, Waiver, apply_waivers
from sysperf.host import redact
from sysperf.model.finding import Finding, Place, Report, Subject, Tally
from sysperf.model.rule import SEVERITIES
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral
from sysperf.script.codemods import CODEMODS, changes
from sysperf.script.comments import Accepted, accepted
from sysperf.script.examine import facts, is_relevant
from sysperf.script.facts import Script, Site
from sysperf.script.file import File
from sysperf.script.hypothesis import Examined, Lint, Unread
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


def near(result: Lint, file: str, line: int | None = None, function: str = "") -> tuple[Finding, ...]:
    """The hypotheses about a place that a stack or a trace names: a file's, in a function or across a line where one is given.

    `file` is a path, or the end of one; `function` is its bare name, as stacks have it.
    """
    return tuple(
        hypothesis
        for hypothesis in result.hypotheses
        for place in hypothesis.places
        if f"/{place.file}".endswith(f"/{file.lstrip('./')}") or f"/{file}".endswith(f"/{place.file.lstrip('./')}")
        if not function or place.function.rpartition(".")[2] == function
        if line is None or place.line <= line <= place.end_line
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
    script, source = facts(file), file.source
    areas = {"script": Area(script), **({} if gpus is None else {"gpu": Area(gpus)})}
    answers = judge(ruleset, Snapshot(taken_at="", root=source.path, areas=areas), ("script",)).answers
    found = [answer for answer in answers if answer.finding.state == "finding"]
    comments = accepted(source)
    hypotheses = [_hypothesis(answer, script, source) for answer in found]
    kept = [hypothesis for hypothesis in hypotheses if not _is_accepted(hypothesis, comments)]
    kept.sort(key=lambda each: (*((place.cell, place.line, place.column) for place in each.places), each.rule))
    return Examined(
        file=source.path,
        lines=len(source.starts),
        hypotheses=tuple(_with_fix(file, hypothesis) for hypothesis in kept[:MAX_HYPOTHESES]),
        ignored=len(found) - len(kept),
        undecided=sum(answer.finding.state == "unknown" and answer.is_of_item for answer in answers),
    )


def _hypothesis(answer: Answer, script: Script, source: Source) -> Finding:
    """The finding with its place. What is said of the whole file is shown at its first training loop."""
    site = answer.item.value if isinstance(answer.item.value, Site) else _first_step(script)
    line, column = site.line or 1, site.column or 1
    cell, line_in_cell = source.cell(line)
    code = neutral(redact.source_line(source.line(line)), MAX_CODE)
    place = Place(
        source.path, line_in_cell, site.function or "", code, cell=cell, column=column,
        end_line=(site.end_line or line) - line + line_in_cell, end_column=site.end_column or column,
    )  # fmt: skip
    name = fingerprint(answer.finding.rule, f"{source.path}\0{site.function}\0{code}")
    finding = with_subject(answer.finding, Subject("item", place.start))
    return msgspec.structs.replace(finding, places=(place,), fingerprint=name, evidence=())


def _first_step(script: Script) -> Site:
    loops = [loop for loop in script.loops or () if loop.kind == "step"]
    return loops[0] if loops else Site(line=1, column=1, end_line=1, end_column=1)


def _is_accepted(hypothesis: Finding, comments: Accepted) -> bool:
    return bool(comments.lines) and any(
        not place.cell and comments.covers(hypothesis.rule, place.line, place.end_line) for place in hypothesis.places
    )


def _with_fix(file: File, hypothesis: Finding) -> Finding:
    """The hypothesis with the change that `sysperf lint --fix` makes, where the code is understood well enough."""
    if hypothesis.rule not in CODEMODS or next(changes(file, (hypothesis,)), None) is None:
        return hypothesis
    return msgspec.structs.replace(hypothesis, fixes=(*hypothesis.fixes, source_fix(file.source.path, hypothesis.rule)))


def without_accepted(result: Lint, waivers: Sequence[Waiver], baseline: Baseline | None, ruleset: Ruleset) -> Lint:
    """The result without what the configuration's waivers or a baseline accept. One call sees some files: nothing is stale in it."""
    outcomes = apply_waivers(result.hypotheses, waivers, baseline, ruleset)
    kept = tuple(finding for finding in outcomes[: len(result.hypotheses)] if finding.state == "finding")
    return msgspec.structs.replace(result, hypotheses=kept, ignored=result.ignored + len(result.hypotheses) - len(kept))


def as_report(result: Lint) -> Report:
    """The hypotheses as a report of the audit, which every format shows; what could not be read is unknown there."""
    outcomes = tuple(sorted(result.hypotheses, key=lambda hypothesis: SEVERITIES.index(hypothesis.severity)))
    tally = Tally(rules=result.rules, findings=len(outcomes), unknown=result.undecided)
    return Report(sysperf=result.sysperf, snapshot=Snapshot(taken_at="", areas={}), outcomes=outcomes, tally=tally, took_ms=result.took_ms)
