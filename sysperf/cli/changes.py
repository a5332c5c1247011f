"""List what sysperf has changed. When, for which finding, what was there before, and whether it still holds.

exit codes:
  0  everything is listed
  3  a journal of this machine can not be read by this user

examples:
  sysperf changes
  sysperf changes --format json
"""

from __future__ import annotations

import argparse
import sys

from sysperf.cli import _options
from sysperf.engine import change
from sysperf.engine.change import Changer
from sysperf.fix import lease
from sysperf.fix.standing import Standing
from sysperf.model.change import Transaction
from sysperf.model.errors import Exit, SysperfError
from sysperf.report import changes
from sysperf.report.formats import as_json

Listing = list[tuple[Transaction, list[Standing]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_format(parser)
    _options.add_output(parser)


def run(args: argparse.Namespace) -> int:
    by_journal: dict[str, Listing] = {}
    problems: list[SysperfError] = []
    for journal in change.journals():
        try:
            by_journal[journal.folder] = Changer(folder=journal.folder.removesuffix("/changes")).transactions()
        except SysperfError as error:  # noqa: PERF203 - root's journal is not to hide this user's own
            problems.append(error)
    code = Exit.PARTIAL if problems else Exit.CLEAN
    if args.format == "json":
        listings = [_plain(folder, listed) for folder, listed in by_journal.items()]
        _options.write(as_json.dump({"schema": changes.SCHEMA, "journals": listings, "problems": list(map(str, problems))}), args)
        return code
    parts = []
    for folder, listed in by_journal.items():
        if listed:
            text = changes.transactions(listed, _left(listed), color=_options.wants_color(args), width=_options.width())
            parts.append(text if len(by_journal) == 1 else f"{folder}\n\n{text}")
    _options.write("\n".join(parts) or ("" if problems else "sysperf has changed nothing here."), args)
    sys.stdout.flush()
    for problem in problems:
        sys.stderr.write(f"sysperf: {problem}: what is in it is not listed\n  hint: {problem.hint}\n")
    return code


def _left(listed: Listing) -> dict[int, float]:
    """Seconds that are left of each lease."""
    return {transaction.number: lease.left_s(transaction.lease) for transaction, _ in listed if transaction.lease}


def _plain(folder: str, listed: Listing) -> dict[str, object]:
    return {
        "folder": folder,
        "transactions": [
            {"transaction": transaction, "standing": [{"now": standing.now, "verdict": standing.verdict} for standing in standings]}
            for transaction, standings in listed
        ],
    }
