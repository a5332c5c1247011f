"""Settings of the machine during one run: applied before it, held by a short lease that is renewed, taken back after it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from sysperf.engine import change
from sysperf.fix.transaction import undisturbed
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

    The lease takes them back when sysperf is killed. Ctrl-C and other signals end the run at its next tick, and interrupt nothing else: an
    exception wherever they come would leave the settings to the lease.
    """
    if not settings or changer is None:
        yield None
        return
    planned = planned_changes(changer, settings)
    with undisturbed() as waiting:
        done = changer.apply(planned, change.request("verify", lease_s=LEASE_S))
        if done.state != "applied":
            raise SysperfError("the settings were refused, and are as they were", "`sysperf changes` shows the reason")
        try:
            # the run would go on without the setting where the lease has ended: that raises SysperfError
            yield Meanwhile(RENEW_S, functools.partial(changer.renew, done.number, LEASE_S), functools.partial(_end, waiting))
        finally:
            changer.undo(done.number)


def _end(waiting: list[int]) -> None:
    """Raises KeyboardInterrupt where a signal asks for the end."""
    if waiting:
        raise KeyboardInterrupt
