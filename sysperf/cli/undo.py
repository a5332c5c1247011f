"""Take back what sysperf changed: the latest, one, or all of it.

Works without the agent, after kill -9 and after a restart, and as often as you like. A value that somebody else has
changed since is kept and reported, unless --force.

exit codes:
  0  everything is as it was before, or there was nothing to take back
  2  the command line is wrong, or the journal can not be read
  3  something was kept or could not be taken back
  130  it was interrupted: run it again

examples:
  sudo sysperf undo            the latest transaction
  sudo sysperf undo 17         this one
  sudo sysperf undo --all      everything, latest first
  sudo sysperf undo --expired  what was interrupted, and what has a lease that ended (the service does it at boot)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sysperf import paths
from sysperf.cli import _options
from sysperf.engine.change import Changer
from sysperf.model.change import Undone
from sysperf.model.errors import Exit, SysperfError, UsageError
from sysperf.report import changes
from sysperf.report.formats import as_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", nargs="?", type=int, metavar="TXN", help="number of the transaction (default: the latest in force)")
    parser.add_argument("--all", action="store_true", help="all transactions, latest first")
    parser.add_argument("--expired", action="store_true", help="what was interrupted, and what has a lease that ended")
    parser.add_argument("--machine", action="store_true", help="of the machine's journal, through sysperf's helper (root needs no helper)")
    parser.add_argument("--yes", action="store_true", help="as with apply; undo asks no question anyway")
    parser.add_argument("--force", action="store_true", help="also values that somebody else has changed since")
    _options.add_format(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    _options.check_output(args)
    if sum((args.number is not None, args.all, args.expired)) > 1:
        raise UsageError("TXN, --all and --expired each say what to take back", "give one of them")
    changer = Changer(folder=paths.SYSTEM_STATE if args.machine else None)
    problems: list[SysperfError] = []
    done = [*_undone(args, changer, problems)]
    if args.format == "json":
        failed = [{"problem": str(problem), "hint": problem.hint} for problem in problems]
        _options.write(as_json.dump({"schema": changes.SCHEMA, "undone": done, "problems": failed}), args)
    else:
        text = changes.undone(done, color=_options.wants_color(args), width=_options.width())
        _options.write(text if done else "Nothing to take back." if not problems else "", args)
    if problems and args.format == "text":
        raise problems[0]
    left = [step for step in done if step.step.state not in ("undone", "gone")]
    return Exit.PARTIAL if left or problems else Exit.CLEAN


def _undone(args: argparse.Namespace, changer: Changer, problems: list[SysperfError]) -> Iterator[Undone]:
    """What was taken back; with --all, a transaction that can not be does not stop the others."""
    if args.expired:
        yield from changer.recover()
        return
    if args.number is not None:
        yield from changer.undo(args.number, force=args.force)
        return
    standing = [transaction for transaction in changer.journal.transactions() if transaction.state not in ("undone", "rolled-back")]
    in_force = [transaction for transaction in standing if transaction.live or transaction.state in ("open", "damaged")]
    chosen = standing if args.all else (in_force or standing)[-1:]  # what somebody else has overwritten is not in the way of the others
    for transaction in reversed(chosen):
        yield from _tried(args, changer, transaction.number, problems)


def _tried(args: argparse.Namespace, changer: Changer, number: int, problems: list[SysperfError]) -> list[Undone]:
    try:
        return changer.undo(number, force=args.force)
    except SysperfError as error:
        problems.append(error)
        return []
