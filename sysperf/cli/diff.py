"""Compare machines: what differs that matters for speed. "Same code, different machine."

Each machine is a capture (folder or tar), a saved report (`sysperf audit --format json`), or `.` for this machine.
Temperatures, free memory and other things that differ from minute to minute are left out.

examples:
  sysperf diff fast.tar.zst slow.tar.zst
  sysperf diff node1.json node2.json node3.json --format json
  sysperf diff good.json .

exit codes:
  0  nothing differs
  1  something differs
  2  an input is wrong
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.engine import audit, judging, reading
from sysperf.host import Host
from sysperf.model.errors import Exit, UsageError
from sysperf.model.snapshot import Snapshot
from sysperf.report import differences
from sysperf.report.formats import as_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("machines", nargs="+", metavar="MACHINE", help="capture, saved report, or . for this machine")
    _options.add_format(parser, "text", "json", "markdown")
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if len(args.machines) < 2:
        raise UsageError("a comparison takes two machines", "`sysperf diff good.json .` compares a saved report with this machine")
    different = audit.differences([_machine(name) for name in args.machines], judging.load_rules())
    if args.format == "json":
        text = as_json.dump({"schema": 1, "machines": args.machines, "differences": different})
    else:
        text = differences.render(different, args.machines, args.format, color=_options.wants_color(args), width=_options.width())
    _options.write(text, args)
    return Exit.FINDINGS if different else Exit.CLEAN


def _machine(name: str) -> Snapshot:
    return reading.snapshot(Host("/")) if name == "." else reading.read_machine(name)
