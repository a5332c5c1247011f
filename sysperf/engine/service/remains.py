"""What the services leave behind when they are removed: leases that nobody would end, changes in force, files."""

from __future__ import annotations

import os
from collections.abc import Callable

from sysperf import paths
from sysperf.model.change import LIVE
from sysperf.model.errors import SysperfError, UsageError

STAYS = {
    "/var/lib/private/sysperf-agent": "the history",
    "/var/lib/sysperf-agent": "the history",
    "/var/cache/private/sysperf-agent": "the agent's compiled rules",
    "/var/cache/sysperf-agent": "the agent's compiled rules",
    paths.SYSTEM_STATE: "the journal of changes",
    paths.SYSTEM_CONFIG: "the configuration",
}
"""What sysperf or systemd made for it, and `uninstall` leaves."""


def end_leases(tell: Callable[[int], object]) -> None:
    """Undo what has a lease: who would end it is removed. `tell` gets each number.

    Raises UsageError with nothing removed when one cannot be undone.
    """
    from sysperf.engine.change import Changer  # noqa: PLC0415 - only who uninstalls undoes

    changer = Changer(folder=paths.SYSTEM_STATE)
    for transaction in reversed(changer.journal.transactions()):
        if not (transaction.live and transaction.lease):
            continue
        try:
            left = [undone for undone in changer.undo(transaction.number) if undone.step.state in LIVE]
        except SysperfError as error:
            raise UsageError(f"transaction {transaction.number} has a lease and cannot be undone: {error}", error.hint) from None
        if left:
            reasons = "; ".join(f"{undone.step.change.target}: {undone.message}" for undone in left)
            raise UsageError(
                f"transaction {transaction.number} has a lease and cannot be undone ({reasons})",
                f"sudo sysperf undo {transaction.number}, then uninstall",
            )
        tell(transaction.number)


def files() -> list[str]:
    """Return what is still there, with what it is."""
    return [f"{path} ({what})" for path, what in STAYS.items() if os.path.lexists(path)]


def changes() -> list[str]:
    """Return the numbers of the transactions that are in force."""
    from sysperf.fix.journal import Journal  # noqa: PLC0415 - only who uninstalls looks

    return [str(transaction.number) for transaction in Journal(paths.SYSTEM_STATE).transactions() if transaction.live]
