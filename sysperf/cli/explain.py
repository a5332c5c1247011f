"""Explain a rule or a cause: why it matters, and what to do. Where it shows, what that gains, and who says so.

examples:
  sysperf explain numa.balancing-on
  sysperf explain dataloader.inline
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.engine import judging
from sysperf.evaluate.waivers import OWN_FINDINGS
from sysperf.model.errors import Exit
from sysperf.report import explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of a rule or a cause, as findings show it")
    _options.add_rule_files(parser)
    _options.add_output(parser, verbose="also show the conditions under which it is reported")


def run(args: argparse.Namespace) -> int:
    if args.id in OWN_FINDINGS:
        _options.write(f"{args.id}\n\n{OWN_FINDINGS[args.id]}", args)
        return Exit.CLEAN
    what = judging.find(judging.load_rules(args.rules), args.id, args.rules)
    _options.write(explain.render(what, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose), args)
    return Exit.CLEAN
