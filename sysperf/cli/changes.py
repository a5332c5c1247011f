"""List what sysperf has changed. When, for which finding, what was there before, and whether it still holds.

examples:
  sysperf changes
  sysperf changes --format json
"""

from __future__ import annotations

import argparse

from sysperf.cli import _options
from sysperf.engine import change
from sysperf.engine.change import Changer
from sysperf.fix import lease
from sysperf.fix.standing import Standing
from sysperf.model.change import Transaction
from sysperf.model.errors import Exit
from sysperf.report import as_json, changes

Listing = list[tuple[Transaction, list[Standing]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _options.add_format(parser)
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="auto: on a terminal, unless NO_COLOR is set")
    parser.set_defaults(output=None)


def run(args: argparse.Namespace) -> int:
    by_journal = {journal.folder: Changer(folder=journal.folder.removesuffix("/changes")).transactions() for journal in change.journals()}
    if args.format == "json":
        _options.write(
            as_json.dump({"schema": changes.SCHEMA, "journals": [_plain(folder, listed) for folder, listed in by_journal.items()]}), args
        )
        return Exit.CLEAN
    parts = []
    for folder, listed in by_journal.items():
        if listed:
            text = changes.transactions(listed, _left(listed), color=_options.wants_color(args), width=_options.width())
            parts.append(text if len(by_journal) == 1 else f"{folder}\n\n{text}")
    _options.write("\n".join(parts) or "sysperf has changed nothing here.", args)
    return Exit.CLEAN


def _left(listed: Listing) -> dict[int, float]:
    """Seconds that are left of each lease."""
    now = lease.boot_s()
    leased = ((transaction.number, transaction.lease) for transaction, _ in listed if transaction.lease)
    return {number: 0.0 if lease.expired(granted) else granted.until_s - now for number, granted in leased}


def _plain(folder: str, listed: Listing) -> dict[str, object]:
    return {
        "folder": folder,
        "transactions": [
            {"transaction": transaction, "standing": [{"now": standing.now, "verdict": standing.verdict} for standing in standings]}
            for transaction, standings in listed
        ],
    }
