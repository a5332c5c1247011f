"""How long a transaction holds, measured so that neither a set clock nor sleep nor a restart extends it."""

from __future__ import annotations

import time

from sysperf.model.change import Lease


def boot_id() -> str:
    """Which start of the machine this is."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def boot_s() -> float:
    """Seconds since the machine started, sleep included; nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_of(seconds: float) -> Lease:
    """A lease that ends in so many seconds."""
    return Lease(boot_id(), boot_s() + seconds)


def expired(lease: Lease) -> bool:
    """Whether a lease has ended; a restart of the machine ends all."""
    return lease.boot != boot_id() or boot_s() >= lease.until_s


def left_s(lease: Lease) -> float:
    """Seconds until it ends; 0 when it has."""
    return 0.0 if expired(lease) else max(0.0, lease.until_s - boot_s())
