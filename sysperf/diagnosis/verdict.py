"""What a diagnosis says: signals for and against causes, causes with what acting gains, and one verdict."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.diagnosis.facts import Diagnosis
from sysperf.model.finding import Finding
from sysperf.model.record import JsonObject, Record, document_schema, fact

Word = Literal["slowed", "healthy", "idle", "cannot-tell"]


class Verdict(Record, kw_only=True):
    """A diagnosis, as it is published."""

    schema: Literal[1] = 1
    sysperf: str
    pid: int
    command: str = ""
    verdict: Word
    sentence: str
    causes: Annotated[tuple[Finding, ...], fact("confirmed and likely ones, by predicted gain")] = ()
    dropped: Annotated[tuple[Finding, ...], fact("causes that a signal contradicted, or that another cause explains")] = ()
    hypotheses: Annotated[tuple[Finding, ...], fact("what `sysperf lint` says of the functions that it runs, raised ones first")] = ()
    changed: Annotated[str, fact("what was answered some minutes before, and what has changed since; empty where it was the same")] = ""
    notes: Annotated[tuple[str, ...], fact("what could not be observed, and why")] = ()
    next: Annotated[str, fact("the command to run next, where the cause is unknown")] = ""
    took_s: float = 0.0
    facts: Diagnosis = Diagnosis()


def schema() -> JsonObject:
    """The JSON schema (2020-12) of a `Verdict`."""
    return document_schema("diagnosis", Verdict)
