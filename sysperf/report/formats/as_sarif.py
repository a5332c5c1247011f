"""SARIF 2.1.0 for code scanning and for viewers of static analysis results.

Specification  https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from urllib.parse import quote

from sysperf.model.finding import Finding, Gap, Place, Report, SourceFix
from sysperf.model.record import plain
from sysperf.model.rule import Severity
from sysperf.model.text import neutral
from sysperf.report import words
from sysperf.report.formats.as_json import dump
from sysperf.report.formats.as_markdown import line, link
from sysperf.startup import lazy

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note", "hint": "none"}
PRIORITIES: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "recommendation", "hint": "recommendation"}
_TIME = lazy(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def render(report: Report) -> str:
    """One run: findings are results, waived ones are suppressed results, unknown checks are notifications."""
    rules = _rules(report)
    places = {str(rule["id"]): index for index, rule in enumerate(rules)}
    driver: dict[str, object] = {"name": "sysperf", "version": neutral(report.sysperf), "rules": rules}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "sysperf/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report, places)],
        "results": [_result(outcome, places) for outcome in report.outcomes if outcome.state != "unknown"],
        "properties": {"tally": plain(report.tally), "tookMs": report.took_ms, "verdict": words.verdict(report)},
    }
    return dump({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def text(plain_text: str) -> str:
    """A text as a SARIF message: braces are doubled (§3.11.5), and nothing in it is a link (§3.11.6)."""
    return plain_text.replace("{", "{{").replace("}", "}}").replace("](", "\\](")


def _rules(report: Report) -> list[dict[str, object]]:
    """The rules that said something, in the order in which they did, each once."""
    first: dict[str, Finding] = {}
    for outcome in report.outcomes:
        known = first.get(outcome.rule)
        if known is None or (not known.why and outcome.why):  # an unknown outcome has no explanation
            first[outcome.rule] = outcome
    return [_rule(outcome) for outcome in first.values()]


def _rule(outcome: Finding) -> dict[str, object]:
    title = neutral(outcome.title)
    why = words.paragraphs(outcome.why) or [title]
    rule: dict[str, object] = {
        "id": neutral(outcome.rule),
        "shortDescription": {"text": text(title)},
        "fullDescription": {"text": text(words.short(outcome.why) or title)},
        "help": {"text": text("\n\n".join([*why, *map(neutral, outcome.refs)])), "markdown": text(_help(why, outcome.refs))},
        "defaultConfiguration": {"level": LEVELS[outcome.severity]},
        "properties": {
            "tags": ["performance", outcome.scope],
            "precision": outcome.confidence,
            "problem.severity": PRIORITIES[outcome.severity],
        },
    }
    links = [ref for ref in (words.page_of(neutral(outcome.rule)), *outcome.refs) if words.is_link(ref)]
    return {**rule, "helpUri": links[0]} if links else rule


def _help(why: list[str], refs: tuple[str, ...]) -> str:
    """What holds for every finding of a rule; commands are a finding's own, and stand in its message."""
    return "\n\n".join([*map(line, why), "\n".join(f"- {link(ref)}" for ref in refs)]).rstrip()


def _result(outcome: Finding, places: dict[str, int]) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": neutral(outcome.rule),
        "ruleIndex": places[neutral(outcome.rule)],
        "level": LEVELS[outcome.severity],
        "message": {"text": text(_message(outcome))},
        "locations": [_location(outcome)],
        "partialFingerprints": _fingerprints(outcome),
        "properties": _properties(outcome),
    }
    if outcome.source_fix is not None and outcome.source_fix.edits:
        result["fixes"] = [_change(outcome.source_fix)]
    if outcome.severity == "hint":  # §3.27.10: the level is none where the kind is not fail
        result["kind"] = "informational"
    if outcome.state == "suppressed":
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": neutral(outcome.because)}]
    return result


def _change(fix: SourceFix) -> dict[str, object]:
    """The edits of a change, which are made together (§3.55)."""
    replacements = [
        {
            "deletedRegion": {"startLine": edit.line, "startColumn": edit.column, "endLine": edit.end_line, "endColumn": edit.end_column},
            "insertedContent": {"text": edit.text},
        }
        for edit in fix.edits
    ]
    changes = [{"artifactLocation": {"uri": _uri(fix.file)}, "replacements": replacements}]
    return {"description": {"text": text(f"what sysperf lint --fix changes for {neutral(fix.rule)}")}, "artifactChanges": changes}


def _uri(path: str) -> str:
    return quote(neutral(path, 4_000).removeprefix("./").lstrip("/") or "-")


def _message(outcome: Finding) -> str:
    subject = f"{neutral(outcome.about)}: " if outcome.about and not _in_a_source(outcome) else ""  # the region says it
    commands = [f"Fix: {line}" for fix in outcome.fixes for line in words.command(fix.command)]
    return "\n".join([subject + words.message(outcome), *(commands if not _in_a_source(outcome) else ())])


def _in_a_source(outcome: Finding) -> bool:
    return outcome.place is not None and bool(outcome.place.file) and not outcome.place.package


def _fingerprints(outcome: Finding) -> dict[str, str]:
    """GitHub tells findings apart by ``primaryLocationLineHash``; ours does not depend on a line of a file."""
    name = neutral(outcome.fingerprint) or neutral(f"{outcome.rule} {outcome.about}")
    return {"primaryLocationLineHash": f"{name}:1", "sysperf/v1": name}


def _location(outcome: Finding) -> dict[str, object]:
    """The place in a source, or the first file that shows it. Code scanning wants a relative path and a line for every result."""
    if outcome.place is not None and _in_a_source(outcome):
        return _in_source(outcome.place)
    files = [evidence.source for evidence in outcome.evidence if evidence.source.startswith("/")]
    path = neutral(files[0]) if files else f"/sysperf/{neutral(outcome.rule)}"
    physical = {"artifactLocation": {"uri": quote(path.lstrip("/") or "-")}, "region": {"startLine": 1}}
    subject = neutral(outcome.about) or "machine"
    logical = {"name": subject, "fullyQualifiedName": f"{outcome.scope}/{subject}", "kind": "resource"}
    return {"physicalLocation": physical, "logicalLocations": [logical]}


def _in_source(place: Place) -> dict[str, object]:
    given = {"startLine": place.line or 1, "startColumn": place.column, "endLine": place.end_line, "endColumn": place.end_column}
    region = {name: number for name, number in given.items() if number}  # a trace has no columns
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(place.file)}, "region": region}}


def _properties(outcome: Finding) -> dict[str, object]:
    return {
        "severity": outcome.severity,
        "confidence": outcome.confidence,
        "gain": words.gain(outcome),
        "evidence": [words.seen(evidence) for evidence in outcome.evidence],
        "fixes": [plain(fix) for fix in outcome.fixes],
    }


def _invocation(report: Report, places: dict[str, int]) -> dict[str, object]:
    notes = [_notification(outcome, gap, places) for outcome in words.of_state(report, "unknown") for gap in outcome.unknown]
    invocation: dict[str, object] = {"executionSuccessful": True, "toolExecutionNotifications": notes}
    if _TIME.fullmatch(report.snapshot.taken_at):
        invocation["startTimeUtc"] = report.snapshot.taken_at
    return invocation


def _notification(outcome: Finding, gap: Gap, places: dict[str, int]) -> dict[str, object]:
    remedy = f"; {neutral(gap.remedy)}" if gap.remedy else ""
    subject = f" of {neutral(outcome.about)}" if outcome.about else ""
    sentence = f"Could not tell {neutral(outcome.rule)}{subject}: {neutral(gap.fact)} is unknown ({neutral(gap.reason)}){remedy}"
    return {
        "level": "note",
        "message": {"text": text(sentence)},
        "associatedRule": {"id": neutral(outcome.rule), "index": places[neutral(outcome.rule)]},
    }
