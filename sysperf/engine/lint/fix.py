"""The verb `lint --fix`: what hypotheses ask for and the code allows, as a diff, then as files, then taken back."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sysperf import paths
from sysperf.engine.lint import Target, open_source
from sysperf.host import files
from sysperf.model.finding import Finding
from sysperf.model.text import neutral
from sysperf.script.changes.backups import Backups, write
from sysperf.script.changes.codemods import changes
from sysperf.script.changes.edits import Change, apply
from sysperf.script.file import File
from sysperf.script.hypothesis import Lint
from sysperf.script.source import Source, Unreadable


class FileFix(NamedTuple):
    """A file and what it would become."""

    source: Source
    text: str
    changes: tuple[Change, ...]

    @property
    def after(self) -> bytes:
        """The content that will be written."""
        return self.source.encode(self.text)


class Written(NamedTuple):
    """The number that takes it back (0: nothing is), the files that were written, and those that were not, with the reason."""

    number: int
    written: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


def plan(result: Lint, stdin: Target | None = None) -> list[FileFix]:
    """What can be changed, file by file; what is not understood is left alone. `stdin` has its content beside its name."""
    by_file: dict[str, list[Finding]] = {}
    for hypothesis in result.hypotheses:
        if hypothesis.source_fix is not None:
            by_file.setdefault(hypothesis.source_fix.file, []).append(hypothesis)
    targets = [stdin if stdin is not None and path == stdin.path else Target(path, named=True) for path in by_file]
    fixes = [fix for target in targets if (fix := fix_file(target, by_file[target.path])) is not None]
    return [fix for fix in fixes if fix.changes]


def fix_file(target: Target, hypotheses: Iterable[Finding]) -> FileFix | None:
    """One file; None where it cannot be read any more, or the result would not be right."""
    try:
        return fixed(File(open_source(target)), hypotheses)
    except Unreadable:
        return None


def fixed(file: File, hypotheses: Iterable[Finding]) -> FileFix:
    """What a parsed file would become. Raises Unreadable where that would not parse."""
    text, made_changes = apply(file.source, changes(file, hypotheses))
    return FileFix(file.source, text, tuple(made_changes))


def diff(fixes: Sequence[FileFix]) -> str:
    """All changes as a unified diff."""
    return "".join(line for fix in fixes for line in _diff(fix))


def _diff(fix: FileFix) -> Iterable[str]:
    name = neutral(fix.source.path, 4_000).lstrip("/")
    old, new = (text.splitlines() for text in (fix.source.text, fix.text))
    for line in difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""):
        yield neutral(line.replace("\t", "    "), 2_000) + "\n"


def write_all(fixes: Sequence[FileFix]) -> Written:
    """Keep what the files held, then write them one by one. Raises UsageError where that cannot be kept."""
    targets: dict[str, FileFix] = {}
    problems: dict[str, str] = {}
    for fix in fixes:
        try:
            targets[files.link_target(fix.source.path)] = fix
        except OSError as error:  # noqa: PERF203 - a file that cannot be written leaves the others
            problems[fix.source.path] = error.strerror or str(error)
    number = backups().store({path: (fix.source.raw, fix.after) for path, fix in targets.items()}).number if targets else 0
    problems |= {fix.source.path: _write(path, fix) for path, fix in targets.items()}
    written = tuple(path for path, problem in problems.items() if not problem)
    if number and not written and backups().forget_unwritten(number):
        number = 0
    return Written(number, written, tuple((path, problem) for path, problem in problems.items() if problem))


def _write(path: str, fix: FileFix) -> str:
    """Write one file; why that could not be done, or nothing."""
    try:
        write(path, fix.source.raw, fix.after)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def backups() -> Backups:
    """Return this user's records."""
    return Backups(f"{paths.user_state_folder()}/lint")
