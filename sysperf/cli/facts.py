"""Show what is known about this machine, area by area. What is unknown says why.

examples:
  sysperf facts                        everything
  sysperf facts cpu numa               two areas
  sysperf facts --format json          for programs
  sysperf facts --describe numa        what each fact means and where it is read: the names that rules use
"""

from __future__ import annotations

import argparse

from sysperf import collect
from sysperf.cli import _options
from sysperf.engine import reading
from sysperf.evaluate.schema import suggest
from sysperf.model.errors import Exit, UsageError
from sysperf.report import facts
from sysperf.report.formats import as_json
from sysperf.report.reference import describe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"one of {', '.join(collect.AREAS)} (default: all)")
    _options.add_format(parser)
    parser.add_argument("--describe", action="store_true", help="describe the facts instead of reading them")
    _options.add_machine(parser)
    _options.add_output(parser, verbose="also the files that are not there, and all that could not be read")


def run(args: argparse.Namespace) -> int:
    areas = args.areas or collect.AREAS
    known = tuple(reading.records()) if args.describe else collect.AREAS
    for area in areas:
        if area not in known:
            raise UsageError(f"no area `{area}`{suggest(area.partition('.')[0], known)}", f"areas are {', '.join(known)}")
    _options.write(_describe(args, areas) if args.describe else _read(args, areas), args)
    return Exit.CLEAN


def _read(args: argparse.Namespace, areas: tuple[str, ...]) -> str:
    snapshot = reading.snapshot(_options.host(args), areas)
    if args.format == "json":
        return as_json.dump(snapshot)
    return facts.render(snapshot, color=_options.wants_color(args), width=_options.width(), verbose=args.verbose)


def _describe(args: argparse.Namespace, areas: tuple[str, ...]) -> str:
    records = reading.records()
    described = [field for area in areas for field in describe.describe(area, records[area])]
    if args.format == "json":
        return as_json.dump(described)
    return describe.render(described, width=_options.width())
