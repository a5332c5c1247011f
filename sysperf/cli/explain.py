"""Explain a rule: why it matters, what to do, and who says so.

examples:
  sysperf explain numa.balancing-on
  sysperf explain openmp.affinity-pins-workers
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.engine import judging
from sysperf.evaluate.waivers import OWN_FINDINGS
from sysperf.model.errors import Exit
from sysperf.report import explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a rule's id, as findings show it")
    _options.add_rule_files(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.id in OWN_FINDINGS:
        _options.write(f"{args.id}\n\n{OWN_FINDINGS[args.id]}", args)
        return Exit.CLEAN
    ruleset = judging.load_rules(args.rules)
    rule = ruleset.get(args.id)

    _options.write(explain.render(rule, color=_options.wants_color(args), width=_options.width()), args)
    return Exit.CLEAN
