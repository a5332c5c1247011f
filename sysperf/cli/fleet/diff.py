"""What differs between nodes of equal hardware and matters for speed, what matters most and is rarest first.

As `sysperf fleet audit`, without the findings of rules.

examples:
  sysperf fleet diff records/
  sysperf fleet diff records/ --golden node:n1
  sysperf fleet diff records/ --golden policy.toml --format json
"""

from __future__ import annotations

import argparse

import msgspec

from sysperf.cli import _options
from sysperf.cli.fleet import _nodes
from sysperf.model.errors import Exit
from sysperf.report.fleet import merged as report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _nodes.add_arguments(parser)
    _nodes.add_golden(parser)
    parser.add_argument("--strict", action="store_true", help="exit 3 when a node did not answer")
    _options.add_format(parser, *report.FORMATS)
    _options.add_output(parser, verbose="every line, and the names of each class")


def run(args: argparse.Namespace) -> int:
    fleet, _, _ = _nodes.gathered(args, args.golden)
    fleet = msgspec.structs.replace(fleet, findings=())
    text = report.render(fleet, args.format, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose)
    _options.write(text, args)
    if not fleet.answered:
        return Exit.PARTIAL
    if fleet.differing:
        return Exit.FINDINGS
    return Exit.PARTIAL if fleet.interrupted or (args.strict and fleet.answered < fleet.asked) else Exit.CLEAN
