"""Show what `sysperf apply` would change on this machine. It is shown as a diff; nothing is changed.

examples:
  sysperf plan                              every safe fix of today's findings
  sysperf plan --caution                    and those that can affect other programs
  sysperf plan --set vm.swappiness=10       one setting
  sysperf plan --list                       the settings that sysperf can change

exit codes:
  0  shown; there may be nothing to change
  2  the command line, a rule file or the configuration is wrong
  3  a setting or a rule was named that `apply` would leave alone; the plan says why
"""

from __future__ import annotations

import argparse
import sys

from sysperf.cli import _options, apply
from sysperf.engine import change
from sysperf.engine.change import Changer
from sysperf.model.errors import Exit
from sysperf.report import changes
from sysperf.report.terminal import wrap


def add_arguments(parser: argparse.ArgumentParser) -> None:
    apply.add_change_options(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        _options.write(apply.knobs(args), args)
        return Exit.CLEAN
    for transaction in change.overdue():
        what = "its lease has ended" if transaction.lease and transaction.state != "open" else "it was interrupted, or is at work right now"
        sys.stderr.write(f"sysperf: transaction {transaction.number}: {what}. {changes.OVERDUE}\n")
    requested, planned = apply.requested_changes(args, Changer())
    apply.show(args, requested, planned)
    if planned.changes and args.format == "text":
        text = "Nothing was changed. `sysperf apply` with the same arguments does it; `sysperf undo` takes it back."
        sys.stdout.write("\n" + "\n".join(wrap(text, _options.width())) + "\n")
    return apply.code_of(args, planned)
