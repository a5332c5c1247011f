"""A study that goes on: on the machine on which it began. Runs of before and after a change of it are no pairs."""

from __future__ import annotations

from collections.abc import Mapping

from sysperf.engine import gains, reading
from sysperf.host import Host
from sysperf.model.errors import UsageError
from sysperf.model.text import neutral


def machine() -> dict[str, str]:
    """Return the facts that decide whether runs can be compared: kernel, CPUs and driver, as they are now."""
    return gains.deciding_facts(reading.snapshot(Host(), gains.DECIDING))


def check(began: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise UsageError where the machine has changed since the study began; one of before 0.2.0 does not say how it was."""
    changed = [f"{name} was {value}, and is {now.get(name)}" for name, value in began.items() if now.get(name) != value]
    if changed:
        raise UsageError(
            f"the machine has changed since this study began: {neutral('; '.join(changed), 400)}",
            "run it without --resume: it starts anew",
        )
