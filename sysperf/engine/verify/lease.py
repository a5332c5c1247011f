"""Settings of the machine during one run: applied before it, held by a short lease that is renewed, taken back after it."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Iterator

from sysperf.engine import change
from sysperf.fix.transaction import ENDINGS
from sysperf.model.change import Plan, Setting
from sysperf.model.errors import SysperfError
from sysperf.model.text import neutral
from sysperf.verify.run import Meanwhile

LEASE_S, RENEW_S = 60.0, 20.0
"""A setting of the machine outlives sysperf by so long at most; its lease is renewed so often while the run lasts."""


def planned_changes(changer: change.Changer, settings: tuple[Setting, ...]) -> Plan:
    """Return what would be changed during the runs of B. Raises SysperfError where that is nothing."""
    planned = changer.plan(settings)
    if not planned.changes:
        reasons = "; ".join(f"{skipped.setting.knob}: {skipped.reason}" for skipped in planned.skipped)
        raise SysperfError(f"there is nothing to try: {neutral(reasons, 600)}", "`sysperf plan` shows what would be changed")
    return planned


@contextlib.contextmanager
def applied(settings: tuple[Setting, ...], changer: change.Changer | None) -> Iterator[Meanwhile | None]:
    """Have these settings during a run, and give what renews their lease meanwhile. Raises SysperfError.

    The lease takes them back when sysperf is killed. Ctrl-C and other signals end the run, and wait where settings are being applied,
    renewed or taken back, or they would leave them to the lease.
    """
    if not settings or changer is None:
        yield None
        return
    planned = planned_changes(changer, settings)
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        done = changer.apply(planned, change.request("verify", lease_s=LEASE_S))
        if done.state != "applied":
            raise SysperfError("the settings were refused, and are as they were", "`sysperf changes` shows the reason")
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, usual)
            yield Meanwhile(RENEW_S, functools.partial(_renew, changer, done.number))
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
            changer.undo(done.number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)


def _renew(changer: change.Changer, number: int) -> None:
    """Raises SysperfError where the lease has ended: the run would go on without the setting."""
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        changer.renew(number, LEASE_S)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
