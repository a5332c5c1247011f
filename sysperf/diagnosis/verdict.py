"""What a diagnosis says: signals for and against causes, causes with what acting gains, and one verdict (docs/diagnose.schema.json)."""

from __future__ import annotations

from typing import Annotated, Literal

from sysperf.diagnosis.facts import Diagnosis, Line
from sysperf.model.finding import Remedy
from sysperf.model.record import JsonObject, Record, fact, json_schema
from sysperf.model.rule import SignalSource

SCHEMA_ID = "urn:sysperf:diagnosis:1"
State = Literal["confirmed", "likely", "contradicted", "explained"]
Word = Literal["slowed", "healthy", "idle", "cannot-tell"]


class Signal(Record, kw_only=True):
    """One observation about one cause."""

    source: SignalSource
    supports: Annotated[bool, fact("false: it speaks against the cause")] = True
    text: str = ""


class Hypothesis(Record, kw_only=True):
    """A place in the source that may be slow, and what was seen of it."""

    rule: Annotated[str, fact("of `sysperf lint`")]
    title: str
    file: str
    line: int
    raised_by: Annotated[tuple[str, ...], fact("causes, and rules of `sysperf analyze`, that confirm it; none: a hypothesis")] = ()


class Cause(Record, kw_only=True):
    """Something that slows the job down, or was thought to."""

    id: str
    title: str
    state: State
    message: str
    subjects: Annotated[tuple[str, ...], fact("the programs or ranks that it is about")] = ()
    pids: tuple[int, ...] = ()
    gain: Annotated[float | None, fact("percent of the step that acting is predicted to save; null: no prediction")] = None
    gain_low: Annotated[float | None, fact("the same, where the prediction is too high")] = None
    gain_high: Annotated[float | None, fact("the same, where it is too low")] = None
    signals: tuple[Signal, ...] = ()
    where: Annotated[tuple[Line, ...], fact("the user's own lines")] = ()
    why: str = ""
    because: Annotated[str, fact("for causes that were dropped: why")] = ""
    fixes: tuple[Remedy, ...] = ()
    verify: Annotated[str, fact("the command that proves the fix; empty where there is no speed to compare")] = ""
    refs: tuple[str, ...] = ()


class Verdict(Record, kw_only=True):
    """A diagnosis, as it is published."""

    schema: Literal[1] = 1
    sysperf: str
    pid: int
    command: str = ""
    verdict: Word
    sentence: str
    causes: Annotated[tuple[Cause, ...], fact("confirmed and likely ones, by predicted gain")] = ()
    dropped: Annotated[tuple[Cause, ...], fact("causes that a signal contradicted, or that another cause explains")] = ()
    hypotheses: Annotated[tuple[Hypothesis, ...], fact("what `sysperf lint` says of the functions that it runs, raised ones first")] = ()
    notes: Annotated[tuple[str, ...], fact("what could not be observed, and why")] = ()
    next: Annotated[str, fact("the command to run next, where the cause is unknown")] = ""
    took_s: float = 0.0
    facts: Diagnosis = Diagnosis()


def schema() -> JsonObject:
    """The JSON schema (2020-12) of a `Verdict`."""
    heading = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, "title": "sysperf diagnosis"}
    return {**heading, **json_schema(Verdict)}
