"""A page with the timeline of each trace of a ladder, beside the trace."""

from __future__ import annotations

import os

import msgspec

from sysperf.engine import analyze, judging
from sysperf.engine.configuration import read_config
from sysperf.host import files
from sysperf.model.errors import SysperfError
from sysperf.model.ladder import Ladder
from sysperf.report.profiling import timeline
from sysperf.trace.output.drawing import draw


def drawn(ladder: Ladder, output: str | None) -> Ladder:
    """Write the pages, and return the ladder with their places, as seen from the page `output`; where one cannot be, there is none."""
    ruleset = judging.trace_rules(read_config())
    pages: dict[str, str] = {}
    for path in dict.fromkeys((ladder.bottom_trace, *(rung.trace for rung in ladder.rungs))):
        try:
            result = analyze.analyze([path], ruleset)
            page = timeline.render(result.analysis, draw(*analyze.subjects(result, [path])))
            files.replace(f"{path}.html", page.encode())
        except (SysperfError, OSError):
            continue
        pages[path] = os.path.relpath(f"{path}.html", os.path.dirname(os.path.abspath(output))) if output else f"file://{path}.html"
    rungs = tuple(msgspec.structs.replace(rung, trace=pages.get(rung.trace, "")) for rung in ladder.rungs)
    return msgspec.structs.replace(ladder, rungs=rungs, bottom_trace=pages.get(ladder.bottom_trace, ""))
