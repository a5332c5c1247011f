"""JUnit XML, which every continuous-integration system shows: a suite an area, a case a finding or unknown."""

from __future__ import annotations

import html
from collections.abc import Iterator

from sysperf.model.finding import Finding, Report
from sysperf.model.rule import FailOn
from sysperf.model.text import neutral
from sysperf.report import words
from sysperf.startup import lazy

_TIME = lazy(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def render(report: Report, *, fail_on: FailOn = "hint") -> str:
    """Findings fail from the severity `fail_on` on (their ``type``); smaller, unknown and suppressed ones are skipped."""
    suites: dict[str, list[Finding]] = {rule.partition(".")[0]: [] for rule in report.passed}
    for outcome in report.outcomes:
        suites.setdefault(outcome.rule.partition(".")[0], []).append(outcome)
    failures = sum(outcome.reaches(fail_on) for outcome in report.outcomes)
    counts = _counts(len(report.outcomes) + len(report.passed) + 1, failures, len(report.outcomes) - failures, report.took_ms)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites{_attributes(name='sysperf')}{counts}>", *_summary(report)]
    for area, outcomes in suites.items():
        passed = [rule for rule in report.passed if rule.partition(".")[0] == area]
        lines += _suite(report, area, outcomes, passed, fail_on)
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


def _suite(report: Report, area: str, outcomes: list[Finding], passed: list[str], fail_on: FailOn) -> Iterator[str]:
    read = report.snapshot.areas.get(area)
    failures = sum(outcome.reaches(fail_on) for outcome in outcomes)
    counts = _counts(len(outcomes) + len(passed), failures, len(outcomes) - failures, read.took_ms if read else 0.0)
    yield f"  <testsuite{_attributes(name=area)}{counts}{_time(report)}>"
    for outcome in outcomes:
        name = f"{outcome.rule} [{outcome.about}]" if outcome.about else outcome.rule
        yield f"    <testcase{_attributes(name=name, classname=f'sysperf.{area}')}>"
        yield f"      {_answer(outcome, fail_on)}"
        yield "    </testcase>"
    for rule in passed:
        yield f"    <testcase{_attributes(name=rule, classname=f'sysperf.{area}')}/>"
    yield "  </testsuite>"


def _answer(outcome: Finding, fail_on: FailOn) -> str:
    if outcome.state == "suppressed":
        return f"<skipped{_attributes(message=f'suppressed: {outcome.because}')}/>"
    if outcome.state == "unknown":
        reasons = "; ".join(f"{gap.fact}: {gap.reason}" + (f" ({gap.remedy})" if gap.remedy else "") for gap in outcome.unknown)
        return f"<skipped{_attributes(message=f'unknown: {reasons}')}/>"
    if not outcome.reaches(fail_on):
        return f"<skipped{_attributes(message=f'{outcome.severity}, below --fail-on: {words.message(outcome)}')}/>"
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
        yield from (f"undo: {line}" for line in (*words.command(fix.undo), *words.paragraphs(fix.undo_text)))
    yield f"gain: {words.gain(outcome)}"
