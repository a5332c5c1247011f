"""A study of `sysperf verify` from its beginning to its verdict: an exit code, and the format that was asked for."""

from __future__ import annotations

import argparse

from sysperf.cli import _measuring, _options
from sysperf.cli.verify import study
from sysperf.engine import verify
from sysperf.model.comparison import Comparison
from sysperf.model.errors import Exit
from sysperf.report.experiments import comparison, comparison_page
from sysperf.report.formats import as_json


def compare(plan: verify.Plan, state: verify.State, args: argparse.Namespace) -> int:
    """Go on with a study to its end, keep what is new, and show it. Returns the exit code."""
    with _measuring.alone():
        result = verify.verify(plan, study.Progress(plan), state, tick=study.tick)
    if len(result.runs) > len(state.runs):
        _measuring.keep(result, plan.rule)
    elif state.runs:
        study.say_nothing_new()
    _options.write(rendered(result, args), args)
    return exit_code(result, args.fail_if_slower)


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
