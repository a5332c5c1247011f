"""Reports: one module a format, imported when its format is asked for."""

from __future__ import annotations

import importlib

from sysperf.model.errors import UsageError
from sysperf.model.outcome import Report

FORMATS = ("text", "json", "sarif", "junit", "github", "markdown", "html", "prometheus")

_MODULES = {"json": "as_json", "html": "as_html"}
"""Modules that cannot have their format's name, because the standard library has a module of that name."""


def render(report: Report, format: str, *, color: bool = False, width: int = 100, verbose: bool = False) -> str:  # noqa: A002 - the option's name
    """The report in one of `FORMATS`; colour, width in columns and verbosity matter to people, so to ``text`` only."""
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}", f"choose one of {', '.join(FORMATS)}")
    module = importlib.import_module(f"sysperf.report.{_MODULES.get(format, format)}")
    page: str = module.render(report, color=color, width=width, verbose=verbose) if format == "text" else module.render(report)
    return page
