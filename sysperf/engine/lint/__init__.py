"""The verb `lint`: the source of scripts becomes facts, rules judge them, and what they say are hypotheses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sysperf import __version__
from sysperf.engine.lint.beside import imported
from sysperf.engine.lint.workers import FEW, FILE_S, examine_all
from sysperf.evaluate.accepted import Baseline, Waiver
from sysperf.evaluate.judge import Answer, judge
from sysperf.evaluate.remedy import source_fix
from sysperf.evaluate.ruleset import Ruleset
from sysperf.evaluate.subject import fingerprint, with_subject
from sysperf.evaluate.waivers import apply_waivers
from sysperf.host import redact
from sysperf.model.finding import Finding, Place, Report, SourceEdit, Subject, Tally
from sysperf.model.rule import CONFIDENCES, SEVERITIES, Confidence
from sysperf.model.snapshot import Area, Snapshot
from sysperf.model.text import neutral
from sysperf.script.changes.codemods import CODEMODS, changes
from sysperf.script.comments import Acceptance, accepted, idle, short_names
from sysperf.script.examine import as_surroundings, facts, is_relevant, surroundings
from sysperf.script.exports import links, outline
from sysperf.script.facts import Script, Site
from sysperf.script.file import File
from sysperf.script.hypothesis import Examined, Lint, Note, Unread
from sysperf.script.notebook import Notebook
from sysperf.script.program import Program
from sysperf.script.semantics.links import News
from sysperf.script.semantics.modules import Modules
from sysperf.script.semantics.outside import NO_MODULES, NOTHING
from sysperf.script.source import Source, Unreadable, read_bytes
from sysperf.script.walk import Skipped, files, matches

if TYPE_CHECKING:
    from sysperf.collect.gpu import Gpu

MAX_CODE = 200
ROUNDS = 3
"""A loader that one file makes, another gets, and a third goes through is known to the first in the third."""
MAX_HYPOTHESES = 5_000
"""Of one file: a generated one can hold the same line any number of times."""


class Target(NamedTuple):
    """A file to read, or its content; one that was named is read whatever stands in it, and of one `beside` nothing is said."""

    path: str
    named: bool
    content: bytes | None = None
    beside: bool = False


class Choice(NamedTuple):
    """What is left out: files by pattern, rules in files of a pattern, and what is less sure than `least`.

    `known` are all names that a comment may use.
    """

    exclude: tuple[str, ...] = ()
    per_file: tuple[tuple[str, frozenset[str]], ...] = ()
    known: frozenset[str] = frozenset()
    least: Confidence = "low"

    def is_sure(self, finding: Finding) -> bool:
        """Whether it is as sure as is asked for that acting on it helps."""
        return CONFIDENCES.index(finding.confidence) <= CONFIDENCES.index(self.least)

    def ignored(self, path: str) -> frozenset[str]:
        """The rules that are not asked in a file."""
        return frozenset().union(*(rules for pattern, rules in self.per_file if matches(path, (pattern,))))


EVERYTHING = Choice()


def lint(
    paths: Iterable[str],
    ruleset: Ruleset,
    gpus: Gpu | None = None,
    choice: Choice = EVERYTHING,
    *,
    stdin: Target | None = None,
    file_s: float = FILE_S,
) -> Lint:
    """Read and judge scripts and folders of them. `gpus` are the machine's, where rules may ask for them. Raises UsageError."""
    start = time.perf_counter()
    skipped = Skipped()
    targets = [Target(path, named) for path, named in files(paths, choice.exclude, skipped)] + ([stdin] if stdin is not None else [])
    alone = targets if len(targets) <= FEW and all(target.named for target in targets) else []
    neighbours = imported((target.path, target.content) for target in alone)
    beside = [Target(path, named=False, content=part, beside=True) for path, part in neighbours.items()]
    modules = Modules(target.path for target in (*targets, *beside))

    def examine(some: Sequence[Target], news: Mapping[str, News]) -> list[Examined]:
        return examine_all(
            some,
            lambda target: examine_file(target, ruleset, gpus, choice, modules, news.get(target.path, NOTHING)),
            lambda target, why: unread(target.path, why),
            file_s=file_s,
        )

    examined = _with_news([*targets, *beside], examine)[: len(targets)]
    return _joined(examined, ruleset, skipped, (time.perf_counter() - start) * 1e3)


def _with_news(targets: Sequence[Target], examine: Callable[[Sequence[Target], Mapping[str, News]], list[Examined]]) -> list[Examined]:
    """All files; those that others say something of are examined again with that, at most `ROUNDS` times."""
    examined = examine(targets, {})
    heard: Mapping[str, News] = {}
    for round_ in range(ROUNDS if len(targets) > 1 else 0):
        news = Program({file.file: file.links for file in examined if file.links is not None}, heard).news()
        again = [
            number
            for number, target in enumerate(targets)
            if _is_new(news.get(target.path), heard.get(target.path), round_) and not (target.beside and round_ == ROUNDS - 1)
        ]
        if not again:
            break
        for number, anew in zip(again, examine([targets[number] for number in again], news), strict=True):
            examined[number] = anew if anew.unread is None or examined[number].unread is not None else examined[number]
        heard = {**heard, **{targets[number].path: news[targets[number].path] for number in again if targets[number].path in news}}
    return examined


def _is_new(news: News | None, heard: News | None, round_: int) -> bool:
    """Whether a file hears something that it has not heard; late on, only what is done with its loaders."""
    if news is None or news == heard or heard is None:
        return news is not None and heard is None and (round_ < ROUNDS - 1 or bool(news.uses))
    return news.uses != heard.uses or (round_ < ROUNDS - 1 and (news.called, news.classes) != (heard.called, heard.classes))


def _joined(examined: Sequence[Examined], ruleset: Ruleset, skipped: Skipped, took_ms: float) -> Lint:
    return Lint(
        sysperf=__version__,
        files=len(examined),
        lines=sum(file.lines for file in examined),
        rules=len(script_rules(ruleset)),
        hypotheses=tuple(hypothesis for file in examined for hypothesis in file.hypotheses),
        ignored=sum(file.ignored for file in examined),
        unsure=sum(file.unsure for file in examined),
        undecided=sum(file.undecided for file in examined),
        notes=tuple(note for file in examined for note in file.notes),
        skipped=skipped.folders + skipped.tests,
        excluded=skipped.excluded,
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


def open_source(target: Target) -> Source:
    """A script or a notebook. Raises Unreadable."""
    content = read_bytes(target.path) if target.content is None else target.content
    return (Notebook if target.path.endswith(".ipynb") else Source)(target.path, content)


def unread(path: str, reason: str, line: int = 0) -> Examined:
    """A file that says nothing."""
    return Examined(file=path, unread=Unread(path, line, neutral(reason)))


def examine_file(
    target: Target,
    ruleset: Ruleset,
    gpus: Gpu | None = None,
    choice: Choice = EVERYTHING,
    modules: Modules = NO_MODULES,
    news: News = NOTHING,
) -> Examined:
    """One file: its facts, judged."""
    try:
        source = open_source(target)
        if not target.named and news == NOTHING and not is_relevant(source):
            return Examined(file=target.path, lines=source.line_count, links=outline(source, modules))
        file = File(source, modules, news)
        return (
            judged(file, ruleset, gpus, choice) if not target.beside else Examined(file=target.path, links=links(file, surroundings(file)))
        )
    except Unreadable as error:
        if target.beside and target.content is not None:  # what was asked of it was cut out at a wrong place
            return examine_file(target._replace(content=None), ruleset, gpus, choice, modules, news)
        return unread(target.path, error.reason, error.line)


def judged(file: File, ruleset: Ruleset, gpus: Gpu | None = None, choice: Choice = EVERYTHING) -> Examined:
    """What the rules say of a file that was parsed, less what its comments and the project accept."""
    script, source = facts(file), file.source
    areas = {"script": Area(script), **({} if gpus is None else {"gpu": Area(gpus)})}
    answers = judge(ruleset, Snapshot(taken_at="", root=source.path, areas=areas), ("script",)).answers
    ignored = choice.ignored(source.path)
    found = [answer for answer in answers if answer.finding.state == "finding" and answer.finding.rule not in ignored]
    said = [(_hypothesis(answer, script, source), _lines(answer, script)) for answer in found]
    comments = accepted(source)
    sure = [(each, lines) for each, lines in said if choice.is_sure(each)]
    kept = [each for each, lines in sure if not any(comment.covers(each.rule, lines) for comment in comments)]
    kept.sort(key=lambda each: (*((place.cell, place.line, place.column) for place in each.places), each.rule))
    return Examined(
        file=source.path,
        lines=source.line_count,
        hypotheses=tuple(_with_fix(file, hypothesis) for hypothesis in kept[:MAX_HYPOTHESES]),
        ignored=len(sure) - len(kept),
        unsure=len(said) - len(sure),
        undecided=sum(answer.finding.state == "unknown" and answer.is_of_item for answer in answers),
        notes=tuple(_notes(source, comments, [(each.rule, lines) for each, lines in said], ruleset, choice)),
        unread=_left_out(source),
        links=links(file, as_surroundings(script), script) if file.names.outside.modules.several else None,
    )


def _lines(answer: Answer, script: Script) -> tuple[int, int]:
    """The first and last line of a place; of a notebook, in all its cells."""
    site = _site(answer, script)
    return site.line or 1, site.end_line or site.line or 1


def _notes(
    source: Source, comments: list[Acceptance], said: list[tuple[str, tuple[int, int]]], ruleset: Ruleset, choice: Choice
) -> Iterator[Note]:
    """The comments that do nothing, among the rules that were asked."""
    asked = {name for rule in ruleset.rules for name in short_names(rule.id)}
    named = [comment._replace(names=comment.names & asked | comment.names - choice.known) for comment in comments]
    judged_ones = [
        comment for comment, before in zip(named, comments, strict=True) if comment.names or (not before.names and asked >= choice.known)
    ]
    if choice.known:
        yield from (Note(source.path, line, neutral(text)) for line, text in idle(judged_ones, said, choice.known))


def _left_out(source: Source) -> Unread | None:
    """The cells of a notebook that are no Python: what the others say holds all the same."""
    return Unread(source.path, 0, source.problem) if isinstance(source, Notebook) and source.problem else None


def _hypothesis(answer: Answer, script: Script, source: Source) -> Finding:
    """The finding with its place. What is said of the whole file is shown at its first training loop."""
    site = _site(answer, script)
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


def _site(answer: Answer, script: Script) -> Site:
    return answer.item.value if isinstance(answer.item.value, Site) else _first_step(script)


def _first_step(script: Script) -> Site:
    loops = [loop for loop in script.loops or () if loop.kind == "step"]
    return loops[0] if loops else Site(line=1, column=1, end_line=1, end_column=1)


def _with_fix(file: File, hypothesis: Finding) -> Finding:
    """The hypothesis with the change that `sysperf lint --fix` makes, where the code is understood well enough."""
    if hypothesis.rule not in CODEMODS:
        return hypothesis
    alone = File(file.source) if file.names.outside.news != NOTHING else file  # as `--fix` reads it
    change = next(changes(alone, (hypothesis,)), None)
    if change is None:
        return hypothesis
    edits = tuple(SourceEdit(*file.source.place(edit.start), *file.source.place(edit.end), edit.text) for edit in change.edits)
    return msgspec.structs.replace(hypothesis, fixes=(*hypothesis.fixes, source_fix(file.source.path, hypothesis.rule, edits)))


def without_accepted(result: Lint, waivers: Sequence[Waiver], baseline: Baseline | None, ruleset: Ruleset) -> Lint:
    """The result without what the configuration's waivers or a baseline accept. One call sees some files: nothing is stale in it."""
    outcomes = apply_waivers(result.hypotheses, waivers, baseline, ruleset)
    kept = tuple(finding for finding in outcomes[: len(result.hypotheses)] if finding.state == "finding")
    return msgspec.structs.replace(result, hypotheses=kept, ignored=result.ignored + len(result.hypotheses) - len(kept))


def as_report(result: Lint) -> Report:
    """The hypotheses as a report of the audit, which every format shows; what could not be read is unknown there."""
    outcomes = tuple(sorted(result.hypotheses, key=lambda hypothesis: SEVERITIES.index(hypothesis.severity)))
    tally = Tally(rules=result.rules, findings=len(outcomes), unknown=result.undecided)
    nothing = Snapshot(taken_at="", areas={})
    return Report(
        sysperf=result.sysperf, snapshot=nothing, outcomes=outcomes, tally=tally, source_files=result.files, took_ms=result.took_ms
    )
