"""Show which nodes a scheduler was told of: since when, by which transaction, and whether somebody has changed it since.

examples:
  sysperf fleet marks
  sysperf fleet marks --json
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.cli.fleet import _marks
from sysperf.engine.fleet.marks import Marks
from sysperf.model.errors import Exit
from sysperf.report.fleet import marks as report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _marks.add_scheduler(parser)


def run(args: argparse.Namespace) -> int:
    found = Marks(args.scheduler).listed()
    text = report.render(found, json=args.format == "json", color=_options.wants_color(args), width=_options.width())
    _options.write(text, args)
    return Exit.CLEAN
