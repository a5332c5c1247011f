"""What the source of scripts makes likely, as records: `sysperf lint --json` prints them, `diagnose` joins them with what it measured."""

from typing import Annotated, Literal

from sysperf.model.record import JsonObject, Record, fact, json_schema

SCHEMA_ID = "urn:sysperf:lint:1"


class Hypothesis(Record, kw_only=True):
    """A rule that fired on a place in the source. It is no finding before a live signal, a trace or a trial confirms it."""

    rule: str
    witness: Annotated[str, fact("which witness of the cause it is")] = ""
    explains: Annotated[tuple[str, ...], fact("causes that `analyze` and `diagnose` find where this one is at work")] = ()
    severity: str
    confidence: str
    title: str
    message: str
    file: str
    cell: Annotated[int, fact("of a notebook, the cell that `line` counts in; 0: no notebook")] = 0
    line: Annotated[int, fact("from 1")]
    column: Annotated[int, fact("in characters, from 1")]
    end_line: int
    end_column: Annotated[int, fact("column behind the last character")]
    function: Annotated[str, fact("function around it, with its class; empty: the module")] = ""
    code: Annotated[str, fact("the line of source")] = ""
    because: Annotated[str, fact("what would exempt it and is unknown")] = ""
    why: str = ""
    fixes: tuple[str, ...] = ()
    fixable: Annotated[bool, fact("`sysperf lint --fix` can change it")] = False
    refs: tuple[str, ...] = ()
    fingerprint: Annotated[str, fact("stays the same when lines above it change")] = ""

    @property
    def place(self) -> str:
        """``train.py:12:5``, as editors take it; of a notebook, with its cell."""
        cell = f" cell {self.cell}" if self.cell else ""
        return f"{self.file}{cell}:{self.line}:{self.column}"


class Unread(Record):
    """A file that says nothing, and why."""

    file: str
    line: Annotated[int, fact("0: the whole file")]
    reason: str


class Examined(Record, kw_only=True):
    """One file, judged."""

    file: str
    lines: int = 0
    hypotheses: tuple[Hypothesis, ...] = ()
    ignored: int = 0
    undecided: int = 0
    unread: Unread | None = None


class Lint(Record, kw_only=True):
    """All files of one call."""

    schema: Literal[1] = 1
    sysperf: str
    files: Annotated[int, fact("files that were read")] = 0
    lines: int = 0
    rules: int = 0
    hypotheses: tuple[Hypothesis, ...] = ()
    ignored: Annotated[int, fact("hits that a comment (`# sysperf: ignore[RULE]`), a waiver or a baseline accepts")] = 0
    undecided: Annotated[int, fact("checks that the source does not decide, such as a number of workers that is computed")] = 0
    unread: tuple[Unread, ...] = ()
    took_ms: float = 0.0


def schema() -> JsonObject:
    """The JSON schema (2020-12) of `Lint`."""
    heading = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, "title": "sysperf lint"}
    return {**heading, **json_schema(Lint)}
