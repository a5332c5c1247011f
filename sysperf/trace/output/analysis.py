"""The result of an analysis as records: what `sysperf analyze --json` prints."""

from typing import Annotated, Literal

import msgspec

from sysperf.model.finding import Finding
from sysperf.model.record import JsonObject, Record, document_schema, fact, plain
from sysperf.trace.device_facts import DeviceFacts
from sysperf.trace.facts import Prediction, Rank, Skew, Trace

MIN_GAIN_PCT = 5.0
"""What gains so much of the step is worth a look, however mild its rule; findings that gain less are ranked by severity."""
Verdict = Literal[
    "input-bound", "host-bound", "sync-bound", "copy-bound", "comm-bound", "pipeline-bound", "compute-bound", "healthy", "cannot-tell"
]  # fmt: skip


class RankDocument(Record, kw_only=True):
    """One trace: the figures of docs/analyze.md in one flat object, and all other facts."""

    file: str
    verdict: Verdict
    why: str
    summary: Annotated[JsonObject, fact("figures by name; null: the file does not tell")]
    devices: tuple[DeviceFacts, ...]
    facts: Rank


class Document(Record, kw_only=True):
    """An analysis."""

    schema: Literal[1] = 1
    sysperf: str
    file: Annotated[str, fact("the first of `files`")]
    files: tuple[str, ...]
    verdict: Verdict
    why: str
    summary: Annotated[JsonObject, fact("figures of the first file")]
    devices: tuple[DeviceFacts, ...]
    findings: tuple[Finding, ...]
    together: Annotated[Prediction | None, fact("all fixes of the findings at once, replayed together")] = None
    unknown: Annotated[tuple[str, ...], fact("rules that the file cannot answer")] = ()
    skew: Skew = Skew()
    ranks: tuple[RankDocument, ...] = ()


class Analysis(Record, kw_only=True):
    """What was found in one or more traces of a job."""

    trace: Trace
    findings: tuple[Finding, ...]
    together: Prediction | None = None
    unknown: tuple[str, ...] = ()


def document(analysis: Analysis, version: str) -> Document:
    """The analysis as it is published."""
    ranks = tuple(_rank(rank) for rank in analysis.trace.ranks)
    first = ranks[0]
    return Document(
        sysperf=version,
        file=first.file,
        files=tuple(rank.file for rank in ranks),
        verdict=_word(analysis.trace.verdict),
        why=analysis.trace.why,
        summary=first.summary,
        devices=first.devices,
        findings=analysis.findings,
        together=analysis.together,
        unknown=analysis.unknown,
        skew=analysis.trace.skew,
        ranks=ranks,
    )


def _rank(rank: Rank) -> RankDocument:
    return RankDocument(file=rank.file, verdict=_word(rank.verdict), why=rank.why, summary=summary(rank), devices=rank.devices, facts=rank)


def _word(verdict: str) -> Verdict:
    word: Verdict = msgspec.convert(verdict, Verdict)
    return word


def summary(rank: Rank) -> JsonObject:
    """The figures of docs/analyze.md under their names; None where the file does not tell."""
    workers = {"0": 0, ">0": ">0"}
    return {
        "gpu": rank.gpu,
        "steps": rank.step_count,
        "step_ms": None if rank.step_ms is None else list(rank.step_ms),
        "step_ms_median": rank.step_ms_median,
        "dataloader_workers": workers.get(rank.dataloader_workers or ""),
        "dataloader_calls": rank.dataloader_calls,
        "window_rule": rank.window_rule,
        "window_ms": rank.window_ms,
        "window_start_us": rank.window_start_us,
        "gpu_busy_pct": {str(device.id): device.busy_pct for device in rank.devices} or None,
        **plain(rank.figures),
        "trust": plain(rank.trust),
    }


def schema() -> JsonObject:
    """The JSON schema (2020-12) of a `Document`."""
    return document_schema("analysis", Document)
