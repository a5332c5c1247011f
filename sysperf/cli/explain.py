"""Explain a rule: what it looks at, why it matters, what to do, and who says so.

examples:
  sysperf explain numa.balancing-on
  sysperf explain openmp.affinity-pins-workers
"""

from __future__ import annotations

import argparse

from sysperf.cli import command_line
from sysperf.engine import judging
from sysperf.model.errors import Exit
from sysperf.report import explain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a rule's id, as findings show it")
    command_line.add_rule_files(parser)
    command_line.add_output(parser)


def run(args: argparse.Namespace) -> int:
    ruleset = judging.load_rules(args.rules)
    rule = ruleset.get(args.id)
    command_line.note_earlier_ids(ruleset)

    command_line.write(explain.render(rule, color=command_line.wants_color(args), width=command_line.width()), args)
    return Exit.CLEAN
