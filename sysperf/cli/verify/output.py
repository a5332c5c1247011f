"""How `sysperf verify` tells a verdict: by its exit code and in the format that was asked for."""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.model.comparison import Comparison
from sysperf.model.errors import Exit
from sysperf.report import as_json, comparison, comparison_page


def exit_code(result: Comparison, fail_if_slower: float | None) -> int:
    """Return the exit code that tells the verdict."""
    if fail_if_slower is not None and result.low is not None and result.high is not None:
        bound = 1 - fail_if_slower / 100
        return Exit.FINDINGS if result.high < bound else Exit.CLEAN if result.low >= bound else Exit.PARTIAL
    if result.verdict == "slower" and not result.ranks:  # more ranks are less efficient each, which is no finding
        return Exit.FINDINGS
    return Exit.PARTIAL if result.verdict == "unclear" else Exit.CLEAN


def rendered(result: Comparison, args: argparse.Namespace) -> str:
    """Return the comparison in the format that was asked for."""
    if args.format == "json":
        return as_json.dump({"schema": 1, "comparison": result})
    if args.format == "markdown":
        return comparison.markdown(result)
    if args.format == "html":
        return comparison_page.page(result)
    return comparison.text(result, color=_options.wants_color(args), width=_options.width())
