"""What sysperf changes, written down before it does: one file a transaction, one line a step.

A line is on the disk before the step that it announces begins, so whatever happens (kill -9, power loss), the values
that were there before are known. A line that was cut short announces a step that never began.

Files lie in ``/var/lib/sysperf/changes`` (root) or ``~/.local/state/sysperf/changes`` and are numbered in the order in
which they began: clocks jump, numbers do not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator

from sysperf import paths
from sysperf.fix.journal_lines import VERSION, Begin, LeaseSet
from sysperf.fix.journal_log import JournalError, Log
from sysperf.fix.replay import MAX_BYTES, replay
from sysperf.host.files import sync_folder
from sysperf.model.change import Lease, Transaction
from sysperf.startup import lazy

MAX_OVER = 200
"""Transactions that are over and still listed."""
_MAX_NUMBER = 999_999
_LOCK_S = 20.0
_NAME = lazy(r"([0-9]{6})\.jsonl")


class _NotThere(JournalError):
    """Error: there is no transaction of this number."""


class Journal:
    """The transactions of this machine, or of one user on it."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = f"{folder or paths.state_folder()}/changes"

    @contextlib.contextmanager
    def locked(self, wait_s: float = _LOCK_S) -> Iterator[None]:
        """Hold the only right to change something. Raises JournalError when another sysperf keeps it for longer than `wait_s`."""
        try:
            self._make()
            descriptor = self._lock_file()
        except OSError as error:
            raise JournalError(
                f"{self.folder}: {error.strerror}; nothing was changed", "the journal must be writable before anything is"
            ) from None
        try:
            with contextlib.suppress(OSError):
                os.fchmod(descriptor, 0o600)  # who can read it can lock it, and keep everybody from undoing
            _lock(descriptor, wait_s)
            try:
                yield
            finally:
                now = time.time_ns()
                with contextlib.suppress(OSError):
                    os.utime(descriptor, ns=(now, now))  # who watches what sysperf changes looks at this one file
        finally:
            os.close(descriptor)

    def _lock_file(self) -> int:
        path = f"{self.folder}/lock"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            # values can be put back where nothing can be written down; everything else is refused when it is written down
            return os.open(path if os.path.exists(path) else self.folder, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _make(self) -> None:
        """The folder, on the disk: what is set at every start outlives a power loss, and its journal must too."""
        folder, parents = self.folder, []
        while not os.path.isdir(folder):
            parents.append(folder := os.path.dirname(folder))
        if parents:
            os.makedirs(self.folder, 0o755, exist_ok=True)
        for parent in parents:
            sync_folder(parent)
        if problem := _not_ours(os.lstat(self.folder), stat.S_ISDIR):
            hint = f"look at what is in it, then `sudo chown -R root {self.folder}; sudo chmod -R go-w {self.folder}`"
            raise JournalError(f"{self.folder}: {problem}; nothing was changed", hint)

    def stamp(self) -> tuple[int, int]:
        """Another one when something was written since: a transaction is a new file, and whoever held the lock touches it."""
        return _changed_at(self.folder), _changed_at(f"{self.folder}/lock")

    def begin(self, *, boot: str, by: str, why: str, taken_at: str, lease: Lease | None = None, steps: int = 0) -> Log:
        """A new transaction of so many steps (0: nobody knows) with the next number. Only under `locked`."""
        self._forget()
        number = max(self.numbers(), default=0) + 1
        if number > _MAX_NUMBER:
            raise JournalError(
                f"{self.folder}: all {_MAX_NUMBER} numbers are taken", "move the files of transactions that are over elsewhere"
            )
        log = Log(self.path(number), number, new=True)
        first = Begin(version=VERSION, number=number, taken_at=taken_at, boot=boot, by=by, why=why, leased=lease is not None, steps=steps)
        try:
            log.add(*([first, LeaseSet(lease)] if lease else [first]))
        except JournalError:
            log.close()
            raise
        return log

    def resume(self, number: int) -> Log:
        """An earlier transaction, to add to it. Only under `locked`."""
        return Log(self.path(number), number)

    def numbers(self) -> list[int]:
        """The transactions that there are, oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"{self.folder}: {error.strerror}", "run it as the owner of this folder, or as root") from None
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def path(self, number: int) -> str:
        """The file of a transaction."""
        return f"{self.folder}/{number:06}.jsonl"

    def transactions(self) -> list[Transaction]:
        """All of them, oldest first; one that cannot be read has state `damaged` and says why."""
        transactions = []
        for number in self.numbers():
            with contextlib.suppress(_NotThere):  # another sysperf has forgotten it just now
                transactions.append(self.read(number))
        return transactions

    def read(self, number: int) -> Transaction:
        """One transaction as its lines tell it."""
        try:
            with open(self.path(number), "rb", opener=_open) as file:
                if problem := _not_ours(os.fstat(file.fileno()), stat.S_ISREG):
                    return Transaction(number=number, state="damaged", problem=problem)
                raw = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            raise _NotThere(f"there is no transaction {number}", "`sysperf changes` lists them") from None
        except OSError as error:
            return Transaction(number=number, state="damaged", problem=error.strerror or str(error))
        return replay(number, raw)

    def _forget(self) -> None:
        """Drop the oldest of those that are over. The last that somebody else has overwritten stays: it tells what is theirs."""
        transactions = self.transactions()
        theirs = {
            step.change.target: transaction.number for transaction in transactions for step in transaction.steps if step.state == "foreign"
        }
        kept = {*theirs.values()}
        over = [
            transaction.number
            for transaction in transactions
            if not transaction.live and transaction.state not in ("open", "damaged") and transaction.number not in kept
        ]
        for number in over[:-MAX_OVER]:
            with contextlib.suppress(OSError):
                os.unlink(self.path(number))


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def _not_ours(status: os.stat_result, is_right: Callable[[int], bool]) -> str:
    """Why a file or folder is not what sysperf made, or why root must not believe it; "" when nothing speaks against it."""
    if not is_right(status.st_mode):
        return "it is a link, or something else that sysperf did not make"
    if os.geteuid() == 0 and (status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        return "others than root can write it, so root does not believe it"
    return ""


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _lock(descriptor: int, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while not _locks(descriptor):
        if time.monotonic() > end:
            raise JournalError("another sysperf is changing settings right now", "wait for it, then try again")
        time.sleep(0.05)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
