"""JUnit XML, which every continuous-integration system shows: a suite an area, a case a finding or unknown."""

from __future__ import annotations

import html
from collections.abc import Iterator

from sysperf.model.finding import Finding, Report
from sysperf.model.text import neutral
from sysperf.report import words
from sysperf.startup import lazy

_TIME = lazy(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def render(report: Report) -> str:
    """Findings fail, whatever their severity (their ``type``); unknown and suppressed ones are skipped; passes are counted."""
    suites: dict[str, list[Finding]] = {}
    for outcome in report.outcomes:
        suites.setdefault(outcome.rule.partition(".")[0], []).append(outcome)
    failures, skipped = report.tally.findings, report.tally.unknown + report.tally.suppressed
    counts = _counts(len(report.outcomes) + 1, failures, skipped, report.took_ms)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites{_attributes(name='sysperf')}{counts}>", *_summary(report)]
    for area, outcomes in suites.items():
        lines += _suite(report, area, outcomes)
    return "\n".join([*lines, "</testsuites>", ""])


def _attributes(**values: str) -> str:
    return "".join(f' {name}="{_escape(value)}"' for name, value in values.items())


def _escape(text: str) -> str:
    """Text for XML, which has no way to hold a control character."""
    return html.escape(neutral(text, words.MAX_COMMAND))


def _counts(tests: int, failures: int, skipped: int, took_ms: float) -> str:
    return f' tests="{tests}" failures="{failures}" errors="0" skipped="{skipped}" time="{took_ms / 1e3:.4f}"'


def _time(report: Report) -> str:
    match = _TIME.match(report.snapshot.taken_at)
    return _attributes(timestamp=match[0]) if match else ""


def _summary(report: Report) -> Iterator[str]:
    """A case that passes, so that a healthy machine is no empty test run."""
    yield f"  <testsuite{_attributes(name='sysperf')}{_counts(1, 0, 0, report.took_ms)}{_time(report)}>"
    yield "    <properties>"
    values = {name: str(getattr(report.tally, name)) for name in report.tally.__struct_fields__}
    for name, value in {"version": report.sysperf, "machine": words.machine_of(report), **values}.items():
        yield f"      <property{_attributes(name=name, value=value)}/>"
    yield "    </properties>"
    yield f"    <testcase{_attributes(name='audit', classname='sysperf')}>"
    yield f"      <system-out>{_escape(words.verdict(report))}</system-out>"
    yield "    </testcase>"
    yield "  </testsuite>"


def _suite(report: Report, area: str, outcomes: list[Finding]) -> Iterator[str]:
    read = report.snapshot.areas.get(area)
    failures = sum(outcome.state == "finding" for outcome in outcomes)
    counts = _counts(len(outcomes), failures, len(outcomes) - failures, read.took_ms if read else 0.0)
    yield f"  <testsuite{_attributes(name=area)}{counts}{_time(report)}>"
    for outcome in outcomes:
        name = f"{outcome.rule} [{outcome.about}]" if outcome.about else outcome.rule
        yield f"    <testcase{_attributes(name=name, classname=f'sysperf.{area}')}>"
        yield f"      {_answer(outcome)}"
        yield "    </testcase>"
    yield "  </testsuite>"


def _answer(outcome: Finding) -> str:
    if outcome.state == "suppressed":
        return f"<skipped{_attributes(message=f'suppressed: {outcome.because}')}/>"
    if outcome.state == "unknown":
        reasons = "; ".join(f"{gap.fact}: {gap.reason}" + (f" ({gap.remedy})" if gap.remedy else "") for gap in outcome.unknown)
        return f"<skipped{_attributes(message=f'unknown: {reasons}')}/>"
    body = "\n".join(_escape(line) for line in _body(outcome))
    return f"<failure{_attributes(type=outcome.severity, message=words.message(outcome))}>{body}</failure>"


def _body(outcome: Finding) -> Iterator[str]:
    for evidence in outcome.evidence:
        yield f"observed: {words.seen(evidence)}"
    for paragraph in words.paragraphs(outcome.why):
        yield f"why: {paragraph}"
    for fix in outcome.fixes:
        yield f"fix: {fix.title} ({words.terms(fix)})"
        yield from (f"    {line}" for line in words.command(fix.command))
        yield from (f"undo: {line}" for line in words.command(fix.undo))
    yield f"gain: {words.gain(outcome)}"
