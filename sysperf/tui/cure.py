"""A change and what it did since: the meters of its subject before, and as they move now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from sysperf.model.finding import Finding

WATCHED_S = 120.0
"""So long a cure is watched; then its result stands."""
OF_PROGRAM: tuple[str, ...] = ("main_wait", "data_wait", "main_run", "cpu", "gpu_utilization")
OF_GPU: tuple[str, ...] = ("utilization", "sm_clock_mhz", "celsius", "power_watts")
OF_MACHINE: tuple[str, ...] = ("pressure.cpu.some_avg10", "pressure.memory.some_avg10", "pressure.io.some_avg10", "cpu.busy", "disk.busy")
NAMES = {"main_wait": "waits for a CPU", "data_wait": "waits for data at most", "main_run": "runs", "cpu": "CPUs",
         "gpu_utilization": "GPU busy", "utilization": "GPU busy", "sm_clock_mhz": "MHz", "celsius": "°C", "power_watts": "W"}  # fmt: skip


class Moved(NamedTuple):
    """One meter: before, since, and what it is called."""

    name: str
    before: float
    since: list[float]

    @property
    def label(self) -> str:
        """Name it for people."""
        last = self.name.rpartition(".")[2]
        return NAMES.get(last) or self.name.replace(".some_avg10", "").replace(".", " ")

    def text(self, value: float) -> str:
        """A value of it."""
        if self.name.endswith((".cpu", "_mhz", "celsius", "watts")):
            return f"{value:.1f}" if self.name.endswith(".cpu") else f"{value:.0f}"
        return f"{value * 100:.0f} %"

    @property
    def change(self) -> float:
        """How far it went, of what it was."""
        return abs(self.now - self.before) / max(abs(self.before), 0.05)

    @property
    def now(self) -> float:
        """The mean of the latest samples: one alone says little."""
        latest = self.since[-10:]
        return sum(latest) / len(latest) if latest else self.before

    def line(self) -> str:
        """``waits for a CPU 94 % → 43 %``."""
        return f"{self.label} {self.text(self.before)} → {self.text(self.now)}"


class Cure:
    """What a transaction does to the meters of the subject of its finding."""

    def __init__(self, number: int, finding: Finding, meters: Mapping[str, float]) -> None:
        self.number, self.title = number, finding.title
        self.began = time.monotonic()
        self.at = 0.0
        about = finding.subject
        prefix, names = "", OF_MACHINE
        if about.kind == "process":
            prefix, names = f"process.{about.pid}.", OF_PROGRAM
        elif about.kind == "gpu":
            prefix, names = f"gpu.{about.index}.", OF_GPU
        self.moved = [Moved(prefix + name, meters[prefix + name], []) for name in names if prefix + name in meters]

    @property
    def age_s(self) -> float:
        """Seconds since the change, up to the end of the watch."""
        return min(WATCHED_S, time.monotonic() - self.began)

    def take(self, meters: Mapping[str, float]) -> None:
        """One more sample, while it is watched."""
        if time.monotonic() - self.began <= WATCHED_S:
            for moved in self.moved:
                if moved.name in meters:
                    moved.since.append(meters[moved.name])

    def summary(self) -> str:
        """The meters that moved most, in a line: nearness in time, which proves nothing by itself."""
        known = sorted((moved for moved in self.moved if moved.since), key=lambda moved: -moved.change)
        return ", ".join(moved.line() for moved in known[:2])
