"""Take marks back, of nodes or of all. What somebody else has changed since stays, and so does what another machine's sysperf set.

exit codes:
  0  taken back, or there was nothing to take back
  2  the command line is wrong, or the journal cannot be read
  3  something was left as it is, or the scheduler refused

examples:
  sysperf fleet unmark n7
  sysperf fleet unmark --all
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.cli.fleet import _marks
from sysperf.engine.fleet.marks import Marks
from sysperf.model.errors import Exit, UsageError
from sysperf.report import changes
from sysperf.report.formats import as_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="names, also folded: n[1-4]")
    parser.add_argument("--all", action="store_true", help="all that this machine's journal has")
    _marks.add_scheduler(parser)


def run(args: argparse.Namespace) -> int:
    named = _marks.nodes(args.nodes)
    if bool(named) == args.all:
        raise UsageError("name nodes, or --all", "`sysperf fleet marks` shows who is marked")
    by = Marks(args.scheduler)
    elsewhere = [each for each in by.listed() if each.transaction is None and (args.all or each.node in named)]
    done = by.unmark(named)
    if args.format == "json":
        _options.write(as_json.dump({"schema": changes.SCHEMA, "undone": done, "elsewhere": elsewhere}), args)
    else:
        text = changes.undone(done, color=_options.wants_color(args), width=_options.width())
        left = "".join(f"{each.node}: set by sysperf on another machine; take it back there\n" for each in elsewhere)
        _options.write(f"{text}{left}" or "Nothing to take back.", args)
    return Exit.PARTIAL if elsewhere or any(each.step.state not in ("undone", "gone") for each in done) else Exit.CLEAN
