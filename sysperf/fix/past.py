"""What was changed on this machine, by root and by this user, as agent and dashboard watch it: cheap while nothing changes."""

from __future__ import annotations

import os

from sysperf import paths
from sysperf.model.change import Transaction


class PastTransactions:
    """All transactions, newest first; read again when a journal was written."""

    def __init__(self) -> None:
        self._stamp: object = None
        self._kept: tuple[Transaction, ...] = ()

    def __call__(self) -> tuple[Transaction, ...]:
        stamp = tuple(map(_locked_at, _journals()))
        if stamp != self._stamp:
            self._stamp, self._kept = stamp, _read() if any(stamp) else ()
        return self._kept


def _read() -> tuple[Transaction, ...]:
    from sysperf.fix.journal import Journal  # noqa: PLC0415 - most machines have no journal

    transactions = [transaction for folder in _journals() for transaction in Journal(os.path.dirname(folder)).transactions()]
    return tuple(sorted(transactions, key=lambda transaction: transaction.taken_at, reverse=True))


def _journals() -> list[str]:
    """The folders of the machine's journal and of this user's own."""
    return list(dict.fromkeys((f"{paths.SYSTEM_STATE}/changes", f"{paths.user_state_folder()}/changes")))


def _locked_at(folder: str) -> int:
    """Return when this journal was written last; 0 where there is none."""
    try:
        return os.stat(f"{folder}/lock").st_mtime_ns
    except OSError:
        return 0
