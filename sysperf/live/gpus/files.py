"""Meters of a GPU that its driver keeps in files, through descriptors that stay open.

Reads   /sys/class/drm/card*/device/power/runtime_status
Kernel  https://docs.kernel.org/power/runtime_pm.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sysperf.collect.gpu.drm import sensors
from sysperf.collect.readers.gpu_sleep import ASLEEP
from sysperf.host import Host
from sysperf.live.gpus.meters import METRICS, Reasons, Values, put, series
from sysperf.live.open_file import OpenFile
from sysperf.procfs.numbers import whole

NAMES = tuple(metric.name for metric in METRICS)
NOT_OFFERED = "its driver has no such file"
NO_NUMBER = "the file holds no such number"
PERCENT, MOST_PERCENT = 0.01, 100
"""A counter of percent that firmware did not fill says 65535."""


class Place(NamedTuple):
    """Files in which the driver keeps a meter: the first of these files that is there, and what one of its units is."""

    paths: tuple[str, ...]
    unit: float = 1.0


class FileGpu:
    """One GPU. What its driver does not offer is unknown with the reason, and what sleeps is not woken."""

    def __init__(self, host: Host, folder: str, index: int, clock: Callable[[], float], root: str) -> None:
        self.index = index
        self.clock = clock
        self._root = root
        self.folder = folder
        self.sensors = sensors(host, folder)
        self._status = self.open(f"{folder}/power/runtime_status")
        self._sleeps = False
        self._files: dict[str, tuple[OpenFile, float]] = {}
        self.reasons: dict[str, str] = {}
        """Why meters are unknown, by their names."""

    def open(self, path: str) -> OpenFile:
        return OpenFile(self._root + path, self.clock)

    def keep(self, host: Host, places: dict[str, Place]) -> None:
        """Read these files from now on; nothing else of what a GPU may have is known."""
        for name in NAMES:
            path = next((path for path in places[name].paths if host.exists(path)), None) if name in places else None
            if path is not None:
                self._files[name] = self.open(path), places[name].unit
            else:
                self.reasons[name] = NOT_OFFERED

    def sample(self, out: Values) -> bool:
        """Add what its files say; False while it sleeps: to read most files would wake it, and take seconds."""
        self._sleeps = (self._status.read() or b"").strip() == b"suspended"
        for name, (file, unit) in ({} if self._sleeps else self._files).items():
            number = _number(file.read())
            if number is None or (unit == PERCENT and number > MOST_PERCENT):
                self.reasons[name] = file.problem or NO_NUMBER
            else:
                self.reasons.pop(name, None)
                put(out, self.index, name, number * unit)
        return not self._sleeps

    def unknown(self) -> Reasons:
        reasons = dict.fromkeys(NAMES, ASLEEP) if self._sleeps else self.reasons
        return {series(self.index, name): reason for name, reason in reasons.items()}


def _number(data: bytes | None) -> int | None:
    return whole(data.strip()) if data is not None else None
