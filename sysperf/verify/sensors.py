"""What the CPUs met during a run: waiting, heat and clocks, as far as this machine shows them.

Reads   /proc/pressure/{cpu,memory,io}  /sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_total_time_ms
        /sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq  /sys/class/hwmon/hwmon*/{name,temp1_input}
Kernel  https://docs.kernel.org/accounting/psi.html  https://docs.kernel.org/hwmon/coretemp.html
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

from sysperf.host import Host
from sysperf.procfs import psi

RESOURCES = ("cpu", "memory", "io")
CPUS = "/sys/devices/system/cpu"
HWMON = "/sys/class/hwmon"
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Drivers whose first temperature is that of a package or of the whole chip."""
MAX_CLOCKS = 16
"""CPUs whose clock is read: the kernel may have to ask each one."""
MAX_THROTTLE_COUNTERS = 1_024


class Counters(NamedTuple):
    """Time since boot at one moment; None where the machine does not say."""

    at_s: float
    waiting_us: tuple[int | None, ...]
    """In which some task waited, by resource."""
    slowed_ms: Mapping[str, int]
    """In which heat slowed the package of each counter; none where the machine does not say."""


class Shares(NamedTuple):
    """Shares of a run; None: unknown."""

    waiting: tuple[float | None, ...] = (None, None, None)
    slowed: float | None = None


class Sensors(NamedTuple):
    """Files that are read while a run lasts."""

    clocks: tuple[str, ...] = ()
    temperatures: tuple[str, ...] = ()


def read(host: Host) -> Counters:
    """Return the counters of this moment."""
    stalls = (psi.parse(host.text(f"/proc/pressure/{resource}")).some for resource in RESOURCES)
    counters = host.glob(f"{CPUS}/cpu[0-9]*/thermal_throttle/package_throttle_total_time_ms")[:MAX_THROTTLE_COUNTERS]
    slowed = {path: number for path in counters if (number := host.number(path)) is not None}
    return Counters(time.monotonic(), tuple(stall.total_us if stall else None for stall in stalls), slowed)


def between(before: Counters, after: Counters) -> Shares:
    """Return what share of the time between two moments was spent waiting, and slowed by heat: of the package slowed most meanwhile."""
    elapsed_s = after.at_s - before.at_s
    if elapsed_s <= 0:
        return Shares()
    waiting = tuple(_share(*both, elapsed_s * 1e6) for both in zip(before.waiting_us, after.waiting_us, strict=True))
    slowed = (_share(earlier, after.slowed_ms.get(path), elapsed_s * 1e3) for path, earlier in before.slowed_ms.items())
    return Shares(waiting, max((share for share in slowed if share is not None), default=None))


def find(host: Host) -> Sensors:
    """Return the clocks of CPUs that we may run on, evenly chosen, and the temperatures of packages."""
    own = sorted(os.sched_getaffinity(0))
    chosen = own[:: max(1, -(-len(own) // MAX_CLOCKS))]
    clocks = (f"{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in chosen)
    folders = [f"{HWMON}/{name}" for name in host.names(HWMON) or ()]
    packages = (folder for folder in folders if (host.text(f"{folder}/name") or "").strip() in SENSORS)
    temperatures = (f"{folder}/temp1_input" for folder in packages)
    return Sensors(tuple(filter(host.exists, clocks)), tuple(filter(host.exists, temperatures)))


def mhz(host: Host, sensors: Sensors) -> float | None:
    """Return the mean clock of the chosen CPUs now."""
    khz = _numbers(host, sensors.clocks)
    return fmean(khz) / 1e3 if khz else None


def celsius(host: Host, sensors: Sensors) -> float | None:
    """Return the temperature of the hottest package now."""
    millidegrees = _numbers(host, sensors.temperatures)
    return max(millidegrees) / 1e3 if millidegrees else None


def unknown(counters: Counters, sensors: Sensors) -> list[str]:
    """Say what of the CPUs cannot be watched here."""
    missing = [resource for resource, waited in zip(RESOURCES, counters.waiting_us, strict=True) if waited is None]
    problems = [f"waiting for {', '.join(missing)} (the kernel gives no PSI)"] if missing else []
    absent = (("clocks", sensors.clocks), ("temperature", sensors.temperatures), ("throttling by heat", counters.slowed_ms))
    if names := [name for name, there in absent if not there]:
        problems.append(f"{', '.join(names)} of the CPUs (the kernel shows none)")
    return problems


def _numbers(host: Host, paths: Iterable[str]) -> list[int]:
    return [number for path in paths if (number := host.number(path)) is not None]


def _share(before: int | None, after: int | None, elapsed: float) -> float | None:
    return None if before is None or after is None or after < before else min(1.0, (after - before) / elapsed)
