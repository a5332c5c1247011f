"""How many findings each rule has: what `--statistics` prints instead of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sysperf.model.errors import UsageError
from sysperf.model.finding import Finding
from sysperf.model.record import Record
from sysperf.model.rule import SEVERITIES, Severity
from sysperf.model.text import neutral
from sysperf.report.formats import as_json


class Count(Record):
    """How often a rule was broken."""

    count: int
    severity: Severity
    rule: str
    title: str


def counts(findings: Iterable[Finding]) -> list[Count]:
    """Return each rule with its findings, the most frequent first, the more severe one where they tie."""
    told = Counter((finding.severity, finding.rule, finding.title) for finding in findings)
    ordered = sorted(told.items(), key=lambda item: (-item[1], SEVERITIES.index(item[0][0]), item[0][1]))
    return [Count(count, *what) for what, count in ordered]


def render(findings: Iterable[Finding], format: str) -> str:  # noqa: A002 - the option's name
    """The counts as text or JSON; no line where nothing was found. Raises UsageError for another format."""
    told = counts(findings)
    if format == "json":
        return as_json.dump(told)
    if format != "text":
        raise UsageError(f"--statistics has no format {format}", "choose text or json")
    wide = max((len(one.rule) for one in told), default=0)
    return "".join(f"{one.count:>5} {one.severity:<8} {neutral(one.rule):<{wide}}  {neutral(one.title)}\n" for one in told)
