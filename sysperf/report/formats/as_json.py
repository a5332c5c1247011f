"""The report record itself as JSON; its schema is `sysperf.report.reference.schema`."""

from __future__ import annotations

import re

from sysperf.model.finding import Report
from sysperf.model.record import to_json
from sysperf.startup import lazy

_ACTIVE = lazy("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")


def render(report: Report) -> str:
    """The report, whole: `sysperf audit --from` judges it again."""
    return dump(report)


def dump(value: object) -> str:
    """Records as indented JSON that a terminal can show: control and direction characters are written as ``\\u…``."""
    return _ACTIVE.sub(_spelled, to_json(value, indent=2).decode()) + "\n"


def _spelled(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))
