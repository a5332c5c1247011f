"""The process that takes a transaction back when its lease ends, and that keeps open what only a process can hold.

It is a child of `sysperf apply` that stays when that has ended. Should it be killed, the lease is in the journal: the next
`sysperf apply`, `sysperf undo --expired`, the agent, or the next start of the machine ends it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time

from sysperf.fix import latency, process, recovery
from sysperf.fix.journal import Journal
from sysperf.fix.journal_log import JournalError
from sysperf.fix.lease import boot_s
from sysperf.host import Host
from sysperf.host.forked import close_all_but, leave_behind
from sysperf.model.change import Keeper, Transaction

_MAX_NAP_S = 60.0
_NAP_S = 0.5
"""Between looks at what cannot be ended just now."""


def start(host: Host, journal: Journal, number: int) -> Keeper:
    """Start the keeper of a transaction. Raises OSError."""
    ready, ours = os.pipe()
    leave_behind(lambda: _stay(host, journal, number, ours))
    os.close(ours)
    with open(ready, "rb", buffering=0) as pipe:
        pid = int(pipe.read(32) or b"0")
    if not pid:
        raise OSError(errno.EAGAIN, "the process that ends the lease could not be started")
    latency.release()  # the keeper has it now
    return Keeper(pid, process.start_time(Host(), pid))


def _stay(host: Host, journal: Journal, number: int, ready: int) -> None:
    """Let go of what the command had open, say who we are, wait."""
    for name in (signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir("/")
    close_all_but({*latency.held(), ready})
    os.write(ready, str(os.getpid()).encode())
    os.close(ready)
    _wait(host, journal, number)


def _wait(host: Host, journal: Journal, number: int) -> None:
    """Wait until the lease ends (it may be renewed meanwhile) or somebody else has taken it back."""
    while True:
        transaction = journal.read(number)
        if transaction.state != "open" and not transaction.live:
            return
        if recovery.is_over(transaction):
            with contextlib.suppress(JournalError):
                _end(host, journal, number)
        time.sleep(_nap_s(journal.read(number)))


def _end(host: Host, journal: Journal, number: int) -> None:
    """Take it back. Who applies it holds the lock; when nobody does and it is open, that one was killed."""
    with journal.locked(0.0):
        transaction = journal.read(number)
        if not recovery.is_over(transaction):
            return
        if not any(step.change.knob == "gpu.persistence" for step in transaction.steps):
            recovery.recover(host, journal)
            return
    _anew(journal)


def _anew(journal: Journal) -> None:
    """Start as a new program: NVML's connection to the driver does not survive a fork. Does not return."""
    environment = {
        **os.environ,
        "STATE_DIRECTORY": os.path.dirname(journal.folder),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    os.execve(sys.executable, [sys.executable, "-m", "sysperf", "undo", "--expired"], environment)  # noqa: S606 - no shell


def _nap_s(transaction: Transaction) -> float:
    if transaction.state != "open" and not transaction.live:
        return 0.0
    left = transaction.lease.until_s - boot_s() if transaction.lease and transaction.state != "open" else 0.0
    return min(left, _MAX_NAP_S) if left > 0 else _NAP_S
