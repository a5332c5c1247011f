"""Formats of an audit: each is a module `as_NAME` with a function `render`, found by its name and imported when it is asked for."""

from __future__ import annotations

import importlib
import os

from sysperf.model.errors import UsageError
from sysperf.model.finding import Report
from sysperf.model.rule import FailOn

_PREFIX, _SUFFIX = "as_", ".py"


def _formats() -> tuple[str, ...]:
    names = (entry for entry in os.listdir(os.path.dirname(__file__)) if entry.startswith(_PREFIX) and entry.endswith(_SUFFIX))
    others = sorted({name[len(_PREFIX) : -len(_SUFFIX)] for name in names} - {"text"})
    return ("text", *others)


FORMATS = _formats()
"""For people first, then the others in the order of their names."""


def render(
    report: Report,
    format: str,  # noqa: A002 - the option's name
    *,
    color: bool = False,
    width: int = 100,
    verbose: bool = False,
    quiet: bool = False,
    fail_on: FailOn = "hint",
) -> str:
    """The report in one of `FORMATS`.

    Colour, width in columns and verbosity matter to people, so to ``text`` only; from which severity on a finding fails matters to tests,
    so to ``junit`` only.
    """
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}", f"choose one of {', '.join(FORMATS)}")
    module = importlib.import_module(f"{__name__}.{_PREFIX}{format}")
    options: dict[str, dict[str, object]] = {
        "text": {"color": color, "width": width, "verbose": verbose, "quiet": quiet},
        "junit": {"fail_on": fail_on},
    }
    page: str = module.render(report, **options.get(format, {}))
    return page
