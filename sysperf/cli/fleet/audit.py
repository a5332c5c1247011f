"""Findings and differences of many machines, by the nodes that have them; who did not answer stands first.

Nodes are compared with those of equal hardware. Without --golden a value is expected where two thirds of the nodes that are known, and
at least three, have it; where there is none, groups are shown and nobody is called wrong. What could not be read is unknown, never
different, and never fine.

examples:
  sysperf fleet audit records/
  sysperf fleet audit records/ --hosts n[1-512] --strict     who wrote no record is named
  pdsh -N -w n[1-64] sysperf node record | sysperf fleet audit -
  sysperf fleet audit records/ --format html --output fleet.html
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.cli.fleet import _nodes
from sysperf.model.errors import Exit
from sysperf.model.rule import SEVERITIES
from sysperf.report.fleet import merged as report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _nodes.add_arguments(parser)
    _nodes.add_golden(parser)
    parser.add_argument("--fail-on", choices=(*SEVERITIES, "never"), help="exit 1 from this severity on (default: warning)")
    parser.add_argument("--strict", action="store_true", help="exit 3 when a node did not answer")
    _options.add_format(parser, *report.FORMATS)
    _options.add_output(parser, verbose="every line, and the names of each class")


def run(args: argparse.Namespace) -> int:
    fleet, _, config = _nodes.gathered(args, args.golden)
    text = report.render(fleet, args.format, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose)
    _options.write(text, args)
    if not fleet.answered:
        return Exit.PARTIAL
    if fleet.reaches(args.fail_on or config.fail_on):
        return Exit.FINDINGS
    return Exit.PARTIAL if fleet.interrupted or (args.strict and fleet.answered < fleet.asked) else Exit.CLEAN
