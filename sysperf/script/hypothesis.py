"""What the source of scripts makes likely, as records: `sysperf lint --json` prints them, `diagnose` joins them with what it measured."""

from typing import Annotated, Literal

from sysperf.model.finding import Finding
from sysperf.model.record import JsonObject, Record, document_schema, fact
from sysperf.script.semantics.links import Links


class Unread(Record):
    """A file that says nothing, and why."""

    file: str
    line: Annotated[int, fact("0: the whole file")]
    reason: str


class Note(Record):
    """A comment `# sysperf: ignore` that does nothing, and why."""

    file: str
    line: int
    text: str


class Examined(Record, kw_only=True):
    """One file, judged."""

    file: str
    lines: int = 0
    hypotheses: tuple[Finding, ...] = ()
    ignored: int = 0
    unsure: int = 0
    undecided: int = 0
    notes: tuple[Note, ...] = ()
    unread: Unread | None = None
    links: Annotated[Links | None, fact("what it tells the other files of the call")] = None


class Lint(Record, kw_only=True):
    """All files of one call."""

    schema: Literal[1] = 1
    sysperf: str
    files: Annotated[int, fact("files that were read")] = 0
    lines: int = 0
    rules: int = 0
    hypotheses: tuple[Finding, ...] = ()
    ignored: Annotated[int, fact("hits that a comment (`# sysperf: ignore[RULE]`), a waiver or a baseline accepts")] = 0
    unsure: Annotated[int, fact("hits of less confidence than is asked for")] = 0
    undecided: Annotated[int, fact("checks that the source does not decide, such as a number of workers that is computed")] = 0
    notes: Annotated[tuple[Note, ...], fact("comments that accept nothing, or name no rule")] = ()
    skipped: Annotated[int, fact("tests, and folders of builds and environments, below the folders that were named")] = 0
    excluded: Annotated[int, fact("files and folders that the project or --exclude leaves out")] = 0
    unread: tuple[Unread, ...] = ()
    took_ms: float = 0.0


def schema() -> JsonObject:
    """The JSON schema (2020-12) of `Lint`."""
    return document_schema("lint", Lint)
